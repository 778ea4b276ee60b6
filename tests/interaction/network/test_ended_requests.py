"""What becomes of the work when a request, a connection or a session ends before its answer; seen by what is done."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp_types import CONNECTION_CLOSED

from tests.harness import HANDSHAKES
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
from tests.interaction.raw_clients import Message
from tests.interaction.serving import Served
from tests.interaction.test_conversation import UNASKED
from tests.processes import is_running, until_ended
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.ended_requests"),
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

WAITS = "echo $$ > began.new; mv began.new began; while [ ! -e go ]; do sleep 0.05; done; touch done"
"""It is at work until it is let go, and then leaves a mark."""

ENDS = pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "lost"])


def waiting(place: Path) -> Mapping[str, object]:
    arguments = {"command": WAITS, "directory": str(place), "timeout": 600_000}
    return {"name": "run_shell_command", "arguments": arguments}


async def until_there(file: Path) -> None:
    with anyio.fail_after(CEILING):
        while not file.exists():  # noqa: ASYNC110 - nobody tells of a file that appears
            await anyio.sleep(0.01)


async def began(place: Path) -> int:
    """The process of the command, once it is at work."""
    await until_there(place / "began")
    return int((place / "began").read_text())


async def is_never_done(place: Path, pid: int) -> None:
    await until_ended([pid])
    (place / "go").touch()
    assert not (place / "done").exists()


def end(wire: Connection, *, is_reset: bool) -> None:
    (wire.reset if is_reset else wire.close)()


async def begin(wire: Connection, message: Message, headers: Mapping[str, str], path: str = "/mcp") -> None:
    """Send a request, and do not wait for its answer."""
    body = json.dumps(message).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    await wire.send(head.encode() + body)


@asynccontextmanager
async def session(url: str, revision: str) -> AsyncGenerator[tuple[Connection, dict[str, str]]]:
    """A session, and the headers of its requests."""
    async with connection(url) as wire:
        opened = await post(wire, "/mcp", initialize(revision, {}), {})
        _ = [message async for message in wire.messages(opened)]
        headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        await tell(wire, INITIALIZED, headers)
        yield (
            wire,
            {
                "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json",
                **headers,
            },
        )


async def tell(wire: Connection, message: Message, headers: Mapping[str, str], path: str = "/mcp") -> None:
    """Send what has no answer."""
    taken = await post(wire, path, message, headers)
    assert taken.status == 202
    _ = [piece async for piece in wire.pieces(taken)]


async def answers(wire: Connection, headers: Mapping[str, str]) -> None:
    """The session goes on."""
    head = await post(wire, "/mcp", request(50, "ping"), headers)
    assert [message["id"] async for message in wire.messages(head)] == [50]


@ENDS
async def test_a_request_that_stands_for_itself_ends_with_its_connection(
    is_reset: bool, served: Served, place: Path
) -> None:
    url = served.url(UNASKED)
    call = modern(1, "tools/call", waiting(place))
    async with connection(url) as wire:
        await begin(wire, call, modern_headers(call))
        pid = await began(place)
        end(wire, is_reset=is_reset)
        await is_never_done(place, pid)


@ENDS
async def test_the_calls_of_an_sse_session_end_with_its_stream(is_reset: bool, served: Served, place: Path) -> None:
    url = served.url(UNASKED)
    async with connection(url) as stream, connection(url) as wire:
        events = stream.events(await stream.ask("GET", "/sse", {}))
        _, endpoint = await anext(events)
        await tell(wire, initialize("2025-11-25", {}), {}, endpoint)
        assert json.loads((await anext(events))[1])["id"] == 0
        await tell(wire, INITIALIZED, {}, endpoint)
        await tell(wire, request(1, "tools/call", waiting(place)), {}, endpoint)
        pid = await began(place)
        end(stream, is_reset=is_reset)
        await is_never_done(place, pid)


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_cancelled_call_of_a_session_ends_and_its_request_is_answered(
    revision: str, served: Served, place: Path
) -> None:
    async with session(served.url(UNASKED), revision) as (wire, headers), connection(served.url(UNASKED)) as calling:
        await begin(calling, request(1, "tools/call", waiting(place)), headers)
        pid = await began(place)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await tell(wire, cancelled, headers)
        await is_never_done(place, pid)
        with anyio.fail_after(CEILING):
            last = [message async for message in calling.messages(await calling.head())][-1]
        assert (last["id"], "error" in last) == (1, True)
        await answers(wire, headers)


@ENDS
@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_call_of_a_session_goes_on_though_the_connection_of_its_request_is_lost(
    revision: str, is_reset: bool, served: Served, place: Path
) -> None:
    """The revisions with sessions say that a lost connection cancels nothing."""
    async with session(served.url(UNASKED), revision) as (wire, headers), connection(served.url(UNASKED)) as calling:
        await begin(calling, request(1, "tools/call", waiting(place)), headers)
        pid = await began(place)
        end(calling, is_reset=is_reset)
        await answers(wire, headers)
        assert is_running(pid)
        (place / "go").touch()
        await until_there(place / "done")
        await answers(wire, headers)


async def test_the_calls_of_a_session_end_with_it(served: Served, place: Path) -> None:
    async with (
        session(served.url(UNASKED), "2025-11-25") as (wire, headers),
        connection(served.url(UNASKED)) as calling,
    ):
        await begin(calling, request(1, "tools/call", waiting(place)), headers)
        pid = await began(place)
        assert (await wire.ask("DELETE", "/mcp", headers)).status == 200
        await is_never_done(place, pid)
        with anyio.fail_after(CEILING):
            last = [message async for message in calling.messages(await calling.head())][-1]
        assert (last["id"], last["error"]["code"]) == (1, CONNECTION_CLOSED)
        assert "The session ended" in last["error"]["message"]


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_client_of_a_session_that_says_no_more_gets_its_answer(
    revision: str, served: Served, place: Path
) -> None:
    async with session(served.url(UNASKED), revision) as (wire, headers), connection(served.url(UNASKED)) as calling:
        await begin(calling, request(1, "tools/call", waiting(place)), headers)
        calling.end_output()
        await began(place)
        (place / "go").touch()
        with anyio.fail_after(CEILING):
            last = [message async for message in calling.messages(await calling.head())][-1]
            assert (last["id"], "result" in last) == (1, True)
            assert await calling.is_at_end()
        await answers(wire, headers)


async def test_a_request_that_stands_for_itself_ends_when_its_client_says_no_more(served: Served, place: Path) -> None:
    """In 2026-07-28 that means that the answer is not wanted."""
    call = modern(1, "tools/call", waiting(place))
    async with connection(served.url(UNASKED)) as wire:
        await begin(wire, call, modern_headers(call))
        pid = await began(place)
        wire.end_output()
        await is_never_done(place, pid)
