"""Mutation testing: a sample of small changes to the modules that protect people, and whether the tests notice each.

make mutation [MUTATION_ARGS='--mutants N --seed N --seconds N --only TARGET --again']

Everything happens in a copy of the checkout below the folder for temporary files. A mutant is given the tests that run
its line, the fastest first. What a run found stays there: the next one goes on, and with `--again` tries the survivors.
Exit code 1 if fewer than nine of ten mutants were noticed, without those that `harmless.toml` gives a reason for.
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
KEPT = Path(tempfile.gettempdir()) / f"coretools-mutation-{os.getuid()}"
COPY = KEPT / "checkout"
RESULTS = KEPT / "results.jsonl"

MAX_SECONDS = 12.0
"""Of tests for one mutant, as long as they took when they were traced; for survivors, tried again, twice."""
PATIENCE_SECONDS = 30.0
"""Added to four times as long as its tests took, for a busy machine."""
LEAST_KILLED = 0.9


class Result(NamedTuple):
    """What became of a mutant: `killed`, `timeout`, which counts as killed, or `survived`, harmless or not.

    Args:
        mutant: Its order.
        module: Path from the root.
        line: Its number.
        outcome: One of the three words.
        test: The test that failed.
        seconds: How long it took.
        diff: The change.
    """

    mutant: str
    module: str
    line: int
    outcome: str
    test: str
    seconds: float
    diff: str


def main() -> int:
    """Go on with the sample, and report on what is done of it."""
    options = _options()
    _copy()
    targets = [TARGETS[name] for name in options.only]
    files = sorted({file for target in targets for file in _files(target)})
    return WarmRuns(COPY, lambda runs: _go_on(options, runs)).serve(files)


def _go_on(options: argparse.Namespace, runs: WarmRuns) -> int:
    results = _results()
    known = {
        order
        for order, result in results.items()
        if not (options.again and result.outcome == "survived" and order not in HARMLESS)
    }
    ends = time.monotonic() + options.seconds
    modules = [module for name in options.only for module in TARGETS[name].modules]
    stamp = COPY.stat().st_mtime_ns
    done: list[Result] = []
    for number, (order, mutant) in enumerate(sample(COPY, modules, options.seed, options.mutants, known), 1):
        if time.monotonic() > ends:
            break
        if mutant is not None:
            most = MAX_SECONDS * (2 if options.again else 1)
            results[order] = result = _try(runs, mutant, stamp + number * 10**9, most)
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            sys.stdout.write(f"{number:4} {result.outcome:8} {result.seconds:5.1f} s {result.module}:{result.line}\n")
            sys.stdout.flush()
        done.append(results[order])
    return _report(done)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", nargs="+", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


def _copy() -> None:
    """The files of this checkout as they are now; compiled modules of the last run stay."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in os.fsdecode(listed.stdout).split("\0"):
        source, target = ROOT / name, COPY / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _results() -> dict[str, Result]:
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return {result.mutant: result for result in (Result(*json.loads(line)) for line in lines)}


def _try(runs: WarmRuns, mutant: Mutant, stamp: int, most: float) -> Result:
    """Run the tests on one mutant. Its time is one that no compiled module has: processes of tests import it, too."""
    path = COPY / mutant.module
    tests = _chosen(runs, mutant, most)
    plugin = FirstFailure()
    before = path.stat()
    original = path.read_text(encoding="utf-8")
    change = Change(str(path), original, mutant.text)
    limit = PATIENCE_SECONDS + 4 * sum(test.seconds for test in tests)
    begun = time.monotonic()
    outcome, test = "survived", ""
    try:
        path.write_text(mutant.text, encoding="utf-8")
        os.utime(path, ns=(stamp, stamp))
        if tests:
            names = [test.name for test in tests]
            test = runs.run(names, plugin, limit, lambda: plugin.name or "none", change) or "the process ended"
            outcome = "survived" if test == "none" else "killed"
    except TimeoutError:
        outcome = "timeout"
    finally:
        path.write_text(original, encoding="utf-8")
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    return Result(mutant.order, mutant.module, mutant.line, outcome, test, time.monotonic() - begun, mutant.diff)


def _chosen(runs: WarmRuns, mutant: Mutant, most: float) -> list[Test]:
    """The tests that run the line, or the one before it that any test runs; the fastest first."""
    tests = [test for test in _traced(runs, mutant.module) if test.lines.get(mutant.module)]
    if begin := _begin_of_function(mutant):
        ran = {line for test in tests for line in test.lines[mutant.module] if begin < line <= mutant.line}
        tests = [test for test in tests if ran and max(ran) in test.lines[mutant.module]]
    tests.sort(key=lambda test: test.seconds)
    ends = accumulate(test.seconds for test in tests)
    return [test for number, (test, end) in enumerate(zip(tests, ends, strict=True)) if end <= most or not number]


def _begin_of_function(mutant: Mutant) -> int:
    """The line of the outermost function that holds the mutant; 0 where it is none, and runs at the import."""
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


def _traced(runs: WarmRuns, module: str) -> list[Test]:
    """The tests that look at a module, with the lines they run; those that do not pass unchanged are left out."""
    (target,) = (target for target in TARGETS.values() if module in target.modules)
    sources = b"".join((COPY / name).read_bytes() for name in target.modules)
    traced: list[Test] = []
    for file in _files(target):
        digest = hashlib.sha256(sources + (COPY / file).read_bytes()).hexdigest()[:20]
        kept = KEPT / f"{Path(file).stem}-{digest}.json"
        if not kept.exists():
            recorder = Recorder(COPY, target.modules)
            begun = time.monotonic()
            told = runs.run(runs.names(file), recorder, 600, lambda made=recorder: json.dumps(made.tests()))
            sys.stdout.write(f"traced {file} in {time.monotonic() - begun:.0f} s\n")
            sys.stdout.flush()
            if not told:
                raise SystemExit(f"pytest failed, see {KEPT / 'output.txt'}")
            kept.write_text(told, encoding="utf-8")
        traced += [Test(*test) for test in json.loads(kept.read_text(encoding="utf-8"))]
    return traced


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
    missed = sum(count for (_, outcome), count in counts.items() if outcome == "survived")
    some = len(results) - sum(count for (_, outcome), count in counts.items() if outcome == "harmless")
    sys.stdout.write(f"{some - missed} of {some} mutants were noticed, beside {len(results) - some} harmless ones\n")
    return 0 if missed <= (1 - LEAST_KILLED) * some else 1


if __name__ == "__main__":
    sys.exit(main())
