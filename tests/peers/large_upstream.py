"""An upstream over stdio, without the SDK, whose calls choose the length of their results; it speaks the handshake era.

python large_upstream.py
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]

COUNT_SCHEMA: Json = {"type": "object", "properties": {"count": {"type": "integer"}}}
NEEDLE = "needle in the last record"
TOOLS: list[Json] = [
    {"name": "rows", "description": "JSON on one line.", "inputSchema": COUNT_SCHEMA},
    {"name": "lines", "description": "Text in lines.", "inputSchema": COUNT_SCHEMA},
    {"name": "run", "description": "One line without a blank.", "inputSchema": COUNT_SCHEMA},
    {"name": "data", "description": "Structured content without a schema.", "inputSchema": COUNT_SCHEMA},
    {
        "name": "typed",
        "description": "The same with one.",
        "inputSchema": COUNT_SCHEMA,
        "outputSchema": {"type": "object"},
    },
    {"name": "mixed", "description": "A picture, a resource and a link.", "inputSchema": COUNT_SCHEMA},
    {
        "name": "claims",
        "description": "Text that Claude Code takes whole.",
        "inputSchema": COUNT_SCHEMA,
        "_meta": {"anthropic/maxResultSizeChars": 400_000},
    },
]


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def rows(count: int) -> list[Json]:
    records = [{"id": number, "note": f'row {number}, with a "quote", [brackets] and \\'} for number in range(count)]
    return [*records, {"id": count, "note": NEEDLE}]


def result_of(name: str, count: int) -> Json:
    match name:
        case "rows":
            return {"content": [text(json.dumps(rows(count)))]}
        case "run":
            return {"content": [text("x" * count)]}
        case "data" | "typed":
            return {"content": [text("short")], "structuredContent": {"rows": rows(count)}}
        case "mixed":
            picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
            resource = {"type": "resource", "resource": {"uri": "a://b", "text": "y\n" * count}}
            return {"content": [text("before"), picture, resource, text(NEEDLE)], "isError": True}
        case _:
            return {"content": [text("".join(f"line {number}\n" for number in range(count)) + NEEDLE)]}


def answer(method: str, params: Json) -> Json:
    match method:
        case "initialize":
            info = {"name": "large", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return result_of(params["name"], params["arguments"]["count"])
        case _:
            return {}


def main() -> None:
    for line in sys.stdin.buffer:
        request: Json = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request["method"], request.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
