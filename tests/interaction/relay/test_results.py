"""Arguments and results are relayed unchanged in all four combinations of eras and over several pairs of transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interaction.relay.clients import AnswerError, Json, proxy_client, scripted_entry, stdio_entry
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.echoes import check_echo
from tests.interaction.relay.eras import by_eras_each_way
from tests.peers.asking_upstream import CONTENT, ECHO, UNKNOWN

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("relay.results")
@by_eras_each_way
async def test_arguments_and_results_cross_unchanged(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        tool = (await client.items_by_name("tools"))["up__echo"]
        expected_tool = {**ECHO, "name": "up__echo"}
        assert tool["_meta"].pop("coretools-mcp/upstream") == {"server": "up", "tool": "echo"}
        assert tool == expected_tool
        await check_echo(client, "up__echo")
        result = await client.call("up__content", {})
        assert (result["content"], result["isError"]) == (CONTENT, False)
        assert ("resultType" in result) is client.is_modern


@pytest.mark.requirement("relay.errors")
@by_eras_each_way
async def test_errors_of_an_upstream_are_relayed_unchanged_without_additions(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        result = await client.call("up__fail", {})
        assert (result["isError"], result["structuredContent"]) == (True, {"why": 1})
        assert result["x-unknown"] == UNKNOWN["x-unknown"]
        with pytest.raises(AnswerError) as refusal:
            await client.call("up__refuse", {})
        assert refusal.value.error == {
            "code": -32050,
            "message": "the upstream's own error",
            "data": {"why": ["x"], **UNKNOWN},
        }
        with pytest.raises(AnswerError) as closed_error:
            await client.call("up__say_closed", {})
        assert closed_error.value.error == {"code": -32000, "message": "the shop is closed"}
        with pytest.raises(AnswerError) as missing_error:
            await client.request("resources/read", {"uri": "other://thing"})
        assert missing_error.value.error == {
            "code": -32002,
            "message": "no such thing",
            "data": {"uri": "other://thing", **UNKNOWN},
        }
        with pytest.raises(AnswerError) as unknown_error:
            await client.call("up__nothing", {})
        assert unknown_error.value.error["code"] == -32602


PAIRS = [
    ("stdio", "handshake", "stdio", "handshake"),
    ("memory", "modern", "sse", "handshake"),
]
MORE_PAIRS = [
    ("stdio", "modern", "stdio", "modern"),
    ("memory", "handshake", "sse", "handshake"),
    ("memory", "handshake", "stdio", "modern"),
    ("memory", "modern", "stdio", "handshake"),
]


@pytest.mark.requirement("relay.chain")
@pytest.mark.parametrize(
    "pair", [*PAIRS, *(pytest.param(pair, marks=pytest.mark.long) for pair in MORE_PAIRS)], ids="-".join
)
async def test_arguments_and_results_cross_unchanged_over_other_transports(
    pair: tuple[str, str, str, str], remote: Entry, tmp_path: Path
) -> None:
    transport, client_era, upstream_transport, upstream_era = pair
    entry = stdio_entry(upstream_era) if upstream_transport == "stdio" else remote(upstream_era, upstream_transport)
    async with proxy_client(tmp_path, {"up": entry}, client_era, transport=transport) as client:
        assert "up__echo" in await client.items_by_name("tools")
        await check_echo(client, "up__echo")


RELATED = "io.modelcontextprotocol/related-task"
ADDED_KEYS = ("_meta", "resultType", "ttlMs", "cacheScope")
LINK: Json = {"type": "resource_link", "uri": "other://a", "name": "a"}
TEXT: Json = {"uri": "other://a", "text": "x"}
NULL_CASES: list[tuple[Json, Json]] = [
    ({"content": [], "_meta": None}, {"content": []}),
    ({"content": [], "_meta": {"progressToken": None, RELATED: {"taskId": 5}}}, {"content": []}),
    ({"structuredContent": {"a": 1}}, {"structuredContent": {"a": 1}, "content": []}),
    ({"structuredContent": {"a": 1}, "content": None, "isError": None}, {"structuredContent": {"a": 1}, "content": []}),
    (
        {"content": [{"type": "text", "text": "x", "annotations": None, "_meta": None}]},
        {"content": [{"type": "text", "text": "x"}]},
    ),
    ({"content": [], "structuredContent": None, "nextCursor": None}, {"content": []}),
    (
        {"content": [{**LINK, "icons": [None, {"src": "data:,x", "sizes": None}], "annotations": {"priority": None}}]},
        {"content": [{**LINK, "icons": [{"src": "data:,x"}], "annotations": {}}]},
    ),
    (
        {"content": [{"type": "resource", "resource": {**TEXT, "blob": None, "_meta": {"a": None}}}]},
        {"content": [{"type": "resource", "resource": {**TEXT, "_meta": {"a": None}}}]},
    ),
    (
        {"content": [{"type": "text", "text": None}, {"type": "new"}, None, "x", {"type": "text", "text": "y"}]},
        {
            "content": [
                {"type": "text", "text": text} for text in ('{"type":"text","text":null}', '{"type":"new"}', *"xy")
            ]
        },
    ),
]


@pytest.mark.requirement("relay.nulls")
@by_eras_each_way
async def test_a_null_in_place_of_an_absent_field_does_not_fail_a_result(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    results = {f"t{number}": result for number, (result, _) in enumerate(NULL_CASES)}
    results["array"] = {"content": [], "structuredContent": [1]}
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in results]
    resource: Json = {"contents": [{"uri": "test://a", "text": "x"}], "_meta": None}
    answers: Json = {
        "tools/list": {"tools": tools},
        "resources/list": {"resources": [{"uri": "test://a", "name": "a"}]},
        "resources/read": {"test://a": resource},
    }
    entry = scripted_entry("up", upstream_era, answers=answers, results=results)
    async with proxy_client(tmp_path, {"up": entry}, client_era) as client:
        for name, (_, expected_result) in zip(results, NULL_CASES, strict=False):
            relayed_result = await client.call(f"up__{name}", {})
            assert {key: relayed_result[key] for key in relayed_result if key not in ADDED_KEYS} == expected_result
            assert not relayed_result.get("_meta", {}).keys() & {"progressToken", RELATED}
        array_result = await client.call("up__array", {})
        assert array_result["content"] == ([] if client.is_modern else [{"type": "text", "text": "[1]"}])
        assert array_result.get("structuredContent") == ([1] if client.is_modern else None)
        read_result = await client.request("resources/read", {"uri": "test://a"})
        assert "_meta" not in read_result or isinstance(read_result["_meta"], dict)
