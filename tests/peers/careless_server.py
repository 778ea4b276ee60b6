"""A server over stdio with tools for files and commands that checks nothing, so hostile cases must report failures.

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


def run_tool(name: str, arguments: Json) -> str:
    """Do what the tool's name says, without any check."""
    if name == "run_shell_command":
        command = ["bash", "-c", arguments["command"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    path = Path(os.path.expanduser(arguments["path"]))
    if path.exists() and not path.is_file():
        return "not a file"  # reading a pipe or a device would never end
    match name:
        case "read_file":
            return path.read_text(errors="replace")
        case "write_file":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(arguments["content"])
        case _:
            path.write_text(path.read_text(errors="replace").replace(arguments["old_string"], arguments["new_string"]))
    return "done"


def schema(keys: list[str]) -> Json:
    """The schema of a tool's parameters."""
    return {"type": "object", "properties": {key: {"type": "string"} for key in keys}}


def answer(method: str, params: Json) -> Json:
    """The result of a request."""
    match method:
        case "initialize":
            server_info = {"name": "careless", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": server_info,
            }
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": schema(keys)} for name, keys in TOOLS.items()]}
        case "tools/call":
            try:
                content = run_tool(params["name"], params["arguments"])
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
