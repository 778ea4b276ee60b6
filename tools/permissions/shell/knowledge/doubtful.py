"""Programs that run what their words do not tell: interpreters, interactive programs, whatever runs at another time.

What of these runs a command in its own words is a wrapper, and its doubt stands there. What single options run
is told by `running_options`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tools.permissions.shell.knowledge.interpreters import GIVEN_TEXT, doubts_of_interpreter, is_interpreter
from tools.permissions.shell.knowledge.options import option_table_of
from tools.permissions.shell.knowledge.scripts import awk_program, only_prints_awk, only_prints_sed, sed_scripts
from tools.permissions.shell.knowledge.wrappers import FROM_FILE, INTERACTIVE, LATER
from tools.permissions.shell.syntax.words import Word, literal, names

EVALUATED = "it evaluates what its arguments hold"

DECLARING = names("declare typeset local export readonly")
_NAMING = names("let read unset mapfile readarray [[")
"""Builtins of which every argument may be a name or a sum."""

_RUNNING = {
    "mapfile": names("-C"),
    "readarray": names("-C"),
    "compgen": names("-C -F -W"),
    "complete": names("-C -F -W"),
    "bind": names("-x -f"),
    "fc": names("-s -e"),
    "enable": names("-f"),
    "hash": names("-p"),
}
"""Options with which a builtin runs a text or a program, or takes them from a file, now or at another time."""

_NAMED = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_SUBSCRIPT = re.compile(r"\[(?!\d*\]|@\]|\*\])")


def evaluated_texts(name: str, arguments: Sequence[Word]) -> list[str]:
    """The arguments of a builtin in which substitutions run although they are quoted."""
    evaluated = (word for word in _evaluated(name, arguments) if word.is_literal)
    return [word.text for word in evaluated if _is_expanded(word) and _SUBSCRIPT.search(word.text)]


def texts_run(name: str, arguments: Sequence[Word]) -> list[str]:
    """The commands that a builtin is told to run later, or for each line."""
    running = _RUNNING.get(name)
    if running is None:
        return []
    values = [after.text for word, after in pairwise(arguments) if word.text in running]
    return values + [word.text[2:] for word in arguments if word.text[:2] in running and len(word.text) > len("-x")]


def doubts_of_builtin(name: str, arguments: Sequence[Word]) -> list[str]:
    """Why it is not known what a builtin runs."""
    runs = any(word.text[:2] in _RUNNING.get(name, ()) for word in arguments)
    evaluates = any(_may_run(name, word) for word in _evaluated(name, arguments))
    return [EVALUATED] if runs or evaluates or name == "let" else []


def _may_run(name: str, word: Word) -> bool:
    """Whether a name or a sum may run something; what `[[` compares is mostly neither, so that takes a substitution."""
    if word.is_literal:
        return _SUBSCRIPT.search(word.text) is not None and (name != "[[" or _is_expanded(word))
    return name != "[[" and not (name in DECLARING and _NAMED.match(word.source))


def _is_expanded(word: Word) -> bool:
    return any(mark in word.text for mark in "$`")


def _evaluated(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The arguments that are names or sums."""
    if name in _NAMING or (name in ("test", "[") and any(word.text in ("-v", "-R") for word in arguments)):
        yield from arguments
    elif name in ("printf", "wait"):
        yield from _values_of("-v" if name == "printf" else "-p", arguments)
    elif name == "getopts":
        yield from arguments[1:2]
    elif name in DECLARING:
        evaluates_values = any(re.match(r"-[A-Za-z]*[in]", word.text) for word in arguments)
        for word in arguments:
            head, equals, _value = word.text.partition("=")
            yield literal(head) if equals and not evaluates_values else word


def named_by(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The variables that a builtin sets which declares none: those that its words name."""
    if name in ("read", "mapfile", "readarray"):
        yield from (word for word in arguments if not word.text.startswith("-"))
    elif name in ("printf", "wait", "getopts"):
        yield from _evaluated(name, arguments)


def _values_of(option: str, arguments: Sequence[Word]) -> Iterator[Word]:
    for word, after in pairwise(arguments):
        if word.text == option:
            yield after
    yield from (
        literal(word.text[2:]) for word in arguments if word.text[:2] == option and len(word.text) > len(option)
    )


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
    if name in ("sed", "awk"):
        is_plain = only_prints_sed(sed_scripts(arguments)) if name == "sed" else only_prints_awk(awk_program(arguments))
        doubts += () if is_plain else [_OWN_PROGRAM]
    elif option_table_of(name) in _COMPILERS and any(word.text == "-" for word in arguments):
        doubts.append(GIVEN_TEXT)
    elif is_interpreter(name):
        doubts += doubts_of_interpreter(name, arguments)
    return doubts
