"""Streams end with the token that opened them, and one client's streams are bounded."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from server.clients.announcements import MAX_CLIENT_STREAMS
from server.transports.issuer import LEEWAY_SECONDS
from tests.harness import MODERN, stdio_upstream
from tests.interaction.network.test_access_tokens import server_trusting, sign_token
from tests.interaction.network.test_who_is_let_in import ACCEPT, INITIALIZE
from tests.interaction.relay.clients import stdio_entry
from tests.interaction.relay.questions import FORM
from tests.scripted_issuer import ScriptedIssuer, scripted_issuer
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

SECONDS_LEFT = 5
"""Seconds for which an expiring token is still valid: long enough for a busy machine to use it"""

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CONTENT = {"decision": "once"}  # the answer to each question
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


@pytest.fixture
def company() -> Generator[ScriptedIssuer]:
    with scripted_issuer() as issuer:
        yield issuer


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **ACCEPT}


def expiring_token(company: ScriptedIssuer, **claims: Any) -> dict[str, str]:
    """The headers with a token that has expired, but is still valid because clocks may differ."""
    return bearer(sign_token(company.base, {"exp": int(time.time()) - LEEWAY_SECONDS + SECONDS_LEFT, **claims}))


def listen_request(headers: dict[str, str]) -> dict[str, Any]:
    """The arguments of an HTTP request for a stream of changes."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    return {
        "headers": {**headers, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"},
        "json": {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params},
    }


@asynccontextmanager
async def http_client(
    root: Path, folder: Path, company: ScriptedIssuer, **settings: Any
) -> AsyncGenerator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=None)
    async with (
        server_trusting(root, folder, company, **settings) as url,
        httpx2.AsyncClient(base_url=url, timeout=CEILING, limits=limits) as http,
    ):
        yield http


async def session_of(http: httpx2.AsyncClient, headers: dict[str, str]) -> dict[str, str]:
    response = await http.post("/mcp", json=INITIALIZE, headers=headers)
    assert response.status_code == 200, response.text
    return {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}


async def events_of(stream: httpx2.Response) -> AsyncIterator[str]:
    """The data of the events of a stream, or the JSON that was answered instead of a stream."""
    async for line in stream.aiter_lines():
        if line.startswith(("data: ", "{")):
            yield line.removeprefix("data: ")


@pytest.mark.requirement("oauth.streams")
async def test_a_stream_of_a_session_ends_with_its_token_and_the_session_goes_on(
    root: Path, tmp_path: Path, company: ScriptedIssuer
) -> None:
    async with http_client(root, tmp_path, company) as http:
        short, fresh = expiring_token(company), bearer(sign_token(company.base))
        session = await session_of(http, short)
        async with http.stream("GET", "/mcp", headers=short | session) as stream:
            assert stream.status_code == 200
            assert [event async for event in events_of(stream)] == []
        assert (await http.post("/mcp", json=PING, headers=fresh | session)).status_code == 200
        late_response = await http.post("/mcp", json=PING, headers=short | session)
        assert late_response.status_code == 401
        async with http.stream("GET", "/mcp", headers=fresh | session) as stream:
            assert stream.status_code == 200


@pytest.mark.requirement("oauth.streams")
async def test_a_stream_of_changes_ends_with_its_token_and_with_an_answer(
    root: Path, tmp_path: Path, company: ScriptedIssuer
) -> None:
    async with (
        http_client(root, tmp_path, company, mcpServers={"up": stdio_upstream()}) as http,
        http.stream("POST", "/mcp", **listen_request(expiring_token(company))) as stream,
    ):
        events = [json.loads(event) async for event in events_of(stream)]
        assert events[0]["method"] == "notifications/subscriptions/acknowledged"
        assert events[-1]["id"] == 1
        assert events[-1]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1


@pytest.mark.requirement("oauth.streams")
async def test_a_session_over_sse_lasts_as_long_as_the_latest_token_that_its_client_sent(
    root: Path, tmp_path: Path, company: ScriptedIssuer
) -> None:
    async with http_client(root, tmp_path, company) as http:
        short, fresh = expiring_token(company), bearer(sign_token(company.base))
        async with (
            http.stream("GET", "/sse", headers=short) as renewed_stream,
            http.stream("GET", "/sse", headers=short) as expiring_stream,
        ):
            renewed_events, expiring_events = events_of(renewed_stream), events_of(expiring_stream)
            renewed_path, expiring_path = await anext(renewed_events), await anext(expiring_events)
            # A request with another user's token is refused, and does not renew the session.
            foreign = bearer(sign_token(company.base, {"sub": "bob"}))
            assert (await http.post(expiring_path, json=INITIALIZE, headers=foreign)).status_code == 404
            assert (await http.post(renewed_path, json=INITIALIZE, headers=fresh)).status_code == 202
            assert json.loads(await anext(renewed_events))["id"] == 0
            assert (await http.post(renewed_path, json=INITIALIZED, headers=fresh)).status_code == 202
            assert [event async for event in expiring_events] == []
            assert (await http.post(renewed_path, json=PING, headers=fresh)).status_code == 202
            assert json.loads(await anext(renewed_events))["id"] == PING["id"]


