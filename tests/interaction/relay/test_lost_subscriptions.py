"""Subscriptions to resources outlive the connection to their upstream."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from server.upstreams.connections.client_sessions import ClientSessions
from tests.background_servers import background_server, free_port
from tests.harness import PEERS
from tests.interaction.relay.clients import WireClient, proxy_client, stdio_entry
from tests.interaction.relay.eras import by_eras
from tests.interaction.relay.network import network
from tests.interaction.relay.watching import UPDATED, start_listening, touch_until_notified
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.subscriptions.again")]

URI = "test://text"


async def wait_for_process(client: WireClient) -> int:
    """Wait until the upstream runs, and return its process id."""
    while (result := await client.call("up__whoami")).get("isError"):  # noqa: ASYNC110 - no event tells of it
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
        os.kill(await wait_for_process(client), signal.SIGKILL)
        # The upstream comes back without a request. An update is sent, because changes may have been missed meanwhile.
        assert [update["uri"] for update in await client.wait_for_notifications(UPDATED)] == [URI]
        await touch_until_notified(client, URI)
        tasks.cancel_scope.cancel()


async def test_a_watched_resource_is_watched_again_in_a_new_session_of_the_same_client(tmp_path: Path) -> None:
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as server,
        server.client("handshake", "ada") as ada,
        server.client("handshake", "bob") as bob,
    ):
        pid = await wait_for_process(ada)
        for client in (ada, bob):
            await client.request("resources/subscribe", {"uri": URI})
        os.kill(pid, signal.SIGKILL)
        assert [update["uri"] for update in await ada.wait_for_notifications(UPDATED)] == [URI]
        await touch_until_notified(ada, URI)
        assert UPDATED not in [method for method, _ in bob.messages]


async def test_a_resource_of_a_remote_server_is_watched_again_although_the_session_is_lost_before_the_server_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    command = [sys.executable, str(PEERS / "asking_upstream.py"), "http", str(port)]
    entry = {"httpUrl": f"http://127.0.0.1:{port}/handshake/room/mcp", "trust": True}
    async with network(tmp_path, {"up": entry}) as server, server.client("handshake", "ada") as ada:
        with background_server(command, r"port (\d+)"):
            await wait_for_process(ada)
            await ada.request("resources/subscribe", {"uri": URI})
            await touch_until_notified(ada, URI)
        ada.messages.clear()
        assert (await ada.call("up__whoami")).get("isError")  # ends only this client's session
        await until(lambda: "upstream up is not available" in caplog.text)
        with background_server(command, r"port (\d+)"):
            assert [update["uri"] for update in await ada.wait_for_notifications(UPDATED)] == [URI]
            await touch_until_notified(ada, URI)


async def test_if_a_watched_resource_can_no_longer_be_watched_the_client_gets_one_update(tmp_path: Path) -> None:
    refusal_gate = tmp_path / "refusing"
    entry = stdio_entry("handshake", env={"REFUSES_WHERE": str(refusal_gate)})
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        await client.request("resources/subscribe", {"uri": URI})
        pid = await wait_for_process(client)
        refusal_gate.touch()
        os.kill(pid, signal.SIGKILL)
        await client.wait_for_notifications(UPDATED)
        refusal_gate.unlink()
        client.messages.clear()
        # The subscription is forgotten, so the client can subscribe again.
        await client.request("resources/subscribe", {"uri": URI})
        await touch_until_notified(client, URI)


async def test_a_session_with_a_subscription_is_not_closed_when_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.3)
    async with (
        network(tmp_path, {"up": stdio_entry("handshake")}) as server,
        server.client("handshake", "ada") as ada,
        server.client("handshake", "bob") as bob,
    ):
        pid = await wait_for_process(ada)
        await ada.request("resources/subscribe", {"uri": URI})
        await wait_for_process(bob)
        await until(lambda: server.sessions() == 1)
        assert await wait_for_process(ada) == pid
