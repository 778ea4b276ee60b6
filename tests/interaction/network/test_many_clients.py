"""Many connections and sessions at once, and what all of them hear."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest

from server.clients import MOST_CALLS, STDIO_KEY, Client
from tests.harness import HANDSHAKE, http_client, our_http_server, write_config
from tools.contract.context import ApprovalMode, ClientState
from tools.contract.errors import ToolError, ToolErrorType

pytestmark = pytest.mark.anyio

CONNECTIONS = 1_000
CEILING = 60


def allow_descriptors() -> None:
    """Have room for as many sockets, where the system gives less to those who do not ask."""
    if sys.platform == "win32":
        return
    import resource

    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if least < CONNECTIONS + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(CONNECTIONS + 200, most), most))


@pytest.mark.requirement("network.many")
async def test_a_thousand_connections_at_once_are_served(root: Path) -> None:
    allow_descriptors()
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}})
    body = request.replace('"params": {}', f'"params": {json.dumps({"_meta": META})}').encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: server/discover\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    async with our_http_server(root, None) as url:
        address = urlsplit(url)
        opened = [await asyncio.open_connection(address.hostname, address.port) for _ in range(CONNECTIONS)]
        try:
            for _, writer in opened:
                writer.write(head + body)
            with anyio.fail_after(CEILING):
                answers = [await reader.readline() for reader, _ in opened]
        finally:
            for _, writer in opened:
                writer.close()
        assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}


META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.requirement("network.many")
@pytest.mark.parametrize("key", ["http:1", "token:bot", "sse:1"])
def test_a_client_of_the_network_has_so_many_calls_at_work_and_no_more(key: str) -> None:
    client = Client(ClientState(key, ApprovalMode.DEFAULT))
    client.calls = MOST_CALLS - 1
    with client.at_work():
        with pytest.raises(ToolError) as refusal, client.at_work():
            pass
        assert refusal.value.code is ToolErrorType.TOO_MANY_CALLS
    with client.at_work():
        pass
    assert client.calls == MOST_CALLS - 1


@pytest.mark.requirement("network.many")
def test_over_stdio_calls_wait_instead() -> None:
    client = Client(ClientState(STDIO_KEY, ApprovalMode.DEFAULT))
    client.calls = MOST_CALLS
    with client.at_work():
        assert client.calls == MOST_CALLS + 1


@pytest.mark.requirement("network.changes")
async def test_every_session_hears_of_a_changed_list(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    heard = [anyio.Event() for _ in range(3)]

    def noting(event: anyio.Event) -> Any:
        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                event.set()

        return on_message

    async with (
        our_http_server(root, config) as url,
        http_client(url, "http", HANDSHAKE, message_handler=noting(heard[0])) as first,
        http_client(url, "http", HANDSHAKE, message_handler=noting(heard[1])),
        http_client(url, "sse", HANDSHAKE, message_handler=noting(heard[2])),
    ):
        assert "glob" in {tool.name for tool in (await first.list_tools()).tools}
        write_config(tmp_path, {"tools": {"exclude": ["glob"]}})
        with anyio.fail_after(CEILING):
            for event in heard:
                await event.wait()
        assert "glob" not in {tool.name for tool in (await first.list_tools()).tools}
