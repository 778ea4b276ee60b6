"""Sessions of Streamable HTTP that nobody ends: how many are kept, which end first, and what is left of them."""

from __future__ import annotations

import gc
import socket
import weakref
from asyncio import all_tasks
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvicorn

from server.app import App
from server.clients import client_workspaces
from server.protocol.request_table import RequestTable
from server.settings import load_settings
from server.settings.models import HttpSettings, IssuerSettings
from server.transports.credentials import Tokens
from server.transports.http_options import HttpOptions, open_socket
from server.transports.http_server import ClientConnection, WebApp
from server.transports.issuer import Issuer
from server.transports.streamable_http import HttpSession, Sessions
from tests.interaction.network.lanes import lane
from tests.interaction.network.test_access_tokens import RESOURCE, signed
from tests.scripted_issuer import scripted_issuer
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

MOST = 5
ACCEPT = {"accept": "application/json, text/event-stream"}
TOKENS = {"laptop": "laptop-token-" + "a" * 20, "bot": "bot-token-" + "b" * 20}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class Served:
    """A server in this process, and clients of it that say nothing by themselves.

    Args:
        app: What answers.
        http: Reaches it.
    """

    def __init__(self, app: App, http: httpx2.AsyncClient) -> None:
        self.app = app
        self.http = http

    async def post(self, message: dict[str, Any], session: str | None, token: str = "") -> httpx2.Response:
        headers = dict(ACCEPT)
        if session is not None:
            headers["mcp-session-id"] = session
        return await self.http.post("/mcp", json=message, headers=headers | as_bearer(token))

    async def opened(self, token: str = "") -> str:
        """A new session, which the client has left."""
        answer = await self.post(INITIALIZE, None, token)
        assert answer.status_code == 200, answer.text
        session = answer.headers["mcp-session-id"]
        taken = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session, token)
        assert taken.status_code == 202, taken.text
        return session

    async def status(self, session: str, token: str = "") -> int:
        """What a request of a session is answered with; after 200 it is the one that was silent shortest."""
        return (await self.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, session, token)).status_code

    @property
    def kept(self) -> int:
        """How many sessions there are that could be notified."""
        return len(list(self.app.clients.connections()))


def as_bearer(token: str) -> dict[str, str]:
    """Of one of the settings by its name, or of an issuer."""
    return {"authorization": f"Bearer {TOKENS.get(token, token)}"} if token else {}


@asynccontextmanager
async def served(
    root: Path | None, idle_seconds: float = 600, *, with_tokens: bool = False, issuer: Issuer | None = None
) -> AsyncGenerator[Served]:
    """A server that keeps few sessions."""
    app = App(load_settings([], {"workspace": {"roots": [str(root)]}} if root else {}, {}), "network")
    http = HttpSettings.model_construct(port=0, session_idle=idle_seconds * 1000)
    options = HttpOptions(http, 1 << 20, Tokens(TOKENS if with_tokens else {}), issuer=issuer)
    web = WebApp(app, options, lambda: True, max_sessions=MOST)
    with open_socket(options) as listener:
        config = uvicorn.Config(web, http=ClientConnection, log_config=None, lifespan="on", ws="none")
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks, app.running():
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
                await anyio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx2.AsyncClient(base_url=url, timeout=CEILING) as http:
                yield Served(app, http)
            server.should_exit = True


