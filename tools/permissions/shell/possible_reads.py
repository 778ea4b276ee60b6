"""What a command may touch beyond what the tables know of it.

No table knows all options of all programs. So each word of a command that only reads, or that no table knows, counts as
a file that it may read or write, and so do the parts of a word: what is attached to an option, what stands behind `=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tools.contract.subjects import Access
from tools.permissions.auto_run_files import why_protected
from tools.permissions.shell.analysis import Effect, SubCommand
from tools.permissions.shell.knowledge.variables import value_of
from tools.permissions.shell.syntax.folders import UNKNOWN, Folders
from tools.permissions.shell.syntax.name_lists import NUMBER, names
from tools.permissions.shell.syntax.words import CONTENTS, FOUND, Word, read_word

WITHOUT_FILES = names(": [ [[ basename dirname echo expr false history mktemp printf pwd read seq sleep test true")
"""Commands whose words are no files that they show."""

LISTING = names("cd du find ls pushd pwd readlink realpath stat test tree [")
"""Commands that see the names of files in a folder, not what is in them."""

MAX_PATH_CHARS = 4_096
"""Linux opens no longer path."""

MAX_PIECES = 64
MAX_LETTERS = 16
"""Parts of a word that are looked at, and letters of options that a value may be attached to."""

MAX_NAMES = 4_096
"""Names in the text of a program that are looked at."""

_URL = re.compile(r"[a-z0-9+.-]{1,32}://", re.IGNORECASE | re.ASCII)
_URL_HOST = re.compile(r"(?:[^/?#@\s]*@)?(\[[0-9a-f:.]+\]|[^/?#:\s'\"]*)", re.IGNORECASE | re.ASCII)
_PLAIN_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", re.IGNORECASE | re.ASCII)
_BETWEEN = re.compile(r"[=:,;@<>]+")
_MARKS = re.compile(r"\$(?:\w+|\{[^}]*\})|['\"\\]", re.ASCII)
_BETWEEN_NAMES = re.compile(r"(?:\\[nrt0]?|[=:,;@<>'\"`()\[\]{}|&\s])+")


def lists_names(command: SubCommand) -> bool:
    """Whether a command sees names only, of files that its words tell."""
    return bool(command.words) and command.words[0] in LISTING and not command.follows_links


def may_read_unnamed(command: SubCommand) -> bool:
    """Whether a command that only reads may read files that its words do not tell."""
    if not command.is_read_only or (bool(command.words) and command.words[0] in WITHOUT_FILES):
        return False
    if command.follows_links:
        return True
    return not command.is_literal and (not lists_names(command) or FOUND in command.words)


def possible_effects(
    words: Sequence[Word], assignments: Sequence[Word], accesses: Sequence[Access], folders: Folders
) -> Iterator[Effect]:
    """What the words of a command, and the variables that it is given, may name.

    Args:
        words: Its arguments.
        assignments: Such as `X=y` before it.
        accesses: What its words may be touched for. The value of a variable counts in any case.
        folders: Where it may run.
    """
    values = [literal for word in assignments if (literal := value_of(word)) is not None]
    for access in dict.fromkeys((*accesses, Access.READ)):
        if access is Access.FETCH:
            yield from (Effect(access, host) for word in (*words, *assignments) for host in _hosts_in(word))
            continue
        named = [path for word in words for path in _paths_in(word)] if access in accesses else []
        named += [piece for value in values for piece in _pieces(value)]
        # A word of several words may be a program; of one that is not literal, the names in it may be what it becomes.
        texts = [word.text for word in words if access is Access.WRITE or not word.is_literal]
        texts += [_MARKS.sub("", word.source) for word in words if not word.is_literal]
        pieces = dict.fromkeys(piece for text in texts for piece in _BETWEEN_NAMES.split(text) if piece)
        named += islice(pieces, MAX_NAMES)
        for path in dict.fromkeys(named):
            yield from (Effect(access, path, folder) for folder in folders)
        if access in accesses:
            unknown = (word for word in words if word.path is None and (word.beginning or word.ending))
            yield from (effect for word in unknown for effect in unknown_effects(access, word, folders))
    if Access.WRITE not in accesses:
        # Programs write logs and state where variables say.
        yield from (
            Effect(Access.WRITE, piece, folder) for value in values for piece in _pieces(value) for folder in folders
        )
    # No table tells the value of an option that is not literal.
    for path in dict.fromkeys(path for word in words if not word.is_literal for path in _values_in(word)):
        yield Effect(Access.WRITE, path, folders[0])


def unknown_effects(
    access: Access, word: Word | None, folders: Folders, *, is_redirection: bool = False
) -> Iterator[Effect]:
    """What a word is touched for that stands for a path which is not known, but for its beginning or its end."""
    beginning, ending = (word.beginning, word.ending) if word is not None else ("", "")
    is_open = access is Access.WRITE and word is not None and word.is_open
    is_named = access is not Access.WRITE or (word is not None and CONTENTS not in word.source)
    if access is Access.WRITE and word is not None and _is_numbered(word):
        is_open = is_named = False
    # The shell itself opens one file only.
    name_end = word.name_end(is_one=is_redirection) if word is not None and access is Access.WRITE else ""
    effect = Effect(
        access, None, None, is_redirection, beginning, ending, is_open, is_named=is_named, name_end=name_end
    )
    yield from (replace(effect, folder=folder) for folder in (folders if beginning else UNKNOWN))


def _is_numbered(word: Word) -> bool:
    """Whether all that is not known of a path is a number or a date, and no such path is an auto-run file."""
    if FOUND in word.source or not NUMBER.search(word.source):
        return False
    forms = [read_word(NUMBER.sub(number, word.source)) for number in ("0", "")]
    return all(
        form.is_literal and why_protected(form.text) is None and ".." not in form.text.split("/") for form in forms
    )


def _hosts_in(word: Word) -> Iterator[str | None]:
    """The hosts of addresses in a word; `None` for one that is not plain."""
    for found in islice(_URL.finditer(word.text), MAX_PIECES):
        if found[0].lower().endswith("file://"):
            continue
        host = _URL_HOST.match(word.text, found.end())
        name = host[1] if host else ""
        yield name.strip("[]").lower() if _PLAIN_HOST.fullmatch(name) else None


def _paths_in(word: Word) -> Iterator[str]:
    """The paths that an argument may name: itself, its parts, what is attached to the letters of options."""
    path = word.path if word.path is not None else word.text
    if len(path) > MAX_PATH_CHARS or "\0" in path:
        return
    if path.startswith("-") and not path.startswith("--"):
        yield from (path[place:] for place in range(2, min(len(path), MAX_LETTERS)))
    elif not path.startswith("-") and not _URL.search(path):
        yield path
    if not word.is_literal:
        yield from _values_in(word)
    yield from _pieces(path)


def _values_in(word: Word) -> Iterator[str]:
    """The paths in a word that is not literal: behind `=`, and attached to an option."""
    for source in (word.source.partition("=")[2], word.source[2:] if word.source.startswith("-") else ""):
        if source and (path := read_word(source).path) is not None:
            yield path


def _pieces(path: str) -> Iterator[str]:
    """A text, what follows its first `=`, and what stands between marks such as colons."""
    if _URL.search(path) and not path.lower().startswith("file:"):
        return
    if len(path) <= MAX_PATH_CHARS and not path.startswith("-"):
        yield path
    value = path.partition("=")[2]
    if value:
        yield value
    yield from (piece for piece in islice(_BETWEEN.split(path), MAX_PIECES) if piece and not piece.startswith("-"))
