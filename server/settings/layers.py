"""Layers of the settings: what each file and the command line say, in which order they count, and all as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, cast

from server.settings.errors import KeyPath

Tree = dict[str, Any]
"""An object as it came from JSON."""


def holder_of(tree: Tree, path: KeyPath, *, create: bool = False) -> Tree | None:
    """The object that holds the last key of a path; `None` if there is none, and none can be made."""
    holder: Any = tree
    for step in path[:-1]:
        if create:
            cast("Tree", holder).setdefault(str(step), {})
        holder = cast("Tree", holder).get(str(step))
        if not isinstance(holder, dict):
            return None
    return cast("Tree", holder)


def value_at(tree: Tree, path: KeyPath) -> Any:
    """The value of a key; `None` where it is not there."""
    holder = holder_of(tree, path)
    return holder.get(str(path[-1])) if holder is not None else None


def table_at(tree: Tree, key: str) -> Tree:
    """The object under a key at the top; an empty one where there is none."""
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def put(tree: Tree, path: KeyPath, value: Any) -> None:
    """Give a key a value if it has none. Where something else than an object stands above it, nothing happens."""
    holder = holder_of(tree, path, create=True)
    if holder is not None:
        holder.setdefault(str(path[-1]), value)


def take(tree: Tree, path: KeyPath) -> Any:
    """Remove a key, with the sections that are empty then; its value, or `None` where it was not there."""
    holder = holder_of(tree, path)
    if holder is None or path[-1] not in holder:
        return None
    value = holder.pop(str(path[-1]))
    if not holder and len(path) > 1:
        take(tree, path[:-1])
    return value


class Rank(IntEnum):
    """Where a layer comes from. A later one wins."""

    CLI_DEFAULTS = 0
    """What `--settings` itself stands for, before any file."""

    SYSTEM_DEFAULTS = 1
    """The other CLI's defaults for this machine."""

    USER = 2
    """Our own user's file."""

    CLI_USER = 3
    """The other CLI's file of this user."""

    CLI_PROJECT = 4
    """The other CLI's file in the workspace."""

    WORKSPACE = 5
    """Our own file in the workspace."""

    SYSTEM_OVERRIDES = 6
    """The other CLI's file that overrides its users'."""

    CONFIG = 7
    """A file named on the command line."""

    COMMAND_LINE = 8

    @property
    def adds_rules(self) -> bool:
        """Whether its lists of rules are added to those below, which they never take back."""
        return Rank.CLI_USER <= self <= Rank.SYSTEM_OVERRIDES or self is Rank.COMMAND_LINE


@dataclass(slots=True)
class Layer:
    """What one source says.

    Args:
        rank: Where it comes from.
        source: What it is called in sentences: the path of a file.
        data: Its content.
        folder: What relative paths in it start from; empty is the working folder.
        names: For each alias of its servers, the name that stands there.
    """

    rank: Rank
    source: str
    data: Tree
    folder: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])


class FileState(StrEnum):
    """What became of a place where settings may stand."""

    READ = "read"
    ABSENT = "not there"
    UNTRUSTED = "not trusted"
    CHANGED = "changed since it was trusted"
    UNUSABLE = "not usable"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A place where settings may stand.

    Args:
        path: The file.
        rank: What it would be.
        state: What became of it.
    """

    path: str
    rank: Rank
    state: FileState


ADDED_RULES: tuple[tuple[str, str], ...] = (
    ("permissions", "allow"),
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "allowed"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "excluded"),
)
"""Lists of rules that some layers add to, so that they take back nothing that another layer restricts."""


@dataclass(slots=True)
class MergedLayers:
    """What all layers say together: objects merge key by key, everything else replaces, each value keeps its source.

    Args:
        data: The values, under canonical keys; the entries of `mcpServers` under their aliases.
        names: For each alias, the name it was configured with.
    """

    data: Tree = field(default_factory=dict[str, Any])
    names: dict[str, str] = field(default_factory=dict[str, str])
    _sources: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    _sources_of_objects: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    """For each object with values, the layer that gave the last of them."""

    def add(self, layer: Layer) -> None:
        """Put a layer in canonical form over what is there. Its data is taken over, not copied."""
        self.names.update(layer.names)
        for path in ADDED_RULES if layer.rank.adds_rules else ():
            added, rules = value_at(layer.data, path), value_at(self.data, path)
            if not isinstance(added, list) or not isinstance(rules, list):
                continue
            before = self.source_of(path)
            cast("list[Any]", rules).extend([rule for rule in take(layer.data, path) if rule not in rules])
            if before != layer.source:
                self._sources[path] = f"{before} and {layer.source}"
        self._merge(self.data, layer.data, layer.source, ())

    def _merge(self, below: Tree, above: Tree, source: str, path: KeyPath) -> None:
        for key, value in above.items():
            here = (*path, key)
            is_entry = path == ("mcpServers",)
            if isinstance(value, dict) and isinstance(below.get(key), dict) and not is_entry:
                self._sources.pop(here, None)
                self._merge(below[key], cast("Tree", value), source, here)
                continue
            if key in below:
                for known in [known for known in self._sources if known[: len(here)] == here]:
                    del self._sources[known]
            below[key] = value
            for leaf, _ in leaves(value, here):
                self._sources[leaf] = source
                self._sources_of_objects.update((leaf[:length], source) for length in range(1, len(leaf)))

    def source_of(self, path: KeyPath) -> str:
        """The layer that a value, or the nearest thing around or below it, came from."""
        names = tuple(step for step in path if isinstance(step, str))
        for length in range(len(names), 0, -1):
            if names[:length] in self._sources:
                return self._sources[names[:length]]
        return self._sources_of_objects.get(names, "default")


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Each value in a tree that is not an object with keys, with its path."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value
