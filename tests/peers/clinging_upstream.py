"""An upstream that does not want to end: it ignores the end of its input and SIGTERM, and so does its child process.

python clinging_upstream.py [TOOL]      TOOL is the name of its tool; the child has a session of its own
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

CHILD = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.alarm(120)
print("up", flush=True)
signal.pause()
"""


def result_of(method: str, tool: str) -> dict[str, Any] | None:
    match method:
        case "initialize":
            server = {"name": "clinging", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [{"name": tool, "description": "Does nothing.", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
        case _:
            return None


def serve(tool: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = result_of(message["method"], tool)
        answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)  # noqa: T201


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(120)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    serve(sys.argv[1] if len(sys.argv) > 1 else "nothing")
    while True:
        signal.pause()
