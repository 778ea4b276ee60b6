"""The tools of `upstream.py` over stdio, without the SDK, so that it starts at once; it speaks the handshake alone.

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


def text(value: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": value}], **more}


def result_of(name: str, arguments: Json) -> Json:
    """What a tool gives that answers once, and with success."""
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


def called(params: Json) -> Iterator[Json]:
    """What a call says: notifications, and then the answer, if there is one."""
    name = params["name"]
    token = params.get("_meta", {}).get("progressToken")
    if name == "steps" and token is not None:
        for step in range(1, 4):
            progress = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
            yield {"method": "notifications/progress", "params": progress}
    if name == "protocol_error":
        yield {"error": OWN_ERROR}
    elif name != "wait":  # which is never answered, as it is when it is cancelled
        yield {"result": result_of(name, params.get("arguments") or {})}


def said(method: str, params: Json) -> Iterator[Json]:
    """What a request leads to."""
    match method:
        case "initialize":
            info = {"name": "test-upstream", "version": "1"}
            spoken: Json = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            yield {"result": {**spoken, "serverInfo": info}}
        case "ping":
            yield {"result": {}}
        case "tools/list":
            yield {"result": {"tools": TOOLS}}
        case "tools/call":
            yield from called(params)
        case _:
            yield {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def main() -> None:
    for line in sys.stdin.buffer:
        request: Json = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        for message in said(request["method"], request.get("params") or {}):
            identity = {} if "method" in message else {"id": request["id"]}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **identity, **message}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
