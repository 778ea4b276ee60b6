"""Paired measurements: our server and a reference in turn, in one run; the ratio counts.

python bench/run.py [--only TEXT] [--rounds N] [--trees DIR]     exit code 1 if a bar is missed
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import (
    file_rows,
    network_rows,
    ping_rows,
    proxy_rows,
    replica_rows,
    search_rows,
    shell_rows,
    web_rows,
)
from bench.rows import NotRunError, Pair, Row, Scene
from bench.trees import storage_folder

ROWS = (
    *network_rows.ROWS,
    *proxy_rows.ROWS,
    *replica_rows.ROWS,
    *search_rows.ROWS,
    *file_rows.ROWS,
    *shell_rows.ROWS,
    *web_rows.ROWS,
    *ping_rows.ROWS,
)


def row_line(row: Row, pairs: Sequence[Pair], value: float) -> str:
    """Return one line: the verdict, the value and its bar, and the medians for people."""
    verdict = "ok  " if row.is_met(value) else "info" if row.informative else "MISS"
    limit = f"(at {'least' if row.at_least else 'most'} {row.bar:g})"
    figures = f"{statistics.median(pair.ours for pair in pairs):,.1f}"
    theirs = [pair.theirs for pair in pairs if pair.theirs is not None]
    if theirs:
        figures += f" : {statistics.median(theirs):,.1f}"
    note = f" ({pairs[-1].note})" if pairs[-1].note else ""
    return f"{verdict} {value:8.2f} {limit:16} {figures:>20} {row.unit:3} {row.name}{note}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose names contain this text")
    parser.add_argument("--rounds", type=int, default=7, help="number of measurements per row; the median counts")
    parser.add_argument("--trees", type=Path, metavar="DIR", help="folder that keeps source trees between runs")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(storage_folder(options.trees), Path(name).resolve())
        for row in ROWS:
            if options.only not in row.name:
                continue
            try:
                pairs = row.measure(scene, options.rounds)
            except NotRunError as error:
                print(f"not run: {row.name}: {error}", flush=True)
                continue
            except (AssertionError, RuntimeError) as error:
                # A wrong answer must not count as fast. Continue with the other rows.
                failures += 1
                print(f"FAILED: {row.name}: {error}", flush=True)
                continue
            value = statistics.median(pair.value for pair in pairs)
            failures += not (row.is_met(value) or row.informative)
            print(row_line(row, pairs, value), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
