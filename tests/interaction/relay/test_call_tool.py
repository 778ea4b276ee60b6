"""What holds for a tool holds through call_tool: what is sent where, and what comes back, over HTTP and in memory."""

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
from tests.interaction.relay.test_http_headers import PLACES

pytestmark = pytest.mark.anyio

ON: Json = {"proxy": {"search": "on"}}
HEADER_MISMATCH = -32020  # MCP 2026-07-28, Streamable HTTP
CALL: Json = {"name": "call_tool", "arguments": {"name": "up__run", "arguments": {"region": "nörd", "count": 3}}}


async def posted(served: Network, **headers: str) -> httpx2.Response:
    """Call a tool through call_tool as a client of 2026-07-28 does, but for these headers."""
    message = modern(1, "tools/call", CALL)
    sent = {**modern_headers(message), "authorization": f"Bearer {TOKENS['ada']}", **headers}
    async with httpx2.AsyncClient() as http:
        return await http.post(f"{served.url}/mcp", json=message, headers={k: v for k, v in sent.items() if v})


def result_of(response: httpx2.Response) -> Json:
    """The result in an answer, which may be a stream of events."""
    assert response.status_code == 200, response.text
    lines = response.text.splitlines()
    data = next((line.removeprefix("data: ") for line in lines if line.startswith("data: {")), response.text)
    return json.loads(data)["result"]


@pytest.mark.requirement("search.headers")
async def test_over_http_the_headers_are_those_of_call_tool_and_its_upstream_gets_those_of_the_tool(
    tmp_path: Path,
) -> None:
    tools = {"tools": [{"name": "run", "inputSchema": PLACES}]}
    with scripted_http_entry(answers={"tools/list": tools}) as entry:
        async with network(tmp_path, {"up": entry}, settings=ON) as served:
            # The first call is the one before which nothing is known. Nothing of the client's headers is handed on.
            for more in ({}, {}, {"Mcp-Param-Region": "south", "Mcp-Param-Count": "4"}):
                told = json.loads(result_of(await posted(served, **more))["content"][0]["text"])
                assert told["params"]["arguments"] == CALL["arguments"]["arguments"]
                assert {name: value for name, value in told["headers"].items() if name.startswith("mcp-")} == {
                    "mcp-protocol-version": "2026-07-28",
                    "mcp-method": "tools/call",
                    "mcp-name": "run",
                    "mcp-param-region": "=?base64?bsO2cmQ=?=",
                    "mcp-param-count": "3",
                }


@pytest.mark.requirement("search.headers")
async def test_the_name_in_the_headers_is_call_tool_and_another_one_or_none_is_refused(tmp_path: Path) -> None:
    servers = {"up": scripted_entry("up", answers={"tools/list": {"tools": [{"name": "run", "inputSchema": PLACES}]}})}
    async with network(tmp_path, servers, settings=ON) as served:
        for name in ("up__run", "run", "search_tools", ""):
            response = await posted(served, **{"Mcp-Name": name})
            assert (response.status_code, response.json()["error"]["code"]) == (400, HEADER_MISMATCH), name
        assert not result_of(await posted(served)).get("isError")


SCHEMA: Json = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
RESULTS: dict[str, Json] = {
    "fitting": {"id": "1", "more": [1]},
    "other": {"id": 7},
    "empty": {},
}


@pytest.mark.requirement("search.structured")
@by_eras
async def test_structured_content_comes_as_it_would_from_the_tool_whether_it_fits_its_schema_or_not(
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
            through = await client.call("call_tool", {"name": f"up__{name}"})
            assert (through["structuredContent"], through["x-unknown"]) == (value, 1)
            assert through == await client.call(f"up__{name}")
            described = await client.call("describe_tool", {"name": f"up__{name}"})
            assert described["structuredContent"]["outputSchema"] == SCHEMA


@pytest.mark.requirement("search.call")
@by_era
async def test_the_audit_and_the_log_name_the_tool_and_what_it_was_given(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"up": scripted_entry("up", answers={"tools/list": {"tools": [{"name": "run", "inputSchema": PLACES}]}})}
    settings = {**ON, "log": {"audit": str(tmp_path / "audit.jsonl")}}
    with caplog.at_level(logging.DEBUG):
        async with proxy_client(tmp_path, servers, era, settings=settings) as client:
            assert not (await client.call("call_tool", CALL["arguments"])).get("isError")
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["tool"], record["verdict"]) == ("up__run", "allow")
    assert record["arguments"] == CALL["arguments"]["arguments"]
    ours = [each.getMessage() for each in caplog.records if each.name.partition(".")[0] in ("server", "tools", "audit")]
    assert [each for each in ours if "up__run" in each]
    assert not [each for each in ours if "call_tool" in each]
