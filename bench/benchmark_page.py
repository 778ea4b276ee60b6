"""Writes what was measured beside the peers: docs/benchmarks.md, its picture, and the ratios that are kept."""

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
from bench.interleaved import FLOOR, Measured
from bench.peers import BIN, NPM, OURS, PYPI, SDK
from bench.rows import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = PAGE.with_suffix(".svg")
KEPT = Path(__file__).with_name("peer_ratios.json")
"""Ratios of the last whole run, by figure and peer, that the short one is held to."""

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


def write(sections: Mapping[str, Sequence[Measured]], grown: Mapping[str, Sequence[float]], short: set[str]) -> None:
    """Write all three.

    Args:
        sections: The figures by the heading that they stand under.
        grown: By the name of a growth row what its sizes took.
        short: The figures of the short form.
    """
    parts = [HEAD.format(machine=_machine()), *(_section(*each) for each in sections.items()), GROWTH]
    parts += (_growth(row, grown[row.name]) for row in growth_rows.ROWS if row.name in grown)
    PAGE.write_text("".join(parts), encoding="utf-8")
    found = [measured for section in sections.values() for measured in section]
    PICTURE.write_text(_picture(found), encoding="utf-8")
    kept = {
        measured.figure.name: {peer: round(statistics.median(each), 2) for peer, each in measured.ratios(OURS).items()}
        for measured in found
        if measured.figure.name in short
    }
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


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


def _section(heading: str, found: Sequence[Measured]) -> str:
    peers = list(dict.fromkeys(name for one in found for name in (*one.taken, *one.failed) if name != OURS))
    lines = [f"\n## {heading}\n", f"| | {OURS} | {' | '.join(peers)} |", f"| --- |{' --- |' * (1 + len(peers))}"]
    for one in found:
        ratios = one.ratios(OURS)
        cells = [
            _ratio(statistics.median(ratios[peer])) if peer in ratios else "none" * (peer in one.failed)
            for peer in peers
        ]
        ours = f"{_short(one.median(OURS))} {one.figure.unit}" if one.taken.get(OURS) else "none" * (OURS in one.failed)
        lines.append(f"| {one.figure.name} | {ours} | {' | '.join(cells)} |")
    notes: dict[str, str] = {}
    for one in found:
        if one.note:
            notes.setdefault(one.note, one.figure.name)
    lines += ["", *(f"- {name}: {note}." for note, name in notes.items())] if notes else []
    return "\n".join(lines) + "\n"


def _ratio(ratio: float) -> str:
    text = f"{_short(ratio)}x"
    return text if ratio >= 1 else f"**{text}**"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _growth(row: Growth, taken: Sequence[float]) -> str:
    if not taken:
        return f"| {row.name} | | | |\n"
    slope = growth_rows.exponent(row.sizes, taken)
    bold = "**" * (slope > MAX_EXPONENT)
    sizes = " · ".join(f"{size:,}" for size in row.sizes)
    values = " · ".join(map(_short, taken))
    return f"| {row.name} | {bold}{slope:.2f}{bold} | {sizes} | {values} {row.unit} |\n"


LEFT, WIDE, LINE, TOP = 330, 560, 15, 60
LEAST, MOST = 0.1, 1_000.0


def _picture(found: Sequence[Measured]) -> str:
    """A line for each figure, a dot on it for each peer, on a logarithmic axis."""
    rows = [(one.figure.name, one.ratios(OURS)) for one in found]
    height = TOP + LINE * len(rows) + 20
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 20} {height}">',
            "<style>text { font: 11px sans-serif }</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            *_axis(height),
            *(line for number, row in enumerate(rows) for line in _dots(TOP + LINE * (number + 1), *row)),
            "</svg>\n",
        )
    )


def _at(ratio: float) -> float:
    kept = min(max(ratio, LEAST), MOST)
    return round(LEFT + WIDE * math.log(kept / LEAST) / math.log(MOST / LEAST), 1)


def _axis(height: int) -> Iterator[str]:
    for number, (peer, colour) in enumerate(COLOURS.items()):
        x, y = 10 + number % 4 * 200, 14 + number // 4 * 16
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/><text x="{x + 8}" y="{y}">{peer}</text>'
    for mark in (0.1, 1, 10, 100, 1_000):
        x, colour = _at(mark), "#000" if mark == 1 else "#ddd"
        yield f'<path d="M{x} {TOP}V{height - 14}" stroke="{colour}"/>'
        yield f'<text x="{x}" y="{TOP - 6}" text-anchor="middle">{mark:g}x</text>'


def _dots(y: int, name: str, ratios: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
    for peer, each in ratios.items():
        if peer != FLOOR:
            yield f'<circle cx="{_at(statistics.median(each))}" cy="{y}" r="4" fill="{COLOURS[peer]}"/>'
