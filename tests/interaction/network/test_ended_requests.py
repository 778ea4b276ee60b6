"""A command's fate when its request, connection or session ends before the answer, seen by the files that it writes."""

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
from tests.interaction.serving import SharedServers
from tests.interaction.test_conversation import UNASKED
from tests.processes import is_running, until_ended
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.ended_requests"),
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

WAITING_COMMAND = "echo $$ > began.new; mv began.new began; while [ ! -e go ]; do sleep 0.05; done; touch done"
"""A command that runs until the file `go` exists, and then creates the file `done`"""

CLOSED_OR_LOST = pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "lost"])


def waiting_call(place: Path) -> Mapping[str, object]:
    arguments = {"command": WAITING_COMMAND, "directory": str(place), "timeout": 600_000}
    return {"name": "run_shell_command", "arguments": arguments}


async def wait_for_file(file: Path) -> None:
    with anyio.fail_after(CEILING):
        while not file.exists():  # noqa: ASYNC110 - a new file can only be polled for
            await anyio.sleep(0.01)


async def wait_for_pid(place: Path) -> int:
    """Wait until the command runs; return its process id."""
    await wait_for_file(place / "began")
    return int((place / "began").read_text())


async def assert_never_done(place: Path, pid: int) -> None:
    await until_ended([pid])
    (place / "go").touch()
    assert not (place / "done").exists()


def disconnect(wire: Connection, *, is_reset: bool) -> None:
    (wire.reset if is_reset else wire.close)()


async def send_request(wire: Connection, message: Message, headers: Mapping[str, str], path: str = "/mcp") -> None:
    """Send a request without waiting for its response."""
    body = json.dumps(message).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    await wire.send(head.encode() + body)


@asynccontextmanager
async def open_session(url: str, revision: str) -> AsyncGenerator[tuple[Connection, dict[str, str]]]:
    """Open a session; yield its connection, and the headers of its requests."""
    async with connection(url) as wire:
        head = await post(wire, "/mcp", initialize(revision, {}), {})
        _ = [message async for message in wire.messages(head)]
        headers = {"Mcp-Session-Id": head.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        await post_accepted(wire, INITIALIZED, headers)
        yield (
            wire,
            {
                "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json",
                **headers,
            },
        )


async def post_accepted(wire: Connection, message: Message, headers: Mapping[str, str], path: str = "/mcp") -> None:
    """Send a message that is only acknowledged with status 202."""
    head = await post(wire, path, message, headers)
    assert head.status == 202
    _ = [piece async for piece in wire.pieces(head)]


async def assert_session_answers(wire: Connection, headers: Mapping[str, str]) -> None:
    """Check that the session still works."""
    head = await post(wire, "/mcp", request(50, "ping"), headers)
    assert [message["id"] async for message in wire.messages(head)] == [50]


@CLOSED_OR_LOST
async def test_a_stateless_request_ends_with_its_connection(
    is_reset: bool, shared_servers: SharedServers, place: Path
) -> None:
    url = shared_servers.url(UNASKED)
    call = modern(1, "tools/call", waiting_call(place))
    async with connection(url) as wire:
        await send_request(wire, call, modern_headers(call))
        pid = await wait_for_pid(place)
        disconnect(wire, is_reset=is_reset)
        await assert_never_done(place, pid)


@CLOSED_OR_LOST
async def test_the_calls_of_an_sse_session_end_with_its_stream(
    is_reset: bool, shared_servers: SharedServers, place: Path
) -> None:
    url = shared_servers.url(UNASKED)
    async with connection(url) as stream, connection(url) as wire:
        events = stream.events(await stream.ask("GET", "/sse", {}))
        _, endpoint = await anext(events)
        await post_accepted(wire, initialize("2025-11-25", {}), {}, endpoint)
        assert json.loads((await anext(events))[1])["id"] == 0
        await post_accepted(wire, INITIALIZED, {}, endpoint)
        await post_accepted(wire, request(1, "tools/call", waiting_call(place)), {}, endpoint)
        pid = await wait_for_pid(place)
        disconnect(stream, is_reset=is_reset)
        await assert_never_done(place, pid)


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_cancelled_call_of_a_session_ends_and_its_request_is_answered(
    revision: str, shared_servers: SharedServers, place: Path
) -> None:
    async with (
        open_session(shared_servers.url(UNASKED), revision) as (wire, headers),
        connection(shared_servers.url(UNASKED)) as call_wire,
    ):
        await send_request(call_wire, request(1, "tools/call", waiting_call(place)), headers)
        pid = await wait_for_pid(place)
        cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await post_accepted(wire, cancellation, headers)
        await assert_never_done(place, pid)
        with anyio.fail_after(CEILING):
            last = [message async for message in call_wire.messages(await call_wire.head())][-1]
        assert (last["id"], "error" in last) == (1, True)
        await assert_session_answers(wire, headers)


@CLOSED_OR_LOST
@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_call_of_a_session_goes_on_after_the_connection_of_its_request_is_lost(
    revision: str, is_reset: bool, shared_servers: SharedServers, place: Path
) -> None:
    """In the revisions with sessions, a lost connection does not cancel a request."""
    async with (
        open_session(shared_servers.url(UNASKED), revision) as (wire, headers),
        connection(shared_servers.url(UNASKED)) as call_wire,
    ):
        await send_request(call_wire, request(1, "tools/call", waiting_call(place)), headers)
        pid = await wait_for_pid(place)
        disconnect(call_wire, is_reset=is_reset)
        await assert_session_answers(wire, headers)
        assert is_running(pid)
        (place / "go").touch()
        await wait_for_file(place / "done")
        await assert_session_answers(wire, headers)


async def test_the_calls_of_a_session_end_with_it(shared_servers: SharedServers, place: Path) -> None:
    async with (
        open_session(shared_servers.url(UNASKED), "2025-11-25") as (wire, headers),
        connection(shared_servers.url(UNASKED)) as call_wire,
    ):
        await send_request(call_wire, request(1, "tools/call", waiting_call(place)), headers)
        pid = await wait_for_pid(place)
        assert (await wire.ask("DELETE", "/mcp", headers)).status == 200
        await assert_never_done(place, pid)
        with anyio.fail_after(CEILING):
            last = [message async for message in call_wire.messages(await call_wire.head())][-1]
        assert (last["id"], last["error"]["code"]) == (1, CONNECTION_CLOSED)
        assert "The session ended" in last["error"]["message"]


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_client_of_a_session_that_closes_its_output_gets_its_answer(
    revision: str, shared_servers: SharedServers, place: Path
) -> None:
    async with (
        open_session(shared_servers.url(UNASKED), revision) as (wire, headers),
        connection(shared_servers.url(UNASKED)) as call_wire,
    ):
        await send_request(call_wire, request(1, "tools/call", waiting_call(place)), headers)
        call_wire.end_output()
        await wait_for_pid(place)
        (place / "go").touch()
        with anyio.fail_after(CEILING):
            last = [message async for message in call_wire.messages(await call_wire.head())][-1]
            assert (last["id"], "result" in last) == (1, True)
            assert await call_wire.is_at_end()
        await assert_session_answers(wire, headers)


async def test_a_stateless_request_ends_when_its_client_closes_its_output(
    shared_servers: SharedServers, place: Path
) -> None:
    """In 2026-07-28, a client that closes its output no longer wants the answer."""
    call = modern(1, "tools/call", waiting_call(place))
    async with connection(shared_servers.url(UNASKED)) as wire:
        await send_request(wire, call, modern_headers(call))
        pid = await wait_for_pid(place)
        wire.end_output()
        await assert_never_done(place, pid)
