"""Large lists of upstreams: they block no other work, are prepared only once, and are limited in size."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from server.settings import UpstreamSettings
from server.upstreams.catalog.tool_catalog import ToolCatalog
from server.upstreams.connections.connection import Upstream
from server.upstreams.session.list_reader import (
    MAX_ITEMS,
    TOOLS,
    Offer,
    OfferedKind,
    read_lists,
    tool_with_visible_texts,
)
from server.upstreams.session.upstream_session import UpstreamSession
from tests.interaction.relay.clients import listing_entry, proxy_client
from tests.unit.test_tool_catalog import unreachable
from tools.call.tool_registry import ToolRegistry

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

MANY = 2_000

SCHEMA: Json = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "d"} for n in range(10)}}


class Era:
    """The protocol revision of the session."""

    version = "2025-11-25"

    def announces(self, capability: str) -> bool:
        return capability == "tools"


class Session:
    """A session whose upstream answers at once."""

    alias = "up"
    era = Era()
    log = logging.LoggerAdapter(logging.getLogger("upstream"))

    def __init__(self, tools: list[Json]) -> None:
        self.tools = tools

    async def request(self, method: str, params: Json) -> Json:
        del method, params
        return json.loads(json.dumps({"tools": self.tools}))


async def read(tools: list[Json], offer: Offer) -> list[Json]:
    """Return the items that are accepted from a list."""

    async def take(kind: OfferedKind, items: list[Json]) -> None:
        offer.lists[kind.field] = items

    await read_lists(cast("UpstreamSession", Session(tools)), (TOOLS,), 30, take, offer)
    return offer.items(TOOLS)


def tools_of(count: int, description: str) -> list[Json]:
    return [{"name": f"t{n}", "description": description, "inputSchema": SCHEMA} for n in range(count)]


async def turns_during(work: Any) -> int:
    """Return how often another task can run during the work."""
    turns = 0
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        tasks.start_soon(wait)
        await work
        tasks.cancel_scope.cancel()
    return turns


@pytest.mark.requirement("proxy.lists")
async def test_other_tasks_run_while_a_large_list_is_read_and_prepared() -> None:
    offer, catalog = Offer(), ToolCatalog(ToolRegistry(), 48)
    assert await turns_during(read(tools_of(MANY, "d"), offer)) > 8
    assert len(offer.items(TOOLS)) == MANY
    assert await turns_during(catalog.prepare("up", offer.items(TOOLS))) > 8


@pytest.mark.requirement("proxy.lists")
async def test_a_tool_that_is_listed_again_unchanged_stays_the_same_object() -> None:
    offer, registry = Offer(), ToolRegistry()
    catalog = ToolCatalog(registry, 48)
    catalog.configure({"up": UpstreamSettings(command="x")})

    async def publish(tools: list[Json]) -> list[Any]:
        items = await read(tools, offer)
        await catalog.prepare("up", items)
        catalog.set_listed("up", items, unreachable)
        return [registry.get_tool(f"up__{tool['name']}") for tool in tools]

    numeric_tool = {"name": "t2", "inputSchema": {"type": "object", "default": 1}}
    old_tools = await publish([*tools_of(2, "d"), numeric_tool])
    new_definitions = [
        *tools_of(1, "d"),
        *tools_of(2, "other")[1:],
        {**numeric_tool, "inputSchema": {"type": "object", "default": True}},
    ]
    new_tools = await publish(new_definitions)
    assert [old is new for old, new in zip(old_tools, new_tools, strict=True)] == [True, False, False]
    assert [tool.definition for tool in new_tools] == new_definitions
    assert [tool.description for tool in new_tools[:2]] == ["d", "other"]


@pytest.mark.requirement("proxy.lists")
def test_a_schema_without_invisible_characters_is_not_copied() -> None:
    plain: Json = {"type": "object", "properties": {"a": {"description": "d", "enum": ["\u200b"]}}, "anyOf": [{}]}
    hiding: Json = {"type": "object", "properties": {"a": {"description": "\u200b"}, "b": {"title": "t"}}}
    schemas = [
        tool_with_visible_texts({"name": "t", "inputSchema": schema})["inputSchema"] for schema in (plain, hiding)
    ]
    assert schemas[0] is plain
    assert schemas[1]["properties"]["b"] is hiding["properties"]["b"]
    assert schemas[1]["properties"]["a"] == {"description": "<U+200B>"}


@pytest.mark.requirement("proxy.lists")
async def test_the_items_that_fit_are_used_if_a_list_is_too_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams")
    servers = {
        "long": listing_entry("long", filled=[20, 1 << 20]),
        "short": listing_entry("short", filled=[20, 1 << 10]),
    }
    settings = {"tools": {"builtIn": True}, "proxy": {"search": "off", "firstListWait": 30_000}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        items = await client.items_by_name("tools")
        (content,) = (await client.request("resources/read", {"uri": "coretools://upstreams"}))["contents"]
    assert len([name for name in items if name.startswith("long__")]) == 15
    assert len([name for name in items if name.startswith("short__")]) == 20
    upstreams = {upstream["alias"]: upstream for upstream in json.loads(content["text"])["upstreams"]}
    assert (upstreams["long"]["tooLong"], upstreams["long"]["tools"]) == (["tools"], 15)
    assert "tooLong" not in upstreams["short"]
    assert [record.getMessage() for record in caplog.records if "bytes; " in record.getMessage()] == [
        "upstream long: tools/list has more than 10000 items or 16777216 bytes; 15 fit, and the others were dropped"
    ]


@pytest.mark.requirement("proxy.lists")
async def test_a_list_with_too_many_items_is_reported_as_too_long(caplog: pytest.LogCaptureFixture) -> None:
    offer = Offer()
    tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(MAX_ITEMS + 1)]
    with caplog.at_level(logging.WARNING):
        assert len(await read(tools[:-1], offer)) == MAX_ITEMS
        assert (offer.truncated, caplog.messages) == (set(), [])
        assert len(await read([*tools, {"name": "unfit", "inputSchema": 1}], offer)) == MAX_ITEMS
    assert offer.truncated == {"tools"}
    assert offer.omissions == {"tools": []}  # what does not fit is not examined
    assert caplog.messages == [
        "upstream up: tools/list has more than 10000 items or 16777216 bytes; 10000 fit, and the others were dropped"
    ]


@pytest.mark.requirement("proxy.lists")
@pytest.mark.parametrize(
    ("truncated_kinds", "expected"), [(set[str](), None), ({"skills"}, ["skills"]), ({"tools"}, ["tools"])]
)
async def test_only_truncated_lists_are_reported_as_too_long(
    truncated_kinds: set[str], expected: list[str] | None
) -> None:
    def ignore(*_: object) -> None: ...

    upstream = Upstream("up", UpstreamSettings(command="unused"), ignore, ignore)
    upstream.offer.truncated = truncated_kinds
    assert upstream.report().get("tooLong") == expected
