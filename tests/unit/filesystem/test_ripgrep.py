"""ripgrep as a process: which settings it ignores, and that it ends together with every process that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.processes import children_of, is_running, needs_proc
from tests.waiting import wait_until
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.child_process import Child
from tools.files.search.content_search import MAX_SORTED
from tools.files.search.ripgrep import Query, Ripgrep

ENDLESS = [sys.executable, "-S", "-c", "while True: pass"]
PROJECT = Path(__file__).resolve().parents[3]
REAL_RIPGREP = os.path.join(sys.prefix, "bin", "rg")


def deadline(seconds: float = 30.0) -> Deadline:
    return Deadline(AbortSignal(), seconds)


def write_ripgrep(folder: Path, text: str) -> str:
    """Write a shell script to use as ripgrep, and return its path."""
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def matches_of(program: str, root: Path, pattern: str) -> list[tuple[str, list[int]]]:
    """Return the path and the line numbers of each match."""
    query = Query(pattern, fixed=False, ignore_case=False)
    return sorted(
        (match.path, list(match.lines)) for match in Ripgrep(program, deadline()).matches(query, str(root), ())
    )


@pytest.mark.requirement("grep.no_options")
def test_ripgrep_obeys_no_configuration_of_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("--invert-match\n--pre=sh\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(f"[core]\nexcludesFile = {tmp_path}/excludes\n")
    (tmp_path / "excludes").write_text("*.txt\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (root / ".git").mkdir()
    (root / "a.txt").write_text("foo\nbar\n")
    for name in (".ignore", ".rgignore"):
        (root / name).write_text("*.txt\n")
    assert matches_of(REAL_RIPGREP, root, "foo") == [("a.txt", [1])]


@pytest.mark.requirement("grep.no_options")
def test_lines_of_a_linked_ignore_file_that_ripgrep_quotes_are_not_passed_on(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").write_text("pass{word-4711\n[z-a]\n")
    (root / ".git").mkdir()
    (root / ".gitignore").symlink_to(tmp_path / "secret")
    (root / "a.txt").write_text("foo\n")
    assert matches_of(REAL_RIPGREP, root, "foo") == [("a.txt", [1])]
    verbose_ripgrep = write_ripgrep(tmp_path, f'exec {REAL_RIPGREP} --messages "$@"')
    assert matches_of(verbose_ripgrep, root, "foo") == [("a.txt", [1])]
    query = Query("(", fixed=False, ignore_case=False)
    assert Ripgrep(verbose_ripgrep, deadline()).refusal(query) == "unclosed group"
    assert "word-4711" not in caplog.text


@pytest.mark.requirement("grep.cancelled")
def test_a_child_is_killed_when_its_time_is_over_or_the_call_is_cancelled(root: Path) -> None:
    for limit in (deadline(0.2), deadline()):
        timer = threading.Timer(0.2, limit.signal.abort)
        timer.start()
        with Child(ENDLESS, str(root), limit) as child:
            assert child.read() == b"", "the child ends only because it is killed"
            assert child.was_killed
        timer.cancel()
        assert not is_running(child.pid)


@needs_proc
@pytest.mark.requirement("grep.cancelled")
@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_processes_that_a_program_started_end_with_it(root: Path, ends_by_itself: bool) -> None:
    command = f"sleep 300 & echo $!; {'' if ends_by_itself else 'sleep 300'}"
    with Child(["/bin/sh", "-c", command], str(root), deadline()) as child:
        sleep_pid = int(child.read())
        if ends_by_itself:
            assert child.read() == b""
    assert not is_running(child.pid)
    wait_until(lambda: not is_running(sleep_pid))


@needs_proc
@pytest.mark.requirement("grep.cancelled")
def test_a_process_that_keeps_the_output_of_an_ended_program_open_is_not_waited_for(root: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "left"
    text = f"setsid sh -c 'echo $$ >{pid_file}.new && mv {pid_file}.new {pid_file} && exec sleep 300' &\n"
    text += f"while [ ! -e {pid_file} ]; do :; done\nexit 0"
    try:
        with pytest.raises(ToolError) as error_info:
            matches_of(write_ripgrep(tmp_path, text), root, "foo")
        assert error_info.value.code is ToolErrorType.GREP_EXECUTION_ERROR
        os.kill(int(pid_file.read_text()), 0)  # still running, in a session of its own
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


@needs_proc
@pytest.mark.requirement("grep.cancelled")
def test_a_search_that_is_closed_early_leaves_no_process(root: Path, tmp_path: Path) -> None:
    program = write_ripgrep(
        tmp_path, f"echo $$ > {tmp_path}/pid; printf './a\\0001:1:\\n./b\\0001:1:\\n'; exec sleep 300"
    )
    query = Query("foo", fixed=False, ignore_case=False)
    with closing(Ripgrep(program, deadline()).matches(query, str(root), ())) as matches:
        assert next(matches).path == "a"
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
    assert not is_running(pid)


OWNER = """
import sys
from tools.contract.call_options import AbortSignal, Deadline
from tools.files.child_process import Child
with Child(["/bin/sh", "-c", "sleep 300 & echo $!; sleep 300"], "/", Deadline(AbortSignal(), 300)) as child:
    print(child.pid, child.read().decode(), flush=True)
    child.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on other systems, the child ends later, by itself")
