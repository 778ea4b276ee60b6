"""Calls whose result contains the parameters that the upstream received."""

from __future__ import annotations

from typing import Any

from tests.interaction.relay.clients import WireClient
from tests.peers.asking_upstream import UNKNOWN

ARGUMENTS: list[Any] = [
    None,
    {},
    {"text": "ü\u202e\x00", "n": [0, -1.5, 1e300, None, True], "deep": {"": {"a b": []}}, "requestState": "mine"},
]


async def check_echo(client: WireClient, tool: str) -> None:
    """Check that arguments reach the upstream unchanged, and that its result reaches the client unchanged."""
    for arguments in ARGUMENTS:
        result = await client.call(tool, arguments, {"example.org/mine": {"a": 1}, "progressToken": "mine"})
        params = result["structuredContent"]["params"]
        assert ("arguments" in params) is (arguments is not None)
        assert params.get("arguments") == arguments
        assert params["name"] == "echo"
        assert params["_meta"]["example.org/mine"] == {"a": 1}
        assert result["content"] == [
            {"type": "text", "text": "echo", "annotations": {"audience": ["user"], **UNKNOWN}, **UNKNOWN}
        ]
        assert result["x-unknown"] == UNKNOWN["x-unknown"]
        assert result["_meta"]["kept"] == [1]
