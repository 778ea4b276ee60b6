"""Programs that run what their words do not tell: interpreters, builtins that evaluate, whatever runs at another time.

What of these runs a command in its own words is a wrapper, and its doubt stands there. What single options run is told
by `running_options`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tools.permissions.shell.knowledge.option_tables import option_table_of
from tools.permissions.shell.knowledge.running_options import MODULE_OPTION, is_python, modules_run
from tools.permissions.shell.knowledge.scripts import awk_program, only_prints_awk, only_prints_sed, sed_scripts
from tools.permissions.shell.knowledge.wrappers import FROM_FILE, INTERACTIVE, LATER
from tools.permissions.shell.syntax.words import Word, literal, names

EVALUATED = "it evaluates what its arguments hold"
GIVEN_TEXT = "it runs the text of a program that is given to it"

_ALWAYS: dict[str, str] = {
    **dict.fromkeys(names("source ."), FROM_FILE),
    **dict.fromkeys(names("alias unalias enable hash"), "it gives a name another meaning"),
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
    """Why a program may run what its words do not tell."""
    doubts: list[str] = []
    runs = any(word.text[:2] in _RUNNING_OPTIONS.get(name, ()) for word in arguments)
    if runs or name == "let" or any(_may_run(name, word) for word in _evaluated(name, arguments)):
        doubts.append(EVALUATED)
    if name in _ALWAYS:
        doubts.append(_ALWAYS[name])
    if name in ("sed", "awk"):
        is_sed = name == "sed"
        if not (only_prints_sed(sed_scripts(arguments)) if is_sed else only_prints_awk(awk_program(arguments))):
            doubts.append("the program in its arguments may read, write or run something else")
    elif option_table_of(name) in ("gcc", "as", "rustc", "nasm", "yasm") and any(
        word.text == "-" for word in arguments
    ):
        # A text from a compiler's input may include any file.
        doubts.append(GIVEN_TEXT)
    elif is_interpreter(name) and _runs_given_text(name, arguments):
        doubts.append(GIVEN_TEXT)
    return doubts


# Interpreters: they run any text, from a file, from their arguments or from their input

_INTERPRETERS = re.compile(
    r"(?:python|pypy|node|ruby|jruby|perl|php|lua|luajit|julia|Rscript|R|groovy|scala|tclsh|wish|deno|bun|osascript"
    r"|guile|sbcl|ghc|runghc|elixir|erl|swift|raku|clojure|racket|ocaml|octave|irb)[0-9.]*t?w?(?:\.exe)?",
    re.IGNORECASE,
)
"""Their names, with a version, and with the letter of a variant (`pythonw`, `python3.13t`); macOS takes any case."""

_PYTHON_TEXT = re.compile(r"-[bBdEhiIOPqRsSuvx]*c.*|-", re.DOTALL)
_OTHER_TEXT = re.compile(
    r"-[A-Za-z0-9]*[eEprR].*|--(?:ev|pr|exec|ru|comm|code|requ|imp|loader).*|-[BFM]?|eval|repl", re.DOTALL
)
_GIVEN_MODULES = names("timeit pdb bdb code codeop asyncio idlelib IPython ptpython bpython xonsh runpy")
"""Modules of Python that run a text from their arguments or their input."""

_FOLDER_MODULES = names("tarfile zipfile zipapp http.server ftpserver pyftpdlib compileall")
"""Modules of Python that read, or hand out, all that is in a folder."""


def is_interpreter(name: str) -> bool:
    """Whether a program is an interpreter, by its name without a folder."""
    return _INTERPRETERS.fullmatch(name) is not None


def reads_folders(name: str, arguments: Sequence[Word]) -> bool:
    """Whether an interpreter is told to read folders of which its words do not tell what is in them."""
    return is_python(name) and any(module in _FOLDER_MODULES for module, _ in modules_run(arguments))


def _runs_given_text(name: str, arguments: Sequence[Word]) -> bool:
    """Whether options in front of a program's file may be a program themselves, or it comes from the input."""
    given = _PYTHON_TEXT if is_python(name) else _OTHER_TEXT
    modules = {module for module, _ in modules_run(arguments)} if is_python(name) else set[str]()
    is_value = False
    for word in arguments:
        if word.text in ("--version", "-V", "--help", "-h", "-v"):
            return False
        if modules and MODULE_OPTION.match(word.text):
            return not modules.isdisjoint(_GIVEN_MODULES)
        if not is_value and not word.may_be_option and word.text not in ("eval", "repl"):
            return False
        if not is_value and (not word.is_literal or given.fullmatch(word.text)):
            return True
        is_value = not is_value and word.text in ("-W", "-X", "-I", "-C", "-S")
    return True


# Builtins that evaluate the names and sums, or run the texts, that they are given

DECLARING = names("declare typeset local export readonly")
_NAMING = names("let read unset mapfile readarray [[")  # builtins of which every argument may be a name or a sum

_RUNNING_OPTIONS = {
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

_SUBSCRIPT = re.compile(r"\[(?!\d*\]|@\]|\*\])")


def evaluated_texts(name: str, arguments: Sequence[Word]) -> list[str]:
    """The arguments of a builtin in which substitutions run although they are quoted."""
    evaluated = (word.text for word in _evaluated(name, arguments) if word.is_literal)
    return [text for text in evaluated if re.search("[$`]", text) and _SUBSCRIPT.search(text)]


def texts_run(name: str, arguments: Sequence[Word]) -> list[str]:
    """The commands that a builtin is told to run later, or for each line."""
    running = _RUNNING_OPTIONS.get(name, frozenset())
    values = [after.text for word, after in pairwise(arguments) if word.text in running]
    return values + [word.text[2:] for word in arguments if word.text[:2] in running and len(word.text) > len("-x")]


def variables_set(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The variables that a builtin sets which declares none: those that its words name."""
    if name in ("read", "mapfile", "readarray"):
        yield from (word for word in arguments if not word.text.startswith("-"))
    elif name in ("printf", "wait", "getopts"):
        yield from _evaluated(name, arguments)


def _may_run(name: str, word: Word) -> bool:
    """Whether a name or a sum may run something; what `[[` compares is mostly neither, so that takes a substitution."""
    if word.is_literal:
        return _SUBSCRIPT.search(word.text) is not None and (name != "[[" or re.search("[$`]", word.text) is not None)
    return name != "[[" and not (name in DECLARING and re.match(r"[A-Za-z_]\w*\+?=", word.source, re.ASCII))


def _evaluated(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The arguments that are names or sums."""
    if name in _NAMING or (name in ("test", "[") and any(word.text in ("-v", "-R") for word in arguments)):
        yield from arguments
    elif name in ("printf", "wait"):
        option = "-v" if name == "printf" else "-p"
        yield from (after for word, after in pairwise(arguments) if word.text == option)
        yield from (literal(word.text[2:]) for word in arguments if word.text[:2] == option and word.text != option)
    elif name == "getopts":
        yield from arguments[1:2]
    elif name in DECLARING:
        evaluates_values = any(re.match(r"-[A-Za-z]*[in]", word.text) for word in arguments)
        for word in arguments:
            head, equals, _value = word.text.partition("=")
            yield literal(head) if equals and not evaluates_values else word