@pytest.mark.requirement("grep.cancelled")
def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, cwd=PROJECT) as owner:
        assert owner.stdout is not None
        pids = list(map(int, owner.stdout.readline().split()))
        assert all(map(is_running, pids))
        owner.kill()
    wait_until(lambda: not any(map(is_running, pids)))


@pytest.fixture
def endless_ripgrep(tmp_path: Path, no_ripgrep: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Install a ripgrep that finds one line and never ends. Return a function that lists its processes."""
    (tmp_path / "bin").mkdir()
    write_ripgrep(tmp_path / "bin", "printf './a.txt\\0001:1:\\n./z.txt\\000'; exec /bin/sleep 300")
    no_ripgrep.setenv("PATH", str(tmp_path / "bin"))
    other_children = frozenset(children_of(os.getpid()))
    return lambda: [pid for pid in children_of(os.getpid()) if pid not in other_children and is_running(pid)]


@needs_proc
@pytest.mark.anyio
@pytest.mark.requirement("grep.cancelled")
async def test_a_search_that_does_not_end_gives_what_it_has_at_the_time_limit(
    root: Path, context: ToolContext, endless_ripgrep: Callable[[], list[int]]
) -> None:
    (root / "a.txt").write_text("foo\n")
    tool = GrepTool()
    tool.seconds = 0.5
    result = await tool.execute(tool.validate_tool_params({"pattern": "foo"}), context)
    assert "L1: foo" in str(result.llm_content)
    assert "PARTIAL RESULT: the time limit" in str(result.llm_content)
    assert endless_ripgrep() == []


@needs_proc
@pytest.mark.anyio
@pytest.mark.requirement("grep.cancelled")
async def test_cancelling_a_search_ends_it_with_a_typed_error(
    root: Path, context: ToolContext, endless_ripgrep: Callable[[], list[int]]
) -> None:
    (root / "a.txt").write_text("foo\n")
    abort_signal = AbortSignal()
    timer = threading.Timer(0.2, abort_signal.abort)
    timer.start()
    tool = GrepTool()
    with pytest.raises(ToolError) as error_info:
        await tool.execute(tool.validate_tool_params({"pattern": "foo"}), replace(context, signal=abort_signal))
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert endless_ripgrep() == []


@needs_proc
@pytest.mark.anyio
@pytest.mark.requirement("grep.cancelled")
async def test_an_abandoned_call_leaves_no_process(
    root: Path, context: ToolContext, endless_ripgrep: Callable[[], list[int]]
) -> None:
    (root / "a.txt").write_text("foo\n")
    tool = GrepTool()
    with anyio.move_on_after(0.3) as scope:
        await tool.execute(tool.validate_tool_params({"pattern": "foo"}), context)
    assert scope.cancelled_caught
    wait_until(lambda: not endless_ripgrep())


@pytest.mark.anyio
@pytest.mark.requirement("grep.order")
async def test_a_frequent_pattern_is_searched_in_order_and_ripgrep_is_ended_after_enough_matches(
    root: Path, tmp_path: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (root / f"{number}.txt").write_text("foo\n" * MAX_SORTED)
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    program = write_ripgrep(tmp_path / "bin", f'echo "$@" >> {log}\n{REAL_RIPGREP} "$@"\nexec /bin/sleep 300')
    no_ripgrep.setenv("PATH", os.path.dirname(program))
    tool = GrepTool()
    result = await tool.execute(tool.validate_tool_params({"pattern": "foo", "limit": 2 * MAX_SORTED}), context)
    assert result.facts["complete"] is False
    assert "File: 0.txt\nL1: foo" in str(result.llm_content)
    calls = log.read_text().splitlines()
    assert ["--sort=path" in call for call in calls] == [False, True]
