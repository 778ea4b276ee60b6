"""Writes the comparison with the peers: docs/benchmarks.md, its picture, and the stored ratios."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path

from bench import growth_rows
from bench.growth_rows import MAX_EXPONENT, Growth
from bench.interleaved import FLOOR, Measurement
from bench.peers import BIN, NPM, OURS, PYPI, SDK
from bench.rows import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = PAGE.with_suffix(".svg")
RATIOS_FILE = Path(__file__).with_name("peer_ratios.json")
"""The ratios of the last full run, by figure and peer. The short run compares with them."""

COLOURS = dict(
    zip(
        (*NPM, *PYPI, SDK),
        ("#0b7285", "#5f3dc4", "#d9480f", "#2b8a3e", "#c2255c", "#1864ab", "#e67700", "#495057"),
        strict=True,
    )
)

HEAD = """# Benchmarks against other servers

<!-- Written by `make bench-peers`. -->

For each row, the servers do one piece of work in turn (A B C, then B C A) in one run, so that other load slows all of
them down. The ratio is the median over the rounds. **Above 1, this server is ahead**: 3.0x in a peer's cell means that
the peer takes three times as long, answers a third as many calls per second, or uses three times the memory. Below 1,
the peer is ahead and the cell is bold. An empty cell means that the peer has no such tool; `none` means that
it did not answer in time. Each peer does the nearest equivalent; notes say what differs.

    make bench-peers        # installs the peers outside the checkout, and writes this page

{machine}

![Ratios of all rows](benchmarks.svg)
"""

GROWTH = f"""
## How this server scales

The exponent is fitted to how much more each size needs than the smallest: 1 means linear growth, 0 none.
Above {MAX_EXPONENT} it is bold.

| | exponent | sizes | measured |
| --- | --- | --- | --- |
"""


def write(
    sections: Mapping[str, Sequence[Measurement]], growth_times: Mapping[str, Sequence[float]], short_figures: set[str]
) -> None:
    """Write all three files.

    Args:
        sections: The figures of each section, by its heading.
        growth_times: The values of each growth row by its name, one per size.
        short_figures: Names of the figures in the short run.
    """
    parts = [HEAD.format(machine=_machine()), *(_section(*section) for section in sections.items()), GROWTH]
    parts += (_growth(row, growth_times[row.name]) for row in growth_rows.ROWS if row.name in growth_times)
    PAGE.write_text("".join(parts), encoding="utf-8")
    results = [result for section in sections.values() for result in section]
    PICTURE.write_text(_picture(results), encoding="utf-8")
    ratios_by_figure = {
        result.figure.name: {peer: round(statistics.median(values), 2) for peer, values in result.ratios(OURS).items()}
        for result in results
        if result.figure.name in short_figures
    }
    RATIOS_FILE.write_text(json.dumps(ratios_by_figure, indent=1) + "\n", encoding="utf-8")


def _machine() -> str:
    cpu = Path("/proc/cpuinfo")
    model = cpu.read_text().partition("model name\t: ")[2].partition("\n")[0] if cpu.exists() else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    node = subprocess.run([BIN / "node", "--version"], capture_output=True, check=False, text=True).stdout.strip()
    peers = ", ".join(package[0] + package[1:].replace("@", " ") for package in NPM.values())
    python = ", ".join(package.replace("==", " ") for package in PYPI.values())
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} cores of {model.strip() or 'a virtual machine'} with "
        f"{memory:.0f} GiB; {system}, Python {platform.python_version()}, Node {node.removeprefix('v')}.\n"
        f"Peers: {peers}, {python}, mcp {metadata.version('mcp')}."
    )


def _section(heading: str, results: Sequence[Measurement]) -> str:
    peers = list(
        dict.fromkeys(name for result in results for name in (*result.values, *result.failures) if name != OURS)
    )
    lines = [f"\n## {heading}\n", f"| | {OURS} | {' | '.join(peers)} |", f"| --- |{' --- |' * (1 + len(peers))}"]
    for result in results:
        ratios = result.ratios(OURS)
        cells = [
            _ratio(statistics.median(ratios[peer])) if peer in ratios else "none" * (peer in result.failures)
            for peer in peers
        ]
        own_value = (
            f"{_short(result.median(OURS))} {result.figure.unit}"
            if result.values.get(OURS)
            else "none" * (OURS in result.failures)
        )
        lines.append(f"| {result.figure.name} | {own_value} | {' | '.join(cells)} |")
    notes: dict[str, str] = {}
    for result in results:
        if result.note:
            notes.setdefault(result.note, result.figure.name)
    lines += ["", *(f"- {name}: {note}." for note, name in notes.items())] if notes else []
    return "\n".join(lines) + "\n"


def _ratio(ratio: float) -> str:
    text = f"{_short(ratio)}x"
    return text if ratio >= 1 else f"**{text}**"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _growth(row: Growth, durations: Sequence[float]) -> str:
    if not durations:
        return f"| {row.name} | | | |\n"
    slope = growth_rows.exponent(row.sizes, durations)
    bold = "**" * (slope > MAX_EXPONENT)
    sizes = " · ".join(f"{size:,}" for size in row.sizes)
    values = " · ".join(map(_short, durations))
    return f"| {row.name} | {bold}{slope:.2f}{bold} | {sizes} | {values} {row.unit} |\n"


LABEL_WIDTH, AXIS_WIDTH, LINE_HEIGHT, TOP_MARGIN = 330, 560, 15, 60
MIN_RATIO, MAX_RATIO = 0.1, 1_000.0


def _picture(results: Sequence[Measurement]) -> str:
    """Draw a line for each figure with a dot for each peer, on a logarithmic axis."""
    rows = [(result.figure.name, result.ratios(OURS)) for result in results]
    height = TOP_MARGIN + LINE_HEIGHT * len(rows) + 20
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL_WIDTH + AXIS_WIDTH + 20} {height}">',
            "<style>text { font: 11px sans-serif }</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            *_axis(height),
            *(line for number, row in enumerate(rows) for line in _dots(TOP_MARGIN + LINE_HEIGHT * (number + 1), *row)),
            "</svg>\n",
        )
    )


def _x_of(ratio: float) -> float:
    value = min(max(ratio, MIN_RATIO), MAX_RATIO)
    return round(LABEL_WIDTH + AXIS_WIDTH * math.log(value / MIN_RATIO) / math.log(MAX_RATIO / MIN_RATIO), 1)


def _axis(height: int) -> Iterator[str]:
    for number, (peer, colour) in enumerate(COLOURS.items()):
        x, y = 10 + number % 4 * 200, 14 + number // 4 * 16
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/><text x="{x + 8}" y="{y}">{peer}</text>'
    for mark in (0.1, 1, 10, 100, 1_000):
        x, colour = _x_of(mark), "#000" if mark == 1 else "#ddd"
        yield f'<path d="M{x} {TOP_MARGIN}V{height - 14}" stroke="{colour}"/>'
        yield f'<text x="{x}" y="{TOP_MARGIN - 6}" text-anchor="middle">{mark:g}x</text>'


def _dots(y: int, name: str, ratios: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f'<text x="{LABEL_WIDTH - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
    for peer, values in ratios.items():
        if peer != FLOOR:
            yield f'<circle cx="{_x_of(statistics.median(values))}" cy="{y}" r="4" fill="{COLOURS[peer]}"/>'
