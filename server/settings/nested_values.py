"""A tree of settings as parsed from JSON: reads, sets and removes the value at a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from server.settings.section_model import KeyPath

Tree = dict[str, Any]  # an object from JSON


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
    """Return the object at a key, such as all servers; for any other value, an empty object that is not added."""
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def set_default(tree: Tree, path: KeyPath, value: Any) -> None:
    """Set a value if the path has none, creating the objects above it.

    Does nothing below a value that is not an object.
    """
    parent = parent_at(tree, path, create=True)
    if parent is not None:
        parent.setdefault(str(path[-1]), value)


def pop_value(tree: Tree, path: KeyPath) -> Any:
    """Remove a key and the sections that this leaves empty. Returns the value; `None` if there was none."""
    parent = parent_at(tree, path)
    if parent is None or path[-1] not in parent:
        return None
    value = parent.pop(str(path[-1]))
    if not parent and len(path) > 1:
        pop_value(tree, path[:-1])
    return value


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each value in a tree that is not a non-empty object, with its path."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value
