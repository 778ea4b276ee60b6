"""Roots that an upstream asks for outside of calls, as servers of files do right after the greeting."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
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
from tests.interaction.relay.eras import by_era
from tests.interaction.relay.network import TOKENS, network
from tests.interaction.relay.questions import ROOTS_RESULT

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.early_roots")]

EMPTY: Json = {"roots": []}


def workspace() -> Json:
    """The working folder, which is the workspace where nobody names another one."""
    return {"roots": [{"uri": Path.cwd().as_uri(), "name": Path.cwd().name}]}


def asking(when: str = "later", **more: Any) -> dict[str, Json]:
    return {"up": stdio_entry("handshake", env={"ASKS_ROOTS": when}, **more)}


def silent(method: str, params: Json) -> None:
    del method, params


def asked_for_roots(client: WireClient) -> int:
    return [method for method, _ in client.questions].count("roots/list")


@by_era
async def test_the_roots_are_told_before_the_first_call_and_asked_for_once(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking(), era, answer=answer_with(roots=ROOTS_RESULT)) as client:
        assert "up__roots" in await client.items_by_name("tools")
        for _ in range(2):
            assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
        assert asked_for_roots(client) == 1


@pytest.mark.parametrize("way", ["mcp", "sse"])
async def test_over_the_network_the_first_call_is_made_with_the_roots(way: str, tmp_path: Path) -> None:
    async with (
        network(tmp_path, asking()) as served,
        client_on(
            http_transport(f"{served.url}/{way}", TOKENS["ada"]), "handshake", ALL, answer_with(roots=ROOTS_RESULT)
        ) as c,
    ):
        for _ in range(2):
            assert await c.call_and_parse("up__roots") == [ROOTS_RESULT]
        assert asked_for_roots(c) == 1


async def test_who_never_answers_over_the_network_holds_up_no_call_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_questions, "DOUBT_SECONDS", 0.2)
    async with (
        network(tmp_path, asking()) as served,
        client_on(http_transport(f"{served.url}/mcp", TOKENS["ada"]), "handshake", ALL, silent) as client,
    ):
        assert await client.call_and_parse("up__roots") == []


async def test_the_question_has_the_alias_and_the_call_is_not_sent_before_it_is_answered(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking(), "modern", answer=answer_with(roots=ROOTS_RESULT)) as client:
        mark = tmp_path / "mark"
        params: Json = {"name": "up__wait", "arguments": {"mark": str(mark)}}
        # A result of another kind is no question.
        await client.items_by_name("tools")
        greeted = {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "who", "value": "a"}}
        assert "completion" in await client.request("completion/complete", greeted)
        result = await client.request("tools/call", params)
        (question,) = result["inputRequests"].values()
        assert question["method"] == "roots/list"
        assert question["params"]["_meta"]["coretools-mcp/upstream"] == {"server": "up"}
        # The upstream answers this, so it would have begun with the call.
        completion = {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "who", "value": ""}}
        assert await client.request("completion/complete", completion)
        assert not mark.with_suffix(".began").exists()
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "tools/call", {**params, **await client.answers_to(result)})
            await wait_for_file(mark.with_suffix(".began"))
            calls.cancel_scope.cancel()


async def test_calls_at_once_wait_for_the_roots_all_of_them(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking(), "modern", answer=answer_with(roots=ROOTS_RESULT)) as client:
        told: list[Any] = []

        async def call() -> None:
            told.append(await client.call_and_parse("up__roots"))

        async with anyio.create_task_group() as calls:
            for _ in range(4):
                calls.start_soon(call)
        assert told == [[ROOTS_RESULT]] * 4


async def test_who_does_not_answer_has_the_call_made_without(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking(), "modern", answer=silent) as client:
        assert await client.call_and_parse("up__roots") == [EMPTY]
        assert await client.call_and_parse("up__roots") == [EMPTY]
        assert asked_for_roots(client) == 1


async def test_a_client_without_roots_is_never_asked_and_the_upstream_told_the_workspace(tmp_path: Path) -> None:
    for era in ("handshake", "modern"):
        async with proxy_client(tmp_path, asking(), era, capabilities={"elicitation": {}}) as client:
            assert await client.call_and_parse("up__roots") == [workspace()]
            assert client.questions == []


async def test_a_question_that_has_waited_too_long_is_asked_once_more(tmp_path: Path) -> None:
    settings, mark = {"confirmation": {"timeout": 200}}, tmp_path / "mark"
    servers = {"up": stdio_entry("handshake", env={"ASKS_ROOTS": "later", "ROOTS_MARK": str(mark)})}
    async with proxy_client(
        tmp_path, servers, "modern", settings=settings, answer=answer_with(roots=ROOTS_RESULT)
    ) as client:
        await client.items_by_name("tools")
        await wait_for_file(mark.with_suffix(".answered"))
        assert await client.call_and_parse("up__roots") == [EMPTY, ROOTS_RESULT]
        assert await client.call_and_parse("up__roots") == [EMPTY, ROOTS_RESULT]


async def test_an_upstream_that_lists_nothing_before_it_knows_the_roots_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_questions, "DOUBT_SECONDS", 0.2)
    async with proxy_client(tmp_path, asking("first"), "modern", answer=answer_with(roots=ROOTS_RESULT)) as client:
        assert "up__roots" in await client.items_by_name("tools")
        assert await client.call_and_parse("up__roots") == [EMPTY, ROOTS_RESULT]


@pytest.mark.parametrize("isolation", ["per-client", "shared"])
async def test_nobody_is_told_the_roots_of_another_client(isolation: str, tmp_path: Path) -> None:
    def rooted(name: str) -> Json:
        return {"roots": [{"uri": f"file:///{name}"}]}

    async with (
        network(tmp_path, asking(isolation=isolation)) as served,
        client_on(
            http_transport(f"{served.url}/mcp", TOKENS["ada"]), "modern", ALL, answer_with(roots=rooted("a"))
        ) as a,
        client_on(
            http_transport(f"{served.url}/mcp", TOKENS["bob"]), "modern", ALL, answer_with(roots=rooted("b"))
        ) as b,
    ):
        results = [text_or_json(await client.call("up__roots")) for client in (a, b, a)]
    if isolation == "shared":
        assert results == [[workspace()]] * 3
        assert a.questions == b.questions == []
    else:
        assert results == [[rooted("a")], [rooted("b")], [rooted("a")]]


@pytest.mark.requirement("relay.late_roots")
@pytest.mark.parametrize("way", ["stdio", "mcp", "sse"])
async def test_roots_asked_for_in_a_call_are_told_though_the_call_is_over_before_the_answer(
    way: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    servers = {"up": stdio_entry("handshake", env={"ROOTS_MARK": str(mark)})}
    async with AsyncExitStack() as stack:
        if way == "stdio":
            client = await stack.enter_async_context(
                proxy_client(tmp_path, servers, "handshake", answer=answer_with(roots=ROOTS_RESULT))
            )
        else:
            served = await stack.enter_async_context(network(tmp_path, servers))
            transport = http_transport(f"{served.url}/{way}", TOKENS["ada"])
            client = await stack.enter_async_context(
                client_on(transport, "handshake", ALL, answer_with(roots=ROOTS_RESULT))
            )
        assert await client.call_and_parse("up__roots", {"ask": True}) == []
        await wait_for_file(mark.with_suffix(".answered"))
        assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
