"""Clients that hear of changes of what they watch."""

from __future__ import annotations

import anyio
import anyio.abc

from tests.interaction.relay.clients import Json, WireClient

UPDATED = "notifications/resources/updated"


async def listening(client: WireClient, tasks: anyio.abc.TaskGroup, wanted: Json) -> None:
    """Hear of changes: in 2026-07-28 only who listens does."""
    if client.is_modern:
        tasks.start_soon(client.request, "subscriptions/listen", {"notifications": wanted})
        await client.wait_for_notifications("notifications/subscriptions/acknowledged")


async def until_touch_is_heard(client: WireClient, uri: str) -> str:
    """Let the upstream `up` touch a resource until the client hears of one from now on: the URI of that."""
    client.messages.clear()
    while not (heard := [params for method, params in client.messages if method == UPDATED]):
        await client.call("up__touch", {"uri": uri})
        await anyio.sleep(0.02)
    return heard[0]["uri"]
