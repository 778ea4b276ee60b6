"""The page about scale shows what its script measures, and its calculations are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.scale import ROWS
from server.transports.http_server import MAX_CONNECTIONS
from server.transports.streamable_http import MAX_SESSIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
MAX_LINES = 100
ROW = r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,.]+) \| ([\d.]+) \| (\d+) \| (\d+) \|"


@pytest.mark.requirement("project.scale")
def test_the_page_names_the_script_and_its_rows_with_their_units() -> None:
    assert "    .venv/bin/python bench/scale.py\n" in PAGE
    units = dict(re.findall(r"^\| ([^|]+) \| [\d,.]+ (µs|[kM]B) \|$", PAGE, re.MULTILINE))
    assert list(units) == [row.name for row in ROWS]
    assert [unit.replace("M", "k") for unit in units.values()] == [row.unit for row in ROWS]
    assert len(PAGE.splitlines()) < MAX_LINES


@pytest.mark.requirement("project.scale")
def test_the_limits_on_the_page_are_those_of_the_server() -> None:
    assert f"a process keeps {MAX_SESSIONS:,} sessions" in PAGE
    assert f"a process accepts {MAX_CONNECTIONS:,} at once" in PAGE


@pytest.mark.requirement("project.scale")
def test_the_page_says_what_is_extrapolated_and_calculates_correctly() -> None:
    assert PAGE.index("extrapolated") < PAGE.index("| users |")
    costs = {
        name: float(cost.replace(",", ""))
        for name, cost in re.findall(r"^\| ([^|]+) \| ([\d,]+) µs", PAGE, re.MULTILINE)
    }
    plain, asking = (costs[f"{name}, 2026-07-28"] for name in ("plain call over HTTP", "call with a question"))
    expected_mean = 0.7 * plain + 0.25 * costs["call to an upstream over HTTP"] + 0.05 * asking
    match = re.search(r"([\d,]+) µs per call on average", PAGE)
    assert match is not None
    mean = float(match[1].replace(",", ""))
    assert mean == pytest.approx(expected_mean, rel=0.05)
    rows = [[float(cell.replace(",", "")) for cell in row] for row in re.findall(ROW, PAGE, re.MULTILINE)]
    assert [row[0] for row in rows] == [100, 10_000, 1_000_000]
    for users, active, calls, cores, processes, active_users in rows:
        assert active == users / 10
        assert calls == pytest.approx(active * 2 / 60, rel=0.15)
        assert cores == pytest.approx(active * 2 / 60 * mean / 1e6, rel=0.3)
        assert processes / 2 >= cores
        assert active_users * MAX_SESSIONS / 2 >= active
