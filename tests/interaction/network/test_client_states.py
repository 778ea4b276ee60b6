"""The state of a client without a token: one state for its session, from its first request to the session's end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.requests.call_contexts import SESSION_KEYS
from tests.interaction.network.test_sessions import ACCEPT, CEILING, INITIALIZE, InProcessServer, in_process_server
from tests.interaction.network.wires import Connection
from tests.waiting import until

pytestmark = pytest.mark.anyio

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "list_background_jobs", "arguments": {}},
}
ANSWERS = 600
"""More long answers than the system buffers for a client that does not read"""

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def states(server: InProcessServer) -> int:
    """The number of client states."""
    return len(server.app.clients.job_tables())


@pytest.mark.requirement("network.sessions")
async def test_nothing_is_left_of_a_session_that_never_said_it_is_initialized(root: Path) -> None:
    async with in_process_server(root) as server:
        session = (await server.post(INITIALIZE, None)).headers["mcp-session-id"]
        assert (await server.post(CALL, session)).status_code == 200
        assert states(server) == 1
        assert (await server.http.delete("/mcp", headers={**ACCEPT, "mcp-session-id": session})).status_code == 200
        await until(lambda: states(server) == 0)


@pytest.mark.requirement("network.principal")
@pytest.mark.parametrize(
    "spell",
    [str.upper, "-".join, "urn:uuid:{{{}}}".format],
    ids=["upper case", "dashes", "urn"],
)
async def test_an_sse_session_is_one_client_however_its_id_is_spelled(root: Path, spell: Callable[[str], str]) -> None:
    async with in_process_server(root) as server, server.http.stream("GET", "/sse") as stream:
        lines = aiter(stream.aiter_lines())

        async def wait_for(pattern: str) -> str:
            while (match := re.search(pattern, await anext(lines))) is None:
                pass
            return match.group(1)

        session = await wait_for("session_id=([0-9a-f]{32})")

        async def call(identity: int, name: str) -> None:
            message = INITIALIZE if identity == 0 else {**CALL, "id": identity}
            response = await server.http.post("/messages/", params={"session_id": name}, json=message)
            assert response.status_code == 202
            await wait_for(f'"id":({identity}),')

        await call(0, session)
        await call(1, session)
        await call(2, spell(session))
        assert states(server) == 1


@pytest.mark.requirement("network.principal")
async def test_of_two_session_ids_in_an_address_the_last_one_counts(root: Path) -> None:
    async with (
        in_process_server(root) as server,
        server.http.stream("GET", "/sse") as one,
        server.http.stream("GET", "/sse") as two,
    ):
        lines = aiter(one.aiter_lines()), aiter(two.aiter_lines())

        async def heard(stream: int, pattern: str) -> str:
            with anyio.fail_after(CEILING):
                while (found := re.search(pattern, await anext(lines[stream]))) is None:
                    pass
            return found.group(1)

        first, last = [await heard(stream, "session_id=([0-9a-f]{32})") for stream in (0, 1)]

        async def post(message: dict[str, Any], *names: str) -> int:
            address = "/messages/?" + "&".join(f"session_id={name}" for name in names)
            return (await server.http.post(address, json=message)).status_code

        for message in (INITIALIZE, CALL):
            assert await post(message, first, last) == 202
            assert await heard(1, '"id":([0-9]+),') == str(message["id"])
        assert states(server) == 1
        assert server.app.clients.known(f"{SESSION_KEYS[1]}{last}") is not None
        for unusable in ("", "x"):
            assert await post(CALL, first, unusable) == 400
        assert await post({**INITIALIZE, "id": 5}, first) == 202
        assert await heard(0, '"id":([0-9]+),') == "5"  # nothing before it was for this stream


@pytest.mark.requirement("network.sessions")
async def test_a_client_that_repeats_the_initialized_notification_still_counts_once(root: Path) -> None:
    async with in_process_server(root) as server:
        session = await server.open_session()
        for _ in range(5):
            assert (await server.post(INITIALIZED, session)).status_code == 202
        assert await server.status(session) == 200
        assert server.session_count == 1


@pytest.mark.requirement("network.slow")
async def test_messages_of_a_client_over_sse_that_reads_nothing_wait_until_it_reads(root: Path) -> None:
    list_request: dict[str, Any] = {"jsonrpc": "2.0", "method": "tools/list", "params": {}}
    async with in_process_server(root) as server:
        url = server.http.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        wire = Connection(reader, writer, "localhost")
        events = wire.events(await wire.ask("GET", "/sse", {}))
        _, path = await anext(events)
        for message in (INITIALIZE, INITIALIZED):
            assert (await server.http.post(path, json=message)).status_code == 202
        posted_count = 0
        with anyio.fail_after(CEILING):
            while posted_count < ANSWERS:
                # The server accepts a message at once, or not until the client reads.
                with anyio.move_on_after(2) as timeout:
                    assert (
                        await server.http.post(path, json={**list_request, "id": posted_count + 10})
                    ).status_code == 202
                    posted_count += 1
                if timeout.cancelled_caught:
                    break
            assert posted_count < ANSWERS
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read_answers, events, posted_count)
                assert (await server.http.post(path, json={**list_request, "id": 2})).status_code == 202
        wire.close()


async def _read_answers(events: AsyncIterator[tuple[str, str]], count: int) -> None:
    """Read until the last request (id 2) and `count` earlier ones (ids from 10) are answered."""
    identities: set[int] = set()
    while 2 not in identities or count > 0:
        identity = json.loads((await anext(events))[1])["id"]
        count -= identity >= 10
        identities.add(identity)


@pytest.mark.requirement("network.many")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "todo://list"}),
        ("prompts/get", {"name": "at", "arguments": {"paths": "a"}}),
        ("resources/list", {}),
    ],
)
async def test_requests_for_resources_and_prompts_count_as_calls(
    root: Path, method: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_server(root) as server:
        session = await server.open_session()
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        assert "of your calls are already running" not in (await server.post(request, session)).text
        monkeypatch.setattr("server.requests.call_contexts.MAX_CALLS", 0)
        assert "of your calls are already running" in (await server.post(request, session)).text
