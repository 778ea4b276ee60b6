"""Tests that are repeated over revisions, transports and the like: one variant is short, the others are long.

The short variant differs from test to test, so the short suite as a whole covers each variant many times.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

NAMES = frozenset({"broker", "each_way", "matched_by", "started"})
"""Names of parameters over which tests are repeated, whatever their values."""
VALUES = frozenset(
    {"handshake", "modern", "legacy", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
    | {"memory", "stdio", "sse", "http"}
)
"""Values of parameters over which tests are repeated: protocol revisions and transports."""


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all but every `count`-th case as long, starting with a short one."""
    return [case if number % count == 0 else long(case) for number, case in enumerate(cases)]


def long(case: Any) -> Any:
    """Mark a parameter, or a tuple of parameters, as long, so that only `make test-long` runs it."""
    if isinstance(case, ParameterSet):
        return case._replace(marks=(*case.marks, pytest.mark.long))
    values = cast("tuple[Any, ...]", case) if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)


def mark_variants_long(items: Iterable[pytest.Item]) -> None:
    """Mark all variants of a test as long except one, separately for each combination of its other parameters."""
    groups: dict[tuple[str, ...], list[pytest.Function]] = {}
    by_route: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("long"):
            parameters = item.callspec.params
            if "route" in parameters:
                by_route.setdefault(item.nodeid.partition("[")[0], []).append(item)
                continue
            variant_names = {name for name, value in parameters.items() if name in NAMES or _is_variant(value)}
            if variant_names:
                fixed = (f"{name}={value!r}" for name, value in parameters.items() if name not in variant_names)
                groups.setdefault((item.nodeid.partition("[")[0], *fixed), []).append(item)
    for group in groups.values():
        running = [item for item in group if not _is_skipped(item)] or group
        short = running[zlib.crc32(group[0].nodeid.encode()) % len(running)]
        for item in group:
            if item is not short:
                item.add_marker(pytest.mark.long)
    for name, group in by_route.items():
        _mark_revisions_long(name, group)


def _mark_revisions_long(name: str, group: Sequence[pytest.Function]) -> None:
    """Keep the routes of one revision short. It is one of the most frequent revisions, so it covers each transport and
    each case that is spread over the routes."""
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
