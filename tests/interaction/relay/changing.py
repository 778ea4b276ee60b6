"""Upstreams that change their tools, and who is asked about that."""

from __future__ import annotations

from typing import Any

from tests.interaction.relay.clients import Json, WireClient


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
    """Let the upstream change its tools, and wait until that is known."""

    async def added() -> int:
        return sum(name.startswith(f"{alias}__added_") for name in await client.listed("tools"))

    before = await added()
    await client.call(f"{alias}__change", arguments)
    while await added() == before:
        pass
