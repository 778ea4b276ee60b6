"""A call through call_tool is like a direct call of the tool: it has the same headers, arguments, results and log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import httpx2
import pytest

from tests.interaction.network.wires import modern, modern_headers
from tests.interaction.relay.clients import Json, proxy_client, scripted_entry, scripted_http_entry
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.relay.network import TOKENS, Network, network
from tests.interaction.relay.test_http_headers import HEADER_SCHEMA

pytestmark = pytest.mark.anyio

ON: Json = {"proxy": {"search": "on"}}
HEADER_MISMATCH = -32020  # MCP 2026-07-28, Streamable HTTP
CALL: Json = {"name": "call_tool", "arguments": {"name": "up__run", "arguments": {"region": "nörd", "count": 3}}}


async def post_call(server: Network, **headers: str) -> httpx2.Response:
    """Call a tool through call_tool as a client of 2026-07-28 does, with these headers changed."""
    message = modern(1, "tools/call", CALL)
    all_headers = {**modern_headers(message), "authorization": f"Bearer {TOKENS['ada']}", **headers}
    async with httpx2.AsyncClient() as http:
        return await http.post(f"{server.url}/mcp", json=message, headers={k: v for k, v in all_headers.items() if v})


def result_of(response: httpx2.Response) -> Json:
    """Return the result in a response, which may be an event stream."""
    assert response.status_code == 200, response.text
    lines = response.text.splitlines()
    data = next((line.removeprefix("data: ") for line in lines if line.startswith("data: {")), response.text)
    return json.loads(data)["result"]


@pytest.mark.requirement("search.headers")
async def test_over_http_the_client_sends_headers_for_call_tool_and_the_upstream_gets_those_of_the_tool(
    tmp_path: Path,
) -> None:
    tools = {"tools": [{"name": "run", "inputSchema": HEADER_SCHEMA}]}
    with scripted_http_entry(answers={"tools/list": tools}) as entry:
        async with network(tmp_path, {"up": entry}, settings=ON) as server:
            # Before the first call, no tools are known. The client's parameter headers are never passed on.
            for extra_headers in ({}, {}, {"Mcp-Param-Region": "south", "Mcp-Param-Count": "4"}):
                upstream_view = json.loads(result_of(await post_call(server, **extra_headers))["content"][0]["text"])
                assert upstream_view["params"]["arguments"] == CALL["arguments"]["arguments"]
                assert {name: value for name, value in upstream_view["headers"].items() if name.startswith("mcp-")} == {
                    "mcp-protocol-version": "2026-07-28",
                    "mcp-method": "tools/call",
                    "mcp-name": "run",
                    "mcp-param-region": "=?base64?bsO2cmQ=?=",
                    "mcp-param-count": "3",
                }


@pytest.mark.requirement("search.headers")
async def test_a_name_other_than_call_tool_in_the_headers_is_refused(tmp_path: Path) -> None:
    servers = {
        "up": scripted_entry("up", answers={"tools/list": {"tools": [{"name": "run", "inputSchema": HEADER_SCHEMA}]}})
    }
    async with network(tmp_path, servers, settings=ON) as server:
        for name in ("up__run", "run", "search_tools", ""):
            response = await post_call(server, **{"Mcp-Name": name})
            assert (response.status_code, response.json()["error"]["code"]) == (400, HEADER_MISMATCH), name
        assert not result_of(await post_call(server)).get("isError")


SCHEMA: Json = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
RESULTS: dict[str, Json] = {
    "fitting": {"id": "1", "more": [1]},
    "other": {"id": 7},
    "empty": {},
}


@pytest.mark.requirement("search.structured")
@by_eras
async def test_structured_content_is_the_same_as_from_a_direct_call_whether_it_matches_the_schema_or_not(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}, "outputSchema": SCHEMA} for name in RESULTS]
    results = {
        name: {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value, "x-unknown": 1}
        for name, value in RESULTS.items()
    }
    up = scripted_entry("up", upstream_era, answers={"tools/list": {"tools": tools}}, results=results)
    async with proxy_client(tmp_path, {"up": up}, client_era, settings=ON) as client:
        assert "outputSchema" not in (await client.items_by_name("tools"))["call_tool"]
        for name, value in RESULTS.items():
            result = await client.call("call_tool", {"name": f"up__{name}"})
            assert (result["structuredContent"], result["x-unknown"]) == (value, 1)
            assert result == await client.call(f"up__{name}")
            description = await client.call("describe_tool", {"name": f"up__{name}"})
            assert description["structuredContent"]["outputSchema"] == SCHEMA


@pytest.mark.requirement("search.call")
@by_era
async def test_the_audit_and_the_log_name_the_tool_and_its_arguments(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {
        "up": scripted_entry("up", answers={"tools/list": {"tools": [{"name": "run", "inputSchema": HEADER_SCHEMA}]}})
    }
    settings = {**ON, "log": {"audit": str(tmp_path / "audit.jsonl")}}
    with caplog.at_level(logging.DEBUG):
        async with proxy_client(tmp_path, servers, era, settings=settings) as client:
            assert not (await client.call("call_tool", CALL["arguments"])).get("isError")
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["tool"], record["verdict"]) == ("up__run", "allow")
    assert record["arguments"] == CALL["arguments"]["arguments"]
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.name.partition(".")[0] in ("server", "tools", "audit")
    ]
    assert [message for message in messages if "up__run" in message]
    assert not [message for message in messages if "call_tool" in message]
