"""HTTP headers to and from upstreams: arguments in requests, and demands for a login in responses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from server.upstreams.wire.json_rpc_channel import Challenge
from tests.harness import write_config
from tests.in_process import in_process
from tests.interaction.relay.clients import Json, app_of, client_on, proxy_client, scripted_http_entry
from tests.interaction.relay.eras import by_era
from tests.variants import one_in

pytestmark = pytest.mark.anyio

HEADER_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "other": {"type": "string"},
    },
}
INVALID_HEADER_SCHEMA: Json = {
    "type": "object",
    "properties": {"size": {"type": "number", "x-mcp-header": "Not A Token"}},
}


@pytest.mark.requirement("relay.parameter_headers")
@by_era
async def test_arguments_that_an_upstream_wants_in_headers_are_set_whatever_the_client_speaks(
    era: str, tmp_path: Path
) -> None:
    tools = [{"name": "run", "inputSchema": HEADER_SCHEMA}, {"name": "odd", "inputSchema": INVALID_HEADER_SCHEMA}]
    with scripted_http_entry(answers={"tools/list": {"tools": tools}}) as entry:
        async with proxy_client(tmp_path, {"up": entry}, era) as client:
            tools_by_name = await client.items_by_name("tools")
            assert tools_by_name["up__run"]["inputSchema"] == HEADER_SCHEMA
            assert tools_by_name["up__odd"]["inputSchema"] == INVALID_HEADER_SCHEMA, (
                "clients that use parameter headers leave this tool out themselves"
            )
            result = await client.call_and_parse("up__run", {"region": "n\u00f6rd", "count": 3, "other": "x"})
            mcp_headers = {name: value for name, value in result["headers"].items() if name.startswith("mcp-")}
            assert mcp_headers == {
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "run",
                "mcp-param-region": "=?base64?bsO2cmQ=?=",
                "mcp-param-count": "3",
            }
            odd_result = await client.call_and_parse("up__odd", {"size": 1.5})
            assert not [name for name in odd_result["headers"] if name.startswith("mcp-param")]


SCHEMES = ('Bearer resource_metadata="https://up.example/.well-known/x", scope="a b", nonce="hunter2"', "Basic realm=x")
REFUSAL = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "hunter2"}}'


@pytest.mark.requirement("upstream.challenge")
@pytest.mark.parametrize("status", one_in(2, [401, 403]))
@pytest.mark.parametrize("text", ["", "hunter2", REFUSAL])
async def test_a_servers_demand_for_a_login_is_stored_but_never_shown(
    status: int, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    methods = ["server/discover", "initialize"]
    locked_orders = {"methods": methods, "status": status, "challenges": SCHEMES, "text": text}
    with scripted_http_entry(locked=locked_orders) as entry:
        config = write_config(tmp_path, {"mcpServers": {"up": entry}, "tools": {"builtIn": False}})
        app = app_of(config)
        wire = in_process(app)
        async with app.running(), client_on(wire, "modern", {"elicitation": {"form": {}}}) as client:
            await client.items_by_name("tools")
            upstream = app.pool.by_alias["up"]
            assert upstream.status.challenge == Challenge(status, SCHEMES)
            result = await client.call("up__run")
            assert result["isError"]
            message: str = result["content"][0]["text"]
    assert f"needs authentication (HTTP status {status})" in message
    log_messages = [record.getMessage() for record in caplog.records if record.name.startswith("server.")]
    texts = [message, repr(upstream.status), str(upstream.report()), *log_messages]
    assert not [shown_text for shown_text in texts if "hunter2" in shown_text or "well-known" in shown_text]


@pytest.mark.requirement("upstream.challenge")
async def test_a_server_that_demands_no_login_leaves_no_stored_challenge(tmp_path: Path) -> None:
    tools = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
    with scripted_http_entry(answers={"tools/list": tools}) as entry:
        config = write_config(tmp_path, {"mcpServers": {"up": entry}, "tools": {"builtIn": False}})
        app = app_of(config)
        async with app.running(), client_on(in_process(app), "modern") as client:
            await client.items_by_name("tools")
            assert app.pool.by_alias["up"].status.challenge is None
