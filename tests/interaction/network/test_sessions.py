"""Abandoned sessions of Streamable HTTP: how many the server keeps, which end first, and what is left of them."""

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
from server.settings.server_models import HttpSettings, IssuerSettings
from server.transports.configured_secrets import Tokens
from server.transports.http_options import HttpOptions, open_socket
from server.transports.http_server import ClientConnection, WebApp
from server.transports.issuer import Issuer
from server.transports.streamable_http import HttpSession, Sessions
from tests.interaction.network.lanes import open_lane
from tests.interaction.network.test_access_tokens import RESOURCE, sign_token
from tests.scripted_issuer import scripted_issuer
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

MAX_SESSIONS = 5
ACCEPT = {"accept": "application/json, text/event-stream"}
TOKENS = {"laptop": "laptop-token-" + "a" * 20, "bot": "bot-token-" + "b" * 20}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class InProcessServer:
    """A server in this process, for requests that a test makes one by one.

    Args:
        app: The application of the server.
        http: An HTTP client for it.
    """

    def __init__(self, app: App, http: httpx2.AsyncClient) -> None:
        self.app = app
        self.http = http

    async def post(self, message: dict[str, Any], session: str | None, token: str = "") -> httpx2.Response:
        headers = dict(ACCEPT)
        if session is not None:
            headers["mcp-session-id"] = session
        return await self.http.post("/mcp", json=message, headers=headers | as_bearer(token))

    async def open_session(self, token: str = "") -> str:
        """Open a session, and leave it idle; return its id."""
        answer = await self.post(INITIALIZE, None, token)
        assert answer.status_code == 200, answer.text
        session = answer.headers["mcp-session-id"]
        response = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session, token)
        assert response.status_code == 202, response.text
        return session

    async def status(self, session: str, token: str = "") -> int:
        """The status of a request in a session; if it is 200, this session is now the most recently used one."""
        return (await self.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, session, token)).status_code

    @property
    def session_count(self) -> int:
        """The number of sessions that could be notified."""
        return len(list(self.app.clients.connections()))


def as_bearer(token: str) -> dict[str, str]:
    """The header with a token of the settings, by its name, or with the token of an issuer."""
    return {"authorization": f"Bearer {TOKENS.get(token, token)}"} if token else {}


@asynccontextmanager
async def in_process_server(
    root: Path | None, idle_seconds: float = 600, *, with_tokens: bool = False, issuer: Issuer | None = None
) -> AsyncGenerator[InProcessServer]:
    """Run a server that keeps at most `MAX_SESSIONS` sessions."""
    app = App(load_settings([], {"workspace": {"roots": [str(root)]}} if root else {}, {}), "network")
    http = HttpSettings.model_construct(port=0, session_idle=idle_seconds * 1000)
    options = HttpOptions(http, 1 << 20, Tokens(TOKENS if with_tokens else {}), issuer=issuer)
    web = WebApp(app, options, lambda: True, max_sessions=MAX_SESSIONS)
    with open_socket(options) as listener:
        config = uvicorn.Config(web, http=ClientConnection, log_config=None, lifespan="on", ws="none")
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks, app.running():
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
                await anyio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx2.AsyncClient(base_url=url, timeout=CEILING) as http:
                yield InProcessServer(app, http)
            server.should_exit = True


