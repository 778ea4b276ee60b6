"""Roots that an upstream asks for outside of calls, as file servers do right after the handshake."""

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

NO_ROOTS: Json = {"roots": []}


def workspace() -> Json:
    """Return the working folder as a root. It is the workspace if no settings and no client name one."""
    return {"roots": [{"uri": Path.cwd().as_uri(), "name": Path.cwd().name}]}


def asking_servers(moment: str = "later", **fields: Any) -> dict[str, Json]:
    return {"up": stdio_entry("handshake", env={"ASKS_ROOTS": moment}, **fields)}


def answer_nothing(method: str, params: Json) -> None:
    del method, params


def count_roots_questions(client: WireClient) -> int:
    return [method for method, _ in client.questions].count("roots/list")


@by_era
async def test_roots_are_asked_for_once_and_sent_before_the_first_call(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking_servers(), era, answer=answer_with(roots=ROOTS_RESULT)) as client:
        assert "up__roots" in await client.items_by_name("tools")
        for _ in range(2):
            assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
        assert count_roots_questions(client) == 1


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_the_first_call_over_the_network_is_made_with_the_roots(path: str, tmp_path: Path) -> None:
    async with (
        network(tmp_path, asking_servers()) as server,
        client_on(
            http_transport(f"{server.url}/{path}", TOKENS["ada"]), "handshake", ALL, answer_with(roots=ROOTS_RESULT)
        ) as client,
    ):
        for _ in range(2):
            assert await client.call_and_parse("up__roots") == [ROOTS_RESULT]
        assert count_roots_questions(client) == 1


async def test_a_client_that_never_answers_over_the_network_delays_a_call_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_questions, "DOUBT_SECONDS", 0.2)
    async with (
        network(tmp_path, asking_servers()) as server,
        client_on(http_transport(f"{server.url}/mcp", TOKENS["ada"]), "handshake", ALL, answer_nothing) as client,
    ):
        assert await client.call_and_parse("up__roots") == []


async def test_the_question_has_the_alias_and_the_call_is_not_sent_before_it_is_answered(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking_servers(), "modern", answer=answer_with(roots=ROOTS_RESULT)) as client:
        mark = tmp_path / "mark"
        params: Json = {"name": "up__wait", "arguments": {"mark": str(mark)}}
        # Other requests are answered without the question.
        await client.items_by_name("tools")
        other_completion = {
            "ref": {"type": "ref/prompt", "name": "up__greet"},
            "argument": {"name": "who", "value": "a"},
        }
        assert "completion" in await client.request("completion/complete", other_completion)
        result = await client.request("tools/call", params)
        (question,) = result["inputRequests"].values()
        assert question["method"] == "roots/list"
        assert question["params"]["_meta"]["coretools-mcp/upstream"] == {"server": "up"}
        # The upstream has answered this, so it would have begun the call if that had been sent.
        completion = {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "who", "value": ""}}
        assert await client.request("completion/complete", completion)
        assert not mark.with_suffix(".began").exists()
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "tools/call", {**params, **await client.answers_to(result)})
            await wait_for_file(mark.with_suffix(".began"))
            calls.cancel_scope.cancel()


async def test_all_concurrent_calls_wait_for_the_roots(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking_servers(), "modern", answer=answer_with(roots=ROOTS_RESULT)) as client:
        results: list[Any] = []

        async def call() -> None:
            results.append(await client.call_and_parse("up__roots"))

        async with anyio.create_task_group() as calls:
            for _ in range(4):
                calls.start_soon(call)
        assert results == [[ROOTS_RESULT]] * 4


async def test_without_an_answer_the_call_is_made_without_roots(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, asking_servers(), "modern", answer=answer_nothing) as client:
        assert await client.call_and_parse("up__roots") == [NO_ROOTS]
        assert await client.call_and_parse("up__roots") == [NO_ROOTS]
        assert count_roots_questions(client) == 1


async def test_a_client_without_roots_is_never_asked_and_the_upstream_gets_the_workspace(tmp_path: Path) -> None:
    for era in ("handshake", "modern"):
        async with proxy_client(tmp_path, asking_servers(), era, capabilities={"elicitation": {}}) as client:
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
        assert await client.call_and_parse("up__roots") == [NO_ROOTS, ROOTS_RESULT]
        assert await client.call_and_parse("up__roots") == [NO_ROOTS, ROOTS_RESULT]


async def test_an_upstream_that_lists_nothing_before_it_knows_the_roots_works_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_questions, "DOUBT_SECONDS", 0.2)
    async with proxy_client(
        tmp_path, asking_servers("first"), "modern", answer=answer_with(roots=ROOTS_RESULT)
    ) as client:
        assert "up__roots" in await client.items_by_name("tools")
        assert await client.call_and_parse("up__roots") == [NO_ROOTS, ROOTS_RESULT]


@pytest.mark.parametrize("isolation", ["per-client", "shared"])
async def test_no_upstream_session_gets_the_roots_of_another_client(isolation: str, tmp_path: Path) -> None:
    def roots_of(name: str) -> Json:
        return {"roots": [{"uri": f"file:///{name}"}]}

    async with (
        network(tmp_path, asking_servers(isolation=isolation)) as server,
        client_on(
            http_transport(f"{server.url}/mcp", TOKENS["ada"]), "modern", ALL, answer_with(roots=roots_of("a"))
        ) as ada,
        client_on(
            http_transport(f"{server.url}/mcp", TOKENS["bob"]), "modern", ALL, answer_with(roots=roots_of("b"))
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
