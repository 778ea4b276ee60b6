"""The simplest possible stdio server: a loop over lines.

python bare_loop.py [hang|exit|COUNT]     never answers, or exits at once, or has this many tools
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS: list[dict[str, Any]] = [{"name": name, "description": name, "inputSchema": SCHEMA} for name in ("echo", "big")]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            server = {"name": "bare", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            arguments: dict[str, Any] = params.get("arguments") or {}
            size = arguments.get("n")
            return {"content": [{"type": "text", "text": "hello" if size is None else "x" * size}]}
        case _:
            return None


def serve() -> None:
    output = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = result_of(message["method"], message.get("params") or {})
        payload = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        output.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **payload}).encode() + b"\n")
        output.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["exit"]:
            sys.exit(3)
        case ["hang"]:
            for _ in sys.stdin:
                pass
        case [count]:
            TOOLS.extend({"name": f"tool{n}", "inputSchema": SCHEMA} for n in range(int(count) - len(TOOLS)))
            serve()
        case _:
            serve()
