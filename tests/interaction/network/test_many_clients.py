"""Many connections and sessions at once, and the notifications that all of them get."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest
from mcp.client import Client as McpClient
from mcp.client.subscriptions import Subscription

from server.requests.call_contexts import MAX_CALLS, STDIO_KEY, Client
from tests.harness import Route, connected, http_client, our_http_server, write_config
from tests.interaction.serving import CHEAP_ROUTES, NETWORK_ROUTES, by_route
from tests.waiting import CEILING
from tools.call.base_tool import ClientState
from tools.contract.call_options import ApprovalMode
from tools.contract.tool_errors import ToolError, ToolErrorType

pytestmark = pytest.mark.anyio

CONNECTIONS = 1_000


def allow_descriptors() -> None:
    """Raise the limit of open files, because the default of the system may be too low for so many sockets."""
    if sys.platform == "win32":
        return
    import resource

    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit < CONNECTIONS + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(CONNECTIONS + 200, hard_limit), hard_limit))


@pytest.mark.long
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
        streams = [await asyncio.open_connection(address.hostname, address.port) for _ in range(CONNECTIONS)]
        try:
            for _, writer in streams:
                writer.write(head + body)
            with anyio.fail_after(CEILING):
                answers = [await reader.readline() for reader, _ in streams]
        finally:
            for _, writer in streams:
                writer.close()
        assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}


META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.requirement("network.many")
@pytest.mark.parametrize("key", ["http:1", "token:bot", "sse:1"])
def test_a_network_client_may_run_a_limited_number_of_calls_at_once(key: str) -> None:
    client = Client(ClientState(key, ApprovalMode.DEFAULT))
    client.calls = MAX_CALLS - 1
    with client:
        with pytest.raises(ToolError) as refusal, client:
            pass
        assert refusal.value.code is ToolErrorType.TOO_MANY_CALLS
    with client:
        pass
    assert client.calls == MAX_CALLS - 1


@pytest.mark.requirement("network.many")
def test_over_stdio_calls_wait_instead() -> None:
    client = Client(ClientState(STDIO_KEY, ApprovalMode.DEFAULT))
    client.calls = MAX_CALLS
    with client:
        assert client.calls == MAX_CALLS + 1


def list_change_handler(event: anyio.Event) -> Any:
    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            event.set()

    return on_message


@asynccontextmanager
async def subscription(route: Route, client: McpClient, change_event: anyio.Event) -> AsyncGenerator[None]:
    """Subscribe to changes of lists in 2026-07-28; in earlier revisions, notifications come without a subscription."""
    if not route.is_modern:
        yield
        return

    async def listen(changes: Subscription) -> None:
        async for _ in changes:
            change_event.set()

    async with client.listen(tools_list_changed=True) as changes, anyio.create_task_group() as tasks:
        tasks.start_soon(listen, changes)
        yield
        tasks.cancel_scope.cancel()


def exclude_glob(folder: Path) -> None:
    """Change the list of tools: exclude `glob`."""
    write_config(folder, {"tools": {"exclude": ["glob"]}})


@pytest.mark.requirement("network.changes")
async def test_every_session_and_every_listener_hears_of_a_changed_list(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    change_events = {route: anyio.Event() for route in NETWORK_ROUTES}
    async with our_http_server(root, config) as url, AsyncExitStack() as stack:
        clients: list[McpClient] = []
        for route, event in change_events.items():
            new_client = http_client(url, *route, message_handler=list_change_handler(event))
            clients.append(await stack.enter_async_context(new_client))
            await stack.enter_async_context(subscription(route, clients[-1], event))
            assert "glob" in {tool.name for tool in (await clients[-1].list_tools()).tools}
        exclude_glob(tmp_path)
        with anyio.fail_after(CEILING):
            for event in change_events.values():
                await event.wait()
        for client in clients:
            assert "glob" not in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.requirement("network.changes")
@by_route(route for route in CHEAP_ROUTES if not route.is_network)
async def test_the_only_client_of_a_server_hears_of_a_changed_list(route: Route, root: Path, tmp_path: Path) -> None:
    change_event = anyio.Event()
    config = write_config(tmp_path, {})
    async with connected(*route, root, config, message_handler=list_change_handler(change_event)) as client:
        async with subscription(route, client, change_event):
            assert "glob" in {tool.name for tool in (await client.list_tools()).tools}
            exclude_glob(tmp_path)
            with anyio.fail_after(CEILING):
                await change_event.wait()
        assert "glob" not in {tool.name for tool in (await client.list_tools()).tools}
