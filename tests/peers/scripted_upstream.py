"""An upstream that answers each method with what it is told to, over stdio or HTTP, in the era that it is told.

python scripted_upstream.py '{"name": "a", "era": "handshake"|"modern", "capabilities": {}, "answers": {}}' [http]

`answers` has a result for each method, or, for what is named by a URI, a result for each URI; what is not there is
refused with -32602. A call tells, as JSON, who was called, with which parameters and headers, and what `initialize`
said; a tool that has an error in `errors` fails with it, and one that has a result in `results` answers with that. With
`tale`, each method that it is sent is a line of that file. Over stdio it says what `says` has for a tool before it
answers a call of it; over HTTP it answers methods of `locked` with 401 or 403, challenges and a text:
`{"methods": [...], "status": 401, "challenges": [], "text": ""}`. With `listened`, it can be listened to over stdio,
and has those answers from just before that on. Methods of `silent` are never answered.
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
    """What it was told to answer."""

    def __init__(self, orders: Json) -> None:
        self.orders = orders
        self.is_modern = orders["era"] == "modern"
        self.welcome: Json = {}

    def answer(self, message: Json, headers: Json) -> Json | None:
        """The answer to a message, if it wants one."""
        method: str = message.get("method", "")
        params: Json = message.get("params") or {}
        if "tale" in self.orders:
            with Path(self.orders["tale"]).open("a", encoding="utf-8") as tale:
                tale.write(method + "\n")
        if "id" not in message or not method or method in self.orders.get("silent", ()):
            return None
        if method == ("initialize" if self.is_modern else "server/discover"):
            return self.failed(message, -32601)
        if method == "subscriptions/listen" and (later := self.orders.get("listened")):
            self.orders["answers"].update(later)
            told = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}, **params}
            return {"method": "notifications/subscriptions/acknowledged", "params": told}
        if method == CALL and (error := self.orders.get("errors", {}).get(params.get("name"))):
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        if method == CALL and (result := self.orders.get("results", {}).get(params.get("name"))):
            return self.done(message, result)
        if method == CALL:
            told = {"server": self.orders["name"], "params": params, "headers": headers, "welcome": self.welcome}
            return self.done(message, {"content": [{"type": "text", "text": json.dumps(told)}]})
        if method == "initialize":
            self.welcome = params
        answers = self.orders.get("answers", {})
        result = answers.get(method, self.usual(method))
        if method in answers and "uri" in params:
            result = result.get(params["uri"])
        return self.failed(message, -32602) if result is None else self.done(message, result)

    def usual(self, method: str) -> Json | None:
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

    def done(self, message: Json, result: Json) -> Json:
        complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {**complete, **result}}

    def failed(self, message: Json, code: int) -> Json:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "not here"}}


def serve_http(script: Script) -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # it takes as long as all the rest

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["content-length"])))
            locked: Json = script.orders.get("locked", {"methods": []})
            if said["method"] in locked["methods"]:
                body = locked["text"].encode()
                self.send_response(locked["status"])
                for challenge in locked["challenges"]:
                    self.send_header("www-authenticate", challenge)
            else:
                answer = script.answer(said, {name.lower(): value for name, value in self.headers.items()})
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
        for said in (*says.get(params.get("name", ""), ()), script.answer(message, {})):
            if said is not None:
                sys.stdout.write(json.dumps({"jsonrpc": "2.0", **said}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    script = Script(json.loads(sys.argv[1]))
    serve_http(script) if sys.argv[2:] == ["http"] else serve_stdio(script)
