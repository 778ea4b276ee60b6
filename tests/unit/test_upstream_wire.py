"""Messages to an upstream, byte for byte; routes of resources that no upstream lists; and login challenges."""

from __future__ import annotations

import json
import os
import sys
from time import process_time

import anyio
import pytest

from server.settings import UpstreamSettings
from server.upstreams.connections.connection import Upstream
from server.upstreams.relay.upstream_resources import ResourceRoutes
from server.upstreams.session.list_reader import RESOURCES
from server.upstreams.wire.json_rpc_channel import Challenge, JsonRpcChannel
from tests.linear_time import ATTEMPTS, MAX_COST_RATIO, STEPS

if sys.platform == "win32":
    pytest.skip("not run: the SDK's transport serves on Windows", allow_module_level=True)

from server.upstreams.wire.stdio_upstream import StdinWriter


def ignore(*_: object) -> None:
    """Do nothing with a message."""


@pytest.mark.anyio
@pytest.mark.requirement("relay.results")
async def test_a_notification_without_parameters_has_no_params_key() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    outgoing = StdinWriter(write_end, on_lost=lambda: None)
    peer = JsonRpcChannel(outgoing, ignore, ignore)
    try:
        await peer.notify("notifications/initialized")
        await peer.notify("notifications/other", {"a": 1})
        with anyio.fail_after(60):
            await outgoing.flush()
        first, second = (json.loads(line) for line in os.read(read_end, 1 << 16).splitlines())
    finally:
        outgoing.close()
        os.close(read_end)
    assert first == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert second == {"jsonrpc": "2.0", "method": "notifications/other", "params": {"a": 1}}


class UpstreamWithResource(Upstream):
    """An upstream with one resource."""

    def __init__(self, alias: str, uri: str) -> None:
        super().__init__(alias, UpstreamSettings(command="x"), ignore, ignore)
        self.offer.lists[RESOURCES.field] = [{"uri": uri, "name": uri}]

    @property
    def announces_resources(self) -> bool:
        return True


@pytest.mark.requirement("relay.uris")
def test_an_unlisted_resource_is_routed_by_its_scheme() -> None:
    upstreams = [UpstreamWithResource("a", "demo://one"), UpstreamWithResource("b", "note://one")]
    routes = ResourceRoutes(upstreams, {"a", "b"}, lambda _: False, is_alone=False)
    routes_by_uri = {uri: routes.find(uri) for uri in ("demo://two", "note://two", "other://two")}
    assert {uri: route and route.upstream.alias for uri, route in routes_by_uri.items()} == {
        "demo://two": "a",
        "note://two": "b",
        "other://two": None,
    }


@pytest.mark.requirement("login.scopes")
@pytest.mark.parametrize(
    ("scheme", "scope"),
    [
        ('Bearer scope="read write", error="insufficient_scope"', "read write"),
        ("Bearer error=insufficient_scope,scope=read", "read"),
        ('Bearer error_description="needs scope=all, or so", SCOPE="read"', "read"),
        ('Bearer error_description="a \\"quoted\\" scope=all", scope="rea\\d"', "read"),
        ('Bearer realm="x"', None),
        ("Basic", None),
        ('Bearer scope="' + "=" * 8_000, None),
    ],
)
def test_a_parameter_of_a_challenge_is_found_among_similar_texts(scheme: str, scope: str | None) -> None:
    assert Challenge(403, (scheme,)).parameter("scope") == scope


@pytest.mark.requirement("login.scopes")
@pytest.mark.parametrize("part", ["a", "-", "a ", 'a="', "a\\"])
def test_a_long_challenge_is_searched_in_linear_time(part: str) -> None:
    def cost(text: str, times: int) -> float:
        began = process_time()
        for _ in range(times):
            Challenge(403, (text,)).parameter("scope")
        return (process_time() - began) / times

    costs = (cost(part * 20_000, 1) / cost(part * (20_000 // STEPS), STEPS) for _ in range(ATTEMPTS))
    assert any(ratio <= MAX_COST_RATIO for ratio in costs), "quadratic growth would cost a hundred times as much"
