"""An upstream over stdio whose tool `place` tells its working folder, what is in that, and the roots that it is told.

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
    announced: Json = {}
    roots: Any = None
    for line in sys.stdin:
        message: Json = json.loads(line)
        identity, method, params = message.get("id"), str(message.get("method", "")), Json(message.get("params") or {})
        if identity == "roots":
            roots = Json(message.get("result", {})).get("roots")
            continue
        if ERA == "modern":
            announced = Json(params.get("_meta", {})).get(CAPABILITIES, {})
        if method == ("server/discover" if ERA == "handshake" else "initialize"):
            say({"id": identity, "error": {"code": -32601, "message": "Method not found"}})
        elif method == "server/discover":
            say({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
        elif method == "initialize":
            announced = params["capabilities"]
            about = {"name": "placed", "version": "1"}
            version = params["protocolVersion"]
            say(
                {
                    "id": identity,
                    "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about},
                }
            )
        elif method == "notifications/initialized" and "roots" in announced:
            say({"id": "roots", "method": "roots/list"})
        elif method == "tools/list":
            schema: Json = {"type": "object", "properties": {}}
            say({"id": identity, "result": {"tools": [{"name": "place", "inputSchema": schema}]}})
        elif method == "tools/call":
            if ERA == "modern" and "roots" in announced and "inputResponses" not in params:
                asked: Json = {"r": {"method": "roots/list", "params": {}}}
                say({"id": identity, "result": {"resultType": "input_required", "inputRequests": asked}})
                continue
            answer = Json(Json(params.get("inputResponses", {})).get("r", {}))
            given: Any = answer.get("roots") if ERA == "modern" else roots
            told = {"cwd": os.getcwd(), "roots": given and [each["uri"] for each in given], "files": os.listdir()}
            say({"id": identity, "result": {"content": [{"type": "text", "text": json.dumps(told)}]}})
        elif identity is not None:
            say({"id": identity, "result": {}})


main()
