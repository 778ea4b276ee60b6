"""What an upstream is told about subscriptions while it notes them slowly, refuses them, or is lost."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import anyio
import pytest

from server.upstreams.relay.upstream_resources import Watch
from tests.harness import PEERS
from tests.interaction.relay.clients import AnswerError, Json, WireClient, proxy_client
from tests.interaction.relay.test_features import UPDATED, held_open, start_listening
from tests.interaction.relay.test_isolation import network

pytestmark = pytest.mark.anyio

URI = "test://text"
WATCHED: Json = {"uri": URI}


def noting(era: str, *keeps: str) -> Json:
    """An upstream that keeps requests of these methods."""
    return {"command": sys.executable, "args": ["-S", str(PEERS / "noting_upstream.py"), era, *keeps], "trust": True}


async def is_noted(client: WireClient) -> None:
    """Return once the client has subscribed, however often that takes."""
    while True:
        try:
            assert await client.request("resources/subscribe", WATCHED) == {}
        except AnswerError:
            await anyio.sleep(0.02)
        else:
            return


@pytest.mark.requirement("relay.subscriptions.again")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_what_is_watched_while_a_lost_upstream_still_ends_is_told_of_when_it_is_back(
    era: str, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": noting(era)}, "handshake") as client:
        await client.items_by_name("resources")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - nobody tells of the loss
            await anyio.sleep(0.005)
        await is_noted(client)
        while UPDATED not in [method for method, _ in client.messages]:
            await client.call("up__touch")
            await anyio.sleep(0.02)


@pytest.mark.requirement("relay.subscriptions.again")
async def test_an_upstream_that_was_lost_and_still_ends_takes_no_subscription(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": noting("handshake")}, "handshake") as client:
        await client.items_by_name("tools")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - nobody tells of the loss
            await anyio.sleep(0.005)
        with pytest.raises(AnswerError) as raised:
            await client.request("resources/subscribe", WATCHED)
        assert "is unavailable" in str(raised.value)


async def until_told(client: WireClient, count: int) -> list[str]:
    """What the upstream was told about subscriptions, once it is so much."""
    while len(told := await client.call_and_parse("up__told")) < count:  # noqa: ASYNC110 - nobody tells of it
        await anyio.sleep(0.005)
    return told


async def subscribed(client: WireClient, answers: list[object], method: str = "resources/subscribe") -> None:
    """Ask, and keep what it comes to."""
    try:
        answers.append(await client.request(method, WATCHED))
    except AnswerError as error:
        answers.append(error.error["code"])


@pytest.mark.requirement("relay.subscriptions.shared")
async def test_a_stream_hears_of_changes_although_another_one_has_left_before_they_were_noted(tmp_path: Path) -> None:
    entry = noting("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "modern") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        first = await tasks.start(held_open)
        await start_listening(client, first, {"resourceSubscriptions": [URI]})
        client.messages.clear()
        await start_listening(client, tasks, {"resourceSubscriptions": [URI]})
        first.cancel_scope.cancel()
        assert await until_told(client, 1) == ["resources/subscribe"]
        await client.call("up__release")
        await client.call("up__touch")
        await client.wait_for_notifications(UPDATED)
        assert await client.call_and_parse("up__told") == ["resources/subscribe"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("relay.subscriptions.shared")
async def test_all_who_wait_for_one_subscription_are_told_that_it_was_refused(tmp_path: Path) -> None:
    entry = noting("handshake", "resources/subscribe")
    answers: list[object] = []
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(subscribed, client, answers)
            assert await until_told(client, 1) == ["resources/subscribe"]
            await client.call("up__refuse")
        assert answers == [-32602] * 3
        assert await client.call_and_parse("up__told") == ["resources/subscribe"]
        # Nothing is left of it: it can be wanted again.
        await client.call("up__release")
        assert await client.request("resources/subscribe", WATCHED) == {}


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_who_subscribes_again_while_the_upstream_forgets_the_subscription_hears_of_changes(
    tmp_path: Path,
) -> None:
    entry = noting("handshake", "resources/unsubscribe")
    answers: list[object] = []
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        await client.request("resources/subscribe", WATCHED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribed, client, answers, "resources/unsubscribe")
            await until_told(client, 2)
            tasks.start_soon(subscribed, client, answers)
            await client.call("up__told")
            await client.call("up__release")
        assert answers == [{}, {}]
        await client.call("up__touch")
        await client.wait_for_notifications(UPDATED)
        wanted = ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"]
        assert await client.call_and_parse("up__told") == wanted


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_who_unsubscribes_before_the_subscription_is_noted_is_not_subscribed(tmp_path: Path) -> None:
    answers: list[object] = []
    entry = noting("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribed, client, answers)
            await until_told(client, 1)
            tasks.start_soon(subscribed, client, answers, "resources/unsubscribe")
            await client.call("up__told")
            await client.call("up__release")
        assert answers == [{}, {}]
        assert await until_told(client, 2) == ["resources/subscribe", "resources/unsubscribe"]


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_nothing_is_kept_of_what_a_client_watches_no_longer(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"forgetful": noting("handshake")}, "handshake") as client:
        await client.items_by_name("resources")
        for _ in range(20):
            await client.request("resources/subscribe", WATCHED)
            await client.request("resources/unsubscribe", WATCHED)
        gc.collect()
        kept = [each for each in gc.get_objects() if type(each) is Watch and each.alias == "forgetful"]
        assert len(kept) <= 1, "the latest one"


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_an_upstream_is_told_when_the_client_that_watched_has_gone(tmp_path: Path) -> None:
    shared = noting("handshake") | {"isolation": "shared"}
    async with network(tmp_path, {"up": shared}) as served, served.client("handshake", "bob") as bob:
        await bob.items_by_name("resources")
        async with served.client("handshake", "ada") as ada:
            await ada.request("resources/subscribe", WATCHED)
        assert await until_told(bob, 2) == ["resources/subscribe", "resources/unsubscribe"]
