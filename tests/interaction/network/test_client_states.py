"""What is kept of a client without a token: one state for its session, from its first request to the session's end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.network.test_sessions import ACCEPT, INITIALIZE, Served, served, until

pytestmark = pytest.mark.anyio

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "list_background_jobs", "arguments": {}},
}
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


@pytest.mark.requirement("network.sessions")
async def test_a_client_that_says_again_that_it_is_initialized_is_still_one_to_be_told(root: Path) -> None:
    async with served(root) as server:
        session = await server.opened()
        for _ in range(5):
            assert (await server.post(INITIALIZED, session)).status_code == 202
        assert await server.status(session) == 200
        assert server.kept == 1
