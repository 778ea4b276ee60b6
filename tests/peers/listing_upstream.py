"""An upstream over stdio that lists what its orders say, and puts its name into every answer.

python listing_upstream.py '{"name": "a", "resources": [...], "silent": ["resources/subscribe"], ...}'

The argument is the orders, as JSON. Besides `name` and the lists, they may have:

- `filled`: [COUNT, SIZE]; lists COUNT more tools, each with a description of SIZE bytes.
- `silent`: methods that are not answered.
- `plain`: the server has neither completion nor subscriptions, and declares neither.
- `after`: a file; the server says nothing until that file exists.
- `orders`: a file with more orders.
- `ends`: the server ends at once.
- `tale`: a file to which the method of each message is appended as a line.
- `deafens`: the method after which the server reads nothing more.
- `live`: before each answer, read the file of orders again; do not announce changes; refuse unlisted tools with an
  error result, or with an error of this code if `live` is a number.
- `announces`: after each call, read the file of orders again, and announce changed tools.
- `asks`: announce changed tools and ask a question in each call, and answer nothing until it is answered.
- `modern`: speak `2026-07-28`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

EXTRAS = ("completion/complete", "resources/subscribe", "resources/unsubscribe")  # what a `plain` server lacks

CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}


def answer(orders: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    name = orders["name"]
    capabilities: dict[str, Any] = {"tools": {}} if "live" in orders else CAPABILITIES
    if "plain" in orders:
        capabilities = {"tools": {}, "prompts": {}, "resources": {}}
    match method:
        case "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
        case "initialize":
            server = {"name": name, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"from {name}"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"from {name}"}}]}
        case "tools/call" if "live" in orders and params["name"] not in [tool["name"] for tool in orders["tools"]]:
            return {"content": [{"type": "text", "text": f"Unknown tool: {params['name']}"}], "isError": True}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"from {name}"}]}
        case "completion/complete":
            return {"completion": {"values": [f"from {name}"]}}
        case _:
            return {LISTS[method]: orders.get(LISTS[method], [])} if method in LISTS else {}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask_question() -> None:
    say({"method": "notifications/tools/list_changed"})
    form: dict[str, Any] = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    say({"id": "question", "method": "elicitation/create", "params": form})
    while json.loads(sys.stdin.readline()).get("id") != "question":
        pass


def main(orders: dict[str, Any]) -> None:
    while "after" in orders and not Path(orders["after"]).exists():
        time.sleep(0.005)
    if "orders" in orders:
        orders |= json.loads(Path(orders["orders"]).read_text(encoding="utf-8"))
    if "ends" in orders:
        return
    count, size = orders.get("filled", (0, 0))
    filler_tools = [
        {"name": f"t{n}", "description": "d" * size, "inputSchema": {"type": "object"}} for n in range(count)
    ]
    orders["tools"] = [*orders.get("tools", ()), *filler_tools]
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        method = message.get("method", "")
        if "tale" in orders:
            with Path(orders["tale"]).open("a", encoding="utf-8") as tale:
                tale.write(method + "\n")
        if method == orders.get("deafens"):
            time.sleep(600)
        if "id" not in message or not method or method in orders.get("silent", ()):
            continue
        if method == "tools/call" and "asks" in orders:
            ask_question()
        if "live" in orders:
            orders |= json.loads(Path(orders["orders"]).read_text(encoding="utf-8"))
        result = answer(orders, method, message.get("params") or {})
        if result.get("isError") and orders["live"] is not True:
            say({"id": message["id"], "error": {"code": orders["live"], "message": "no"}})
        elif (method == "server/discover" and "modern" not in orders) or ("plain" in orders and method in EXTRAS):
            say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        else:
            say({"id": message["id"], "result": result})
        if method == "tools/call" and "announces" in orders:
            orders |= json.loads(Path(orders["orders"]).read_text(encoding="utf-8"))
            say({"method": "notifications/tools/list_changed"})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
