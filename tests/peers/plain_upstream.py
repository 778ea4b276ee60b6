"""The tools of `upstream.py` over stdio, without the SDK, so that it starts fast; it speaks only the handshake era.

python plain_upstream.py
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

ANY: Json = {"type": "object", "properties": {}}
TOOLS: list[Json] = [
    {
        "name": "echo",
        "description": "Give back the text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True, "title": "Echo"},
    },
    {"name": "fail", "description": "Fail with isError.", "inputSchema": ANY},
    {"name": "protocol_error", "description": "Fail with a protocol error.", "inputSchema": ANY},
    {"name": "picture", "description": "Give back a small PNG.", "inputSchema": ANY},
    {"name": "structured", "description": "Give back structured content.", "inputSchema": ANY},
    {"name": "steps", "description": "Report three steps of progress.", "inputSchema": ANY},
    {"name": "wait", "description": "Wait until cancelled.", "inputSchema": ANY},
    {"name": "environment", "description": "Names of the environment.", "inputSchema": ANY},
    {"name": "die", "description": "End this process at once.", "inputSchema": ANY},
    {"name": "odd name!", "description": "A name with characters outside the set.", "inputSchema": ANY},
]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n-not-a-real-picture").decode()
OWN_ERROR: Json = {"code": -32050, "message": "the upstream's own error"}


def text(value: str, **fields: Any) -> Json:
    return {"content": [{"type": "text", "text": value}], **fields}


def result_of(name: str, arguments: Json) -> Json:
    """The result of a tool that answers once, without a protocol error."""
    match name:
        case "echo":
            return text(str(arguments.get("text")))
        case "fail":
            return text("it went wrong", isError=True)
        case "picture":
            return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
        case "structured":
            return text("{}", structuredContent={"answer": 42}, _meta={"example.org/kept": "yes"})
        case "steps":
            return text("done")
        case "environment":
            return text("\n".join(sorted(os.environ)))
        case "die":
            os._exit(3)
        case _:
            return text(f"called {name}")


def call_messages(params: Json) -> Iterator[Json]:
    """The messages of a call: notifications, and then the answer, if there is one."""
    name = params["name"]
    token = params.get("_meta", {}).get("progressToken")
    if name == "steps" and token is not None:
        for step in range(1, 4):
            progress = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
            yield {"method": "notifications/progress", "params": progress}
    if name == "protocol_error":
        yield {"error": OWN_ERROR}
    elif name != "wait":  # it is never answered: a cancelled call gets no answer
        yield {"result": result_of(name, params.get("arguments") or {})}


def responses(method: str, params: Json) -> Iterator[Json]:
    """The messages that a request leads to."""
    match method:
        case "initialize":
            info = {"name": "test-upstream", "version": "1"}
            initialization: Json = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            yield {"result": {**initialization, "serverInfo": info}}
        case "ping":
            yield {"result": {}}
        case "tools/list":
            yield {"result": {"tools": TOOLS}}
        case "tools/call":
            yield from call_messages(params)
        case _:
            yield {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def main() -> None:
    for line in sys.stdin.buffer:
        request: Json = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        for message in responses(request["method"], request.get("params") or {}):
            identity = {} if "method" in message else {"id": request["id"]}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **identity, **message}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
