"""An upstream whose answers, and whose era, are those of its orders, over stdio or HTTP.

python scripted_upstream.py '{"name": "a", "era": "handshake"|"modern", "capabilities": {}, "answers": {}}' [http]

The orders may have:

- `answers`: the result of each method, or, for requests with a URI, the result for each URI. Common methods have
  default results; other methods and unknown URIs are refused with -32602.
- `errors` and `results`: the error or the result of each tool. Other tools return, as JSON, the server's name, the
  parameters and headers of the call, and the parameters of `initialize`.
- `tale`: a file to which the method of each message is appended as a line.
- `says`: messages for each tool, sent before a call of it is answered (stdio only).
- `locked`: `{"methods": [...], "status": 401, "challenges": [], "text": ""}`; these methods are answered with this
  status (401 or 403), the challenges and the text (HTTP only).
- `listened`: accept `subscriptions/listen`; the answers change to these ones just before that (stdio only).
- `silent`: methods that are never answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CALL = "tools/call"
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class Script:
    """The orders, and the answers that follow from them."""

    def __init__(self, orders: Json) -> None:
        self.orders = orders
        self.is_modern = orders["era"] == "modern"
        self.welcome: Json = {}

    def answer(self, message: Json, headers: Json) -> Json | None:
        """The answer to a message, or None if it gets none."""
        method: str = message.get("method", "")
        params: Json = message.get("params") or {}
        if "tale" in self.orders:
            with Path(self.orders["tale"]).open("a", encoding="utf-8") as tale:
                tale.write(method + "\n")
        if "id" not in message or not method or method in self.orders.get("silent", ()):
            return None
        if method == ("initialize" if self.is_modern else "server/discover"):
            return self.failure(message, -32601)
        if method == "subscriptions/listen" and (later := self.orders.get("listened")):
            self.orders["answers"].update(later)
            acknowledgement = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}, **params}
            return {"method": "notifications/subscriptions/acknowledged", "params": acknowledgement}
        if method == CALL and (error := self.orders.get("errors", {}).get(params.get("name"))):
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        if method == CALL and (result := self.orders.get("results", {}).get(params.get("name"))):
            return self.success(message, result)
        if method == CALL:
            report = {"server": self.orders["name"], "params": params, "headers": headers, "welcome": self.welcome}
            return self.success(message, {"content": [{"type": "text", "text": json.dumps(report)}]})
        if method == "initialize":
            self.welcome = params
        answers = self.orders.get("answers", {})
        result = answers.get(method, self.default_result(method))
        if method in answers and "uri" in params:
            result = result.get(params["uri"])
        return self.failure(message, -32602) if result is None else self.success(message, result)

    def default_result(self, method: str) -> Json | None:
        capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}, **self.orders.get("capabilities", {})}
        match method:
            case "initialize":
                server = {"name": self.orders["name"], "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}
            case "server/discover":
                return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            case "ping" | "logging/setLevel":
                return {}
            case _:
                return {LISTS[method]: []} if method in LISTS else None

    def success(self, message: Json, result: Json) -> Json:
        complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {**complete, **result}}

    def failure(self, message: Json, code: int) -> Json:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "not here"}}


def serve_http(script: Script) -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # as slow as all other imports together

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            refusal: Json = script.orders.get("locked", {"methods": []})
            if message["method"] in refusal["methods"]:
                body = refusal["text"].encode()
                self.send_response(refusal["status"])
                for challenge in refusal["challenges"]:
                    self.send_header("www-authenticate", challenge)
            else:
                answer = script.answer(message, {name.lower(): value for name, value in self.headers.items()})
                body = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(202 if answer is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_DELETE(self) -> None:
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sys.stderr.write(f"port {server.server_port}\n")
        sys.stderr.flush()
        server.serve_forever()


def serve_stdio(script: Script) -> None:
    for line in sys.stdin:
        message: Json = json.loads(line)
        params: Json = message.get("params") or {}
        says: Json = script.orders.get("says", {}) if message.get("method") == CALL else {}
        for reply in (*says.get(params.get("name", ""), ()), script.answer(message, {})):
            if reply is not None:
                sys.stdout.write(json.dumps({"jsonrpc": "2.0", **reply}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    script = Script(json.loads(sys.argv[1]))
    serve_http(script) if sys.argv[2:] == ["http"] else serve_stdio(script)
