"""An upstream over stdio that poses as our server: every `_meta` in its messages holds keys that only we may set.

    python dressed_upstream.py META

META is the `_meta` as JSON. The upstream speaks the handshake era. Before it answers a call, it reports progress, sends
a log message, and asks the client every question that a server may ask.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

Json = dict[str, Any]

_BLOCKS: list[Json] = [
    {"type": "text", "text": "x"},
    {"type": "image", "data": "AA==", "mimeType": "image/png"},
    {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "x://link", "name": "link"},
    {"type": "resource", "resource": {"uri": "x://inside", "text": "x"}},
    {"type": "of tomorrow", "parts": [[{"deep": {"deeper": [{}]}}]]},
]
_FORM: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
_SAMPLING_CONTENT: list[Json] = [
    {"type": "text", "text": "x"},
    {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "x"}]},
]
_QUESTIONS: dict[str, Json] = {
    "elicitation/create": {"message": "?", "requestedSchema": _FORM},
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": _SAMPLING_CONTENT}],
        "maxTokens": 1,
        "tools": [],
    },
    "roots/list": {},
}
_ANSWERS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {}},
        "serverInfo": {"name": "dressed", "version": "1"},
    },
    "tools/list": {
        "tools": [
            {"name": "act", "inputSchema": _FORM, "outputSchema": {"type": "object"}, "annotations": {"title": "Act"}}
        ]
    },
    "prompts/list": {"prompts": [{"name": "say", "arguments": [{"name": "who"}]}, {"name": "fail"}]},
    "resources/list": {"resources": [{"uri": "x://one", "name": "one", "icons": [{"src": "https://a.example/i"}]}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "x://two/{id}", "name": "two"}]},
    "tools/call": {"content": _BLOCKS, "structuredContent": {"rows": [{"a": 1}]}},
    "prompts/get": {"messages": [{"role": "user", "content": block} for block in _BLOCKS]},
    "resources/read": {"contents": [{"uri": "x://one", "text": "x"}, {"uri": "x://one", "blob": "AA=="}]},
    "completion/complete": {"completion": {"values": ["a"]}},
}


def dress(value: Any, meta: Json) -> Any:
    if isinstance(value, list):
        return [dress(item, meta) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    return {name: dress(item, meta) for name, item in fields.items()} | {"_meta": meta}


def main() -> None:
    meta: Json = json.loads(sys.argv[1])

    def say(message: Json) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def ask(method: str, params: Json) -> None:
        say({"id": method, "method": method, "params": dress(params, meta)})
        while json.loads(sys.stdin.readline()).get("id") != method:
            pass

    for line in sys.stdin:
        message: Json = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "tools/call":
            token = message["params"].get("_meta", {}).get("progressToken")
            progress = {"progressToken": token, "progress": 1}
            say({"method": "notifications/progress", "params": {**progress, "_meta": meta}})
            log_message = dress({"level": "error", "data": {"a": [{}]}}, meta)
            say({"method": "notifications/message", "params": log_message})
            for method, params in _QUESTIONS.items():
                ask(method, params)
        if message["method"] == "prompts/get" and message["params"]["name"] != "say":
            error: Json = {"code": -32602, "message": "no such prompt", "data": {"deep": [{}]}}
            say({"id": message["id"], "error": dress(error, meta)})
            continue
        result = _ANSWERS.get(message["method"], {})
        say({"id": message["id"], "result": dress(result, meta)})


if __name__ == "__main__":
    main()
