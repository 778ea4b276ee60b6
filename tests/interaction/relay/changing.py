"""Helpers for tests with upstreams that change their tools: a person who is asked about calls, and a change."""

from __future__ import annotations

from typing import Any

from tests.interaction.relay.clients import Json, WireClient
from tests.waiting import pause


class Person:
    """Answers questions about calls, and keeps their messages."""

    def __init__(self, decision: str = "once") -> None:
        self.decision = decision
        self.action = "accept"
        self.messages: list[str] = []

    def __call__(self, method: str, params: Json) -> Json:
        self.messages.append(params["message"])
        if "decision" not in params["requestedSchema"]["properties"]:
            return {"action": self.action, "content": {}}
        return {"action": self.action, "content": {"decision": self.decision}}


async def change(client: WireClient, alias: str, **arguments: Any) -> None:
    """Make the upstream change its tools, and wait until the client sees the change.

    The upstream lists its tools in pages. A list that is read during the change can have the new tool at its end and
    still the old texts before it.
    """

    async def published_state() -> tuple[int, str]:
        tools = await client.items_by_name("tools")
        text = tools.get(f"{alias}__content", {}).get("description", "")
        return sum(name.startswith(f"{alias}__added_") for name in tools), text

    count, text = await published_state()
    is_text_same = arguments.get("description", text) == text or text.startswith(f"The server {alias} has ")
    await client.call(f"{alias}__change", arguments)
    while (state := await published_state())[0] == count or (state[1] == text and not is_text_same):
        await pause()
