"""Clients that are notified when resources and lists change."""

from __future__ import annotations

import anyio
import anyio.abc

from tests.interaction.relay.clients import Json, WireClient

UPDATED = "notifications/resources/updated"


async def start_listening(client: WireClient, tasks: anyio.abc.TaskGroup, notifications: Json) -> None:
    """Prepare a client for notifications: in 2026-07-28, only a client that listens gets them."""
    if client.is_modern:
        tasks.start_soon(client.request, "subscriptions/listen", {"notifications": notifications})
        await client.wait_for_notifications("notifications/subscriptions/acknowledged")


async def touch_until_notified(client: WireClient, uri: str) -> str:
    """Make the upstream `up` touch a resource until the client gets an update; return the URI in the update."""
    client.messages.clear()
    while not (updates := [params for method, params in client.messages if method == UPDATED]):
        await client.call("up__touch", {"uri": uri})
        await anyio.sleep(0.02)
    return updates[0]["uri"]
