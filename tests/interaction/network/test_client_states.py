"""What is kept of a client without a token: one state for its session, from its first request to the session's end."""

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
from tests.interaction.network.test_sessions import ACCEPT, CEILING, INITIALIZE, Served, served
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
"""More long ones than the system takes for a client that does not read them."""

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def states(server: Served) -> int:
    """How many client states there are."""
    return len(server.app.clients.job_tables())


@pytest.mark.requirement("network.sessions")
async def test_nothing_is_left_of_a_session_that_never_said_it_is_initialized(root: Path) -> None:
    async with served(root) as server:
        session = (await server.post(INITIALIZE, None)).headers["mcp-session-id"]
        assert (await server.post(CALL, session)).status_code == 200
        assert states(server) == 1
        assert (await server.http.delete("/mcp", headers={**ACCEPT, "mcp-session-id": session})).status_code == 200
        await until(lambda: states(server) == 0)


@pytest.mark.requirement("network.principal")
@pytest.mark.parametrize(
    "spelled",
    [str.upper, "-".join, "urn:uuid:{{{}}}".format],
    ids=["upper case", "dashes", "urn"],
)
async def test_an_sse_session_is_one_client_however_its_id_is_spelled(
    root: Path, spelled: Callable[[str], str]
) -> None:
    async with served(root) as server, server.http.stream("GET", "/sse") as stream:
        lines = aiter(stream.aiter_lines())

        async def heard(pattern: str) -> str:
            while (found := re.search(pattern, await anext(lines))) is None:
                pass
            return found.group(1)

        session = await heard("session_id=([0-9a-f]{32})")

        async def call(identity: int, name: str) -> None:
            message = INITIALIZE if identity == 0 else {**CALL, "id": identity}
            posted = await server.http.post("/messages/", params={"session_id": name}, json=message)
            assert posted.status_code == 202
            await heard(f'"id":({identity}),')

        await call(0, session)
        await call(1, session)
        await call(2, spelled(session))
        assert states(server) == 1


@pytest.mark.requirement("network.principal")
async def test_of_two_session_ids_in_an_address_the_last_one_counts(root: Path) -> None:
    async with (
        served(root) as server,
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
async def test_a_client_that_says_again_that_it_is_initialized_is_still_one_to_be_told(root: Path) -> None:
    async with served(root) as server:
        session = await server.opened()
        for _ in range(5):
            assert (await server.post(INITIALIZED, session)).status_code == 202
        assert await server.status(session) == 200
        assert server.kept == 1


@pytest.mark.requirement("network.slow")
async def test_a_client_over_sse_that_reads_nothing_is_not_listened_to_until_it_reads(root: Path) -> None:
    asking: dict[str, Any] = {"jsonrpc": "2.0", "method": "tools/list", "params": {}}
    async with served(root) as server:
        url = server.http.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        wire = Connection(reader, writer, "localhost")
        events = wire.events(await wire.ask("GET", "/sse", {}))
        _, path = await anext(events)
        for message in (INITIALIZE, INITIALIZED):
            assert (await server.http.post(path, json=message)).status_code == 202
        posted = 0
        with anyio.fail_after(CEILING):
            while posted < ANSWERS:
                # One that is taken in is taken in at once.
                with anyio.move_on_after(2) as waiting:
                    assert (await server.http.post(path, json={**asking, "id": posted + 10})).status_code == 202
                    posted += 1
                if waiting.cancelled_caught:
                    break
            assert posted < ANSWERS
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, events, posted)
                assert (await server.http.post(path, json={**asking, "id": 2})).status_code == 202
        wire.close()


async def _read(events: AsyncIterator[tuple[str, str]], answers: int) -> None:
    """Read all answers: to the handshake, to what was posted before, and to what was posted last."""
    answered: set[int] = set()
    while 2 not in answered or answers > 0:
        identity = json.loads((await anext(events))[1])["id"]
        answers -= identity >= 10
        answered.add(identity)


@pytest.mark.requirement("network.many")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "todo://list"}),
        ("prompts/get", {"name": "at", "arguments": {"paths": "a"}}),
        ("resources/list", {}),
    ],
)
async def test_a_request_for_files_counts_as_a_call(
    root: Path, method: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(root) as server:
        session = await server.opened()
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        assert "of your calls are already running" not in (await server.post(request, session)).text
        monkeypatch.setattr("server.requests.call_contexts.MAX_CALLS", 0)
        assert "of your calls are already running" in (await server.post(request, session)).text
