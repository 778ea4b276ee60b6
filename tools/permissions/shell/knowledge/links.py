"""Which commands follow links that they find, and which put links where other commands may pass through them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.words import Word


class Links(StrEnum):
    """What a command may leave where it writes."""

    NONE = "none"
    MAYBE = "maybe"
    """Links among what it copies, moves or unpacks."""
    MADE = "made"
    """Another name for something that is there already."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of a program: short letters, and long names, which may be shortened."""

    letters: str = ""
    long: tuple[str, ...] = ()

    def given(self, arguments: Sequence[Word]) -> bool:
        return any(self._is_one(word.text) for word in arguments)

    def _is_one(self, text: str) -> bool:
        if not text.startswith("--"):
            return text.startswith("-") and (
                any(letter in self.letters for letter in text[1:]) or text[1:] in self.long
            )
        name = text[2:].partition("=")[0]
        return bool(name) and any(long.startswith(name) for long in self.long)


_FOLLOWING: dict[str, _Options] = {
    **dict.fromkeys(names("grep egrep fgrep zgrep"), _Options("R", ("dereference-recursive",))),
    **dict.fromkeys(names("diff colordiff"), _Options("r", ("recursive",))),
    "rg": _Options("L", ("follow",)),
    "ag": _Options("f", ("follow",)),
    "ack": _Options("", ("follow",)),
    "du": _Options("LDH", ("dereference", "dereference-args")),
    "tree": _Options("l"),
    "find": _Options("", ("L", "follow")),
    "cp": _Options("LH", ("dereference",)),
    "rsync": _Options("Lk", ("copy-links", "copy-unsafe-links", "copy-dirlinks")),
    "tar": _Options("h", ("dereference",)),
}
_LISTS_FOLLOWING = _Options("L", ("dereference",))
_LISTS_DEEP = _Options("R", ("recursive",))

_COPIES_LINKS = _Options("adPrR", ("archive", "no-dereference", "preserve", "recursive"))
_MAKES_LINKS = _Options("sl", ("symbolic-link", "link"))
_UNPACKING = names("mv rsync tar unzip 7z 7za 7zr unrar cpio pax ar jar patch scp")
_GIT_CHECKS_OUT = names(
    "am apply checkout checkout-index cherry-pick clone merge pull read-tree rebase reset restore revert stash"
    " submodule switch worktree"
)


def follows_links(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a command goes through the links that it finds below what it is told to read.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    if name in ("ls", "dir", "vdir"):
        return _LISTS_FOLLOWING.given(arguments) and _LISTS_DEEP.given(arguments)
    options = _FOLLOWING.get(name)
    return options is not None and options.given(arguments)


def links_left(name: str, arguments: Sequence[Word]) -> Links:
    """What a command may leave where it writes: through a link, a path leads elsewhere than it seems.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    if name in ("ln", "link", "mount") or (name == "cp" and _MAKES_LINKS.given(arguments)):
        return Links.MADE
    if (name in _UNPACKING and not _only_lists(name, arguments)) or (name == "cp" and _COPIES_LINKS.given(arguments)):
        return Links.MAYBE
    if name == "git":
        found = subcommand(arguments)
        return Links.MAYBE if found is None or found[0] in _GIT_CHECKS_OUT else Links.NONE
    return Links.NONE


def copies_links(arguments: Sequence[Word]) -> bool:
    """Whether `cp` may make a name for what is there, or copy a link as a link."""
    return _MAKES_LINKS.given(arguments) or _COPIES_LINKS.given(arguments)


def _only_lists(name: str, arguments: Sequence[Word]) -> bool:
    """Whether nothing is unpacked: `tar t`, `tar c`, `unzip -l`."""
    if name == "tar":
        return bool(arguments) and re.match(r"-?[A-Za-z]*[tc]|--(?:list|create)", arguments[0].text) is not None
    return name == "unzip" and bool(arguments) and re.match(r"-[lvtZ]", arguments[0].text) is not None
