"""An upstream over stdio whose tool `place` returns its working folder, the files there, and the client's roots.

python placed_upstream.py handshake|modern
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
ERA = sys.argv[1]
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def say(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    capabilities: Json = {}
    roots: Any = None
    for line in sys.stdin:
        message: Json = json.loads(line)
        identity, method, params = message.get("id"), str(message.get("method", "")), Json(message.get("params") or {})
        if identity == "roots":
            roots = Json(message.get("result", {})).get("roots")
            continue
        if ERA == "modern":
            capabilities = Json(params.get("_meta", {})).get(CAPABILITIES, {})
        if method == ("server/discover" if ERA == "handshake" else "initialize"):
            say({"id": identity, "error": {"code": -32601, "message": "Method not found"}})
        elif method == "server/discover":
            say({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
        elif method == "initialize":
            capabilities = params["capabilities"]
            server_info = {"name": "placed", "version": "1"}
            version = params["protocolVersion"]
            say(
                {
                    "id": identity,
                    "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server_info},
                }
            )
        elif method == "notifications/initialized" and "roots" in capabilities:
            say({"id": "roots", "method": "roots/list"})
        elif method == "tools/list":
            schema: Json = {"type": "object", "properties": {}}
            say({"id": identity, "result": {"tools": [{"name": "place", "inputSchema": schema}]}})
        elif method == "tools/call":
            if ERA == "modern" and "roots" in capabilities and "inputResponses" not in params:
                questions: Json = {"r": {"method": "roots/list", "params": {}}}
                say({"id": identity, "result": {"resultType": "input_required", "inputRequests": questions}})
                continue
            answer = Json(Json(params.get("inputResponses", {})).get("r", {}))
            client_roots: Any = answer.get("roots") if ERA == "modern" else roots
            report = {
                "cwd": os.getcwd(),
                "roots": client_roots and [root["uri"] for root in client_roots],
                "files": os.listdir(),
            }
            say({"id": identity, "result": {"content": [{"type": "text", "text": json.dumps(report)}]}})
        elif identity is not None:
            say({"id": identity, "result": {}})


main()
