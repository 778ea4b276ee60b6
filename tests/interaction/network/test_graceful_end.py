"""SIGTERM while streams are open, sessions live and calls are at work: it ends in order, and leaves nothing."""

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
from tests.interaction.network.test_ended_requests import began, begin, session, tell, waiting
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
    pytest.mark.skipif(os.name != "posix", reason="not run: signals and commands are those of POSIX"),
]


@contextmanager
def running(
    root: Path,
    config: Path,
    transport: str,
    script: Path = LAUNCHER,
    start: Callable[[list[str]], list[str]] = forked,
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A server, and its address."""
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
async def test_open_streams_and_calls_that_take_long_do_not_keep_it(transport: str, root: Path, tmp_path: Path) -> None:
    places = {name: root / name for name in ("session", "lone", "sse")}
    for folder in places.values():
        folder.mkdir()
    start = by_itself if transport == "http" else forked  # what it has started is looked for beneath its own process
    with running(root, write_config(tmp_path, UNASKED), transport, start=start) as (process, url):
        async with connection(url) as stream, connection(url) as wire, connection(url) as calling:
            events = stream.events(await stream.ask("GET", "/sse", {}))
            _, endpoint = await anext(events)
            await tell(wire, initialize("2025-11-25", {}), {}, endpoint)
            assert json.loads((await anext(events))[1])["id"] == 0
            await tell(wire, INITIALIZED, {}, endpoint)
            await tell(wire, request(1, "tools/call", waiting(places["sse"])), {}, endpoint)
            at_work = [await began(places["sse"])]
            if transport == "http":
                async with session(url, "2025-11-25") as (_, headers):
                    await begin(wire, request(1, "tools/call", waiting(places["session"])), headers)
                    at_work.append(await began(places["session"]))
                    async with connection(url) as listening:
                        listened = await listening.ask("GET", "/mcp", headers)
                        assert listened.status == 200
                        lone = modern(1, "tools/call", waiting(places["lone"]))
                        await begin(calling, lone, modern_headers(lone))
                        at_work.append(await began(places["lone"]))
                        await ends(process, at_work)
                        assert [message async for message in listening.messages(listened)] == []
                        # It was at work without a word until then, or had said how far it was.
                        for caller, identity in ((calling, lone["id"]), (wire, 1)):
                            last = await caller.head()
                            assert last.status in (200, 503)
                            answer = [message async for message in caller.messages(last)][-1]
                            assert (answer["id"], answer["error"]["code"]) == (identity, CONNECTION_CLOSED)
                            assert "The server is shutting down" in answer["error"]["message"]
            else:
                await ends(process, at_work)
            *_, (name, data) = [event async for event in events]
            assert (name, json.loads(data)["id"], json.loads(data)["error"]["code"]) == (
                "message",
                1,
                CONNECTION_CLOSED,
            )


async def ends(process: subprocess.Popen[bytes], at_work: list[int]) -> None:
    """It ends when it is told to, with all that it has started."""
    started = [*at_work, *children_of(process.pid)]
    process.send_signal(signal.SIGTERM)
    assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0
    await until_ended(started)
    assert process.stderr is not None
    said = process.stderr.read()
    assert b"Traceback" not in said
    assert b"ERROR" not in said


@asynccontextmanager
async def calls_at_work(
    url: str, root: Path
) -> AsyncGenerator[tuple[Connection, dict[str, str], tuple[Connection, ...], Callable[[], None]]]:
    """A session with its headers, the connections of a call in it and of one without, and what lets both end."""
    places = {name: root / name for name in ("session", "lone")}
    for folder in places.values():
        folder.mkdir()

    def go_on() -> None:
        for folder in places.values():
            (folder / "go").touch()

    async with session(url, "2025-11-25") as (inside, headers), connection(url) as first, connection(url) as second:
        await begin(first, request(1, "tools/call", waiting(places["session"])), headers)
        lone = modern(1, "tools/call", waiting(places["lone"]))
        await begin(second, lone, modern_headers(lone))
        for folder in places.values():
            await began(folder)
        yield inside, headers, (first, second), go_on


async def test_a_call_that_ends_soon_is_answered_before_the_server_ends(root: Path, tmp_path: Path) -> None:
    with running(root, write_config(tmp_path, UNASKED), "http") as (process, url), anyio.fail_after(CEILING):
        async with calls_at_work(url, root) as (_, _, wires, go_on):
            process.send_signal(signal.SIGTERM)
            await until_refused(url)
            go_on()
            for wire in wires:
                last = [message async for message in wire.messages(await wire.head())][-1]
                assert last["id"] == 1
                assert not last["result"].get("isError"), last
        assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0


@pytest.mark.requirement("network.drain")
async def test_while_it_drains_it_says_so_and_works_on_for_longer_than_it_has_to_end(
    root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {**UNASKED, "http": {"drain": 4_000, "grace": 60_000}})
    # This one is killed two seconds after it should have ended.
    impatient = ROOT / "tests" / "hostile" / "stuck_server.py"
    with running(root, config, "http", impatient) as (process, url), anyio.fail_after(CEILING):
        async with calls_at_work(url, root) as (inside, headers, wires, go_on):
            process.send_signal(signal.SIGTERM)
            await until_refused(url)
            listed, called = request(2, "tools/list"), modern(2, "tools/call", {"name": "list_directory"})
            called["params"]["arguments"] = {"path": str(root)}
            async with connection(url) as new:
                for wire, message, more in ((inside, listed, headers), (new, called, modern_headers(called))):
                    head = await post(wire, "/mcp", message, more)
                    assert (head.status, head.headers["connection"]) == (200, "close")
                    answer = [each async for each in wire.messages(head)][-1]
                    assert not answer["result"].get("isError"), answer
                    assert await wire.is_at_end()
            await until_closed(url)
            go_on()
            for wire in wires:
                last = [message async for message in wire.messages(await wire.head())][-1]
                assert not last["result"].get("isError"), last
        assert await anyio.to_thread.run_sync(process.wait, CEILING) == 0


async def until_closed(url: str) -> None:
    """Wait until nobody can connect."""
    while True:
        try:
            async with connection(url):
                await anyio.sleep(0.01)
        except OSError:
            return


async def until_refused(url: str) -> None:
    """Wait until nobody new is let in."""
    while True:
        try:
            async with connection(url) as wire:
                if (await wire.ask("GET", "/readyz", {})).status != 200:
                    return
        except (OSError, AssertionError):
            return
