"""Published names of upstream tools: always `alias__tool`, kept in a map and never split again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_NAME = 128
"""The longest tool name the specification allows (SEP-986)."""

_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")


def exposed_names(alias: str, tools: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Give each tool of one upstream the name we publish it under.

    A name with characters outside the specification's set, over its length, or equal to another one of the
    same upstream gets a short hash of the original, so that it stays the same whatever comes before it.

    Returns:
        Published name -> the tool as the upstream lists it. A tool listed twice is kept once.
    """
    originals: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        originals.setdefault(tool["name"], tool)
    plain = {name for name in originals if _is_plain(alias, name)}
    return {_exposed(alias, name, taken=plain): tool for name, tool in originals.items()}


def _is_plain(alias: str, name: str) -> bool:
    return _NAME_CHARACTERS.search(name) is None and len(f"{alias}__{name}") <= MAX_NAME and name != ""


def _exposed(alias: str, name: str, *, taken: set[str]) -> str:
    if name in taken:
        return f"{alias}__{name}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    room = MAX_NAME - len(alias) - len("__") - len("-") - len(digest)
    return f"{alias}__{_NAME_CHARACTERS.sub('-', name)[:room]}-{digest}"


def is_included(name: str, include: Iterable[str] | None, exclude: Iterable[str]) -> bool:
    """Apply `includeTools` and `excludeTools`; exclusion wins, and an entry `name(...)` counts as `name`."""
    if name in {_bare(entry) for entry in exclude}:
        return False
    return include is None or name in {_bare(entry) for entry in include}


def _bare(entry: str) -> str:
    return entry.partition("(")[0].strip()
