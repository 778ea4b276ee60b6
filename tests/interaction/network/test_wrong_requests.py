"""The HTTP status tells what is wrong with a request, and the server still serves others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness import HANDSHAKES
from tests.interaction.network.wires import (
    ACCEPT,
    INITIALIZED,
    Connection,
    Head,
    connection,
    initialize,
    modern,
    modern_headers,
    post,
    request,
)
from tests.interaction.raw_clients import Message
from tests.interaction.serving import SharedServers

pytestmark = pytest.mark.anyio

SMALL = {"limits": {"requestBytes": 100_000}}
NOBODY = "/messages/?session_id=" + "0" * 32
PING = modern(7, "server/discover")
READ_CALL = modern(8, "tools/call", {"name": "read_file", "arguments": {}})
"""A valid request: the server answers with the error of a call that lacks its path."""


async def status_of(url: str, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> int:
    """The status of a request on a new connection."""
    async with connection(url) as wire:
        return (await wire.ask(method, path, headers, body)).status


async def assert_serves_others(url: str) -> None:
    """Check that the server still serves other clients."""
    assert await status_of(url, "POST", "/mcp", modern_headers(PING), json.dumps(PING).encode()) == 200


def change_headers(headers: Mapping[str, str], *names: str, **new_headers: str) -> dict[str, str]:
    """Headers without some names, and with new ones."""
    return {name: value for name, value in headers.items() if name not in names} | {
        name.replace("_", "-"): value for name, value in new_headers.items()
    }


ENTRANCES: list[tuple[str, str, Mapping[str, str], Message | None]] = [
    ("POST", "/mcp", ACCEPT, initialize("2025-06-18")),
    ("POST", "/mcp", modern_headers(PING), PING),
    ("GET", "/mcp", {"Accept": "text/event-stream"}, None),
    ("DELETE", "/mcp", {}, None),
    ("GET", "/sse", {}, None),
    ("POST", NOBODY, ACCEPT, initialize("2025-06-18")),
]
"""One valid request for each way to reach the server"""


@pytest.mark.requirement("http.headers")
@pytest.mark.parametrize(
    ("wrong_headers", "status"),
    [
        ({"Host": "evil.com"}, 421),
        ({"Host": "127.0.0.1.evil.com"}, 421),
        ({"Host": "localhost@evil.com"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.com:80"}, 403),
        ({"Origin": "https://127.0.0.1:8443"}, 403),
    ],
    ids=str,
)
@pytest.mark.parametrize("entrance", ENTRANCES, ids=["session", "stateless", "stream", "end", "sse", "messages"])
async def test_requests_with_a_foreign_host_or_origin_are_refused_everywhere(
    entrance: tuple[str, str, Mapping[str, str], Message | None],
    wrong_headers: Mapping[str, str],
    status: int,
    shared_servers: SharedServers,
) -> None:
    url = shared_servers.url()
    method, path, headers, message = entrance
    body = json.dumps(message).encode() if message is not None else b""
    assert await status_of(url, method, path, {**headers, **wrong_headers}, body) == status
    await assert_serves_others(url)


@pytest.mark.requirement("http.headers")
@pytest.mark.parametrize("path", ["/mcp", "/sse", NOBODY])
@pytest.mark.parametrize(("version", "status"), [("1.0", 421), ("1.1", 400)])
async def test_a_request_without_a_host_is_refused(
    path: str, version: str, status: int, shared_servers: SharedServers
) -> None:
    url = shared_servers.url()
    method = "GET" if path == "/sse" else "POST"
    async with connection(url) as wire:
        lines = f"{method} {path} HTTP/{version}\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
        await wire.send(lines.encode())
        assert (await wire.head()).status == status
    await assert_serves_others(url)


@pytest.mark.requirement("http.headers")
@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("path", ["/mcp", "/mcp modern", "/messages"])
async def test_a_body_over_the_limit_is_refused_and_nobody_else_notices(
    path: str, is_declared: bool, shared_servers: SharedServers
) -> None:
    url = shared_servers.url(SMALL)
    async with connection(url) as stream, connection(url) as wire:
        if path == "/messages":
            _, path = await anext(stream.events(await stream.ask("GET", "/sse", {})))
        headers = modern_headers(PING) if path.endswith("modern") else dict(ACCEPT)
        path = path.removesuffix(" modern")
        if is_declared:
            head = await wire.ask("POST", path, headers, b"x" * 100_001)
        else:
            await assert_serves_others(url)
            head = await send_chunked(wire, path, headers)
        assert head.status == 413
        await assert_serves_others(url)


async def send_chunked(wire: Connection, path: str, headers: Mapping[str, str]) -> Head:
    """Send a body without a Content-Length, until it is too long."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    await wire.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{lines}\r\n".encode())
    for _ in range(11):
        await wire.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
    return await wire.head()


