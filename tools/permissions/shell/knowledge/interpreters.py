"""Interpreters: they run any text, from a file, from their arguments or from their input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tools.permissions.shell.syntax.words import Word, literal, names

GIVEN_TEXT = "it runs the text of a program that is given to it"

_INTERPRETERS = re.compile(
    r"(?:python|pypy|node|ruby|jruby|perl|php|lua|luajit|julia|Rscript|R|groovy|scala|tclsh|wish|deno|bun|osascript"
    r"|guile|sbcl|ghc|runghc|elixir|erl|swift|raku|clojure|racket|ocaml|octave|irb)[0-9.]*t?w?(?:\.exe)?",
    re.IGNORECASE,
)
"""Their names, with a version, and with the letter of a variant (`pythonw`, `python3.13t`); macOS takes any case."""

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?w?(?:\.exe)?", re.IGNORECASE)
_PYTHON_TEXT = re.compile(r"-[bBdEhiIOPqRsSuvx]*c.*|-", re.DOTALL)
_OTHER_TEXT = re.compile(
    r"-[A-Za-z0-9]*[eEprR].*|--(?:ev|pr|exec|ru|comm|code|requ|imp|loader).*|-[BFM]?|eval|repl", re.DOTALL
)
_MODULE = re.compile(r"-[bBdEhiIOPqRsSuvx]*m(.*)", re.DOTALL)
_VALUED = names("-W -X -I -C -S")
_HARMLESS_USES = names("--version -V --help -h -v")
_GIVEN_MODULES = names("timeit pdb bdb code codeop asyncio idlelib IPython ptpython bpython xonsh runpy")
"""Modules of Python that run a text from their arguments or their input."""
_FOLDER_MODULES = names("tarfile zipfile zipapp http.server ftpserver pyftpdlib compileall")
"""Modules of Python that read, or hand out, all that is in a folder."""


def is_interpreter(name: str) -> bool:
    """Whether a program is an interpreter, by its name without a folder."""
    return _INTERPRETERS.fullmatch(name) is not None


def is_python(name: str) -> bool:
    """Whether a program is Python, by its name without a folder."""
    return _PYTHON.fullmatch(name) is not None


def module_run(arguments: Sequence[Word]) -> tuple[str, int] | None:
    """The module that Python is told to run, and from which of its words on these are for the module."""
    return next(_modules_run(arguments), None)


def doubts_of_interpreter(name: str, arguments: Sequence[Word]) -> list[str]:
    """Why it is not known what an interpreter runs.

    Options in front of a program's file may be a program themselves, and without a file it comes from the input.
    """
    given = _PYTHON_TEXT if is_python(name) else _OTHER_TEXT
    modules = _modules(name, arguments)
    is_value = False
    for word in arguments:
        if word.text in _HARMLESS_USES or (_MODULE.match(word.text) and modules and not modules & _GIVEN_MODULES):
            return []
        if _MODULE.match(word.text) and modules:
            break
        if not is_value and _is_program_file(word):
            return []
        if not is_value and (not word.is_literal or given.fullmatch(word.text)):
            break
        is_value = not is_value and word.text in _VALUED
    return [GIVEN_TEXT]


def reads_folders(name: str, arguments: Sequence[Word]) -> bool:
    """Whether an interpreter is told to read folders of which its words do not tell what is in them."""
    return bool(_modules(name, arguments) & _FOLDER_MODULES)


def _modules(name: str, arguments: Sequence[Word]) -> frozenset[str]:
    """The modules that Python may be told to run; none for other interpreters."""
    return frozenset(module for module, _ in _modules_run(arguments)) if is_python(name) else frozenset()


def _modules_run(arguments: Sequence[Word]) -> Iterator[tuple[str, int]]:
    for at, (word, after) in enumerate(pairwise((*arguments, literal(""))), start=1):
        if (option := _MODULE.fullmatch(word.text)) is not None:
            yield option[1] or after.text, at if option[1] else at + 1


def _is_program_file(word: Word) -> bool:
    return not word.may_be_option and word.text not in ("eval", "repl")
