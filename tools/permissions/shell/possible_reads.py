"""What a command that only reads may read, beyond what its own options are known to name.

No table knows all options of all programs. So each word of such a command counts as a file that it may read, and so
does what is attached to an option.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.contract.subject import Access
from tools.permissions.shell.analysis import Effect, SubCommand

WITHOUT_FILES = frozenset(
    {":", "[", "[[", "basename", "dirname", "echo", "expr", "false", "printf", "pwd", "seq", "test", "true"}
)
"""Commands whose words are no files that they show."""

LISTING = frozenset({"cd", "du", "find", "ls", "pushd", "pwd", "readlink", "realpath", "stat", "test", "tree", "["})
"""Commands that see the names of files in a folder, not what is in them."""

FOUND = "{}"
"""Where `find` and the like put what they have found into another command."""


def lists_names(command: SubCommand) -> bool:
    """Whether a command sees names only."""
    return bool(command.words) and command.words[0] in LISTING


def may_read_unnamed(command: SubCommand) -> bool:
    """Whether a command may read files that its words do not tell."""
    if _reads_nothing(command) or command.is_literal:
        return False
    return not lists_names(command) or FOUND in command.words


def possible_reads(command: SubCommand) -> Iterator[Effect]:
    """The files that the words of a command may name and that are not among its effects."""
    if _reads_nothing(command):
        return
    known = {(effect.target, effect.folder) for effect in command.effects if effect.access is Access.READ}
    for folder in {effect.folder for effect in command.effects} or {""}:
        for word in command.words[1:]:
            for path in _paths_in(word):
                if (path, folder) not in known:
                    yield Effect(Access.READ, path, folder)


def _reads_nothing(command: SubCommand) -> bool:
    return not command.is_read_only or (bool(command.words) and command.words[0] in WITHOUT_FILES)


def _paths_in(word: str) -> Iterator[str]:
    """The paths that an argument may name: itself, what follows `=`, what is attached to a letter."""
    if not word.startswith("-"):
        yield word
    _, equals, value = word.partition("=")
    if equals and value:
        yield value
    if len(word) > len("-x") and word[0] == "-" and word[1] != "-":
        yield word[2:]
