"""One malformed item of one server breaks no client's list, neither directly nor through two proxies."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.interaction.relay.clients import Json, WireClient, listing_entry, proxy_client
from tests.interaction.relay.eras import by_era

pytestmark = pytest.mark.anyio

SCHEMA: Json = {"type": "object"}
UNRESOLVED: Json = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}}
ARRAY: Json = {"type": "array"}
LISTS: Json = {
    "tools": [
        {"name": "whole", "title": "Whole", "inputSchema": SCHEMA, "outputSchema": SCHEMA},
        {"name": "nulls", "title": None, "icons": None, "annotations": None, "_meta": None, "inputSchema": SCHEMA},
        {"name": "unset", "inputSchema": {"type": "object", "required": None, "properties": None}},
        {"name": "unresolved", "inputSchema": SCHEMA, "outputSchema": UNRESOLVED},
        {"name": "newest", "inputSchema": SCHEMA, "outputSchema": ARRAY},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "half", "description": "\ud83d", "inputSchema": SCHEMA},
        {"name": "", "inputSchema": SCHEMA},
        *({"name": name, "inputSchema": SCHEMA} for name in ("catalog.get", "a/b", "a:b", "a b")),
    ],
    "prompts": [{"name": "greet", "title": None, "arguments": [{"name": "who", "description": None}]}, {"name": None}],
    "resources": [{"uri": "memo://a", "name": "a", "mimeType": None, "size": None}, {"uri": "memo://b", "name": 5}],
    "resourceTemplates": [{"uriTemplate": "memo://t/{x}", "name": "t", "description": None}],
}
OMISSIONS = {
    "tools": [
        *("title of 'nulls'", "icons of 'nulls'", "annotations of 'nulls'", "_meta of 'nulls'"),
        *("inputSchema.required of 'unset'", "inputSchema.properties of 'unset'"),
        "outputSchema (properties.a.$ref) of 'unresolved'",
        "outputSchema (for clients of revisions up to 2025-11-25) of 'newest'",
        *("'text' (inputSchema.type)", "item 8 (it has no name)"),
    ],
    "prompts": ["title of 'greet'", "arguments.0.description of 'greet'", "item 2 (it has no name)"],
    "resources": ["mimeType of 'memo://a'", "size of 'memo://a'", "'memo://b' (name)"],
    "resourceTemplates": ["description of 'memo://t/{x}'"],
}


def odd_servers(folder: Path) -> Json:
    """Return the entry of a server with these lists. They are in a file, because variables in an entry are expanded."""
    (folder / "lists").write_text(json.dumps(LISTS))
    return {"up": listing_entry("up", entry={"trust": True}, orders=str(folder / "lists"))}


ODD_NAMES = ("catalog.get", "a/b", "a:b", "a b")


async def check_lists(client: WireClient) -> dict[str, Json]:
    """Check all lists, and return the published tools by the names that their server uses."""
    published_tools = await client.items_by_name("tools")
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in published_tools)
    tools_by_name = {
        tool["_meta"]["coretools-mcp/upstream"]["tool"].rpartition("__")[2]: tool for tool in published_tools.values()
    }
    assert len(tools_by_name) == 10
    assert tools_by_name["whole"]["title"] == "Whole"
    assert tools_by_name["whole"]["outputSchema"] == SCHEMA
    assert not tools_by_name["nulls"].keys() & {"title", "icons", "annotations"}
    assert tools_by_name["unset"]["inputSchema"] == SCHEMA
    assert "outputSchema" not in tools_by_name["unresolved"]
    assert tools_by_name["newest"].get("outputSchema") == (ARRAY if client.is_modern else None)
    (prompt,) = (await client.items_by_name("prompts")).values()
    assert (prompt["arguments"], "title" in prompt) == ([{"name": "who"}], False)
    resources = await client.items_by_name("resources")
    assert not resources["memo://a"].keys() & {"mimeType", "size"}
    assert "memo://b" not in resources
    assert "description" not in (await client.items_by_name("resourceTemplates"))["memo://t/{x}"]
    return tools_by_name


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("inner")
    config = write_config(folder, {"tools": {"builtIn": False}, "mcpServers": odd_servers(folder)})
    command = [sys.executable, *forked(server_arguments(None, config, "--transport", "http", "--port", "0"))]
    with background_server(command, r"serving MCP at (http://\S+?),") as url:
        yield url


@pytest.mark.requirement("proxy.items")
@pytest.mark.requirement("proxy.items.output")
@pytest.mark.requirement("proxy.names")
@by_era
async def test_all_published_items_are_valid_and_only_invalid_parts_are_left_out(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, odd_servers(tmp_path), era) as client:
        tools_by_name = await check_lists(client)
        for name in ODD_NAMES:
            assert await client.call(f"up__{name}", {}) == await client.call(tools_by_name[name]["name"], {})


@pytest.mark.requirement("proxy.items")
@by_era
async def test_lists_are_the_same_through_two_proxies(era: str, inner: str, tmp_path: Path) -> None:
    servers: Json = {"in": {"httpUrl": f"{inner}/mcp", "trust": True}}
    async with proxy_client(tmp_path, servers, era, capabilities={}) as client:
        for tool in (await check_lists(client)).values():
            assert (await client.call(tool["name"], {}))["content"] == [{"type": "text", "text": "from up"}]


@pytest.mark.requirement("proxy.items.told")
async def test_parts_that_are_left_out_are_named_once_in_the_log_and_in_the_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams")
    settings = {"tools": {"builtIn": True}}
    async with proxy_client(tmp_path, odd_servers(tmp_path), "handshake", settings=settings, capabilities={}) as client:
        await client.items_by_name("tools")
        result = await client.request("resources/read", {"uri": "coretools://upstreams"})
        (report,) = json.loads(result["contents"][0]["text"])["upstreams"]
    assert {kind: sorted(names) for kind, names in report["leftOut"].items()} == {
        kind: sorted(names) for kind, names in OMISSIONS.items()
    }
    assert [caplog.text.count(text) for text in ("tools/list has", "title of 'nulls'", "item 8 (it")] == [1, 1, 1]


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("rule", ["up__catalog.get", "mcp__up__catalog.get"])
async def test_a_rule_can_name_a_tool_by_the_name_that_its_server_uses(rule: str, tmp_path: Path) -> None:
    async with proxy_client(
        tmp_path, odd_servers(tmp_path), "handshake", settings={"permissions": {"deny": [rule]}}
    ) as client:
        assert not [name for name in await client.items_by_name("tools") if name.startswith("up__catalog")]
        assert "permissions.deny" in str(await client.call("up__catalog.get", {}))
