"""Mutation testing: make small changes to security-critical modules, and check whether the tests notice them.

make mutation [MUTATION_ARGS='--mutants N --seed N --seconds N --only TARGET --again']

Everything happens in a copy of the checkout in the folder for temporary files. For each mutant, the tests that run its
line are run, the fastest first. Results are stored: the next run continues, and with `--again`, it retries survivors.
The exit code is 1 if fewer than 90 % of the mutants were noticed, not counting those explained in `harmless.toml`.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant, sample
from tests.mutation.targets import TARGETS, Target
from tests.mutation.warm_runs import Change, FirstFailure, Recorder, Test, WarmRuns

ROOT = Path(__file__).resolve().parents[2]
HARMLESS: dict[str, str] = tomllib.loads((Path(__file__).with_name("harmless.toml")).read_text(encoding="utf-8"))
FOLDER = Path(tempfile.gettempdir()) / f"coretools-mutation-{os.getuid()}"
COPY = FOLDER / "checkout"
RESULTS = FOLDER / "results.jsonl"

MAX_SECONDS = 12.0
"""Limit for the tests of one mutant, by their traced durations; doubled for survivors that are tried again."""
PATIENCE_SECONDS = 30.0
"""Added to four times the traced duration of the tests, for a busy machine."""
MIN_KILLED = 0.9


class Result(NamedTuple):
    """The result for a mutant: `killed`, `timeout` (counts as killed), or `survived` (harmless or not).

    Args:
        mutant: The order of the mutant.
        module: Path from the root.
        line: Line number of the change.
        outcome: One of these three words.
        test: The test that failed.
        seconds: Duration of the run.
        diff: The change as a diff.
    """

    mutant: str
    module: str
    line: int
    outcome: str
    test: str
    seconds: float
    diff: str


def main() -> int:
    """Continue with the sample, and report on the mutants that were tried so far."""
    options = _options()
    _copy()
    targets = [TARGETS[name] for name in options.only]
    files = sorted({file for target in targets for file in _files(target)})
    return WarmRuns(COPY, lambda runs: _continue(options, runs)).serve(files)


def _continue(options: argparse.Namespace, runs: WarmRuns) -> int:
    results = _results()
    known_orders = {
        order
        for order, result in results.items()
        if not (options.again and result.outcome == "survived" and order not in HARMLESS)
    }
    deadline = time.monotonic() + options.seconds
    modules = [module for name in options.only for module in TARGETS[name].modules]
    stamp = COPY.stat().st_mtime_ns
    results_so_far: list[Result] = []
    for number, (order, mutant) in enumerate(sample(COPY, modules, options.seed, options.mutants, known_orders), 1):
        if time.monotonic() > deadline:
            break
        if mutant is not None:
            max_seconds = MAX_SECONDS * (2 if options.again else 1)
            results[order] = result = _try(runs, mutant, stamp + number * 10**9, max_seconds)
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            sys.stdout.write(f"{number:4} {result.outcome:8} {result.seconds:5.1f} s {result.module}:{result.line}\n")
            sys.stdout.flush()
        results_so_far.append(results[order])
    return _report(results_so_far)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", nargs="+", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


def _copy() -> None:
    """Copy the current files of this checkout. Compiled modules of the last run stay."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = os.fsdecode(listing.stdout).split("\0")
    for path in COPY.rglob("*.py"):  # a module that was removed or renamed must not be imported
        if str(path.relative_to(COPY)) not in names:
            path.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _results() -> dict[str, Result]:
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return {result.mutant: result for result in (Result(*json.loads(line)) for line in lines)}


def _try(runs: WarmRuns, mutant: Mutant, stamp: int, max_seconds: float) -> Result:
    """Run the tests on one mutant.

    The changed file gets a modification time that no compiled module has, because child processes import it, too.
    """
    path = COPY / mutant.module
    tests = _select_tests(runs, mutant, max_seconds)
    plugin = FirstFailure()
    before = path.stat()
    original = path.read_text(encoding="utf-8")
    change = Change(str(path), original, mutant.text)
    time_limit = PATIENCE_SECONDS + 4 * sum(test.seconds for test in tests)
    start = time.monotonic()
    outcome, test = "survived", ""
    try:
        path.write_text(mutant.text, encoding="utf-8")
        os.utime(path, ns=(stamp, stamp))
        if tests:
            names = [test.name for test in tests]
            test = runs.run(names, plugin, time_limit, lambda: plugin.name or "none", change) or "the process ended"
            outcome = "survived" if test == "none" else "killed"
    except TimeoutError:
        outcome = "timeout"
    finally:
        path.write_text(original, encoding="utf-8")
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    return Result(mutant.order, mutant.module, mutant.line, outcome, test, time.monotonic() - start, mutant.diff)


