"""What a patch writes whose text stands in the command: in a here-document, or as what is printed into the program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tools.permissions.shell.knowledge.git import folder_of, subcommand
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal, unknown

MAX_HEADERS = 1_024
MAX_DEPTH = 16
"""Names in one patch, and folders in one name, that are looked at; of more it is not known what is written."""

_HEADER = re.compile(
    r"(?:\+\+\+|---|\*\*\*|(?:rename|copy) (?:from|to)|Index:|diff --git)[ \t]+"
    r"((?:\"(?:\\.|[^\"\\])*\"|[^\n\t\\]|\\[^nt])+)"
)
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ESCAPED_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def names_in_patch(name: str, arguments: Sequence[Word], text: str) -> Iterator[Word]:
    """The files that a text of a patch says it is about. How many folders are stripped off is an option.

    Args:
        name: The family of the program that is given it.
        arguments: The words behind it.
        text: All that is known to be read by the same shell.
    """
    found = subcommand(arguments) if name == "git" else None
    if name != "patch" and (found is None or found[0] not in ("apply", "am")):
        return
    top = folder_of(arguments) if name == "git" else ""
    options = parse(found[1] if found else arguments, ("d", "directory", "p", "C")).options
    given = [value.path for option, value in options if option in ("-d", "--directory") and value is not None]
    folders = [top if each is None else posixpath.join(top or "", each) for each in (None, *given)]
    headers = list(islice(_HEADER.finditer(text), MAX_HEADERS + 1))
    if len(headers) > MAX_HEADERS:
        yield unknown("$_")
    for path in dict.fromkeys(path for header in headers for path in _names_in(header[1])):
        if "$" in path or "`" in path:
            yield unknown(path)
            continue
        parts = path.split("/")
        suffixes = ["/".join(parts[at:]) for at in range(min(len(parts), MAX_DEPTH))]
        yield from (literal(posixpath.join(folder or "", each)) for each in suffixes if each for folder in folders)


def _names_in(header: str) -> Iterator[str]:
    """What a line may name: all of it, up to a time behind it, or two names."""
    for piece in (header.strip(), *header.split()):
        quoted = re.fullmatch(r"\\?\"(.*?)\\?\"|'?(.*?)['\"]*", piece, re.DOTALL)
        if quoted and quoted[1] is not None:
            yield _ESCAPE.sub(_unescaped, quoted[1])
        elif quoted and quoted[2]:
            yield quoted[2]


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else _ESCAPED_LETTERS.get(escape[2], escape[2])
