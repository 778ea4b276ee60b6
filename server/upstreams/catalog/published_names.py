"""Computes the published name of each upstream tool or prompt, and keeps the names in a map.

Published names are looked up in this map, never parsed. `tool_owner.py` finds the upstream for a called name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tools.contract.display import visible_line
from tools.permissions.tool_names import BETWEEN

MAX_NAME = 128  # maximum length of a tool name in the specification (SEP-986)
SEARCH_NAMES = ("search_tools", "describe_tool", "call_tool")  # the names of this server's own search tools
MARK_LENGTH = 9  # length of a changed name's ending: a dash, a letter, seven hexadecimal digits

_NOT_ACCEPTED = re.compile(r"[^A-Za-z0-9_-]")  # characters that model APIs do not accept in a name
_NOT_IN_RULES = re.compile(r"[^A-Za-z0-9_.-]")
_MARKED = re.compile(r"-[g-v][0-9a-f]{7}\Z")


class NameChange(StrEnum):
    """Why a published name differs from the usual one, as text for people."""

    LENGTH = "shortened to proxy.nameBudget"
    CHARACTERS = "changed, because clients accept only letters, digits, _ and -"
    MARK = "changed, because it looks like a shortened name"
    RENAMED = "renamed"


def full_name(alias: str, name: str) -> str:
    """Return the name that always means this tool, regardless of its published name."""
    return f"{alias}{BETWEEN}{name}"


def rule_name(alias: str, name: str) -> str:
    """Return the full name, or a substitute if the name has characters that a rule cannot contain, such as `*`."""
    full = full_name(alias, name)
    return full if name and _NOT_IN_RULES.search(name) is None else _marked(full, full, MAX_NAME)


def is_changed(name: str) -> bool:
    """Return whether a published name ends with the mark of a changed name."""
    return _MARKED.search(name) is not None


def shortened_name(name: str, original: str, budget: int) -> tuple[str, NameChange | None]:
    """Return the name to publish instead of `name`, and why the two differ; `None` if they do not.

    The result depends only on these arguments (`original` is the full name), so it stays the same regardless of what
    else is listed. A changed name ends with a mark. If `name` already ends in what looks like a mark, it is changed
    too, so that it is not mistaken for the shortened form of another name.
    """
    if not name or _NOT_ACCEPTED.search(name) is not None:
        change = NameChange.CHARACTERS
    elif len(name) > budget:
        change = NameChange.LENGTH
    elif _MARKED.search(name):
        change = NameChange.MARK
    else:
        return name, None
    return _marked(name, original, budget), change


def _marked(name: str, original: str, budget: int) -> str:
    """Return the start of `name`, followed by a mark: a dash and a short hash of `original`."""
    # The hash begins with a letter from g to v, so it never looks like a date or number.
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()
    mark = f"-{chr(ord('g') + int(digest[0], 16))}{digest[1:8]}"
    return _NOT_ACCEPTED.sub("-", name)[: budget - MARK_LENGTH] + mark


class Origin(NamedTuple):
    """The origin of an item: the alias of an upstream, and the item's name at that upstream."""

    alias: str
    name: str

    @property
    def full_name(self) -> str:
        return full_name(self.alias, self.name)


@dataclass(frozen=True, slots=True)
class NameList:
    """The names that an upstream lists, and how to publish them."""

    alias: str
    names: Sequence[str] = ()
    has_prefix: bool = True  # whether to publish names as `alias__name`, or unchanged
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # new names, by original name


@dataclass(frozen=True, slots=True)
class HiddenName:
    """An item that is not listed, because its name is taken."""

    origin: Origin
    name: str  # the published name that the item would otherwise have
    holder: str  # a description of the owner of `name`
    way_out: str  # another name by which the item can still be reached; empty if there is none

    def __str__(self) -> str:
        way_out = f"reachable as '{self.way_out}'" if self.way_out else "not reachable"
        return visible_line(
            f"'{self.origin.name}' of the server {self.origin.alias} is not listed, because the name '{self.name}' "
            f"belongs to {self.holder}. The unlisted item is {way_out}; the setting rename can give it another name."
        )


