"""Real servers that come to an end while commands run: their input ends, or they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from tests.harness import HANDSHAKES, MODERN, connected, server_arguments, write_config
from tests.processes import is_running
from tests.waiting import CEILING
from tools.execution.sandbox.placeholders import MODE, is_placeholder, remove_abandoned
from tools.permissions.steering_files import ABSENT_FILES, ABSENT_FOLDERS

if sys.platform == "win32":
    pytest.skip("not run: commands run on POSIX systems only", allow_module_level=True)

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
GREETING = (
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)

WORKING = "(setsid sleep 300 & echo $! >> pids) ; echo $$ >> pids ; sleep 300"
"""Leaves a process that has left its group, and goes on."""


class Server:
    """A server that runs whatever it is asked to."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout

    def ask(self, *commands: str) -> None:
        """Call for commands; the first has the id 1."""
        for number, command in enumerate(commands, 1):
            params = {"name": "run_shell_command", "arguments": {"command": command}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def answer(self, identity: int) -> dict[str, Any]:
        """The answer to a request."""
        for line in self.stdout:
            message = json.loads(line)
            if message.get("id") == identity and "method" not in message:
                return message
        raise AssertionError("the server ended without an answer")


@contextmanager
def serving(root: Path, settings: Path, sandbox: str) -> Generator[Server]:
    config = write_config(settings, {"shell": {"sandbox": sandbox}})
    command = [sys.executable, *server_arguments(root, config, "--approval-mode", "yolo")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        server = Server(process)
        try:
            for message in GREETING:
                server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            yield server
        finally:
            process.kill()


def until_empty(folder: Path) -> None:
    until = time.monotonic() + CEILING
    while os.listdir(folder) and time.monotonic() < until:
        time.sleep(0.01)
    assert os.listdir(folder) == []


def until_gone(pids: list[int]) -> None:
    until = time.monotonic() + CEILING
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(is_running, pids))


def until_names(folder: Path, names: set[str]) -> None:
    until = time.monotonic() + CEILING
    while set(os.listdir(folder)) != names and time.monotonic() < until:
        time.sleep(0.01)
    assert set(os.listdir(folder)) == names


def until_written(path: Path, lines: int) -> list[str]:
    """The lines of a file, once it has them."""
    until = time.monotonic() + CEILING
    while time.monotonic() < until:
        if path.exists() and len(text := path.read_text().splitlines()) >= lines:
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    return folder


@pytest.mark.requirement("stdio.end-commands")
def test_a_command_ends_soon_after_the_input_has_ended_and_so_does_the_server(root: Path, tmp_path: Path) -> None:
    with serving(root, tmp_path, "off") as server:
        server.ask(WORKING)
        pids = [int(line) for line in until_written(root / "pids", 2)]
        server.stdin.close()
        answer = server.answer(1)
        assert answer["error"]["code"] == -32000
        assert "Keep the input open" in answer["error"]["message"]
        assert server.stdout.read() == b""
        assert server.process.wait(CEILING) == 0
    assert not any(map(is_running, pids))


@pytest.mark.requirement("stdio.end-commands")
def test_quick_commands_that_were_piped_in_are_answered(root: Path, tmp_path: Path) -> None:
    with serving(root, tmp_path, "off") as server:
        server.ask("echo first", "echo second")
        server.stdin.close()
        said = [json.loads(line) for line in server.stdout]
        assert server.process.wait(CEILING) == 0
    answers = {message["id"]: message["result"] for message in said if "id" in message}
    assert "first" in answers[1]["content"][0]["text"]
    assert "second" in answers[2]["content"][0]["text"]


@pytest.mark.requirement("sandbox.killed-server")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
def test_what_a_killed_server_leaves_in_a_workspace_goes_with_the_next_command_and_nothing_else(
    root: Path, tmp_path: Path
) -> None:
    with serving(root, tmp_path, "required") as server:
        server.ask("true")
        if server.answer(1)["result"].get("isError"):
            pytest.skip("not run: bubblewrap does not run here")
        until_empty(root)
        server.ask("echo started >> mark ; sleep 300")
        until_written(root / "mark", 1)
        server.process.kill()
        server.process.wait(CEILING)
    held = [root / name for name in ABSENT_FOLDERS]
    assert len(held) > 2
    assert all(is_placeholder(str(folder)) for folder in held)

    filled, replaced, *_ = held
    (filled / "notes.json").write_text("{}")
    replaced.rmdir()
    replaced.mkdir()
    with serving(root, tmp_path, "required") as server:
        server.ask("true")
        assert "isError" not in server.answer(1)["result"]
        server.stdin.close()
        assert server.process.wait(CEILING) == 0
    assert sorted(os.listdir(root)) == sorted([filled.name, replaced.name, "mark"])
    assert (filled / "notes.json").read_text() == "{}"


def processes_below(parent: int) -> list[int]:
    """All that a process has started, and what these have."""
    listed = subprocess.run(["ps", "-eo", "ppid=,pid="], capture_output=True, encoding="ascii", check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [parent]
    for above in found:
        found += [pid for ppid, pid in pairs if ppid == above]
    return found[1:]


@pytest.mark.requirement("sandbox.killed-server-start")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
@pytest.mark.parametrize("killed", ["the server", "all of its processes"])
def test_a_server_that_starts_removes_what_a_killed_one_has_left_and_nothing_else(
    root: Path, tmp_path: Path, killed: str
) -> None:
    own, filled, replaced, emptied, *_ = (root / name for name in ABSENT_FOLDERS)
    own.mkdir()
    with serving(root, tmp_path, "required") as server:
        server.ask("echo started >> mark ; sleep 300")
        until_written(root / "mark", 1)
        below = processes_below(server.process.pid)
        assert len(below) > 2
        shot = [server.process.pid, *(below if killed == "all of its processes" else ())]
        # So that none of them sees another one end.
        for kill in (signal.SIGSTOP, signal.SIGKILL):
            for pid in shot:
                with suppress(ProcessLookupError):
                    os.kill(pid, kill)
        server.process.wait(CEILING)
    until_gone(below)
    assert is_placeholder(str(emptied))
    (filled / "notes.json").write_text("{}")
    replaced.rmdir()
    replaced.mkdir()
    with serving(root, tmp_path, "required"):
        until_names(root, {own.name, filled.name, replaced.name, "mark"})
    assert (filled / "notes.json").read_text() == "{}"


@pytest.mark.requirement("sandbox.killed-server-start")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
def test_what_a_command_of_another_server_needs_stays_when_a_server_starts(root: Path, tmp_path: Path) -> None:
    left = root / ABSENT_FOLDERS[0]
    with serving(root, tmp_path, "required") as first:
        first.ask("echo started >> mark ; until [ -e end ]; do sleep 0.05; done; echo x > .vscode/tasks.json")
        until_written(root / "mark", 1)
        with serving(root, tmp_path, "required") as second:
            second.ask("true")
            assert "isError" not in second.answer(1)["result"]
            second.process.kill()
            second.process.wait(CEILING)
        with serving(root, tmp_path, "required") as third:
            third.ask("true")
            assert "isError" not in third.answer(1)["result"]
            third.stdin.close()
            assert third.process.wait(CEILING) == 0
        assert is_placeholder(str(left))
        (root / "end").touch()
        assert "Permission denied" in json.dumps(first.answer(1))
        first.stdin.close()
        assert first.process.wait(CEILING) == 0
    assert sorted(os.listdir(root)) == ["end", "mark"]


@pytest.mark.requirement("sandbox.killed-server-start")
@pytest.mark.parametrize("revision", [HANDSHAKES[-1], MODERN])
@pytest.mark.anyio
async def test_whoever_asks_for_files_finds_none_of_the_folders_of_a_killed_server(root: Path, revision: str) -> None:
    for name in (*ABSENT_FOLDERS, *ABSENT_FILES, ".git/hooks"):
        (root / name).mkdir(parents=True)
        (root / name).chmod(MODE)
    shared, mine = root / "shared", root / "src"
    for folder, mode in ((shared, 0o1777), (mine, MODE)):
        folder.mkdir()
        folder.chmod(mode)
    async with connected("stdio", revision, root) as client:
        listed = await client.call_tool("list_directory", {"path": "."})
        assert not listed.is_error
    assert sorted(os.listdir(root)) == [".git", "shared", "src"]
    assert os.listdir(root / ".git") == []


@pytest.mark.requirement("sandbox.killed-server-start")
def test_a_folder_that_everybody_may_write_in_is_not_taken_for_one_of_ours(root: Path) -> None:
    (root / ".vscode").mkdir()
    (root / ".vscode").chmod(0o1777)
    assert not is_placeholder(str(root / ".vscode"))
    remove_abandoned([str(root)])
    assert (root / ".vscode").is_dir()


@pytest.mark.requirement("sandbox.killed-server-start")
def test_a_server_that_nobody_has_greeted_leaves_everything_as_it_is(root: Path, tmp_path: Path) -> None:
    left = root / ABSENT_FOLDERS[0]
    left.mkdir()
    left.chmod(MODE)
    command = [sys.executable, *server_arguments(root, write_config(tmp_path, {}))]
    said = subprocess.run(command, input=json.dumps(GREETING[0]).encode() + b"\n", capture_output=True, check=True)
    assert json.loads(said.stdout)["result"]["serverInfo"]
    assert is_placeholder(str(left))
