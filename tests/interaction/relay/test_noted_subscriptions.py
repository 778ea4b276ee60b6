"""Subscriptions at an upstream that confirms them late, refuses them, or is lost."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import anyio
import pytest

from server.upstreams.relay import upstream_resources
from server.upstreams.relay.upstream_resources import Watch
from tests.harness import PEERS
from tests.interaction.relay.clients import AnswerError, Json, WireClient, proxy_client
from tests.interaction.relay.network import network
from tests.interaction.relay.test_features import hold_open
from tests.interaction.relay.watching import UPDATED, start_listening

pytestmark = pytest.mark.anyio

URI = "test://text"
PARAMS: Json = {"uri": URI}


def noting_entry(era: str, *held_methods: str) -> Json:
    """Return a settings entry for an upstream that holds back its answers to these methods until `release`."""
    return {
        "command": sys.executable,
        "args": ["-S", str(PEERS / "noting_upstream.py"), era, *held_methods],
        "trust": True,
    }


async def subscribe_until_noted(client: WireClient) -> None:
    """Subscribe, and try again until the upstream accepts the subscription."""
    while True:
        try:
            assert await client.request("resources/subscribe", PARAMS) == {}
        except AnswerError:
            await anyio.sleep(0.02)
        else:
            return


@pytest.mark.requirement("relay.subscriptions.again")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_resource_that_is_watched_while_a_lost_upstream_ends_is_updated_when_it_is_back(
    era: str, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": noting_entry(era)}, "handshake") as client:
        await client.items_by_name("resources")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - no event tells of the loss
            await anyio.sleep(0.005)
        await subscribe_until_noted(client)
        while UPDATED not in [method for method, _ in client.messages]:
            await client.call("up__touch")
            await anyio.sleep(0.02)


@pytest.mark.requirement("relay.subscriptions.again")
async def test_an_upstream_that_was_lost_and_is_still_ending_gets_no_subscription(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": noting_entry("handshake")}, "handshake") as client:
        await client.items_by_name("tools")
        await client.call("up__leave")
        while not (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - no event tells of the loss
            await anyio.sleep(0.005)
        with pytest.raises(AnswerError) as error_info:
            await client.request("resources/subscribe", PARAMS)
        assert "is unavailable" in str(error_info.value)


@pytest.mark.requirement("relay.subscriptions.again")
async def test_subscriptions_of_a_client_are_renewed_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_resources, "MAX_RENEWED_AT_ONCE", 2)
    uris = [f"test://{number}" for number in range(5)]
    entry = noting_entry("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        await client.call("up__release")
        for uri in uris:
            await client.request("resources/subscribe", {"uri": uri})
        await client.call("up__leave")
        while (await client.call("up__told")).get("isError"):  # noqa: ASYNC110 - no event tells of the return
            await anyio.sleep(0.005)
        for _ in range(5):
            assert await wait_for_requests(client, 2) == ["resources/subscribe"] * 2
        await client.call("up__release")
        updates = await client.wait_for_notifications(UPDATED, 5)
        assert sorted(update["uri"] for update in updates) == uris


async def wait_for_requests(client: WireClient, count: int) -> list[str]:
    """Wait until the upstream has got this many requests about subscriptions, and return them all."""
    while len(requests := await client.call_and_parse("up__told")) < count:  # noqa: ASYNC110 - no event tells of a request
        await anyio.sleep(0.005)
    return requests


async def append_answer(client: WireClient, answers: list[object], method: str = "resources/subscribe") -> None:
    """Send a request, and append its result or the code of its error."""
    try:
        answers.append(await client.request(method, PARAMS))
    except AnswerError as error:
        answers.append(error.error["code"])


@pytest.mark.requirement("relay.subscriptions.shared")
async def test_a_stream_gets_updates_although_another_one_ended_before_the_subscription_was_confirmed(
    tmp_path: Path,
) -> None:
    entry = noting_entry("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "modern") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        first = await tasks.start(hold_open)
        await start_listening(client, first, {"resourceSubscriptions": [URI]})
        client.messages.clear()
        await start_listening(client, tasks, {"resourceSubscriptions": [URI]})
        first.cancel_scope.cancel()
        expected_requests = ["resources/subscribe", "notifications/cancelled", "resources/subscribe"]
        assert await wait_for_requests(client, 3) == expected_requests
        await client.call("up__release")
        await client.call("up__touch")
        await client.wait_for_notifications(UPDATED)
        assert await client.call_and_parse("up__told") == expected_requests
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("relay.subscriptions.shared")
async def test_each_request_that_waits_for_a_refused_subscription_gets_its_own_refusal(tmp_path: Path) -> None:
    entry = noting_entry("handshake", "resources/subscribe")
    answers: list[object] = []
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(append_answer, client, answers)
            assert await wait_for_requests(client, 1) == ["resources/subscribe"]
            await client.call("up__refuse")
        assert answers == [-32602] * 3
        assert await client.call_and_parse("up__told") == ["resources/subscribe"] * 3
        # The refused subscription is forgotten: a client can subscribe again.
        await client.call("up__release")
        assert await client.request("resources/subscribe", PARAMS) == {}


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_a_client_that_subscribes_again_while_the_upstream_unsubscribes_gets_updates(
    tmp_path: Path,
) -> None:
    entry = noting_entry("handshake", "resources/unsubscribe")
    answers: list[object] = []
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        await client.request("resources/subscribe", PARAMS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_answer, client, answers, "resources/unsubscribe")
            await wait_for_requests(client, 2)
            tasks.start_soon(append_answer, client, answers)
            await client.call("up__told")
            await client.call("up__release")
        assert answers == [{}, {}]
        await client.call("up__touch")
        await client.wait_for_notifications(UPDATED)
        expected_requests = ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"]
        assert await client.call_and_parse("up__told") == expected_requests


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_a_client_that_unsubscribes_before_the_subscription_is_confirmed_is_not_subscribed(
    tmp_path: Path,
) -> None:
    answers: list[object] = []
    entry = noting_entry("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_answer, client, answers)
            await wait_for_requests(client, 1)
            tasks.start_soon(append_answer, client, answers, "resources/unsubscribe")
            await client.call("up__told")
            await client.call("up__release")
        assert answers == [{}, {}]
        assert await wait_for_requests(client, 2) == ["resources/subscribe", "resources/unsubscribe"]


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_a_stream_that_ends_before_the_subscription_is_confirmed_leaves_no_subscription(tmp_path: Path) -> None:
    entry = noting_entry("handshake", "resources/subscribe")
    async with proxy_client(tmp_path, {"up": entry}, "modern") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        await start_listening(client, tasks, {"resourceSubscriptions": [URI]})
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            expected_requests = ["resources/subscribe", "notifications/cancelled", "resources/unsubscribe"]
            assert await wait_for_requests(client, 3) == expected_requests


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_no_memory_is_kept_for_resources_that_a_client_no_longer_watches(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"forgetful": noting_entry("handshake")}, "handshake") as client:
        await client.items_by_name("resources")
        for _ in range(20):
            await client.request("resources/subscribe", PARAMS)
            await client.request("resources/unsubscribe", PARAMS)
        gc.collect()
        watches = [watch for watch in gc.get_objects() if type(watch) is Watch and watch.alias == "forgetful"]
        assert len(watches) <= 1, "only the latest watch may remain"


@pytest.mark.requirement("relay.subscriptions.ordered")
async def test_an_upstream_is_told_when_the_client_that_subscribed_has_disconnected(tmp_path: Path) -> None:
    shared_entry = noting_entry("handshake") | {"isolation": "shared"}
    async with network(tmp_path, {"up": shared_entry}) as server, server.client("handshake", "bob") as bob:
        await bob.items_by_name("resources")
        async with server.client("handshake", "ada") as ada:
            await ada.request("resources/subscribe", PARAMS)
        assert await wait_for_requests(bob, 2) == ["resources/subscribe", "resources/unsubscribe"]
