"""Programs that run what their words do not tell: interpreters, interactive programs, whatever runs at another time.

What of these runs a command in its own words is a wrapper, and its doubt stands there. What single options run
is told by `running_options`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.permissions.shell.knowledge.evaluation import doubts_of_builtin
from tools.permissions.shell.knowledge.interpreters import GIVEN_TEXT, doubts_of_interpreter, is_interpreter
from tools.permissions.shell.knowledge.running_options import option_table_of
from tools.permissions.shell.knowledge.sed_awk_jq import awk_program, only_prints_awk, only_prints_sed, sed_scripts
from tools.permissions.shell.knowledge.wrappers import FROM_FILE, INTERACTIVE, LATER
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.words import Word

_COMPILERS = names("gcc as rustc nasm yasm")
"""By the names of their option tables. A text from their input may include any file."""

_RENAMES = "it gives a name another meaning"
_OWN_PROGRAM = "the program in its arguments may read, write or run something else"

_ALWAYS: dict[str, str] = {
    **dict.fromkeys(names("source ."), FROM_FILE),
    **dict.fromkeys(names("alias unalias enable hash"), _RENAMES),
    **dict.fromkeys(
        names(
            "less more most man info vi vim nvim view vimdiff ex ed emacs nano pico mc zellij mutt"
            " lynx w3m links elinks ftp sftp telnet zless bzless xzless zmore pinfo ranger nnn fzf"
            " psql mysql sqlite3 bc"
        ),
        INTERACTIVE,
    ),
    **dict.fromkeys(names("crontab atq anacron"), LATER),
    "shopt": "it changes how commands are read",
}


def doubts_of_program(name: str, arguments: Sequence[Word]) -> list[str]:
    """Why a program may run what its words do not tell.

    Args:
        name: Its family, without any folder.
        arguments: The words behind it.
    """
    doubts = doubts_of_builtin(name, arguments)
    if name in _ALWAYS:
        doubts.append(_ALWAYS[name])
    if (judge := _JUDGES.get(name)) is not None:
        doubts += judge(arguments)
    elif option_table_of(name) in _COMPILERS and any(word.text == "-" for word in arguments):
        doubts.append(GIVEN_TEXT)
    elif is_interpreter(name):
        doubts += doubts_of_interpreter(name, arguments)
    return doubts


def _doubts_of_sed(arguments: Sequence[Word]) -> list[str]:
    scripts = sed_scripts(arguments)
    is_plain = scripts is not None and all(word.is_literal and only_prints_sed(word.text) for word in scripts)
    return [] if is_plain else [_OWN_PROGRAM]


def _doubts_of_awk(arguments: Sequence[Word]) -> list[str]:
    program = awk_program(arguments)
    is_plain = program is not None and program.is_literal and only_prints_awk(program.text)
    return [] if is_plain else [_OWN_PROGRAM]


_JUDGES: dict[str, Callable[[Sequence[Word]], list[str]]] = {
    "sed": _doubts_of_sed,
    "awk": _doubts_of_awk,
}
