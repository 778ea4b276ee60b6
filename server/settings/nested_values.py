"""Reads, sets and removes the value at a path in a tree of settings, as parsed from JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from server.settings.section_model import KeyPath

Tree = dict[str, Any]  # a JSON object


def parent_at(tree: Tree, path: KeyPath, *, create: bool = False) -> Tree | None:
    """Return the object that contains the last key of a path; `None` if it is missing and cannot be created."""
    parent: Any = tree
    for step in path[:-1]:
        if create:
            cast("Tree", parent).setdefault(str(step), {})
        parent = cast("Tree", parent).get(str(step))
        if not isinstance(parent, dict):
            return None
    return cast("Tree", parent)


def value_at(tree: Tree, path: KeyPath) -> Any:
    """Return the value at a path; `None` if there is none."""
    parent = parent_at(tree, path)
    return parent.get(str(path[-1])) if parent is not None else None


def table_at(tree: Tree, key: str) -> Tree:
    """Return the object at `key`, such as `mcpServers`; if there is none, a new empty object outside the tree."""
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def set_default(tree: Tree, path: KeyPath, value: Any) -> None:
    """Set the value at a path that has none, creating missing objects on the way.

    Does nothing if a value on the way is not an object.
    """
    parent = parent_at(tree, path, create=True)
    if parent is not None:
        parent.setdefault(str(path[-1]), value)


def pop_value(tree: Tree, path: KeyPath) -> Any:
    """Remove a key and the sections that its removal leaves empty. Returns the value; `None` if there was none."""
    parent = parent_at(tree, path)
    if parent is None or path[-1] not in parent:
        return None
    value = parent.pop(str(path[-1]))
    if not parent and len(path) > 1:
        pop_value(tree, path[:-1])
    return value


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path and the value of each leaf: anything except a non-empty object."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value
