"""A name without a prefix belongs to the first server in the configuration that has it, not to the quickest."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.interaction.relay.clients import Json, listing_entry, proxy_client, text_or_json

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("proxy.names.unprefixed")]

BARE: Json = {"prefix": "none", "trust": True}

SEARCH: Json = {"tools": [{"name": "search", "inputSchema": {"type": "object"}}]}


async def test_a_call_waits_for_a_slow_server_that_comes_first_in_the_settings(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    servers = {
        "slow": listing_entry("slow", after=str(gate), entry=BARE, **SEARCH),
        "quick": listing_entry("quick", entry=BARE, **SEARCH),
    }
    settings = {"proxy": {"firstListWait": 1}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        while "search" not in (tools := await client.items_by_name("tools")):
            await client.wait_for_notifications("notifications/tools/list_changed")
        assert tools["search"]["_meta"]["coretools-mcp/upstream"]["server"] == "quick"
        results: list[Json] = []

        async def call() -> None:
            results.append(await client.call("search"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            assert text_or_json(await client.call("quick__search")) == "from quick"
            assert not results
            gate.touch()
        assert text_or_json(results[0]) == "from slow"


async def test_a_rule_can_name_a_tool_by_its_own_name_if_another_name_is_published(tmp_path: Path) -> None:
    tool = {"name": "catalog.get", "inputSchema": {"type": "object"}}
    servers = {"up": listing_entry("up", entry=BARE, tools=[tool])}
    async with proxy_client(tmp_path, servers, "modern") as client:
        (published_name,) = await client.items_by_name("tools")
        assert published_name.startswith("catalog-get-")
    async with proxy_client(tmp_path, servers, "modern", settings={"permissions": {"deny": ["catalog.get"]}}) as client:
        assert not await client.items_by_name("tools")


async def test_a_server_that_cannot_be_reached_reserves_no_names(tmp_path: Path) -> None:
    servers = {
        "gone": {"command": str(tmp_path / "nothing"), **BARE},
        "here": listing_entry("here", entry=BARE, **SEARCH),
        "later": listing_entry("later", entry=BARE, **SEARCH),
    }
    async with proxy_client(tmp_path, servers, "modern") as client:
        assert text_or_json(await client.call("search")) == "from here"
