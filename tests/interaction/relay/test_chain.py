"""Servers like this one behind this one: calls cross both, and rings of servers become stable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.upstreams.wire.origin_meta import CHAIN_KEY, MAX_HOPS, THIS_SERVER, listed_for
from tests.background_servers import background_server, free_port
from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.interaction.relay.clients import (
    PROGRESS,
    AnswerError,
    Json,
    WireClient,
    answer_with,
    client_on,
    http_transport,
    proxy_client,
    wait_for_file,
)
from tests.interaction.relay.echoes import check_echo
from tests.interaction.relay.eras import by_eras
from tests.interaction.relay.questions import ANSWERS, FORM, ROOTS, ROOTS_RESULT, SAMPLING, SAMPLING_RESULT
from tests.interaction.test_lifecycle import by_itself

pytestmark = pytest.mark.anyio

SERVING = r"serving MCP at (http://\S+?),"


@pytest.fixture(scope="module")
def inner(upstream_port: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Run a proxy over HTTP with an upstream of each era, and yield its URL."""
    servers = {
        era: {"httpUrl": f"http://127.0.0.1:{upstream_port}/{era}/chain/mcp", "trust": True}
        for era in ("handshake", "modern")
    }
    config = write_config(tmp_path_factory.mktemp("inner"), {"tools": {"builtIn": False}, "mcpServers": servers})
    command = [sys.executable, *forked(server_arguments(None, config, "--transport", "http", "--port", "0"))]
    with background_server(command, SERVING) as url:
        yield url


def entry_of(url: str, **fields: Any) -> Json:
    return {"httpUrl": f"{url}/mcp", "trust": True, **fields}


OTHER_LISTS = ("prompts", "resources")


@pytest.mark.requirement("relay.chain")
@by_eras
async def test_everything_crosses_two_proxies(client_era: str, upstream_era: str, inner: str, tmp_path: Path) -> None:
    answer = answer_with(elicitation=ANSWERS["accept"], sampling=SAMPLING_RESULT, roots=ROOTS_RESULT)
    prefix = f"in__{upstream_era}__"
    async with proxy_client(tmp_path, {"in": entry_of(inner)}, client_era, answer=answer) as client:
        tools = await client.items_by_name("tools")
        assert all(len(name) <= 48 for name in tools)
        assert "coretools-mcp/chain" not in str(tools)
        await check_echo(client, f"{prefix}echo")
        with pytest.raises(AnswerError) as error_info:
            await client.call(f"{prefix}refuse", {})
        assert (error_info.value.error["code"], error_info.value.error["data"]["why"]) == (-32050, ["x"])
        await client.call(f"{prefix}steps", {"steps": 10}, {"progressToken": "t"})
        assert [params["x-step"] for name, params in client.messages if name == PROGRESS] == list(range(1, 11))
        answers = await client.call_and_parse(f"{prefix}ask", {"questions": [FORM, SAMPLING, ROOTS]})
        assert answers == [ANSWERS["accept"], SAMPLING_RESULT, ROOTS_RESULT]
        form = next(params for method, params in client.questions if method == "elicitation/create")
        assert form["message"] == f"[in] [{upstream_era}] Who<U+202E>are you?"
        assert len(await client.call_and_parse(f"{prefix}ask_twice", {"questions": [FORM]})) == 2
        mark = tmp_path / "mark"
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call, f"{prefix}wait", {"mark": str(mark)})
            await wait_for_file(mark.with_suffix(".began"))
            calls.cancel_scope.cancel()
        await wait_for_file(mark.with_suffix(".cancelled"))
        # A server's tools are listed first; its other lists may follow later.
        with anyio.fail_after(50):
            for kind in OTHER_LISTS:
                while not any(upstream_era in name for name in await client.items_by_name(kind)):  # noqa: ASYNC110 - the notification may have come before
                    await anyio.sleep(0.05)
        prompt = await client.request("prompts/get", {"name": f"{prefix}greet", "arguments": {"who": "Ada"}})
        assert prompt["messages"][0]["content"]["text"] == "Greet Ada"
        uris = await client.items_by_name("resources")
        (uri,) = (uri for uri in uris if uri.endswith("test://text") and upstream_era in uri)
        result = await client.request("resources/read", {"uri": uri})
        assert result["contents"][0]["text"] == "text of test://text"