async def initialize_sse(server: InProcessServer, stream: httpx2.Response) -> AsyncIterator[str]:
    """Initialize a client over an SSE connection; return the rest of the stream, which keeps the connection open."""
    lines = aiter(stream.aiter_lines())
    assert await anext(lines) == "event: endpoint"
    path = (await anext(lines)).removeprefix("data: ")
    for message in (INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
        assert (await server.http.post(path, json=message)).status_code == 202
    return lines


@pytest.mark.requirement("network.sessions")
async def test_a_new_client_is_served_and_the_session_that_was_idle_longest_ends(root: Path) -> None:
    async with in_process_server(root) as server:
        first, second, *other_sessions = [await server.open_session() for _ in range(MAX_SESSIONS)]
        assert await server.status(first) == 200
        newest = await server.open_session()
        await until(lambda: server.session_count == MAX_SESSIONS)
        assert await server.status(second) == 404
        for session in (first, newest, *other_sessions):
            assert await server.status(session) == 200


@pytest.mark.requirement("network.sessions")
async def test_a_client_whose_session_was_ended_opens_another_one(root: Path) -> None:
    async with in_process_server(root) as server:
        forgotten, *_ = [await server.open_session() for _ in range(MAX_SESSIONS + 1)]
        await until(lambda: server.session_count == MAX_SESSIONS)
        assert await server.status(forgotten) == 404
        assert await server.status(await server.open_session()) == 200


@pytest.mark.requirement("network.sessions")
async def test_no_more_abandoned_sessions_than_the_limit_are_kept(root: Path) -> None:
    async with in_process_server(root) as server:
        for _ in range(MAX_SESSIONS):
            await server.open_session()
        tasks = len(all_tasks())
        for _ in range(MAX_SESSIONS * 10):
            await server.open_session()
        await until(lambda: server.session_count == MAX_SESSIONS and len(all_tasks()) <= tasks)


@pytest.mark.requirement("network.sessions")
async def test_a_session_with_an_open_stream_is_not_idle(root: Path) -> None:
    async with in_process_server(root) as server:
        listening_session = await server.open_session()
        headers = {**ACCEPT, "mcp-session-id": listening_session}
        async with server.http.stream("GET", "/mcp", headers=headers) as stream:
            assert stream.status_code == 200
            other_sessions = [await server.open_session() for _ in range(MAX_SESSIONS)]
            await until(lambda: server.session_count == MAX_SESSIONS)
            assert await server.status(listening_session) == 200
            assert await server.status(other_sessions[0]) == 404


@pytest.mark.requirement("network.sessions")
async def test_a_principal_that_opens_many_sessions_loses_only_its_own(root: Path) -> None:
    async with in_process_server(root, with_tokens=True) as server:
        laptop_session = await server.open_session("laptop")
        bot_sessions = [await server.open_session("bot") for _ in range(MAX_SESSIONS + 2)]
        await until(lambda: server.session_count == MAX_SESSIONS)
        assert await server.status(laptop_session, "laptop") == 200
        assert [await server.status(session, "bot") for session in bot_sessions] == [404] * 3 + [200] * 4


@pytest.mark.requirement("network.sessions")
async def test_a_session_that_its_client_ended_no_longer_counts(root: Path) -> None:
    async with in_process_server(root) as server:
        oldest = await server.open_session()
        for _ in range(MAX_SESSIONS * 2):
            headers = {"mcp-session-id": await server.open_session()}
            assert (await server.http.delete("/mcp", headers=headers)).status_code == 200
        assert await server.status(oldest) == 200


@pytest.mark.requirement("network.sessions")
async def test_a_session_that_could_not_be_ended_still_counts(root: Path) -> None:
    async with in_process_server(root) as server:
        for _ in range(MAX_SESSIONS * 2):
            headers = {"mcp-session-id": await server.open_session(), "host": "elsewhere.example"}
            assert (await server.http.delete("/mcp", headers=headers)).status_code == 421
        await until(lambda: server.session_count == MAX_SESSIONS)


@pytest.mark.requirement("network.sessions")
@pytest.mark.parametrize(
    "message",
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0"}, INITIALIZE | {"id": None}],
    ids=["no handshake", "no request", "no id"],
)
async def test_a_request_that_opens_no_session_ends_none(root: Path, message: dict[str, Any]) -> None:
    async with in_process_server(root) as server:
        sessions = [await server.open_session() for _ in range(MAX_SESSIONS)]
        for _ in range(MAX_SESSIONS):
            assert (await server.post(message, None)).status_code == 400
        assert [await server.status(session) for session in sessions] == [200] * MAX_SESSIONS


@pytest.mark.requirement("network.sessions")
async def test_idle_sessions_expire_and_nothing_is_left_of_them(root: Path) -> None:
    async with in_process_server(root, idle_seconds=0.5) as server:
        # The very first client starts tasks that stay.
        await server.open_session()
        await until(lambda: server.session_count == 0)
        tasks = len(all_tasks())
        sessions = [await server.open_session() for _ in range(MAX_SESSIONS)]
        await until(lambda: server.session_count == 0 and len(all_tasks()) <= tasks)
        assert [await server.status(session) for session in sessions] == [404] * MAX_SESSIONS


@pytest.mark.requirement("network.sessions")
async def test_a_person_with_two_programs_has_no_more_sessions_than_one_with_one(root: Path) -> None:
    with scripted_issuer() as company:
        issuer = Issuer(IssuerSettings(issuer=company.base, resource=RESOURCE))
        first_token, second_token = (sign_token(company.base, {"client_id": name}) for name in ("one", "two"))
        async with in_process_server(root, issuer=issuer) as server:
            first = await server.open_session(first_token)
            second, *other_sessions = [await server.open_session(second_token) for _ in range(MAX_SESSIONS)]
            assert await server.status(first, first_token) == 404
            await server.open_session(first_token)
            assert await server.status(second, second_token) == 404
            for session in other_sessions:
                assert await server.status(session, first_token) == 404, (
                    "only the program that opened a session may use it"
                )
            # The refused requests do not change the owner of the sessions.
            for _ in range(MAX_SESSIONS):
                await server.open_session(first_token)
            await until(lambda: server.session_count == MAX_SESSIONS)
            for session in other_sessions:
                assert await server.status(session, second_token) == 404


@pytest.mark.requirement("network.sessions")
async def test_ended_sessions_leave_nothing_in_memory() -> None:
    sessions = Sessions(RequestTable(), MAX_SESSIONS, 600)
    references: list[weakref.ref[HttpSession]] = []
    gc.disable()
    try:

        def released_session() -> weakref.ref[HttpSession]:
            session = sessions.open(None, "")
            sessions.release(session)
            return weakref.ref(session)

        references += [released_session() for _ in range(MAX_SESSIONS)]
        await sessions.aclose()
        await anyio.lowlevel.checkpoint()
        assert [reference() for reference in references] == [None] * MAX_SESSIONS
    finally:
        gc.enable()


@pytest.mark.requirement("network.sessions")
async def test_nothing_is_left_of_sse_connections_that_are_gone(root: Path) -> None:
    async with in_process_server(root) as server:
        await server.open_session()
        tasks = len(all_tasks())
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(server.http.stream("GET", "/sse")) for _ in range(MAX_SESSIONS * 2)
            ]
            open_streams = [await initialize_sse(server, stream) for stream in streams]
            await until(lambda: server.session_count == MAX_SESSIONS * 2 + 1)
            assert len(open_streams) == MAX_SESSIONS * 2
        await until(lambda: server.session_count == 1 and len(all_tasks()) <= tasks)


@pytest.mark.requirement("network.many")
async def test_small_writes_of_a_connection_are_sent_at_once() -> None:
    no_delay_options: list[int] = []

    class NotingConnection(ClientConnection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            no_delay_options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    options = HttpOptions(HttpSettings.model_construct(port=0), 1 << 20, Tokens({}))
    with open_socket(options) as listener:
        server = uvicorn.Server(
            uvicorn.Config(answer, http=NotingConnection, log_config=None, lifespan="off", ws="none")
        )
        async with anyio.create_task_group() as tasks, httpx2.AsyncClient(timeout=CEILING) as client:
            tasks.start_soon(server.serve, [listener])
            await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
            server.should_exit = True
    assert no_delay_options
    assert all(no_delay_options)


@pytest.mark.requirement("roots.session")
async def test_the_first_call_asks_for_roots_itself_while_nobody_reads_outside_of_requests(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("found\n")
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", CEILING)
    async with (
        in_process_server(None) as server,
        open_lane("session", str(server.http.base_url), "early", "", [root]) as lane,
    ):
        result = await lane.call("read_file", file_path="a.txt")
        assert result["content"][0]["text"] == "found\n"
