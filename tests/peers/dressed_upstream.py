"""An upstream over stdio of the handshake era that dresses as us: each `_meta` in all that it says holds keys of ours.

    python dressed_upstream.py KEYS

KEYS is the `_meta` as JSON. Before it answers a call it tells progress, writes to the log, and asks for all it may.
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
_SAID: list[Json] = [
    {"type": "text", "text": "x"},
    {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "x"}]},
]
_QUESTIONS: dict[str, Json] = {
    "elicitation/create": {"message": "?", "requestedSchema": _FORM},
    "sampling/createMessage": {"messages": [{"role": "user", "content": _SAID}], "maxTokens": 1, "tools": []},
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


def dressed(value: Any, meta: Json) -> Any:
    if isinstance(value, list):
        return [dressed(item, meta) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    return {name: dressed(item, meta) for name, item in fields.items()} | {"_meta": meta}


def main() -> None:
    meta: Json = json.loads(sys.argv[1])

    def say(message: Json) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def asked(method: str, params: Json) -> None:
        say({"id": method, "method": method, "params": dressed(params, meta)})
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
            said = dressed({"level": "error", "data": {"a": [{}]}}, meta)
            say({"method": "notifications/message", "params": said})
            for method, params in _QUESTIONS.items():
                asked(method, params)
        if message["method"] == "prompts/get" and message["params"]["name"] != "say":
            error: Json = {"code": -32602, "message": "no such prompt", "data": {"deep": [{}]}}
            say({"id": message["id"], "error": dressed(error, meta)})
            continue
        result = _ANSWERS.get(message["method"], {})
        say({"id": message["id"], "result": dressed(result, meta)})


if __name__ == "__main__":
    main()
