"""Compare this server with its peers, in turn in one run. Writes docs/benchmarks.md if all rows were measured.

python bench/run_peers.py [--only TEXT] [--rounds N] [--trees DIR]     exit code 1 if this server is behind a peer
python bench/run_peers.py --short                                       exit code 1 if a stored ratio has halved
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
from bench.benchmark_page import RATIOS_FILE
from bench.interleaved import FLOOR, Measurement, measure
from bench.peer_rows import ROWS, SECTIONS
from bench.peers import OURS
from bench.rows import Scene
from bench.trees import storage_folder

SHORT_ROUNDS = 2
ATTEMPTS = 2


def result_line(result: Measurement) -> str:
    """Return one line: the value of this server, and the value and the ratio of each peer."""
    if OURS not in result.values:
        return f"FAILED {result.figure.name}: {result.failures.get(OURS)}"
    ratios = result.ratios(OURS)
    cells = [f"{name} {result.median(name):,.2f} (x{statistics.median(ratios[name]):.2f})" for name in ratios]
    cells += [f"{name}: {reason[:200]}" for name, reason in result.failures.items()]
    verdict = "ok  " if is_ahead(result) else "MISS"
    return f"{verdict} {result.figure.name} [{result.figure.unit}]: {result.median(OURS):,.2f}; {'; '.join(cells)}"


def is_ahead(result: Measurement) -> bool:
    """Return whether this server reaches the bar against all peers."""
    medians = [statistics.median(values) for name, values in result.ratios(OURS).items() if name != FLOOR]
    return OURS in result.values and all(ratio * result.figure.bar >= 1 for ratio in medians)


def short(scene: Scene) -> int:
    """Run the rows of the short form. It fails if the best ratio of two attempts is less than half the stored one."""
    stored_ratios: dict[str, dict[str, float]] = json.loads(RATIOS_FILE.read_text(encoding="utf-8"))
    failures = 0
    for row in (row for row in ROWS if row.short):
        best_ratios: dict[tuple[str, str], float] = {}
        for _ in range(ATTEMPTS):
            for result in measure(row, scene, SHORT_ROUNDS, (OURS, *row.short)):
                name = result.figure.name
                for peer, ratios in result.ratios(OURS).items():
                    best_ratios[name, peer] = max(best_ratios.get((name, peer), 0.0), *ratios)
                for peer, reason in result.failures.items():
                    print(f"not run: {name}, {peer}: {reason}", flush=True)
            if not any(ratio < stored_ratios[name][peer] / 2 for (name, peer), ratio in best_ratios.items()):
                break
        for (name, peer), ratio in best_ratios.items():
            is_worse = ratio < stored_ratios[name][peer] / 2
            failures += is_worse
            verdict = "WORSE" if is_worse else "ok   "
            print(f"{verdict} {ratio:6.2f} (stored: {stored_ratios[name][peer]:.2f}) {name}, compared with {peer}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only rows with a figure whose name contains this text"
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements per row; the median counts")
    parser.add_argument("--trees", type=Path, metavar="DIR", help="folder that keeps trees and peers between runs")
    parser.add_argument("--short", action="store_true", help="only check whether a stored ratio has halved")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(storage_folder(options.trees), Path(name).resolve())
        return short(scene) if options.short else whole(scene, options.only, options.rounds)


def whole(scene: Scene, only: str, rounds: int) -> int:
    """Measure the rows whose names contain a text. Write the page if the text is empty."""
    results_by_heading: dict[str, list[Measurement]] = {}
    for heading, rows in SECTIONS.items():
        for row in rows:
            if any(only in figure.name for figure in row.figures):
                result = measure(row, scene, rounds, list(row.targets))
                results_by_heading.setdefault(heading, []).extend(result)
                print(*map(result_line, result), sep="\n", flush=True)
    growth_times: dict[str, list[float]] = {}
    for growth in growth_rows.ROWS:
        if only in growth.name:
            growth_times[growth.name] = growth.measure(scene, 2)
            slope = growth_rows.exponent(growth.sizes, growth_times[growth.name])
            verdict = "ok  " if slope <= growth_rows.MAX_EXPONENT else "MISS"
            print(
                f"{verdict} exponent {slope:.2f} of {growth.name}: {growth_times[growth.name]} {growth.unit}",
                flush=True,
            )
    if not only:
        benchmark_page.write(
            results_by_heading, growth_times, {figure.name for row in ROWS if row.short for figure in row.figures}
        )
    ahead = all(is_ahead(result) for section in results_by_heading.values() for result in section)
    slow = [
        row
        for row in growth_rows.ROWS
        if growth_rows.exponent(row.sizes, growth_times.get(row.name, [])) > growth_rows.MAX_EXPONENT
    ]
    return 0 if ahead and not slow else 1


if __name__ == "__main__":
    raise SystemExit(main())
