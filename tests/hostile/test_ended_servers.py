"""Real servers whose input ends while commands run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.harness import ROOT, server_arguments, write_config
from tests.processes import is_running
from tests.waiting import CEILING

if sys.platform == "win32":
    pytest.skip("not run: commands run on POSIX systems only", allow_module_level=True)

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
GREETING = (
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)

WORKING = "(setsid sleep 300 & echo $! >> pids) ; echo $$ >> pids ; sleep 300"
"""A command that goes on, and starts a process in a new session."""


class Server:
    """A server that runs every command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout

    def ask(self, *commands: str) -> None:
        """Request commands. The first request has the id 1."""
        for number, command in enumerate(commands, 1):
            params = {"name": "run_shell_command", "arguments": {"command": command}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def answer(self, identity: int) -> dict[str, Any]:
        """Return the answer to a request."""
        for line in self.stdout:
            message = json.loads(line)
            if message.get("id") == identity and "method" not in message:
                return message
        raise AssertionError("the server ended without an answer")


PATIENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from server import cli
from server.transports import stdio_server
stdio_server.COMMAND_SECONDS = {CEILING}
cli.main()
"""
"""A server that gives commands more time after the end of its input: on a busy machine, even quick ones take long."""


@contextmanager
def serving(root: Path, folder: Path, sandbox: str, *, is_patient: bool = False) -> Generator[Server]:
    config = write_config(folder, {"shell": {"sandbox": sandbox}})
    arguments = server_arguments(root, config, "--approval-mode", "yolo")
    if is_patient:
        arguments = ["-P", "-W", "error", "-c", PATIENT, *arguments[arguments.index("serve") :]]
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        server = Server(process)
        try:
            for message in GREETING:
                server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            yield server
        finally:
            process.kill()


def wait_for_lines(path: Path, lines: int) -> list[str]:
    """Wait until a file has `lines` lines, and return them."""
    deadline = time.monotonic() + CEILING
    while time.monotonic() < deadline:
        if path.exists() and len(text := path.read_text().splitlines()) >= lines:
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    return folder


@pytest.mark.long
@pytest.mark.requirement("stdio.drain")
def test_a_command_ends_soon_after_the_input_has_ended_and_so_does_the_server(root: Path, tmp_path: Path) -> None:
    with serving(root, tmp_path, "off") as server:
        server.ask(WORKING)
        pids = [int(line) for line in wait_for_lines(root / "pids", 2)]
        server.stdin.close()
        answer = server.answer(1)
        assert answer["error"]["code"] == -32000
        assert "Keep the input open" in answer["error"]["message"]
        assert server.stdout.read() == b""
        assert server.process.wait(CEILING) == 0
    assert not any(map(is_running, pids))


@pytest.mark.requirement("stdio.drain")
def test_quick_commands_that_were_piped_in_are_answered(root: Path, tmp_path: Path) -> None:
    with serving(root, tmp_path, "off", is_patient=True) as server:
        server.ask("echo first", "echo second")
        server.stdin.close()
        messages = [json.loads(line) for line in server.stdout]
        assert server.process.wait(CEILING) == 0
    answers = {message["id"]: message["result"] for message in messages if "id" in message}
    assert "first" in answers[1]["content"][0]["text"]
    assert "second" in answers[2]["content"][0]["text"]
