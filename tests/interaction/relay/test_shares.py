"""Clients share an upstream fairly: none can use it up, and the loss of one session affects no other."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.interaction.relay.clients import Json, WireClient, stdio_entry, text_or_json, wait_for_file
from tests.interaction.relay.network import network
from tests.interaction.relay.questions import FORM, call_until_question
from tests.waiting import until

pytestmark = pytest.mark.anyio


def change_capabilities(client: WireClient, number: int) -> None:
    """Change what the client announces, so that its next call needs another session."""
    client.capabilities = {"elicitation": {}, "experimental": {"mine": {"number": number}}}


@pytest.mark.requirement("proxy.limits")
async def test_a_client_with_more_sessions_than_its_share_loses_one_to_a_client_without_any(tmp_path: Path) -> None:
    results: dict[int, Json] = {}
    async with (
        network(tmp_path, {"up": stdio_entry("handshake", maxSessions=2)}) as server,
        server.client("modern", "ada") as ada,
        server.client("modern", "bob") as bob,
        anyio.create_task_group() as calls,
    ):

        async def wait(number: int) -> None:
            results[number] = await ada.call("up__wait", {"mark": str(tmp_path / f"{number}")})

        for number in range(2):
            change_capabilities(ada, number)
            calls.start_soon(wait, number)
            await wait_for_file((tmp_path / f"{number}").with_suffix(".began"))
        assert await bob.call_and_parse("up__whoami")
        await until(lambda: results)
        assert list(results) == [1]
        assert "was lost" in results[1]["content"][0]["text"]
        change_capabilities(ada, 2)
        refusal = await ada.call("up__whoami", {})
        assert "mcpServers.up.maxSessions" in refusal["content"][0]["text"]
        calls.cancel_scope.cancel()


@pytest.mark.requirement("proxy.limits")
async def test_a_client_replaces_its_own_sessions_before_those_of_others(tmp_path: Path) -> None:
    async with (
        network(tmp_path, {"up": stdio_entry("handshake", maxSessions=4)}) as server,
        server.client("modern", "ada") as ada,
        server.client("modern", "bob") as bob,
    ):
        pid = (await bob.call_and_parse("up__whoami"))["pid"]
        for number in range(6):
            change_capabilities(ada, number)
            assert await ada.call_and_parse("up__whoami")
        assert (await bob.call_and_parse("up__whoami"))["pid"] == pid


@pytest.mark.requirement("proxy.suspended.share")
async def test_a_client_can_suspend_only_its_share_of_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_OF_ONE", 2)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as server,
        server.client("modern", "ada") as ada,
        server.client("modern", "bob") as bob,
    ):
        for _ in range(2):
            await call_until_question(ada, "up__ask", {"questions": [FORM]})
        assert text_or_json(await ada.request("tools/call", CALL)) == [{"action": "cancel"}]
        await call_until_question(bob, "up__ask", {"questions": [FORM]})


@pytest.mark.requirement("proxy.suspended.share")
async def test_at_the_limit_of_suspended_calls_the_newest_call_of_the_client_with_most_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_SUSPENDED", 3)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as server,
        server.client("modern", "ada") as ada,
        server.client("modern", "bob") as bob,
    ):
        suspended_calls = [await call_until_question(ada, "up__ask", {"questions": [FORM]}) for _ in range(3)]
        await call_until_question(bob, "up__ask", {"questions": [FORM]})
        assert text_or_json(await ada.request("tools/call", CALL)) == [{"action": "cancel"}]
        results: list[Json] = []
        for params, result in suspended_calls:
            results.append(await ada.request("tools/call", {**params, **await ada.answers_to(result)}))
        assert [bool(result.get("isError")) for result in results] == [False, False, True]
        assert "arrived too late" in results[2]["content"][0]["text"]


CALL: Json = {"name": "up__ask", "arguments": {"questions": [FORM]}}


@pytest.mark.requirement("proxy.isolation.lists")
async def test_a_clients_session_goes_on_while_the_session_for_listing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.connections.connection.FIRST_RETRY_SECONDS", 3_600)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as server,
        server.client("modern", "ada") as ada,
    ):
        pid = (await ada.call_and_parse("up__whoami"))["pid"]
        params, result = await call_until_question(ada, "up__ask", {"questions": [FORM]})
        upstream = server.app.pool.by_alias.get("up")
        assert upstream is not None
        assert upstream.session is not None
        list_pid = text_or_json(await upstream.session.request("tools/call", {"name": "whoami", "arguments": {}}))[
            "pid"
        ]
        assert list_pid != pid
        os.kill(list_pid, signal.SIGKILL)
        await until(lambda: upstream.live_session is None)
        final_result = await ada.request("tools/call", {**params, **await ada.answers_to(result)})
        assert text_or_json(final_result)[0]["action"] == "accept"
        assert (await ada.call_and_parse("up__whoami"))["pid"] == pid
        await until(lambda: upstream.live_session is not None)
