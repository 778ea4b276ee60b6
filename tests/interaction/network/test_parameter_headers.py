"""Arguments that a call of 2026-07-28 repeats as headers, for proxies between the client and the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from server.app import App
from server.protocol.request_table import RequestContext
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tests.harness import MODERN
from tests.interaction.network.test_sessions import ACCEPT, InProcessServer, in_process_server
from tools.call.base_tool import ToolContext
from tools.contract.tool_results import ToolResult

pytestmark = pytest.mark.anyio

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
PLAIN = {"type": "object", "properties": {"region": {"type": "string"}}}
WITH_HEADER = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


async def answer(tool: object, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del tool, context
    return ToolResult(llm_content=f"in {arguments['region']}")


def publish(app: App, schema: Mapping[str, Any]) -> None:
    """Replace the tools of an upstream by one tool with this schema."""
    tool = DiscoveredMCPTool("up", "up__run", {"name": "run", "inputSchema": schema}, trusted=True, call=answer)
    app.registry.replace_source("up", [tool])


async def call_run(server: InProcessServer, header: str | None) -> httpx2.Response:
    """Call the tool with one argument, and perhaps its header."""
    headers = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "up__run"}
    if header is not None:
        headers["mcp-param-region"] = header
    params = {"name": "up__run", "arguments": {"region": "north"}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await server.http.post("/mcp", json=message, headers=headers)


@pytest.mark.requirement("http.statuses")
async def test_a_call_whose_headers_and_arguments_differ_is_refused(root: Path) -> None:
    async with in_process_server(root) as server:
        publish(server.app, WITH_HEADER)
        # Before the first call, the server knows nothing about the tool's headers.
        for _ in range(2):
            assert [(await call_run(server, header)).status_code for header in ("south", None, "north")] == [
                400,
                400,
                200,
            ]


@pytest.mark.requirement("http.statuses")
async def test_the_checked_headers_change_with_the_tools(root: Path) -> None:
    async with in_process_server(root) as server:
        for schema, status in ((PLAIN, 200), (WITH_HEADER, 400), (PLAIN, 200)):
            publish(server.app, schema)
            assert [(await call_run(server, None)).status_code for _ in range(2)] == [status] * 2
        server.app.registry.replace_source("up", [])
        assert (await call_run(server, None)).json()["error"]["code"] == -32602


@pytest.mark.requirement("http.statuses")
async def test_a_call_does_not_list_the_tools(root: Path) -> None:
    methods: list[str] = []

    async def note_method(ctx: RequestContext, call_next: Any) -> Any:
        methods.append(ctx.method)
        return await call_next(ctx)

    async with in_process_server(root) as server:
        publish(server.app, WITH_HEADER)
        server.app.table.middleware.insert(0, note_method)
        for _ in range(3):
            assert (await call_run(server, "north")).status_code == 200
    assert methods == ["tools/call", "tools/call", "tools/call"]
