"""Servers with hung upstreams end in every way: nothing of the upstreams is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import anyio
import pytest

from tests.harness import server_arguments, write_config
from tests.hostile.lying import over_stdio
from tests.processes import CEILING, needs_proc, pids_with_mark, until_no_process_has_mark

pytestmark = [pytest.mark.anyio, needs_proc]

if sys.platform == "win32":
    pytest.skip("not run: there is no broker on Windows", allow_module_level=True)

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

HUNG = {
    "at-start": ["fork@start", "hang@start"],
    "greeting": ["fork@start", "hang@initialize"],
    "listing": ["fork@start", "hang@list"],
    "calling": ["fork@list", "hang"],
}
"""Upstreams that start a process in a new session that ignores SIGTERM, and then hang."""

CLIENT_PROGRAM = """
import json, os, subprocess, sys
process = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdin.write(sys.argv[2].encode())
process.stdin.flush()
for line in process.stdout:
    print(line.decode(), end="", flush=True)
"""
"""A client that passes on the output of its server until it is killed."""


class Peer:
    """The pipes of a server, or of a client that passes on the output of its server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout: IO[bytes] = process.stdout

    def answer(self, identity: int) -> dict[str, Any]:
        for line in self.stdout:
            message = json.loads(line)
            if message.get("id") == identity and "method" not in message:
                return message
        raise AssertionError("the server ended without an answer")


def requests() -> bytes:
    """Return messages that initialize, list tools, and call the upstream that hangs in calls and the honest one."""
    calls: list[dict[str, Any]] = [
        {"id": 2, "method": "tools/call", "params": {"name": "calling__echo", "arguments": {}}},
        {"id": 3, "method": "tools/call", "params": {"name": "good__echo", "arguments": {"text": "hi"}}},
    ]
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": CLIENT},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/list"},
        *calls,
    ]
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


@contextmanager
def serving(root: Path, folder: Path, mark: str, *, behind_a_client: bool) -> Generator[Peer]:
    servers = {alias: over_stdio(*deeds, env={"MARK": mark}) for alias, deeds in HUNG.items()}
    servers["good"] = over_stdio(env={"MARK": mark})
    config = write_config(folder, {"mcpServers": servers, "proxy": {"firstListWait": 3_000}})
    command = [sys.executable, *server_arguments(root, config)]
    if behind_a_client:
        command = [sys.executable, "-c", CLIENT_PROGRAM, json.dumps(command), requests().decode()]
    stdin = subprocess.DEVNULL if behind_a_client else subprocess.PIPE
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            peer = Peer(process)
            if peer.stdin is not None:
                peer.stdin.write(requests())
                peer.stdin.flush()
            yield peer
        finally:
            process.kill()


@pytest.mark.requirement("upstream.nothing-left")
@pytest.mark.parametrize(
    "end",
    [
        *(pytest.param(end, marks=pytest.mark.long) for end in ("end of input", "SIGTERM", "SIGKILL")),
        "death of the client",
    ],
)
async def test_nothing_is_left_of_hung_upstreams(end: str, root: Path, tmp_path: Path) -> None:
    mark = uuid4().hex
    with serving(root, tmp_path, mark, behind_a_client=end == "death of the client") as peer:
        assert peer.answer(3)["result"]["content"][0]["text"] == "hi"
        with anyio.fail_after(CEILING):
            # Five upstreams, and the processes that four of them have started.
            while len(pids_with_mark(mark)) < 9:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
        if end == "end of input":
            assert peer.stdin is not None
            peer.stdin.close()
            assert peer.answer(2)["error"]["code"] == -32000
            assert peer.process.wait(CEILING) == 0
            assert pids_with_mark(mark) == []
        elif end == "SIGTERM":
            os.kill(peer.process.pid, signal.SIGTERM)
            assert peer.process.wait(CEILING) == 0
            assert pids_with_mark(mark) == []
        else:
            peer.process.kill()
            await until_no_process_has_mark(mark)
