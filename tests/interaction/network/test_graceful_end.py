"""SIGTERM while streams and sessions are open and calls are running: the server ends in order, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from mcp_types import CONNECTION_CLOSED

from tests.fork_server import forked
from tests.harness import LAUNCHER, ROOT, server_arguments, write_config
from tests.interaction.network.test_ended_requests import (
    open_session,
    post_accepted,
    send_request,
    wait_for_pid,
    waiting_call,
)
from tests.interaction.network.wires import (
    INITIALIZED,
    Connection,
    connection,
    initialize,
    modern,
    modern_headers,
    post,
    request,
)
from tests.interaction.test_conversation import UNASKED
from tests.interaction.test_lifecycle import by_itself
from tests.processes import children_of, until_ended
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.end"),
    pytest.mark.skipif(os.name != "posix", reason="not run: needs the signals and commands of POSIX"),
]


@contextmanager
def running_server(
    root: Path,
    config: Path,
    transport: str,
    script: Path = LAUNCHER,
    start: Callable[[list[str]], list[str]] = forked,
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Run a server; yield its process and its URL."""
    arguments = server_arguments(root, config, "--transport", transport, "--port", "0")
    arguments[arguments.index(str(LAUNCHER))] = str(script)
    process = subprocess.Popen([sys.executable, *start(arguments)], stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        line = process.stderr.readline().decode()
        assert "serving MCP at " in line
        yield process, line.partition("serving MCP at ")[2].partition(",")[0]
    finally:
        process.kill()
        process.wait(CEILING)
        process.stderr.close()


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_open_streams_and_long_calls_do_not_keep_the_server_from_ending(
    transport: str, root: Path, tmp_path: Path
) -> None:
    folders = {name: root / name for name in ("session", "lone", "sse")}
    for folder in folders.values():
        folder.mkdir()
    start = by_itself if transport == "http" else forked  # its child processes are looked up below its own process
    with running_server(root, write_config(tmp_path, UNASKED), transport, start=start) as (process, url):
        async with connection(url) as stream, connection(url) as wire, connection(url) as call_wire:
            events = stream.events(await stream.ask("GET", "/sse", {}))
            _, endpoint = await anext(events)
            await post_accepted(wire, initialize("2025-11-25", {}), {}, endpoint)
            assert json.loads((await anext(events))[1])["id"] == 0
            await post_accepted(wire, INITIALIZED, {}, endpoint)
            await post_accepted(wire, request(1, "tools/call", waiting_call(folders["sse"])), {}, endpoint)
            pids = [await wait_for_pid(folders["sse"])]
            if transport == "http":
                async with open_session(url, "2025-11-25") as (_, headers):
                    await send_request(wire, request(1, "tools/call", waiting_call(folders["session"])), headers)
                    pids.append(await wait_for_pid(folders["session"]))
                    async with connection(url) as listener:
                        stream_head = await listener.ask("GET", "/mcp", headers)
                        assert stream_head.status == 200
                        stateless_call = modern(1, "tools/call", waiting_call(folders["lone"]))
                        await send_request(call_wire, stateless_call, modern_headers(stateless_call))
                        pids.append(await wait_for_pid(folders["lone"]))
                        await assert_ends(process, pids)
                        assert [message async for message in listener.messages(stream_head)] == []
                        # The status is 503, or 200 if the call had already reported progress.
                        for caller, identity in ((call_wire, stateless_call["id"]), (wire, 1)):
                            head = await caller.head()
                            assert head.status in (200, 503)
                            answer = [message async for message in caller.messages(head)][-1]
                            assert (answer["id"], answer["error"]["code"]) == (identity, CONNECTION_CLOSED)
                            assert "The server is shutting down" in answer["error"]["message"]
            else:
                await assert_ends(process, pids)
            *_, (name, data) = [event async for event in events]
            assert (name, json.loads(data)["id"], json.loads(data)["error"]["code"]) == (
                "message",
                1,
                CONNECTION_CLOSED,
            )


async def assert_ends(process: subprocess.Popen[bytes], pids: list[int]) -> None:
    """Check that the server ends after SIGTERM, together with all processes that it started."""
    all_pids = [*pids, *children_of(process.pid)]
    process.send_signal(signal.SIGTERM)
    assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0
    await until_ended(all_pids)
    assert process.stderr is not None
    output = process.stderr.read()
    assert b"Traceback" not in output
    assert b"ERROR" not in output


@asynccontextmanager
async def calls_at_work(
    url: str, root: Path
) -> AsyncGenerator[tuple[Connection, dict[str, str], tuple[Connection, ...], Callable[[], None]]]:
    """Begin one call in a session and one stateless call.

    Yield the session's connection and headers, the connections of the two calls, and a function that lets both calls
    end.
    """
    folders = {name: root / name for name in ("session", "lone")}
    for folder in folders.values():
        folder.mkdir()

    def release() -> None:
        for folder in folders.values():
            (folder / "go").touch()

    async with (
        open_session(url, "2025-11-25") as (session_wire, headers),
        connection(url) as first,
        connection(url) as second,
    ):
        await send_request(first, request(1, "tools/call", waiting_call(folders["session"])), headers)
        stateless_call = modern(1, "tools/call", waiting_call(folders["lone"]))
        await send_request(second, stateless_call, modern_headers(stateless_call))
        for folder in folders.values():
            await wait_for_pid(folder)
        yield session_wire, headers, (first, second), release


async def test_a_call_that_ends_soon_is_answered_before_the_server_ends(root: Path, tmp_path: Path) -> None:
    with running_server(root, write_config(tmp_path, UNASKED), "http") as (process, url), anyio.fail_after(CEILING):
        async with calls_at_work(url, root) as (_, _, wires, release):
            process.send_signal(signal.SIGTERM)
            await until_refused(url)
            release()
            for wire in wires:
                last = [message async for message in wire.messages(await wire.head())][-1]
                assert last["id"] == 1
                assert not last["result"].get("isError"), last
        assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0


@pytest.mark.requirement("network.drain")
async def test_while_the_server_drains_it_says_so_and_still_works(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {**UNASKED, "http": {"drain": 4_000, "grace": 60_000}})
    # This script kills the server two seconds after it should have ended.
    impatient = ROOT / "tests" / "hostile" / "stuck_server.py"
    with running_server(root, config, "http", impatient) as (process, url), anyio.fail_after(CEILING):
        async with calls_at_work(url, root) as (session_wire, headers, wires, release):
            process.send_signal(signal.SIGTERM)
            await until_refused(url)
            list_request, stateless_call = request(2, "tools/list"), modern(2, "tools/call", {"name": "list_directory"})
            stateless_call["params"]["arguments"] = {"path": str(root)}
            async with connection(url) as new_wire:
                for wire, message, request_headers in (
                    (session_wire, list_request, headers),
                    (new_wire, stateless_call, modern_headers(stateless_call)),
                ):
                    head = await post(wire, "/mcp", message, request_headers)
                    assert (head.status, head.headers["connection"]) == (200, "close")
                    answer = [reply async for reply in wire.messages(head)][-1]
                    assert not answer["result"].get("isError"), answer
                    assert await wire.is_at_end()
            await until_closed(url)
            release()
            for wire in wires:
                last = [message async for message in wire.messages(await wire.head())][-1]
                assert not last["result"].get("isError"), last
        assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0


async def until_closed(url: str) -> None:
    """Wait until the server accepts no connection."""
    while True:
        try:
            async with connection(url):
                await anyio.sleep(0.01)
        except OSError:
            return


async def until_refused(url: str) -> None:
    """Wait until the server is no longer ready for new clients."""
    while True:
        try:
            async with connection(url) as wire:
                if (await wire.ask("GET", "/readyz", {})).status != 200:
                    return
        except (OSError, AssertionError):
            return
