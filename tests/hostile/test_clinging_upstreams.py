"""Upstreams that refuse to end, and processes that they have started: nothing of them is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import anyio
import pytest

from server.settings import UpstreamSettings
from server.upstreams.wire import stdio_upstream
from tests.harness import PEERS, server_arguments, write_config
from tests.pools import ONE_CLIENT, quiet_pool
from tests.processes import CEILING, brokers_of, needs_proc, pids_with_mark, until_ended, until_no_process_has_mark
from tests.variants import one_in

pytestmark = [pytest.mark.anyio, needs_proc]

if sys.platform == "win32":
    pytest.skip("not run: there is no broker on Windows", allow_module_level=True)

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
GREETING: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)


@pytest.fixture
def mark() -> str:
    """An identifier that marks an upstream and all its processes."""
    return uuid4().hex


def clinging(mark: str, tool: str = "nothing") -> UpstreamSettings:
    script = str(PEERS / "clinging_upstream.py")
    return UpstreamSettings(command=sys.executable, args=(script, tool), env={"MARK": mark}, trust=True)


@contextmanager
def serving(root: Path, folder: Path, servers: dict[str, Any]) -> Generator[subprocess.Popen[bytes]]:
    config = write_config(folder, {"mcpServers": servers})
    command = [sys.executable, *server_arguments(root, config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def pipes_of(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def call(process: subprocess.Popen[bytes], identity: int, tool: str) -> dict[str, Any]:
    """Call a tool, and wait for the answer."""
    server_input, server_output = pipes_of(process)
    params: dict[str, Any] = {"name": tool, "arguments": {}}
    request = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
    for message in (*GREETING, request) if identity == 1 else (request,):
        server_input.write(json.dumps(message).encode() + b"\n")
    server_input.flush()
    for line in server_output:
        message = json.loads(line)
        if message.get("id") == identity:
            return message
    raise AssertionError("the server ended without an answer")


def as_json(entry: UpstreamSettings) -> dict[str, Any]:
    return {"command": entry.command, "args": list(entry.args), "env": dict(entry.env), "trust": entry.trust}


@pytest.mark.requirement("upstream.nothing-left")
@pytest.mark.parametrize("is_killed", one_in(2, [False, True]), ids=["clean end", "SIGKILL"])
async def test_nothing_of_an_upstream_is_left_when_the_server_has_ended(
    is_killed: bool, root: Path, tmp_path: Path, mark: str
) -> None:
    with serving(root, tmp_path, {"demo": as_json(clinging(mark))}) as server:
        assert "done" in str(call(server, 1, "demo__nothing")["result"])
        assert len(pids_with_mark(mark)) == 2
        if is_killed:
            server.kill()
            server.wait(CEILING)
            await until_no_process_has_mark(mark)
        else:
            pipes_of(server)[0].close()
            assert server.wait(CEILING) == 0
            assert pids_with_mark(mark) == []


@pytest.mark.requirement("upstream.nothing-left")
async def test_nothing_is_left_of_an_upstream_whose_entry_is_changed_or_removed(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio_upstream, "LEAVING_SECONDS", 0.1)
    monkeypatch.setattr(stdio_upstream, "GRACE_SECONDS", 0.1)
    old, new = mark, mark[::-1]
    pool = quiet_pool({"demo": clinging(old)})

    async def wait_until_connected() -> None:
        with anyio.fail_after(CEILING):
            await pool.upstreams[0].known.wait()
        assert pool.upstreams[0].live_session is not None

    async with anyio.create_task_group() as tasks:
        pool.start(tasks, ONE_CLIENT)
        await wait_until_connected()
        assert len(pids_with_mark(old)) == 2
        pool.change({"demo": clinging(new)}, tasks)
        await wait_until_connected()
        await until_no_process_has_mark(old)
        assert len(pids_with_mark(new)) == 2
        pool.change({}, tasks)
        await until_no_process_has_mark(new)
        await until_ended(brokers_of(os.getpid()))
        pool.change({"demo": clinging(old)}, tasks)
        await wait_until_connected()
        tasks.cancel_scope.cancel()
    assert pids_with_mark(old) == []
    assert brokers_of(os.getpid()) == []


@pytest.mark.requirement("upstream.errors")
async def test_an_upstream_goes_on_even_if_it_floods_standard_error(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "loud.py"
    clinging_script = (PEERS / "clinging_upstream.py").read_text()
    loud_loop = "    for line in sys.stdin:\n        print('loud' * 50_000, file=sys.stderr)\n"
    assert "    for line in sys.stdin:\n" in clinging_script
    script.write_text(clinging_script.replace("    for line in sys.stdin:\n", loud_loop))
    entry = {"command": sys.executable, "args": [str(script)], "trust": True}
    with serving(root, tmp_path, {"demo": entry}) as server:
        for number in range(1, 11):
            assert "done" in str(call(server, number, "demo__nothing")["result"])
        pipes_of(server)[0].close()
        assert server.wait(CEILING) == 0
