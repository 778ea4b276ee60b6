"""The page of benchmarks shows all measurements, and the stored ratios are those that the short run compares with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape

import pytest

from bench import growth_rows
from bench.benchmark_page import PAGE, PICTURE, RATIOS_FILE
from bench.growth_rows import exponent
from bench.interleaved import Figure, Measurement
from bench.peer_rows import ROWS
from bench.peers import OURS
from tests.tables import each_of

PAGE_NAMES = re.findall(r"^\| ([^|]*[^|\s]) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
NAMES = [figure.name for row in ROWS for figure in row.figures]


@pytest.mark.requirement("project.benchmarks")
def test_the_page_and_its_picture_show_every_figure_in_order() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in PAGE_NAMES if name != "---"] == [*NAMES, *(row.name for row in growth_rows.ROWS)]
    picture = PICTURE.read_text(encoding="utf-8")
    assert [name for name in NAMES if f">{escape(name)}</text>" not in picture] == []


@pytest.mark.requirement("project.benchmarks")
def test_every_ratio_that_the_short_run_compares_with_is_stored() -> None:
    ratios_by_name = json.loads(RATIOS_FILE.read_text(encoding="utf-8"))
    expected = {figure.name: set(row.short) for row in ROWS if row.short for figure in row.figures}
    assert expected
    assert {name: expected[name] & set(ratios) for name, ratios in ratios_by_name.items()} == expected


@pytest.mark.requirement("project.benchmarks")
@each_of(
    "unit, ours, theirs, ratio",
    [("ms", 2.0, 6.0, 3.0), ("MB", 6.0, 2.0, 1 / 3), ("/s", 100.0, 50.0, 2.0)],
)
def test_a_ratio_above_one_means_that_this_server_is_ahead_for_every_unit(
    unit: str, ours: float, theirs: float, ratio: float
) -> None:
    measurement = Measurement(Figure("any", unit), "", {OURS: [ours], "peer": [theirs]})
    assert measurement.ratios(OURS) == {"peer": [pytest.approx(ratio)]}


@pytest.mark.requirement("project.benchmarks")
@each_of(
    "durations, expected",
    [
        ([5, 5.1, 5.2, 5.1], 0),
        ([5, 15, 105, 1005], 1),
        ([5, 105, 10_005, 1_000_005], 2),
    ],
)
def test_the_exponent_ignores_the_fixed_cost(durations: Sequence[float], expected: float) -> None:
    assert exponent([1, 10, 100, 1_000], durations) == pytest.approx(expected, abs=0.01)