@pytest.mark.requirement("relay.chain")
async def test_a_request_that_has_passed_too_many_servers_is_refused_with_a_clear_message(inner: str) -> None:
    async with client_on(http_transport(f"{inner}/mcp"), "handshake", {}) as client:
        chain = {"coretools-mcp/chain": [f"server-{number}" for number in range(8)]}
        result = await client.call("modern__whoami", {}, chain)
        assert result["isError"]
        assert "through this one before" in result["content"][0]["text"]
        assert not (await client.call("modern__whoami", {}, {"coretools-mcp/chain": ["one"]})).get("isError")


async def wait_for_tools(client: WireClient, *expected_names: str) -> set[str]:
    """Wait until these tools are listed, and return the names of all tools."""
    while not {*expected_names} <= (names := set(await client.items_by_name("tools"))):  # noqa: ASYNC110 - the notification may have come before
        await anyio.sleep(0.05)
    return names


@pytest.mark.requirement("relay.ring")
def test_items_that_came_through_a_server_are_not_listed_to_it_and_clients_do_not_see_the_chain() -> None:
    plain, passed_on = {"name": "plain"}, {"name": "passed", "_meta": {CHAIN_KEY: ["one", "two"], "kept": 1}}
    for asker, names in (("one", ["plain"]), ("two", ["plain"]), ("three", ["plain", "passed"])):
        visible_items = listed_for({CHAIN_KEY: [asker]}, [plain, passed_on])
        assert [item["name"] for item in visible_items] == names
        assert visible_items[0]["_meta"] == {CHAIN_KEY: [THIS_SERVER]}
    assert listed_for({}, [plain, passed_on]) == [plain, {"name": "passed", "_meta": {"kept": 1}}]
    far_item = {"name": "far", "_meta": {CHAIN_KEY: [str(number) for number in range(MAX_HOPS)]}}
    assert listed_for({CHAIN_KEY: ["one"]}, [far_item]) == []


def ring_member(
    folder: Path, port: int, ports: dict[str, int], upstreams: Json, start: Callable[[list[str]], list[str]] = forked
) -> Any:
    """Run a server on this port, whose upstreams include the servers on the other ports."""
    servers = {alias: entry_of(f"http://127.0.0.1:{other_port}") for alias, other_port in ports.items()}
    folder.mkdir()
    config = write_config(folder, {"tools": {"builtIn": False}, "mcpServers": {**servers, **upstreams}})
    command = [sys.executable, *start(server_arguments(None, config, "--transport", "http", "--port", str(port)))]
    return background_server(command, SERVING)


@pytest.mark.long
@pytest.mark.requirement("relay.ring")
async def test_two_servers_that_are_each_others_upstreams_become_stable(upstream_port: str, tmp_path: Path) -> None:
    first_port, second_port = free_port(), free_port()

    def plain(room: str) -> Json:
        return {room: {"httpUrl": f"http://127.0.0.1:{upstream_port}/both/{room}/mcp", "trust": True}}

    with (
        ring_member(tmp_path / "one", first_port, {"two": second_port}, plain("x")) as first_url,
        # Not forked, because all forked servers have the same id.
        ring_member(tmp_path / "two", second_port, {"one": first_port}, plain("y"), start=by_itself) as second_url,
    ):
        async with (
            client_on(http_transport(f"{first_url}/mcp"), "handshake", {}) as first_client,
            client_on(http_transport(f"{second_url}/mcp"), "modern", {}) as second_client,
        ):
            await wait_for_tools(first_client, "x__echo", "two__y__echo")
            await wait_for_tools(second_client, "y__echo", "one__x__echo")
            for _ in range(3):
                # A change goes around the ring once, and stops where it began.
                await first_client.call("x__change", {})
                await second_client.call("y__change", {})
            names = await wait_for_tools(first_client, "x__added_2", "two__y__added_2")
            assert all(name.startswith(("x__", "two__y__")) for name in names), names
            assert not (await first_client.call("two__y__whoami", {})).get("isError")
            with pytest.raises(AnswerError) as error_info:
                await first_client.call("two__one__x__whoami", {})
            assert "two__one__x__whoami" in error_info.value.error["message"]


@pytest.mark.requirement("relay.ring")
async def test_a_server_that_is_its_own_upstream_leaves_itself_out(upstream_port: str, tmp_path: Path) -> None:
    port = free_port()
    plain = {"x": {"httpUrl": f"http://127.0.0.1:{upstream_port}/both/self/mcp", "trust": True}}
    with ring_member(tmp_path / "self", port, {"me": port}, plain) as url:
        async with client_on(http_transport(f"{url}/mcp"), "handshake", {}) as client:
            names = await wait_for_tools(client, "x__echo")
            assert all(name.startswith("x__") for name in names)
            result = await client.call("me__x__echo", {})
            assert result["isError"]
            assert "state left out: it is this server itself" in result["content"][0]["text"]
