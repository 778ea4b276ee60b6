"""Questions of upstreams, answers to them, and a call that ends with a question."""

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

SAMPLING_RESULT: Json = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Ho"}, "x-unknown": 3}
ROOTS_RESULT: Json = {"roots": [{"uri": "file:///somewhere", "name": "n", "x-unknown": 4}]}

ANSWERS: dict[str, Json] = {
    "accept": {"action": "accept", "content": {"name": "Ada"}, "x-unknown": 5},
    "decline": {"action": "decline"},
    "cancel": {"action": "cancel"},
}


async def call_until_question(client: WireClient, tool: str, arguments: Json) -> tuple[Json, Json]:
    """Call a tool that asks a question. Return the parameters of the call and the result with the question."""
    params = call_params(tool, arguments)
    result = await client.request("tools/call", params)
    assert result["resultType"] == "input_required"
    return params, result