SESSION_CASES: list[tuple[str, str, Mapping[str, str | None], bytes | None, int]] = [
    ("no Accept", "POST", {"Accept": None}, None, 200),
    ("Accept of JSON alone", "POST", {"Accept": "application/json"}, None, 200),
    ("Accept of something else", "POST", {"Accept": "text/html"}, None, 406),
    ("any Accept", "POST", {"Accept": "*/*"}, None, 200),
    ("no Content-Type", "POST", {"Content-Type": None}, None, 400),
    ("another Content-Type", "POST", {"Content-Type": "text/plain"}, None, 400),
    ("no session", "POST", {"Mcp-Session-Id": None}, None, 400),
    ("unknown session", "POST", {"Mcp-Session-Id": "0" * 32}, None, 404),
    ("an odd session", "POST", {"Mcp-Session-Id": "../../x"}, None, 404),
    ("unknown revision", "POST", {"MCP-Protocol-Version": "1999-01-01"}, None, 400),
    ("no revision", "POST", {"MCP-Protocol-Version": None}, None, 200),
    ("the stateless revision", "POST", {"MCP-Protocol-Version": "2026-07-28"}, None, 400),
    ("no JSON", "POST", {}, b"{", 400),
    ("bytes", "POST", {}, b"\xff\xfe\x00", 400),
    ("no message", "POST", {}, b'{"jsonrpc": "2.0"}', 400),
    ("a batch of nothing", "POST", {}, b"[]", 400),
    ("GET without a session", "GET", {"Mcp-Session-Id": None}, b"", 400),
    ("GET of an unknown session", "GET", {"Mcp-Session-Id": "0" * 32}, b"", 404),
    ("GET that accepts no events", "GET", {"Accept": "application/json"}, b"", 406),
    ("DELETE without a session", "DELETE", {"Mcp-Session-Id": None}, b"", 400),
    ("DELETE of an unknown session", "DELETE", {"Mcp-Session-Id": "0" * 32}, b"", 404),
    ("PUT", "PUT", {}, None, 405),
]


