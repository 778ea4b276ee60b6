"""Interpreters: they run any text, from a file, from their arguments or from their input."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.words import Word

GIVEN_TEXT = "it runs the text of a program that is given to it"

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
_VALUED = names("-W -X -I -C -S")
_HARMLESS_USES = names("-m --version -V --help -h -v")


def is_interpreter(name: str) -> bool:
    """Whether a program is an interpreter, by its name without a folder."""
    return _INTERPRETERS.fullmatch(name) is not None


def doubts_of_interpreter(name: str, arguments: Sequence[Word]) -> list[str]:
    """Why it is not known what an interpreter runs.

    Options in front of a program's file may be a program themselves, and without a file it comes from the input.
    """
    given = _PYTHON_TEXT if name.startswith(("python", "pypy")) else _OTHER_TEXT
    is_value = False
    for word in arguments:
        if word.text in _HARMLESS_USES or (not is_value and _is_program_file(word)):
            return []
        if not is_value and (not word.is_literal or given.fullmatch(word.text)):
            break
        is_value = not is_value and word.text in _VALUED
    return [GIVEN_TEXT]


def _is_program_file(word: Word) -> bool:
    return not word.may_be_option and word.text not in ("eval", "repl")
