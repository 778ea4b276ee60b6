"""What is used of the SDK beside its public interface stands in few places, and works as it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client, ClientRequestContext
from mcp.client._memory import InMemoryTransport
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from server.sdk_seams import Connection, connection_of, outbound_of

ROOT = Path(__file__).resolve().parents[2]

INNER_PARTS = {
    "server/sdk_seams.py": {
        "mcp.server.connection",
        "mcp.shared._stream_protocols",
        "_connection",
        "_request_outbound",
    },
    "server/upstreams/wire/http.py": {"mcp.shared._httpx_utils"},
    "server/transports/request_dispatcher.py": {"mcp.shared.jsonrpc_dispatcher"},
    "server/transports/stdio.py": {"mcp.server.connection", "mcp.server.runner"},
}
"""Which module uses which inner module of the SDK, and which attributes that it keeps to itself."""

INNER_MODULES = ("mcp.server.connection", "mcp.server.runner", "mcp.shared.jsonrpc_dispatcher")


def inner_parts(tree: ast.Module) -> Iterator[str]:
    """The inner parts of the SDK that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("mcp."):
            if node.module in INNER_MODULES or "._" in node.module:
                yield node.module
        elif (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and ast.unparse(node.value).endswith("session")
        ):
            yield node.attr


@pytest.mark.requirement("sdk.seams")
def test_inner_parts_of_the_sdk_are_used_in_the_known_places_only() -> None:
    used = {
        path.relative_to(ROOT).as_posix(): found
        for path in (ROOT / "server").rglob("*.py")
        if (found := set(inner_parts(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert used == INNER_PARTS


@pytest.mark.anyio
@pytest.mark.requirement("sdk.seams")
async def test_the_ways_to_a_client_take_what_no_model_knows_and_its_end_is_told() -> None:
    answers: list[Any] = []
    ended = anyio.Event()

    async def on_list(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del params
        connection = connection_of(ctx.session)
        assert isinstance(connection, Connection)
        assert connection.initialize_accepted
        connection.exit_stack.callback(ended.set)
        for way in (outbound_of(ctx.session), connection):
            answers.append(await way.send_raw_request("roots/list", {"_meta": {"example.org/unknown": 1}}))
            await way.notify("notifications/example", {"unknown": True})
        return types.ListToolsResult(tools=[])

    async def on_roots(context: ClientRequestContext) -> types.ListRootsResult:
        del context
        return types.ListRootsResult(roots=[])

    server = Server[dict[str, Any]]("seams", on_list_tools=on_list)
    with anyio.fail_after(30):
        async with Client(InMemoryTransport(server), mode="legacy", list_roots_callback=on_roots) as client:
            await client.list_tools()
        await ended.wait()
    assert answers == [{"roots": []}, {"roots": []}]
