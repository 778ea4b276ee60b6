"""What upstreams ask, what is answered, and calls that stop at a question."""

from __future__ import annotations

from tests.interaction.relay.clients import Json, WireClient, call_params

FORM: Json = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who\u202eare you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string", "x-unknown": 1}}},
        "x-unknown": {"a": 1},
    },
}
URL: Json = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Look", "url": "https://example.org/", "elicitationId": "e1"},
}
SAMPLING: Json = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi", "x-unknown": 1}}],
        "maxTokens": 5,
        "x-unknown": 2,
    },
}
ROOTS: Json = {"method": "roots/list", "params": {}}

SAMPLED: Json = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Ho"}, "x-unknown": 3}
ROOTED: Json = {"roots": [{"uri": "file:///somewhere", "name": "n", "x-unknown": 4}]}

ANSWERS: dict[str, Json] = {
    "accept": {"action": "accept", "content": {"name": "Ada"}, "x-unknown": 5},
    "decline": {"action": "decline"},
    "cancel": {"action": "cancel"},
}


async def suspended(client: WireClient, tool: str, arguments: Json) -> tuple[Json, Json]:
    """The parameters of a call, and the result that carries its question."""
    params = call_params(tool, arguments)
    result = await client.request("tools/call", params)
    assert result["resultType"] == "input_required"
    return params, result
