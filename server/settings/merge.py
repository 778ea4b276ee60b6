"""All layers as one: objects merge key by key, everything else replaces, and each value keeps its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from server.settings.errors import KeyPath

Tree = dict[str, Any]
"""An object as it came from JSON."""


JOINED: tuple[tuple[str, str], ...] = (
    ("permissions", "allow"),
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "allowed"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "excluded"),
)
"""Lists of rules that some layers add to, so that they take back nothing that another layer restricts."""


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


@dataclass(slots=True)
class Merged:
    """What all layers say together.

    Args:
        data: The values, under canonical keys; the entries of `mcpServers` under their aliases.
        sources: For each value, the layer it came from.
        names: For each alias, the name it was configured with.
    """

    data: Tree = field(default_factory=dict[str, Any])
    sources: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    _around: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    """For each object with values, the layer that gave the last of them."""

    def add(self, source: str, layer: Tree, *, joins: bool = False) -> None:
        """Put a layer over what is there: objects key by key, everything else as a whole. Takes the layer over.

        Args:
            source: What it is called.
            layer: What it says, in canonical form.
            joins: Whether its lists of rules are put to those that are there, in place of replacing them.
        """
        if joins:
            self._join(layer, source)
        self._merge(self.data, layer, source, ())

    def _join(self, layer: Tree, source: str) -> None:
        for path in JOINED:
            holder, below = holder_of(layer, path), holder_of(self.data, path)
            added, there = (tree.get(path[-1]) if tree is not None else None for tree in (holder, below))
            if holder is None or not isinstance(added, list) or not isinstance(there, list):
                continue
            before = self.source_of(path)
            rules = cast("list[Any]", there)
            rules += [rule for rule in cast("list[Any]", added) if rule not in rules]
            del holder[path[-1]]
            if before != source:
                self.sources[path] = f"{before} and {source}"

    def _merge(self, below: Tree, above: Tree, source: str, path: KeyPath) -> None:
        for key, value in above.items():
            here = (*path, key)
            is_entry = path == ("mcpServers",)
            if isinstance(value, dict) and isinstance(below.get(key), dict) and not is_entry:
                self.sources.pop(here, None)
                self._merge(below[key], cast("Tree", value), source, here)
                continue
            if key in below:
                self._forget(here)
            below[key] = value
            for leaf in _leaves(value, here):
                self.sources[leaf] = source
                self._around.update((leaf[:length], source) for length in range(1, len(leaf)))

    def _forget(self, path: KeyPath) -> None:
        for known in [known for known in self.sources if known[: len(path)] == path]:
            del self.sources[known]

    def source_of(self, path: KeyPath) -> str:
        """The layer that a value, or the nearest thing around or below it, came from."""
        names = tuple(step for step in path if isinstance(step, str))
        for length in range(len(names), 0, -1):
            if names[:length] in self.sources:
                return self.sources[names[:length]]
        return self._around.get(names, "default")


def _leaves(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from _leaves(item, (*path, key))
    else:
        yield path