def _select_tests(runs: WarmRuns, mutant: Mutant, max_seconds: float) -> list[Test]:
    """Return the tests that run the line, or else the closest line before it that a test runs; the fastest first."""
    tests = [test for test in _trace_tests(runs, mutant.module) if test.lines.get(mutant.module)]
    if first_line := _begin_of_function(mutant):
        executed_lines = {
            line for test in tests for line in test.lines[mutant.module] if first_line < line <= mutant.line
        }
        tests = [test for test in tests if executed_lines and max(executed_lines) in test.lines[mutant.module]]
    tests.sort(key=lambda test: test.seconds)
    end_times = accumulate(test.seconds for test in tests)
    return [
        test
        for number, (test, end) in enumerate(zip(tests, end_times, strict=True))
        if end <= max_seconds or not number
    ]


def _begin_of_function(mutant: Mutant) -> int:
    """Return the first line of the outermost function around the mutant, or 0 if the line runs at import."""
    functions = [
        node
        for node in ast.walk(ast.parse((COPY / mutant.module).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    return min((node.lineno for node in functions), default=0)


def _files(target: Target) -> list[str]:
    paths = {path for pattern in target.tests for path in (COPY / "tests").glob(pattern)}
    return sorted(str(path.relative_to(COPY)) for path in paths)


def _trace_tests(runs: WarmRuns, module: str) -> list[Test]:
    """Return the tests of a module with the lines that they run, without tests that fail on the unchanged module."""
    (target,) = (target for target in TARGETS.values() if module in target.modules)
    sources = b"".join((COPY / name).read_bytes() for name in target.modules)
    tests: list[Test] = []
    for file in _files(target):
        digest = hashlib.sha256(sources + (COPY / file).read_bytes()).hexdigest()[:20]
        cache_file = FOLDER / f"{Path(file).stem}-{digest}.json"
        if not cache_file.exists():
            recorder = Recorder(COPY, target.modules)
            start = time.monotonic()
            output = runs.run(runs.names(file), recorder, 600, lambda tracer=recorder: json.dumps(tracer.tests()))
            sys.stdout.write(f"traced {file} in {time.monotonic() - start:.0f} s\n")
            sys.stdout.flush()
            if not output:
                raise SystemExit(f"pytest failed, see {FOLDER / 'output.txt'}")
            cache_file.write_text(output, encoding="utf-8")
        tests += [Test(*test) for test in json.loads(cache_file.read_text(encoding="utf-8"))]
    return tests


def _report(results: list[Result]) -> int:
    for result in results:
        if result.outcome == "survived":
            sys.stdout.write(f"\n{result.mutant} {HARMLESS.get(result.mutant, '')}\n{result.diff}\n")
    counts = Counter(
        (result.module, "harmless" if result.outcome == "survived" and result.mutant in HARMLESS else result.outcome)
        for result in results
    )
    outcomes = ("killed", "timeout", "survived", "harmless")
    sys.stdout.write(f"\n{' '.join(outcomes)}\n")
    for module in sorted({result.module for result in results}):
        numbers = " ".join(f"{counts[module, outcome]:{len(outcome)}}" for outcome in outcomes)
        sys.stdout.write(f"{numbers} {module}\n")
    survivors = sum(count for (_, outcome), count in counts.items() if outcome == "survived")
    relevant = len(results) - sum(count for (_, outcome), count in counts.items() if outcome == "harmless")
    sys.stdout.write(
        f"{relevant - survivors} of {relevant} mutants were noticed, beside {len(results) - relevant} harmless ones\n"
    )
    return 0 if survivors <= (1 - MIN_KILLED) * relevant else 1


if __name__ == "__main__":
    sys.exit(main())
