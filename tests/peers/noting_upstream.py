"""An upstream over stdio that tells what it was told about subscriptions, and answers them when it is told to.

python noting_upstream.py handshake|modern [METHOD...]      requests of these methods are kept unanswered

Its tools: `told` lists the methods of subscriptions that it was sent; `release` answers what is kept, and keeps nothing
any more; `refuse` does so with an error; `touch` tells of a change where that was asked for; `leave` closes its output,
but does not end, not even when it is told to.
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
TOLD = ("resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "notifications/cancelled")
URI = "test://text"

Json = dict[str, Any]


def say(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Noting:
    """What it was told, and what it keeps."""

    def __init__(self, era: str, keeps: list[str]) -> None:
        self.is_modern = era == "modern"
        self.keeps = keeps
        self.kept: list[Json] = []
        self.told: list[str] = []
        self.is_watched = False
        self.is_refusing = False
        self.listening: Any = None

    def take(self, message: Json) -> None:
        method: str = message.get("method", "")
        params: Json = message.get("params") or {}
        if method in TOLD:
            self.told.append(method)
        if method == "notifications/cancelled":
            self.kept = [each for each in self.kept if each["id"] != params.get("requestId")]
        elif "id" in message and method in self.keeps:
            self.kept.append(message)
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

    def listen(self, identity: Any, wanted: Json) -> None:
        self.listening = identity
        self.is_watched = URI in wanted.get("resourceSubscriptions", ())
        params = {"_meta": {SUBSCRIPTION: identity}, "notifications": wanted}
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
            meta = {"_meta": {SUBSCRIPTION: self.listening}} if self.is_modern else {}
            say({"method": "notifications/resources/updated", "params": {"uri": URI, **meta}})
        if tool in ("release", "refuse"):
            self.is_refusing = tool == "refuse"
            kept, self.kept, self.keeps = self.kept, [], []
            for message in kept:
                self.answer(message["id"], message["method"], message.get("params") or {})
        return self.told if tool == "told" else self.is_watched


if __name__ == "__main__":
    noting = Noting(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        noting.take(json.loads(line))
