"""This server beside its peers, in turn in one run; writes docs/benchmarks.md when all rows were measured.

python bench/run_peers.py [--only TEXT] [--rounds N] [--trees DIR]     exit code 1 where we are behind the best peer
python bench/run_peers.py --short                                       exit code 1 where a kept ratio has halved
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import benchmark_page, growth_rows
from bench.benchmark_page import KEPT
from bench.interleaved import FLOOR, Measured, measure
from bench.peer_rows import ROWS, SECTIONS
from bench.peers import OURS
from bench.rows import Scene
from bench.trees import keeping_folder

SHORT_ROUNDS = 2
ATTEMPTS = 2


def shown(measured: Measured) -> str:
    """One line: ours, and each peer's with how many times as long it takes."""
    if OURS not in measured.taken:
        return f"FAILED {measured.figure.name}: {measured.failed.get(OURS)}"
    ratios = measured.ratios(OURS)
    cells = [f"{name} {measured.median(name):,.2f} (x{statistics.median(ratios[name]):.2f})" for name in ratios]
    cells += [f"{name}: {why[:200]}" for name, why in measured.failed.items()]
    verdict = "ok  " if is_ahead(measured) else "MISS"
    return (
        f"{verdict} {measured.figure.name} [{measured.figure.unit}]: {measured.median(OURS):,.2f}; {'; '.join(cells)}"
    )


def is_ahead(measured: Measured) -> bool:
    """Whether no peer takes less than our bar allows."""
    beaten = [statistics.median(each) for name, each in measured.ratios(OURS).items() if name != FLOOR]
    return OURS in measured.taken and all(ratio * measured.figure.bar >= 1 for ratio in beaten)


def short(scene: Scene) -> int:
    """The rows that have a short form: a failure where the best round of two attempts is half of what was kept."""
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text(encoding="utf-8"))
    worse = 0
    for row in (row for row in ROWS if row.short):
        found: dict[tuple[str, str], float] = {}
        for _ in range(ATTEMPTS):
            for measured in measure(row, scene, SHORT_ROUNDS, (OURS, *row.short)):
                name = measured.figure.name
                for peer, ratios in measured.ratios(OURS).items():
                    found[name, peer] = max(found.get((name, peer), 0.0), *ratios)
                for peer, why in measured.failed.items():
                    print(f"not run: {name}, {peer}: {why}", flush=True)
            if not any(ratio < kept[name][peer] / 2 for (name, peer), ratio in found.items()):
                break
        for (name, peer), ratio in found.items():
            is_worse = ratio < kept[name][peer] / 2
            worse += is_worse
            print(f"{'WORSE' if is_worse else 'ok   '} {ratio:6.2f} (kept {kept[name][peer]:.2f}) {name}, of {peer}")
    return 1 if worse else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="the rows with a figure whose name holds this text")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured; the median counts")
    parser.add_argument("--trees", type=Path, metavar="DIR", help="where trees and peers are kept between runs")
    parser.add_argument("--short", action="store_true", help="only whether a kept ratio has halved")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(keeping_folder(given.trees), Path(name).resolve())
        return short(scene) if given.short else whole(scene, given.only, given.rounds)


def whole(scene: Scene, only: str, rounds: int) -> int:
    """All rows whose names hold a text; the page is written where that is every row."""
    found: dict[str, list[Measured]] = {}
    for heading, rows in SECTIONS.items():
        for row in rows:
            if any(only in figure.name for figure in row.figures):
                measured = measure(row, scene, rounds, list(row.targets))
                found.setdefault(heading, []).extend(measured)
                print(*map(shown, measured), sep="\n", flush=True)
    grown: dict[str, list[float]] = {}
    for growth in growth_rows.ROWS:
        if only in growth.name:
            grown[growth.name] = growth.measure(scene, 2)
            slope = growth_rows.exponent(growth.sizes, grown[growth.name])
            verdict = "ok  " if slope <= growth_rows.MAX_EXPONENT else "MISS"
            print(f"{verdict} exponent {slope:.2f} of {growth.name}: {grown[growth.name]} {growth.unit}", flush=True)
    if not only:
        benchmark_page.write(found, grown, {figure.name for row in ROWS if row.short for figure in row.figures})
    ahead = all(is_ahead(measured) for section in found.values() for measured in section)
    slow = [
        row
        for row in growth_rows.ROWS
        if growth_rows.exponent(row.sizes, grown.get(row.name, [])) > growth_rows.MAX_EXPONENT
    ]
    return 0 if ahead and not slow else 1


if __name__ == "__main__":
    raise SystemExit(main())