@pytest.mark.requirement("oauth.streams")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_running_call_outlasts_its_token_or_reports_that_its_session_is_over(
    root: Path, tmp_path: Path, company: ScriptedIssuer, transport: str
) -> None:
    command = "until [ -e go ]; do sleep 0.05; done; echo went on"
    call = {"name": "run_shell_command", "arguments": {"command": command}}
    request = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}
    async with http_client(root, tmp_path, company, permissions={"allow": ["Bash"]}) as http:
        short = expiring_token(company, scope="run")
        if transport == "sse":
            async with http.stream("GET", "/sse", headers=short) as stream:
                events = events_of(stream)
                path = await anext(events)
                for message in (INITIALIZE, INITIALIZED, request):
                    assert (await http.post(path, json=message, headers=short)).status_code == 202
                messages = [json.loads(event) async for event in events]
            assert messages[-1]["id"] == 3
            assert "The token of this connection has expired" in messages[-1]["error"]["message"]
            return
        session = await session_of(http, short)
        answers: list[str] = []

        async def ask() -> None:
            answers.append((await http.post("/mcp", json=request, headers=short | session)).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            async with http.stream("GET", "/mcp", headers=short | session) as stream:
                assert [event async for event in events_of(stream)] == []
            (root / "go").touch()
        assert "went on" in answers[0]


@pytest.mark.requirement("network.listening")
async def test_a_client_that_uses_all_its_streams_of_changes_keeps_no_other_client_out(
    root: Path, tmp_path: Path, company: ScriptedIssuer
) -> None:
    alice, bob = (bearer(sign_token(company.base, {"sub": name})) for name in ("alice", "bob"))
    async with http_client(root, tmp_path, company) as http, AsyncExitStack() as stack:
        streams: list[AsyncIterator[str]] = []

        async def first_event(headers: dict[str, str]) -> dict[str, Any]:
            stream = await stack.enter_async_context(http.stream("POST", "/mcp", **listen_request(headers)))
            streams.append(events_of(stream))
            return json.loads(await anext(streams[-1]))

        for _ in range(MAX_CLIENT_STREAMS):
            assert "error" not in await first_event(alice)
        error = (await first_event(alice))["error"]
        assert f"at most {MAX_CLIENT_STREAMS} are allowed for this client" in error["message"]
        assert error["data"]["type"] == "too_many_calls"
        assert "error" not in await first_event(bob)
        await stack.aclose()
        while "error" in await first_event(alice):  # until the server notices that the streams are closed
            assert len(streams) < 10_000


@pytest.mark.requirement("oauth.sessions")
async def test_a_session_is_for_the_scopes_that_opened_it_and_a_renewed_token_continues_it(
    root: Path, tmp_path: Path, company: ScriptedIssuer
) -> None:
    def token(scope: str, **claims: Any) -> dict[str, str]:
        return bearer(sign_token(company.base, {"scope": scope, **claims}))

    first_token, renewed_token = token("read run"), token("run read", jti="2")
    other_tokens = (token("read"), token("read run write"))
    async with http_client(root, tmp_path, company) as http:
        session = await session_of(http, first_token)
        for other_token in other_tokens:
            headers = other_token | session
            messages = (PING, {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}})
            answers = [await http.post("/mcp", json=message, headers=headers) for message in messages]
            answers += [await http.get("/mcp", headers=headers | {"last-event-id": "1/0"})]
            answers += [await http.delete("/mcp", headers=headers)]
            assert {answer.status_code for answer in answers} == {404}
            assert "with other scopes" in answers[0].text
        assert (await http.post("/mcp", json=PING, headers=renewed_token | session)).status_code == 200
        async with http.stream("GET", "/sse", headers=first_token) as stream:
            events = events_of(stream)  # kept, because the stream is closed with it
            path = await anext(events)
            refusals = [await http.post(path, json=INITIALIZE, headers=token) for token in other_tokens]
            assert [refusal.status_code for refusal in refusals] == [404, 404]
            assert "with other scopes" in refusals[0].text
            assert (await http.post(path, json=INITIALIZE, headers=renewed_token)).status_code == 202


@pytest.mark.requirement("oauth.sessions")
@pytest.mark.parametrize(
    ("name", "arguments"), [("run_shell_command", {"command": "touch made"}), ("up__ask", {"questions": [FORM]})]
)
async def test_an_answer_from_a_token_without_the_scopes_of_the_call_has_no_effect(
    root: Path, tmp_path: Path, company: ScriptedIssuer, name: str, arguments: dict[str, Any]
) -> None:
    full_token, reading_token = (
        bearer(sign_token(company.base, {"scope": scope})) for scope in ("read run upstream:*", "read")
    )
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    meta: dict[str, Any] = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}
    async with http_client(root, tmp_path, company, mcpServers={"up": stdio_entry("handshake")}) as http:

        async def call(token: dict[str, str], **answers: Any) -> dict[str, Any]:
            params = {"name": name, "arguments": arguments, "_meta": meta, **answers}
            headers = {**token, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            async with http.stream("POST", "/mcp", headers=headers, json=message) as response:
                return json.loads([event async for event in events_of(response)][-1])["result"]

        question = await call(full_token)
        answers = {
            "requestState": question["requestState"],
            "inputResponses": {key: {"action": "accept", "content": CONTENT} for key in question["inputRequests"]},
        }
        refusal = await call(reading_token, **answers)
        assert refusal["isError"]
        assert "needs the scope" in str(refusal["content"])
        assert not (root / "made").exists()