async def introduced(server: Served, stream: httpx2.Response) -> AsyncIterator[str]:
    """Introduce a client over an SSE connection; while the rest of the stream is held, the connection lasts."""
    rest = aiter(stream.aiter_lines())
    assert await anext(rest) == "event: endpoint"
    path = (await anext(rest)).removeprefix("data: ")
    for message in (INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
        assert (await server.http.post(path, json=message)).status_code == 202
    return rest


@pytest.mark.requirement("network.sessions")
async def test_a_new_client_is_served_and_the_session_that_was_silent_longest_ends(root: Path) -> None:
    async with served(root) as server:
        first, second, *others = [await server.opened() for _ in range(MOST)]
        assert await server.status(first) == 200
        newest = await server.opened()
        await until(lambda: server.kept == MOST)
        assert await server.status(second) == 404
        for session in (first, newest, *others):
            assert await server.status(session) == 200


@pytest.mark.requirement("network.sessions")
async def test_a_client_whose_session_was_ended_opens_another_one(root: Path) -> None:
    async with served(root) as server:
        forgotten, *_ = [await server.opened() for _ in range(MOST + 1)]
        await until(lambda: server.kept == MOST)
        assert await server.status(forgotten) == 404
        assert await server.status(await server.opened()) == 200


@pytest.mark.requirement("network.sessions")
async def test_of_many_abandoned_sessions_no_more_than_the_limit_is_kept(root: Path) -> None:
    async with served(root) as server:
        for _ in range(MOST):
            await server.opened()
        tasks = len(all_tasks())
        for _ in range(MOST * 10):
            await server.opened()
        await until(lambda: server.kept == MOST and len(all_tasks()) <= tasks)


@pytest.mark.requirement("network.sessions")
async def test_a_session_with_an_open_stream_is_not_silent(root: Path) -> None:
    async with served(root) as server:
        listening = await server.opened()
        headers = {**ACCEPT, "mcp-session-id": listening}
        async with server.http.stream("GET", "/mcp", headers=headers) as stream:
            assert stream.status_code == 200
            others = [await server.opened() for _ in range(MOST)]
            await until(lambda: server.kept == MOST)
            assert await server.status(listening) == 200
            assert await server.status(others[0]) == 404


@pytest.mark.requirement("network.sessions")
async def test_who_opens_many_sessions_loses_their_own(root: Path) -> None:
    async with served(root, with_tokens=True) as server:
        alone = await server.opened("laptop")
        many = [await server.opened("bot") for _ in range(MOST + 2)]
        await until(lambda: server.kept == MOST)
        assert await server.status(alone, "laptop") == 200
        assert [await server.status(session, "bot") for session in many] == [404] * 3 + [200] * 4


@pytest.mark.requirement("network.sessions")
async def test_a_session_that_its_client_ended_counts_no_more(root: Path) -> None:
    async with served(root) as server:
        oldest = await server.opened()
        for _ in range(MOST * 2):
            headers = {"mcp-session-id": await server.opened()}
            assert (await server.http.delete("/mcp", headers=headers)).status_code == 200
        assert await server.status(oldest) == 200


@pytest.mark.requirement("network.sessions")
async def test_a_session_that_could_not_be_ended_counts_still(root: Path) -> None:
    async with served(root) as server:
        for _ in range(MOST * 2):
            headers = {"mcp-session-id": await server.opened(), "host": "elsewhere.example"}
            assert (await server.http.delete("/mcp", headers=headers)).status_code == 421
        await until(lambda: server.kept == MOST)


@pytest.mark.requirement("network.sessions")
@pytest.mark.parametrize(
    "message",
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0"}, INITIALIZE | {"id": None}],
    ids=["no handshake", "no request", "no id"],
)
async def test_a_request_that_opens_no_session_ends_none(root: Path, message: dict[str, Any]) -> None:
    async with served(root) as server:
        sessions = [await server.opened() for _ in range(MOST)]
        for _ in range(MOST):
            assert (await server.post(message, None)).status_code == 400
        assert [await server.status(session) for session in sessions] == [200] * MOST


@pytest.mark.requirement("network.sessions")
async def test_silent_sessions_expire_and_nothing_is_left_of_them(root: Path) -> None:
    async with served(root, idle_seconds=0.5) as server:
        # The first client of all starts what lasts.
        await server.opened()
        await until(lambda: server.kept == 0)
        tasks = len(all_tasks())
        sessions = [await server.opened() for _ in range(MOST)]
        await until(lambda: server.kept == 0 and len(all_tasks()) <= tasks)
        assert [await server.status(session) for session in sessions] == [404] * MOST


@pytest.mark.requirement("network.sessions")
async def test_a_person_with_two_programs_has_no_more_sessions_than_one_with_one(root: Path) -> None:
    with scripted_issuer() as company:
        checks = Issuer(IssuerSettings(issuer=company.base, resource=RESOURCE))
        one, two = (signed(company.base, {"client_id": name}) for name in ("one", "two"))
        async with served(root, issuer=checks) as server:
            first = await server.opened(one)
            second, *others = [await server.opened(two) for _ in range(MOST)]
            assert await server.status(first, one) == 404
            await server.opened(one)
            assert await server.status(second, two) == 404
            for session in others:
                assert await server.status(session, one) == 404, "only the program that opened it uses it"
            # That changes nothing of whose they are.
            for _ in range(MOST):
                await server.opened(one)
            await until(lambda: server.kept == MOST)
            for session in others:
                assert await server.status(session, two) == 404


@pytest.mark.requirement("network.sessions")
async def test_what_ended_sessions_leave_does_not_gather() -> None:
    sessions = Sessions(RequestTable(), MOST, 600)
    left: list[weakref.ref[HttpSession]] = []
    gc.disable()
    try:

        def opened() -> weakref.ref[HttpSession]:
            session = sessions.open(None, "")
            sessions.release(session)
            return weakref.ref(session)

        left += [opened() for _ in range(MOST)]
        await sessions.aclose()
        await anyio.lowlevel.checkpoint()
        assert [each() for each in left] == [None] * MOST
    finally:
        gc.enable()


@pytest.mark.requirement("network.sessions")
async def test_nothing_is_left_of_sse_connections_that_are_gone(root: Path) -> None:
    async with served(root) as server:
        await server.opened()
        tasks = len(all_tasks())
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(server.http.stream("GET", "/sse")) for _ in range(MOST * 2)]
            held = [await introduced(server, stream) for stream in streams]
            await until(lambda: server.kept == MOST * 2 + 1)
            assert len(held) == MOST * 2
        await until(lambda: server.kept == 1 and len(all_tasks()) <= tasks)


@pytest.mark.requirement("network.many")
async def test_small_writes_of_a_connection_go_at_once() -> None:
    seen: list[int] = []

    class Noting(ClientConnection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    options = HttpOptions(HttpSettings.model_construct(port=0), 1 << 20, Tokens({}))
    with open_socket(options) as listener:
        server = uvicorn.Server(uvicorn.Config(answer, http=Noting, log_config=None, lifespan="off", ws="none"))
        async with anyio.create_task_group() as tasks, httpx2.AsyncClient(timeout=CEILING) as client:
            tasks.start_soon(server.serve, [listener])
            await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
            server.should_exit = True
    assert seen
    assert all(seen)


@pytest.mark.requirement("roots.session")
async def test_the_first_call_asks_for_roots_itself_while_nobody_reads_outside_of_requests(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("found\n")
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", CEILING)
    async with served(None) as server, lane("session", str(server.http.base_url), "early", "", [root]) as early:
        read = await early.call("read_file", file_path="a.txt")
        assert read["content"][0]["text"] == "found\n"