@dataclass(frozen=True, slots=True)
class NameMap:
    """The meaning of every name: published names in list order, and full names, including those of hidden items."""

    published: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    full: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    hidden: tuple[HiddenName, ...] = ()
    changed: Mapping[str, NameChange] = field(default_factory=dict[str, NameChange])
    """Why published names differ from the ones that the items would usually have."""

    def find(self, name: str) -> Origin | None:
        return self.published.get(name) or self.full.get(name)


@dataclass(frozen=True, slots=True)
class _Candidate:
    origin: Origin
    name: str
    change: NameChange | None  # why the name differs from the one that the item would usually have
    # Decides which item gets a contested name, regardless of the order of an upstream's list, which may change
    rank: tuple[bool, int, str]
    holder: str  # a description of what the name is reserved for; empty if the name is not reserved


def name_map(upstreams: Sequence[NameList], taken_names: Collection[str], budget: int) -> NameMap:
    """Assign a name to every item of `upstreams`.

    A prefixed name depends only on the alias, the item's own name and renames. Names in `taken_names` are never
    assigned. If several items compete for a name, items with prefixed names have priority; among the others, the order
    in which the servers are configured decides. `upstreams` must include upstreams that have listed nothing yet,
    because names that begin with their alias are reserved.
    """
    aliases = {name_list.alias for name_list in upstreams}
    candidates: list[_Candidate] = []
    for position, name_list in enumerate(upstreams):
        old_names = {new: old for old, new in name_list.renamed.items()}
        for name in dict.fromkeys(name_list.names):
            new_name = name_list.renamed.get(name, name)
            # Hash the new name of a renamed item, so that the published name depends only on what the operator chose.
            full = full_name(name_list.alias, new_name)
            published_name, change = shortened_name(full if name_list.has_prefix else new_name, full, budget)
            if change is None and new_name != name:
                change = NameChange.RENAMED
            alias, between, _ = published_name.partition(BETWEEN)
            holder = ""
            if published_name in taken_names:
                holder = "this server itself"
            elif between and alias in aliases and alias != name_list.alias:
                holder = f"the server {alias}, whose names begin with its alias"
            elif name in old_names and name not in name_list.renamed:
                holder = f"the renamed '{old_names[name]}' of the same server"
            rank = (not name_list.has_prefix, position, name)
            candidates.append(_Candidate(Origin(name_list.alias, name), published_name, change, rank, holder))
    winners: dict[str, _Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank):
        if not candidate.holder:
            winners.setdefault(candidate.name, candidate)
    published = [candidate for candidate in candidates if winners.get(candidate.name) is candidate]
    owners = {candidate.name: candidate.origin for candidate in published}
    hidden_names: list[HiddenName] = []
    for candidate in candidates:
        origin, winner = candidate.origin, winners.get(candidate.name)
        if winner is not candidate:
            winner_text = f"'{winner.origin.name}' of the server {winner.origin.alias}" if winner is not None else ""
            way_out = "" if origin.full_name in owners or origin.full_name in taken_names else origin.full_name
            hidden_names.append(HiddenName(origin, candidate.name, candidate.holder or winner_text, way_out))
    full_names = {candidate.origin.full_name: candidate.origin for candidate in candidates}
    changes = {candidate.name: candidate.change for candidate in published if candidate.change is not None}
    return NameMap(owners, full_names, tuple(hidden_names), changes)


def is_included(
    name: str, include: Iterable[str] | None, exclude: Iterable[str], other_names: Collection[str] = ()
) -> bool:
    """Return whether `include` and `exclude` allow a tool known as `name` and as each of `other_names`; exclusion wins.

    As in Qwen Code and Gemini CLI, an entry of `includeTools` or `excludeTools` is one of the tool's names, optionally
    followed by a part in parentheses.
    """

    def matches(entry: str) -> bool:
        stripped_entry = entry.strip()
        return any(
            stripped_entry == tool_name.strip() or stripped_entry.startswith(f"{tool_name.strip()}(")
            for tool_name in (name, *other_names)
        )

    return not any(map(matches, exclude)) and (include is None or any(map(matches, include)))