@pytest.mark.requirement("http.statuses")
@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_wrong_request_of_a_session_is_refused_with_its_status_and_the_session_goes_on(
    revision: str, shared_servers: SharedServers
) -> None:
    url = shared_servers.url()
    ping = json.dumps(request(1, "ping")).encode()
    async with connection(url) as wire:
        head = await post(wire, "/mcp", initialize(revision), {})
        assert [message["result"]["protocolVersion"] async for message in wire.messages(head)] == [revision]
        session_headers = {**ACCEPT, "Mcp-Session-Id": head.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        assert await status_of(url, "POST", "/mcp", session_headers, json.dumps(INITIALIZED).encode()) == 202
        statuses: dict[str, int] = {}
        for name, method, header_changes, body, _ in SESSION_CASES:
            all_headers = {**session_headers, **header_changes}
            headers = {header: value for header, value in all_headers.items() if value is not None}
            statuses[name] = await status_of(url, method, "/mcp", headers, ping if body is None else body)
            assert await status_of(url, "POST", "/mcp", session_headers, ping) == 200, name
        assert statuses == {name: status for name, *_, status in SESSION_CASES}
        assert await status_of(url, "DELETE", "/mcp", session_headers) == 200
        assert await status_of(url, "POST", "/mcp", session_headers, ping) == 404


def ping_with_meta(**meta: Any) -> Message:
    """The request `PING` with other metadata; `None` removes a key."""
    message: Message = json.loads(json.dumps(PING))
    for key, value in meta.items():
        message["params"]["_meta"].pop(f"io.modelcontextprotocol/{key}")
        if value is not None:
            message["params"]["_meta"][f"io.modelcontextprotocol/{key}"] = value
    return message


STATELESS_CASES: list[tuple[str, str, Message, dict[str, str], int]] = [
    ("as it should be", "POST", PING, modern_headers(PING), 200),
    ("no Mcp-Method", "POST", PING, change_headers(modern_headers(PING), "Mcp-Method"), 400),
    ("another Mcp-Method", "POST", PING, change_headers(modern_headers(PING), Mcp_Method="tools/list"), 400),
    ("no Mcp-Name", "POST", READ_CALL, change_headers(modern_headers(READ_CALL), "Mcp-Name"), 400),
    ("another Mcp-Name", "POST", READ_CALL, change_headers(modern_headers(READ_CALL), Mcp_Name="edit"), 400),
    ("unknown revision", "POST", PING, change_headers(modern_headers(PING), MCP_Protocol_Version="2030-01-01"), 400),
    (
        "unknown revision twice",
        "POST",
        ping_with_meta(protocolVersion="2030-01-01"),
        change_headers(modern_headers(PING), MCP_Protocol_Version="2030-01-01"),
        400,
    ),
    (
        "another revision in the message",
        "POST",
        ping_with_meta(protocolVersion="2025-11-25"),
        modern_headers(PING),
        400,
    ),
    ("no revision in the message", "POST", ping_with_meta(protocolVersion=None), modern_headers(PING), 400),
    ("no capabilities", "POST", ping_with_meta(clientCapabilities=None), modern_headers(PING), 400),
    ("capabilities of no kind", "POST", ping_with_meta(clientCapabilities=5), modern_headers(PING), 400),
    ("no metadata", "POST", request(1, "server/discover"), modern_headers(PING), 400),
    ("unknown method", "POST", modern(1, "no/such"), modern_headers(modern(1, "no/such")), 404),
    ("no Accept", "POST", PING, change_headers(modern_headers(PING), "Accept"), 200),
    ("Accept of JSON alone", "POST", PING, change_headers(modern_headers(PING), Accept="application/json"), 200),
    ("no Content-Type", "POST", PING, change_headers(modern_headers(PING), "Content-Type"), 400),
    (
        "another Content-Type",
        "POST",
        PING,
        change_headers(modern_headers(PING), "Content-Type", Content_Type="text/html"),
        400,
    ),
    ("a session", "POST", PING, change_headers(modern_headers(PING), Mcp_Session_Id="0" * 32), 200),
    ("a notification", "POST", INITIALIZED, modern_headers(PING), 202),
    ("GET", "GET", PING, modern_headers(PING), 405),
    ("DELETE", "DELETE", PING, modern_headers(PING), 405),
]


@pytest.mark.requirement("http.statuses")
async def test_a_wrong_stateless_request_is_refused_with_its_status(shared_servers: SharedServers) -> None:
    url = shared_servers.url()
    statuses: dict[str, int] = {}
    for name, method, message, headers, _ in STATELESS_CASES:
        statuses[name] = await status_of(url, method, "/mcp", headers, json.dumps(message).encode())
        await assert_serves_others(url)
    for name, body in (("no JSON", b"{"), ("bytes", b"\xff"), ("a batch", b"[]"), ("deep", b"[" * 100_000)):
        assert await status_of(url, "POST", "/mcp", modern_headers(PING), body) == 400, name
        await assert_serves_others(url)
    assert statuses == {name: status for name, *_, status in STATELESS_CASES}


@pytest.mark.requirement("http.statuses")
async def test_a_wrong_request_over_sse_is_refused_with_its_status_and_the_stream_goes_on(
    shared_servers: SharedServers,
) -> None:
    url = shared_servers.url()
    async with connection(url) as stream:
        events = stream.events(await stream.ask("GET", "/sse", {}))
        _, endpoint = await anext(events)
        ping = json.dumps(request(1, "ping")).encode()
        cases: list[tuple[str, str, str, Mapping[str, str], bytes, int]] = [
            ("no session", "POST", "/messages/", ACCEPT, ping, 400),
            ("an odd session", "POST", "/messages/?session_id=x", ACCEPT, ping, 400),
            ("unknown session", "POST", NOBODY, ACCEPT, ping, 404),
            ("no Content-Type", "POST", endpoint, {}, ping, 400),
            ("another Content-Type", "POST", endpoint, {"Content-Type": "text/plain"}, ping, 400),
            ("no JSON", "POST", endpoint, ACCEPT, b"{", 400),
            ("no message", "POST", endpoint, ACCEPT, b'{"jsonrpc": "2.0"}', 400),
            ("GET of messages", "GET", endpoint, ACCEPT, b"", 405),
            ("POST of the stream", "POST", "/sse", ACCEPT, ping, 405),
        ]
        statuses: dict[str, int] = {}
        for name, method, path, headers, body, _ in cases:
            statuses[name] = await status_of(url, method, path, headers, body)
        assert statuses == {name: status for name, *_, status in cases}
        assert await status_of(url, "POST", endpoint, ACCEPT, json.dumps(initialize("2024-11-05")).encode()) == 202
        assert json.loads((await anext(events))[1])["id"] == 0


@pytest.mark.requirement("network.slow")
async def test_connections_that_are_lost_at_any_point_leave_the_server_as_it_was(shared_servers: SharedServers) -> None:
    url = shared_servers.url()
    body = json.dumps(READ_CALL).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in modern_headers(READ_CALL).items())
    data = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body
    for end in (*range(0, len(data), 37), len(data)):
        for is_reset in (True, False):
            async with connection(url) as wire:
                await wire.send(data[:end])
                if is_reset:
                    wire.reset()
    await assert_serves_others(url)
