"""What stands in the HTTP headers of upstreams and of what is sent to them: arguments, and that a login is wanted."""

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

PLACES: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "other": {"type": "string"},
    },
}
INVALID: Json = {"type": "object", "properties": {"size": {"type": "number", "x-mcp-header": "Not A Token"}}}


@pytest.mark.requirement("relay.parameter_headers")
@by_era
async def test_arguments_that_an_upstream_wants_in_headers_are_set_anew_whatever_the_client_speaks(
    era: str, tmp_path: Path
) -> None:
    tools = [{"name": "run", "inputSchema": PLACES}, {"name": "odd", "inputSchema": INVALID}]
    with scripted_http_entry(answers={"tools/list": {"tools": tools}}) as entry:
        async with proxy_client(tmp_path, {"up": entry}, era) as client:
            listed = await client.items_by_name("tools")
            assert listed["up__run"]["inputSchema"] == PLACES
            assert listed["up__odd"]["inputSchema"] == INVALID, "clients leave it out that go by the headers"
            told = await client.call_and_parse("up__run", {"region": "n\u00f6rd", "count": 3, "other": "x"})
            repeated = {name: value for name, value in told["headers"].items() if name.startswith("mcp-")}
            assert repeated == {
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "run",
                "mcp-param-region": "=?base64?bsO2cmQ=?=",
                "mcp-param-count": "3",
            }
            odd = await client.call_and_parse("up__odd", {"size": 1.5})
            assert not [name for name in odd["headers"] if name.startswith("mcp-param")]


SCHEMES = ('Bearer resource_metadata="https://up.example/.well-known/x", scope="a b", nonce="hunter2"', "Basic realm=x")
REFUSAL = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "hunter2"}}'


@pytest.mark.requirement("upstream.challenge")
@pytest.mark.parametrize("status", one_in(2, [401, 403]))
@pytest.mark.parametrize("text", ["", "hunter2", REFUSAL])
async def test_how_a_server_says_that_it_wants_a_login_is_kept_and_shown_to_nobody(
    status: int, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    methods = ["server/discover", "initialize"]
    locked = {"methods": methods, "status": status, "challenges": SCHEMES, "text": text}
    with scripted_http_entry(locked=locked) as entry:
        config = write_config(tmp_path, {"mcpServers": {"up": entry}, "tools": {"builtIn": False}})
        app = app_of(config)
        wire = in_process(app)
        async with app.running(), client_on(wire, "modern", {"elicitation": {"form": {}}}) as client:
            await client.items_by_name("tools")
            upstream = app.pool.by_alias["up"]
            assert upstream.status.challenge == Challenge(status, SCHEMES)
            result = await client.call("up__run")
            assert result["isError"]
            said: str = result["content"][0]["text"]
    assert f"needs authentication (HTTP status {status})" in said
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("server.")]
    told = [said, repr(upstream.status), str(upstream.report()), *ours]
    assert not [each for each in told if "hunter2" in each or "well-known" in each]


@pytest.mark.requirement("upstream.challenge")
async def test_nothing_is_kept_of_a_login_once_the_server_lets_us_in(tmp_path: Path) -> None:
    tools = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
    with scripted_http_entry(answers={"tools/list": tools}) as entry:
        config = write_config(tmp_path, {"mcpServers": {"up": entry}, "tools": {"builtIn": False}})
        app = app_of(config)
        async with app.running(), client_on(in_process(app), "modern") as client:
            await client.items_by_name("tools")
            assert app.pool.by_alias["up"].status.challenge is None
