"""An upstream without the SDK that returns its input, at any length and after any number of notifications.

python echoing_upstream.py stdio
python echoing_upstream.py http|sse PORT      0 is a free port, printed on standard error
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Say = Callable[[Json], None]

SCHEMA: Json = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS: list[Json] = [
    {"name": name, "description": f"{name} a text", "inputSchema": SCHEMA} for name in ("echo", "repeat", "flood")
]
OFFERS: Json = {"tools": {"listChanged": True}, "logging": {}}


def flood(kind: str, token: object, count: int) -> Iterator[Json]:
    """Notifications of one kind; progress only if the request has a progress token."""
    for number in range(count):
        if kind == "logs":
            yield {"method": "notifications/message", "params": {"level": "info", "data": f"{number}" * 50}}
        elif kind == "lists":
            yield {"method": "notifications/tools/list_changed"}
        elif token is not None:
            yield {"method": "notifications/progress", "params": {"progressToken": token, "progress": number}}


def answers(message: Json) -> Iterator[Json]:
    """The notifications and the answer that a request leads to."""
    params: Json = message.get("params") or {}
    arguments: Json = params.get("arguments") or {}
    result: Json = {}
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": OFFERS}
            result["serverInfo"] = {"name": "echoing", "version": "1"}
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call":
            text = str(arguments.get("text"))
            if params["name"] == "flood":
                token = params.get("_meta", {}).get("progressToken")
                yield from flood(str(arguments.get("kind")), token, int(arguments.get("count", 100)))
            if params["name"] == "repeat":
                text = f"{text} " * int(arguments.get("count", 1))
            result = {"content": [{"type": "text", "text": text}]}
        case "ping" | "logging/setLevel":
            pass
        case _:
            yield {"id": message["id"], "error": {"code": -32601, "message": "unknown"}}
            return
    yield {"id": message["id"], "result": result}


def serve_stdio() -> None:
    for line in sys.stdin.buffer:
        message: Json = json.loads(line)
        if "id" in message and "method" in message:
            for response in answers(message):
                sys.stdout.write(json.dumps({"jsonrpc": "2.0", **response}) + "\n")
            sys.stdout.flush()


def serve_http(port: int) -> None:
    """Serve Streamable HTTP without sessions at /mcp, and the older transport at /sse with a stream for each client."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # as slow as all other imports together

    streams: dict[str, Say] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

        def head(self, status: int, kind: str, length: int | None) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            if length is None:
                self.send_header("transfer-encoding", "chunked")
            else:
                self.send_header("content-length", str(length))
            self.end_headers()
            self.wfile.flush()

        def event(self, name: str, data: str) -> None:
            text = f"event: {name}\ndata: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()

        def do_GET(self) -> None:
            if self.path != "/sse":
                self.head(405, "text/plain", 0)
                return
            write_lock, address = threading.Lock(), f"/messages/{id(self)}"

            def say(message: Json) -> None:
                with write_lock:
                    self.event("message", json.dumps(message))

            self.head(200, "text/event-stream", None)
            streams[address] = say  # before the client knows the address
            self.event("endpoint", address)
            self.rfile.read(1)  # until the client disconnects
            self.close_connection = True
            del streams[address]

        def do_DELETE(self) -> None:
            self.head(200, "text/plain", 0)

        def do_POST(self) -> None:
            message: Json = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_request = "id" in message and "method" in message
            if self.path != "/mcp":
                self.head(202, "text/plain", 0)
                for response in answers(message) if is_request else ():
                    streams[self.path]({"jsonrpc": "2.0", **response})
            elif is_request:
                self.head(200, "text/event-stream", None)
                for response in answers(message):
                    self.event("message", json.dumps({"jsonrpc": "2.0", **response}))
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.head(202, "text/plain", 0)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore clients that have gone away."""

    with Server(("127.0.0.1", port), Handler) as server:
        sys.stderr.write(f"port {server.server_port}\n")
        sys.stderr.flush()
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    else:
        serve_http(int(sys.argv[2]))
