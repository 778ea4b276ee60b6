"""An upstream that does not answer never keeps a client waiting for the others."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from server.upstreams.session import upstream_session
from tests.interaction.relay.clients import listing_entry, named_resources, proxy_client, stdio_entry
from tests.interaction.relay.watching import start_listening, touch_until_notified

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.silent")]

SILENT_URIS = [f"memo://{number}" for number in range(20)]
"""If the subscriptions were made one after another, they would take longer than any test may."""


async def wait_for_method(tale: Path, method: str) -> None:
    while not tale.exists() or method not in tale.read_text().split():  # noqa: ASYNC110 - no event tells of a new line
        await anyio.sleep(0.02)


async def test_a_stream_of_changes_works_while_one_upstream_confirms_no_subscription(tmp_path: Path) -> None:
    servers = {
        "mute": listing_entry("mute", resources=named_resources(*SILENT_URIS), silent=["resources/subscribe"]),
        "up": stdio_entry("handshake"),
    }
    async with proxy_client(tmp_path, servers, "modern") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        await start_listening(
            client, tasks, {"resourceSubscriptions": [*SILENT_URIS, "test://text"], "toolsListChanged": True}
        )
        assert await touch_until_notified(client, "test://text") == "test://text"
        await client.call("up__change", {"times": 1})
        await client.wait_for_notifications("notifications/tools/list_changed")
        tasks.cancel_scope.cancel()


async def test_a_log_level_is_confirmed_while_an_upstream_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_session, "LEVEL_SECONDS", 1_000.0)
    tale = tmp_path / "tale"
    servers = {
        "mute": listing_entry("mute", silent=["logging/setLevel"]),
        "other": listing_entry("other", tale=str(tale)),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        await client.items_by_name("tools")
        assert await client.request("logging/setLevel", {"level": "debug"}) == {}
        await wait_for_method(tale, "logging/setLevel")


async def test_changed_roots_are_announced_while_one_upstream_reads_nothing(tmp_path: Path) -> None:
    tale, last_words = tmp_path / "tale", tmp_path / "last words"
    tools = [{"name": "stop", "inputSchema": {"type": "object"}}]
    servers = {
        "deaf": listing_entry("deaf", tools=tools, deafens="tools/call", tale=str(last_words), entry={"trust": True}),
        "other": listing_entry("other", tale=str(tale)),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("tools")
        for _ in range(3):
            tasks.start_soon(client.call, "deaf__stop", {"much": "x" * 6_000_000})
        await wait_for_method(last_words, "tools/call")
        await client.items_by_name("prompts")
        await client.notify("notifications/roots/list_changed")
        await wait_for_method(tale, "notifications/roots/list_changed")
        tasks.cancel_scope.cancel()
