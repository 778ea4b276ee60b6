"""An upstream over stdio that notes the messages about subscriptions, and can hold its answers back.

python noting_upstream.py handshake|modern [METHOD...]      requests of these methods are held unanswered

Its tools:

- `told` lists the methods of the messages about subscriptions that it has received.
- `release` answers the held requests, and holds no more requests.
- `refuse` does the same, but refuses subscriptions to resources.
- `touch` announces a change of the resource if the client has subscribed to it.
- `leave` closes the upstream's output, but the process goes on and ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NOTED_METHODS = ("resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "notifications/cancelled")
URI = "test://text"

Json = dict[str, Any]


def say(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class NotingServer:
    """The server: the noted methods, and the held requests."""

    def __init__(self, era: str, held_methods: list[str]) -> None:
        self.is_modern = era == "modern"
        self.held_methods = held_methods
        self.held_requests: list[Json] = []
        self.noted_methods: list[str] = []
        self.is_watched = False
        self.is_refusing = False
        self.subscription_id: Any = None

    def take(self, message: Json) -> None:
        method: str = message.get("method", "")
        params: Json = message.get("params") or {}
        if method in NOTED_METHODS:
            self.noted_methods.append(method)
        if method == "notifications/cancelled":
            self.held_requests = [request for request in self.held_requests if request["id"] != params.get("requestId")]
        elif "id" in message and method in self.held_methods:
            self.held_requests.append(message)
        elif "id" in message and method:
            self.answer(message["id"], method, params)

    def answer(self, identity: Any, method: str, params: Json) -> None:
        if method == "subscriptions/listen":
            self.listen(identity, params["notifications"])
        elif method == "resources/subscribe" and self.is_refusing:
            say({"id": identity, "error": {"code": -32602, "message": "no such resource"}})
        elif method == ("initialize" if self.is_modern else "server/discover"):
            say({"id": identity, "error": {"code": -32601, "message": "unknown"}})
        else:
            result = self.result(method, params)
            if self.is_modern:
                result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
            say({"id": identity, "result": result})
            if params.get("name") == "leave":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.close(1)
                time.sleep(60)

    def listen(self, identity: Any, notifications: Json) -> None:
        self.subscription_id = identity
        self.is_watched = URI in notifications.get("resourceSubscriptions", ())
        params = {"_meta": {SUBSCRIPTION: identity}, "notifications": notifications}
        say({"method": "notifications/subscriptions/acknowledged", "params": params})

    def result(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                server = {"name": "noting", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server}
            case "server/discover":
                return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            case "tools/list":
                names = ("told", "release", "refuse", "touch", "leave")
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            case "resources/list":
                return {"resources": [{"uri": URI, "name": "text"}]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/subscribe" | "resources/unsubscribe":
                self.is_watched = method == "resources/subscribe"
                return {}
            case "tools/call":
                return {"content": [{"type": "text", "text": json.dumps(self.call(params["name"]))}]}
            case _:
                return {}

    def call(self, tool: str) -> Any:
        if tool == "touch" and self.is_watched:
            meta = {"_meta": {SUBSCRIPTION: self.subscription_id}} if self.is_modern else {}
            say({"method": "notifications/resources/updated", "params": {"uri": URI, **meta}})
        if tool in ("release", "refuse"):
            self.is_refusing = tool == "refuse"
            requests, self.held_requests, self.held_methods = self.held_requests, [], []
            for message in requests:
                self.answer(message["id"], message["method"], message.get("params") or {})
        return self.noted_methods if tool == "told" else self.is_watched


if __name__ == "__main__":
    server = NotingServer(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        server.take(json.loads(line))
