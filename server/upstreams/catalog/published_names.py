"""Which name each tool, or prompt, of the upstreams is published under: worked out from what they list, and kept.

Names are looked up in this map and never taken apart again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tools.contract.display import visible_line
from tools.permissions.tool_names import BETWEEN

MAX_NAME = 128  # the longest tool name the specification allows (SEP-986)
SEARCH_NAMES = ("search_tools", "describe_tool", "call_tool")  # ours, where tools are searched for
MARK_LENGTH = 9  # characters of what ends a name that was changed: a dash, a letter, seven hexadecimal digits

_OTHER = re.compile(r"[^A-Za-z0-9_-]")  # what interfaces of models do not take in a name
_NOT_IN_RULES = re.compile(r"[^A-Za-z0-9_.-]")
_MARKED = re.compile(r"-[g-v][0-9a-f]{7}\Z")


class NameChange(StrEnum):
    """What was done to a name, as people are told."""

    LENGTH = "shortened to proxy.nameBudget"
    CHARACTERS = "changed, since clients take letters, digits, _ and - only"
    MARK = "changed, since it ends like a shortened one"
    RENAMED = "renamed"


def full_name(alias: str, name: str) -> str:
    """The name that always means this one, whatever it is published as."""
    return f"{alias}{BETWEEN}{name}"


def rule_name(alias: str, name: str) -> str:
    """The full name where a rule can be written with it, else one that stands for it: rules know blanks and stars."""
    full = full_name(alias, name)
    return full if name and _NOT_IN_RULES.search(name) is None else _marked(full, full, MAX_NAME)


def is_changed(name: str) -> bool:
    """Whether a published name is not the one that was wanted."""
    return _MARKED.search(name) is not None


def shortened_name(wanted: str, original: str, budget: int) -> tuple[str, NameChange | None]:
    """A name as it is published, and why it is not the one that was wanted.

    It depends on nothing but these arguments (`original` is the full name), so it stays the same whatever else is
    listed. What was changed ends with a mark, and what ends like that by itself gets one too, so no name is taken for
    the shortened form of another.
    """
    if not wanted or _OTHER.search(wanted) is not None:
        change = NameChange.CHARACTERS
    elif len(wanted) > budget:
        change = NameChange.LENGTH
    elif _MARKED.search(wanted):
        change = NameChange.MARK
    else:
        return wanted, None
    return _marked(wanted, original, budget), change


def _marked(wanted: str, original: str, budget: int) -> str:
    """The beginning of a name, and a short hash of the original like no date or number: it begins with g to v."""
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()
    mark = f"-{chr(ord('g') + int(digest[0], 16))}{digest[1:8]}"
    return _OTHER.sub("-", wanted)[: budget - MARK_LENGTH] + mark


class Origin(NamedTuple):
    """Where something comes from: the alias of an upstream, and what that calls it."""

    alias: str
    name: str

    @property
    def full_name(self) -> str:
        return full_name(self.alias, self.name)


@dataclass(frozen=True, slots=True)
class NameList:
    """What one upstream lists by its own names, and how it is to be called."""

    alias: str
    names: Sequence[str] = ()
    has_prefix: bool = True  # whether it is published as `alias__name`, or under its own names
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # other names, by its own ones


@dataclass(frozen=True, slots=True)
class HiddenName:
    """Something that is not listed, because its name is somebody else's."""

    origin: Origin
    name: str  # the name that it would have
    holder: str  # whose name that is, in words
    way_out: str  # the name that reaches it all the same; empty if none does

    def __str__(self) -> str:
        way_out = f"Calls reach it as '{self.way_out}'" if self.way_out else "Nothing reaches it"
        return visible_line(
            f"'{self.origin.name}' of the server {self.origin.alias} is not listed, since the name '{self.name}' "
            f"belongs to {self.holder}. {way_out}; rename can give it another name."
        )


@dataclass(frozen=True, slots=True)
class ChangedName:
    """Something that is not published under the name that it would have by itself."""

    origin: Origin
    name: str
    change: NameChange


