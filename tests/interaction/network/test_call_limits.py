"""Limits on the calls of one client, and on the calls to one upstream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from server.clients.token_bucket import TokenBucket
from tests.harness import HANDSHAKES, MODERN, own_state, stdio_upstream, write_config
from tests.interaction.raw_clients import RawClient, connect_http, http_server, initialized_client

HANDSHAKE = HANDSHAKES[-1]
TOKENS = {"one": "one-token-" + "1" * 20, "two": "two-token-" + "2" * 20}


def call(client: RawClient, path: Path) -> dict[str, Any]:
    arguments = {"path": str(path)}
    return client.receive(client.request("tools/call", {"name": "list_directory", "arguments": arguments}))["result"]


def refusal(result: dict[str, Any]) -> str:
    """Check that a call was refused for its limit; return the message."""
    assert result["_meta"]["coretools-mcp/error"]["type"] == "too_many_calls", result
    return result["content"][0]["text"]


@pytest.mark.requirement("limits.calls-per-minute")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
def test_the_refusal_of_one_call_too_many_in_a_minute_says_when_to_call_again(
    root: Path, tmp_path: Path, revision: str
) -> None:
    config = write_config(tmp_path, {"limits": {"callsPerMinute": 3}})
    with (
        http_server(root, config, own_state()) as url,
        initialized_client(connect_http(url, "http"), revision) as client,
    ):
        for _ in range(3):
            assert not call(client, root).get("isError")
        message = refusal(call(client, root))
        assert (match := re.search(r"Call again in (\d+) s", message)), message
        assert 1 <= int(match[1]) <= 20
        assert "limits.callsPerMinute" in message
        todo_params = {"uri": "todo://list"}
        reads = dict.fromkeys(("resources/read", "resources/directory/read", "skills/get"), todo_params)
        for method, params in {"prompts/get": {"name": "at"}, **reads}.items():
            error = client.receive(client.request(method, params))["error"]
            assert error["data"]["type"] == "too_many_calls", (method, error)
            assert 1 <= error["data"]["retryAfterSeconds"] <= 20
        assert client.tools(), "lists do not count as calls"


@pytest.mark.requirement("limits.calls-per-minute")
def test_a_client_that_calls_too_often_takes_nothing_from_another_one(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"callsPerMinute": 1}})
    with http_server(root, config, own_state()) as url:
        with (
            initialized_client(connect_http(url, "http"), HANDSHAKE) as first,
            initialized_client(connect_http(url, "http"), HANDSHAKE) as second,
        ):
            assert not call(first, root).get("isError")
            refusal(call(first, root))
            assert not call(second, root).get("isError")
        # Clients that cannot be told apart share one limit, so that nobody escapes it by having no session.
        with (
            initialized_client(connect_http(url, "http"), MODERN) as first,
            initialized_client(connect_http(url, "http"), MODERN) as second,
        ):
            assert not call(first, root).get("isError")
            refusal(call(second, root))


@pytest.mark.requirement("limits.calls-at-once")
@pytest.mark.anyio
async def test_a_call_is_refused_while_the_allowed_number_of_calls_is_running(root: Path, tmp_path: Path) -> None:
    servers = {"up": stdio_upstream(trust=True)}
    config = write_config(tmp_path, {"limits": {"callsAtOnce": 1}, "mcpServers": servers})
    with (
        http_server(root, config, own_state()) as url,
        initialized_client(connect_http(url, "http"), HANDSHAKE) as client,
    ):
        client.tools()
        waiting_id = client.request("tools/call", {"name": "up__wait", "arguments": {}})
        message = refusal(call(client, root))
        assert "limits.callsAtOnce" in message
        with initialized_client(connect_http(url, "http"), HANDSHAKE) as second_client:
            assert not call(second_client, root).get("isError")
        client.wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting_id}})
        while "isError" in (result := call(client, root)):
            refusal(result)


@pytest.mark.requirement("limits.upstream")
def test_an_upstream_gets_no_more_calls_in_a_minute_than_its_entry_allows(root: Path, tmp_path: Path) -> None:
    servers = {"few": stdio_upstream(trust=True, callsPerMinute=2), "many": stdio_upstream(trust=True)}
    config = write_config(tmp_path, {"mcpServers": servers})
    echo = {"arguments": {"text": "x"}}
    with http_server(root, config, own_state()) as url:
        for number in range(3):  # one client each
            with initialized_client(connect_http(url, "http"), HANDSHAKE) as client:
                client.tools()
                result = client.receive(client.request("tools/call", {"name": "few__echo", **echo}))["result"]
                if number < 2:
                    assert not result.get("isError"), result
                    continue
                message = refusal(result)
                assert re.search(r"mcpServers\.few\.callsPerMinute.*call again in \d+ s", message), message
                assert not client.receive(client.request("tools/call", {"name": "many__echo", **echo}))["result"].get(
                    "isError"
                )


@pytest.mark.requirement("limits.calls-per-minute")
@pytest.mark.parametrize("per_minute", [1, 7, 60, 1_000, 1_000_000])
def test_all_calls_of_a_minute_may_be_made_at_once_and_become_available_again_one_by_one(per_minute: int) -> None:
    rate, now = TokenBucket(per_minute), 1_000.0
    count = min(per_minute, 5_000)
    for _ in range(per_minute - count):
        assert rate.take(now) == 0
    assert [rate.take(now) for _ in range(count)] == [0] * count
    assert rate.take(now) == pytest.approx(60 / per_minute, abs=2e-6)
    assert rate.take(now + 60 / per_minute) == 0
    assert rate.take(now + 60 / per_minute) > 0
    assert [rate.take(now + 120) for _ in range(count)] == [0] * count
