"""A server over stdio with tools for files and commands that checks nothing: hostile cases must fail against it.

python careless_server.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TOOLS = {
    "read_file": ["path"],
    "write_file": ["path", "content"],
    "edit": ["path", "old_string", "new_string"],
    "run_shell_command": ["command"],
}


def called(name: str, given: Json) -> str:
    """What a tool does, as its words say."""
    if name == "run_shell_command":
        command = ["bash", "-c", given["command"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    path = Path(os.path.expanduser(given["path"]))
    if path.exists() and not path.is_file():
        return "not a file"  # it would read a pipe or a device without end
    match name:
        case "read_file":
            return path.read_text(errors="replace")
        case "write_file":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(given["content"])
        case _:
            path.write_text(path.read_text(errors="replace").replace(given["old_string"], given["new_string"]))
    return "done"


def schema(keys: list[str]) -> Json:
    """The parameters of a tool."""
    return {"type": "object", "properties": {key: {"type": "string"} for key in keys}}


def answer(method: str, params: Json) -> Json:
    """The result of a request."""
    match method:
        case "initialize":
            about = {"name": "careless", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": schema(keys)} for name, keys in TOOLS.items()]}
        case "tools/call":
            try:
                content = called(params["name"], params["arguments"])
            except Exception as error:  # noqa: BLE001 - the tool failed, not the server
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}
            return {"content": [{"type": "text", "text": content}]}
        case _:
            return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)  # noqa: T201 - the wire