@dataclass(frozen=True, slots=True)
class NameMap:
    """Every name and what it means: published ones in the order of listing, and full ones, also of what is hidden."""

    published: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    full: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    hidden: tuple[HiddenName, ...] = ()
    changed: tuple[ChangedName, ...] = ()

    def find(self, name: str) -> Origin | None:
        return self.published.get(name) or self.full.get(name)


def name_map(upstreams: Sequence[NameList], taken: Collection[str], budget: int) -> NameMap:
    """Give everything its name.

    A name with a prefix depends on nothing but the upstream's alias, the own name and what was renamed. Where two want
    one name, what is taken already wins, then what has a prefix, then the order of the configuration. Upstreams that
    list nothing yet belong here too: names that begin with the alias of one are for no other.
    """
    aliases = {listed.alias for listed in upstreams}
    wishes = [wish for rank, listed in enumerate(upstreams) for wish in _wishes(listed, rank, budget, aliases, taken)]
    winners: dict[str, Origin] = {}
    for wish in sorted(wishes, key=lambda wish: wish.rank):
        if not wish.holder:
            winners.setdefault(wish.name, wish.origin)
    published = {wish.name: wish.origin for wish in wishes if winners.get(wish.name) == wish.origin}
    hidden: list[HiddenName] = []
    changed: list[ChangedName] = []
    for wish in wishes:
        origin, winner = wish.origin, winners.get(wish.name)
        if winner == origin:
            if wish.change is not None:
                changed.append(ChangedName(origin, wish.name, wish.change))
            continue
        holder = wish.holder or (f"'{winner.name}' of the server {winner.alias}" if winner is not None else "")
        full = origin.full_name
        hidden.append(HiddenName(origin, wish.name, holder, "" if full in published or full in taken else full))
    return NameMap(published, {wish.origin.full_name: wish.origin for wish in wishes}, tuple(hidden), tuple(changed))


@dataclass(frozen=True, slots=True)
class _Wish:
    origin: Origin
    name: str
    change: NameChange | None  # why that is not its own one
    # who comes first where two want one name; not by the order of an upstream's list, which may change
    rank: tuple[bool, int, str]
    holder: str  # who has the name whatever else is listed, in words; empty where nobody has


def _wishes(
    listed: NameList, rank: int, budget: int, aliases: Collection[str], taken: Collection[str]
) -> Iterator[_Wish]:
    given = {new: old for old, new in listed.renamed.items()}
    for name in dict.fromkeys(listed.names):
        called = listed.renamed.get(name, name)
        wanted = full_name(listed.alias, called) if listed.has_prefix else called
        # What was renamed has the hash of its new name: that is what the operator wants to be kept.
        published, change = shortened_name(wanted, full_name(listed.alias, called), budget)
        if change is None and called != name:
            change = NameChange.RENAMED
        alias, between, _ = published.partition(BETWEEN)
        holder = ""
        if published in taken:
            holder = "this server itself"
        elif between and alias in aliases and alias != listed.alias:
            holder = f"the server {alias}, whose names begin like that"
        elif name in given and name not in listed.renamed:
            holder = f"'{given[name]}' of the same server, which was renamed"
        yield _Wish(Origin(listed.alias, name), published, change, (not listed.has_prefix, rank, name), holder)


def is_included(name: str, include: Iterable[str] | None, exclude: Iterable[str], others: Collection[str] = ()) -> bool:
    """Apply `includeTools` and `excludeTools` to a tool's own name and what else it is called by us; exclusion wins.

    As in Qwen Code and Gemini CLI an entry is the tool's own name, or that with something in parentheses behind it.
    """

    def is_about(entry: str) -> bool:
        written = entry.strip()
        return any(written == each.strip() or written.startswith(f"{each.strip()}(") for each in (name, *others))

    return not any(map(is_about, exclude)) and (include is None or any(map(is_about, include)))
