"""Roots that an upstream asks for outside of calls, as file servers do right after the handshake."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from server.upstreams.session import upstream_questions
from tests.interaction.relay.clients import (
    ALL,
    Json,
    WireClient,
    answer_with,
    client_on,
    http_transport,
    proxy_client,
    stdio_entry,
    text_or_json,
    wait_for_file,
)
from tests.interaction.relay.network import TOKENS, network
from tests.interaction.relay.questions import ROOTS_RESULT

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.early_roots")]


def workspace() -> Json:
    """Return the working folder as a root. It is the workspace if no settings and no client name one."""
    return {"roots": [{"uri": Path.cwd().as_uri(), "name": Path.cwd().name}]}


def asking_servers(moment: str = "later", **fields: Any) -> dict[str, Json]:
    return {"up": stdio_entry("handshake", env={"ASKS_ROOTS": moment}, **fields)}


def answer_nothing(method: str, params: Json) -> None:
    del method, params


def count_roots_questions(client: WireClient) -> int:
    return [method for method, _ in client.questions].count("roots/list")


async def test_roots_are_asked_for_once_and_sent_before_the_first_call(tmp_path: Path) -> None:
    answer = answer_with(roots=ROOTS_RESULT)
    async with proxy_client(tmp_path, asking_servers(), "handshake", answer=answer) as client:
        assert "up__roots" in await client.items_by_name("tools")
        for _ in range(2):
            assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
        assert count_roots_questions(client) == 1


@pytest.mark.parametrize(("path", "era"), [("mcp", "handshake"), ("sse", "handshake"), ("mcp", "modern")])
async def test_the_first_call_over_the_network_is_made_with_the_roots_or_the_workspace(
    path: str, era: str, tmp_path: Path
) -> None:
    async with (
        network(tmp_path, asking_servers()) as server,
        client_on(
            http_transport(f"{server.url}/{path}", TOKENS["ada"]), era, ALL, answer_with(roots=ROOTS_RESULT)
        ) as client,
    ):
        for _ in range(2):
            assert await client.call_and_parse("up__roots") == [workspace() if client.is_modern else ROOTS_RESULT]
        assert count_roots_questions(client) == (0 if client.is_modern else 1)


async def test_a_client_that_never_answers_over_the_network_delays_a_call_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_questions, "DOUBT_SECONDS", 0.2)
    async with (
        network(tmp_path, asking_servers()) as server,
        client_on(http_transport(f"{server.url}/mcp", TOKENS["ada"]), "handshake", ALL, answer_nothing) as client,
    ):
        assert await client.call_and_parse("up__roots") == []


async def test_a_client_without_roots_is_never_asked_and_the_upstream_gets_the_workspace(tmp_path: Path) -> None:
    for era in ("handshake", "modern"):
        async with proxy_client(tmp_path, asking_servers(), era, capabilities={"elicitation": {}}) as client:
            assert await client.call_and_parse("up__roots") == [workspace()]
            assert client.questions == []


@pytest.mark.parametrize("moment", ["first", "later"])
async def test_a_client_that_can_be_asked_only_in_calls_is_not_asked_and_the_upstream_gets_the_workspace(
    moment: str, tmp_path: Path
) -> None:
    async with proxy_client(
        tmp_path, asking_servers(moment), "modern", answer=answer_with(roots=ROOTS_RESULT)
    ) as client:
        assert "up__roots" in await client.items_by_name("tools")
        assert await client.call_and_parse("up__roots") == [workspace()]
        assert client.questions == []


@pytest.mark.parametrize("isolation", ["per-client", "shared"])
async def test_no_upstream_session_gets_the_roots_of_another_client(isolation: str, tmp_path: Path) -> None:
    def roots_of(name: str) -> Json:
        return {"roots": [{"uri": f"file:///{name}"}]}

    async with (
        network(tmp_path, asking_servers(isolation=isolation)) as server,
        client_on(
            http_transport(f"{server.url}/mcp", TOKENS["ada"]), "handshake", ALL, answer_with(roots=roots_of("a"))
        ) as ada,
        client_on(
            http_transport(f"{server.url}/mcp", TOKENS["bob"]), "handshake", ALL, answer_with(roots=roots_of("b"))
        ) as bob,
    ):
        results = [text_or_json(await client.call("up__roots")) for client in (ada, bob, ada)]
    if isolation == "shared":
        assert results == [[workspace()]] * 3
        assert ada.questions == bob.questions == []
    else:
        assert results == [[roots_of("a")], [roots_of("b")], [roots_of("a")]]


@pytest.mark.requirement("relay.late_roots")
@pytest.mark.parametrize("transport", ["stdio", "mcp", "sse"])
async def test_roots_requested_in_a_call_are_sent_even_if_the_call_ends_before_the_answer(
    transport: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    servers = {"up": stdio_entry("handshake", env={"ROOTS_MARK": str(mark)})}
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = await stack.enter_async_context(
                proxy_client(tmp_path, servers, "handshake", answer=answer_with(roots=ROOTS_RESULT))
            )
        else:
            server = await stack.enter_async_context(network(tmp_path, servers))
            streams = http_transport(f"{server.url}/{transport}", TOKENS["ada"])
            client = await stack.enter_async_context(
                client_on(streams, "handshake", ALL, answer_with(roots=ROOTS_RESULT))
            )
        assert await client.call_and_parse("up__roots", {"ask": True}) == []
        await wait_for_file(mark.with_suffix(".answered"))
        assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
