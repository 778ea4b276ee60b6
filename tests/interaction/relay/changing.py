"""Upstreams that change their tools, and who is asked about that."""

from __future__ import annotations

from typing import Any

from tests.interaction.relay.clients import Json, WireClient
from tests.waiting import pause


class Person:
    """Answers questions about calls, and counts them."""

    def __init__(self, decision: str = "once") -> None:
        self.decision = decision
        self.messages: list[str] = []

    def __call__(self, method: str, params: Json) -> Json:
        self.messages.append(params["message"])
        if "decision" not in params["requestedSchema"]["properties"]:
            return {"action": "accept", "content": {}}
        return {"action": "accept", "content": {"decision": self.decision}}


async def change(client: WireClient, alias: str, **arguments: Any) -> None:
    """Let the upstream change its tools, and wait until that is known.

    Its list has pages: one that is read just then has a new tool at its end, and the old texts before it.
    """

    async def seen() -> tuple[int, str]:
        tools = await client.items_by_name("tools")
        text = tools.get(f"{alias}__content", {}).get("description", "")
        return sum(name.startswith(f"{alias}__added_") for name in tools), text

    count, text = await seen()
    is_text_same = arguments.get("description", text) == text or text.startswith(f"The server {alias} has ")
    await client.call(f"{alias}__change", arguments)
    while (now := await seen())[0] == count or (now[1] == text and not is_text_same):
        await pause()
