"""What clients of one server share: none takes so much of it that others get nothing, and a loss of one is its own."""

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


def as_another(client: WireClient, number: int) -> None:
    """From now on the client announces something else, so that it needs a session for that."""
    client.capabilities = {"elicitation": {}, "experimental": {"mine": {"number": number}}}


@pytest.mark.requirement("proxy.limits")
async def test_a_client_with_more_sessions_than_its_share_gives_one_up_for_a_client_without(tmp_path: Path) -> None:
    ended: dict[int, Json] = {}
    async with (
        network(tmp_path, {"up": stdio_entry("handshake", maxSessions=2)}) as served,
        served.client("modern", "ada") as ada,
        served.client("modern", "bob") as bob,
        anyio.create_task_group() as calls,
    ):

        async def wait(number: int) -> None:
            ended[number] = await ada.call("up__wait", {"mark": str(tmp_path / f"{number}")})

        for number in range(2):
            as_another(ada, number)
            calls.start_soon(wait, number)
            await wait_for_file((tmp_path / f"{number}").with_suffix(".began"))
        assert await bob.call_and_parse("up__whoami")
        await until(lambda: ended)
        assert list(ended) == [1]
        assert "was lost" in ended[1]["content"][0]["text"]
        as_another(ada, 2)
        refused = await ada.call("up__whoami", {})
        assert "mcpServers.up.maxSessions" in refused["content"][0]["text"]
        calls.cancel_scope.cancel()


@pytest.mark.requirement("proxy.limits")
async def test_a_client_makes_room_for_itself_before_it_takes_room_of_others(tmp_path: Path) -> None:
    async with (
        network(tmp_path, {"up": stdio_entry("handshake", maxSessions=4)}) as served,
        served.client("modern", "ada") as ada,
        served.client("modern", "bob") as bob,
    ):
        pid = (await bob.call_and_parse("up__whoami"))["pid"]
        for number in range(6):
            as_another(ada, number)
            assert await ada.call_and_parse("up__whoami")
        assert (await bob.call_and_parse("up__whoami"))["pid"] == pid


@pytest.mark.requirement("proxy.suspended.share")
async def test_a_client_parks_only_its_part_of_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_OF_ONE", 2)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as served,
        served.client("modern", "ada") as ada,
        served.client("modern", "bob") as bob,
    ):
        for _ in range(2):
            await call_until_question(ada, "up__ask", {"questions": [FORM]})
        assert text_or_json(await ada.request("tools/call", CALL)) == [{"action": "cancel"}]
        await call_until_question(bob, "up__ask", {"questions": [FORM]})


@pytest.mark.requirement("proxy.suspended.share")
async def test_where_no_more_calls_can_be_suspended_the_newest_of_who_has_most_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_SUSPENDED", 3)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as served,
        served.client("modern", "ada") as ada,
        served.client("modern", "bob") as bob,
    ):
        kept = [await call_until_question(ada, "up__ask", {"questions": [FORM]}) for _ in range(3)]
        await call_until_question(bob, "up__ask", {"questions": [FORM]})
        assert text_or_json(await ada.request("tools/call", CALL)) == [{"action": "cancel"}]
        told: list[Json] = []
        for params, result in kept:
            told.append(await ada.request("tools/call", {**params, **await ada.answers_to(result)}))
        assert [bool(result.get("isError")) for result in told] == [False, False, True]
        assert "arrived too late" in told[2]["content"][0]["text"]


CALL: Json = {"name": "up__ask", "arguments": {"questions": [FORM]}}


@pytest.mark.requirement("proxy.isolation.lists")
async def test_a_client_goes_on_in_its_session_while_the_one_that_lists_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.connections.connection.FIRST_RETRY_SECONDS", 3_600)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as served,
        served.client("modern", "ada") as ada,
    ):
        pid = (await ada.call_and_parse("up__whoami"))["pid"]
        params, result = await call_until_question(ada, "up__ask", {"questions": [FORM]})
        upstream = served.app.pool.by_alias.get("up")
        assert upstream is not None
        assert upstream.session is not None
        listing = text_or_json(await upstream.session.request("tools/call", {"name": "whoami", "arguments": {}}))["pid"]
        assert listing != pid
        os.kill(listing, signal.SIGKILL)
        await until(lambda: upstream.live_session is None)
        answered = await ada.request("tools/call", {**params, **await ada.answers_to(result)})
        assert text_or_json(answered)[0]["action"] == "accept"
        assert (await ada.call_and_parse("up__whoami"))["pid"] == pid
        await until(lambda: upstream.live_session is not None)
