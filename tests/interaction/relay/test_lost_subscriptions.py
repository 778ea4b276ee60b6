"""Resources that are watched outlive the connection to their upstream."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from server.upstreams.connections.client_sessions import ClientSessions
from tests.interaction.relay.clients import WireClient, proxy_client, stdio_entry
from tests.interaction.relay.eras import by_eras
from tests.interaction.relay.network import network
from tests.interaction.relay.watching import UPDATED, start_listening, touch_until_notified
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.subscriptions.again")]

URI = "test://text"


async def until_up(client: WireClient) -> int:
    """The process of the upstream, as soon as there is one."""
    while (result := await client.call("up__whoami")).get("isError"):  # noqa: ASYNC110 - nobody tells of it
        await anyio.sleep(0.02)
    return int(result["content"][0]["text"].partition('"pid": ')[2].partition(",")[0])


@by_eras
async def test_a_watched_resource_is_watched_again_when_its_upstream_has_come_back(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    async with (
        proxy_client(tmp_path, {"up": stdio_entry(upstream_era)}, client_era) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.items_by_name("resources")
        if client.is_modern:
            await start_listening(client, tasks, {"resourceSubscriptions": [URI]})
        else:
            await client.request("resources/subscribe", {"uri": URI})
        await touch_until_notified(client, URI)
        client.messages.clear()
        os.kill(await until_up(client), signal.SIGKILL)
        # Nothing is asked: it comes back by itself, and what has happened meanwhile is not known.
        assert [told["uri"] for told in await client.wait_for_notifications(UPDATED)] == [URI]
        await touch_until_notified(client, URI)
        tasks.cancel_scope.cancel()


async def test_a_watched_resource_is_watched_again_in_a_new_session_of_the_same_client(tmp_path: Path) -> None:
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as served,
        served.client("handshake", "ada") as ada,
        served.client("handshake", "bob") as bob,
    ):
        pid = await until_up(ada)
        for client in (ada, bob):
            await client.request("resources/subscribe", {"uri": URI})
        os.kill(pid, signal.SIGKILL)
        assert [told["uri"] for told in await ada.wait_for_notifications(UPDATED)] == [URI]
        await touch_until_notified(ada, URI)
        assert UPDATED not in [method for method, _ in bob.messages]


async def test_who_watches_what_may_be_watched_no_more_is_told_once(tmp_path: Path) -> None:
    refusing = tmp_path / "refusing"
    entry = stdio_entry("handshake", env={"REFUSES_WHERE": str(refusing)})
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        await client.request("resources/subscribe", {"uri": URI})
        pid = await until_up(client)
        refusing.touch()
        os.kill(pid, signal.SIGKILL)
        await client.wait_for_notifications(UPDATED)
        refusing.unlink()
        client.messages.clear()
        # It is forgotten, so it can be watched again.
        await client.request("resources/subscribe", {"uri": URI})
        await touch_until_notified(client, URI)


async def test_a_session_in_which_a_resource_is_watched_is_not_closed_for_being_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.3)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as served,
        served.client("handshake", "ada") as ada,
        served.client("handshake", "bob") as bob,
    ):
        pid = await until_up(ada)
        await ada.request("resources/subscribe", {"uri": URI})
        await until_up(bob)
        await until(lambda: served.sessions() == 1)
        assert await until_up(ada) == pid
