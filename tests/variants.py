"""Tests that are repeated over revisions, transports, eras and the like: one of them is short, the others are long.

Which one that is changes from test to test, so that the short suite as a whole meets each variant many times.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

NAMES = frozenset({"broker", "each_way", "matched_by", "started"})
"""Parameters over which tests are repeated, whatever their values are."""
VALUES = frozenset(
    {"handshake", "modern", "legacy", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
    | {"memory", "stdio", "sse", "http"}
)
"""Values of parameters over which tests are repeated: what is spoken, and over what."""


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of which one in so many is short, from the first on; the others are long."""
    return [case if number % count == 0 else long(case) for number, case in enumerate(cases)]


def long(case: Any) -> Any:
    """A parameter, or a tuple of them, of `make test-long` alone."""
    if isinstance(case, ParameterSet):
        return case._replace(marks=(*case.marks, pytest.mark.long))
    values = cast("tuple[Any, ...]", case) if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)


def make_long_but_one(items: Iterable[pytest.Item]) -> None:
    """Mark variants of tests as long, but for one of each test and its other parameters."""
    groups: dict[tuple[str, ...], list[pytest.Function]] = {}
    by_route: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("long"):
            given = item.callspec.params
            if "route" in given:
                by_route.setdefault(item.nodeid.partition("[")[0], []).append(item)
                continue
            varied = {name for name, value in given.items() if name in NAMES or _is_variant(value)}
            if varied:
                others = (f"{name}={value!r}" for name, value in given.items() if name not in varied)
                groups.setdefault((item.nodeid.partition("[")[0], *others), []).append(item)
    for group in groups.values():
        running = [item for item in group if not _is_skipped(item)] or group
        short = running[zlib.crc32(group[0].nodeid.encode()) % len(running)]
        for item in group:
            if item is not short:
                item.add_marker(pytest.mark.long)
    for name, group in by_route.items():
        _make_long_but_one_revision(name, group)


def _make_long_but_one_revision(name: str, group: Sequence[pytest.Function]) -> None:
    """Of the routes, those of one revision that has as many as any are short: each transport is there, and each case
    that is spread over them."""
    counts = Counter(map(_revision, group))
    frequent = [revision for revision, count in counts.items() if count == max(counts.values())]
    short = frequent[zlib.crc32(name.encode()) % len(frequent)]
    for item in group:
        if _revision(item) != short:
            item.add_marker(pytest.mark.long)


def _revision(item: pytest.Function) -> str:
    route: Any = item.callspec.params["route"]
    return route.revision


def _is_skipped(item: pytest.Item) -> bool:
    return any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))


def _is_variant(value: object) -> bool:
    return isinstance(value, str) and value in VALUES
