"""A remote MCP server in this process that answers as a test wants and records its requests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.background_servers import served_by_thread

Json = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


class OddServer:
    """A server with one valid session at a time and one tool, `echo`. It can also be addressed as a proxy."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.session = "first"
        self.unknown_status = 404  # the status for another session
        self.revision = "2025-11-25"
        self.override: Callable[[Json, dict[str, str]], Answer | None] = lambda _message, _headers: None
        self.capabilities: Json = {"tools": {}}
        self.answer_to_get: Answer = (405, {}, b"")
        # Whether the answer to a request with this body stays open until the client leaves.
        self.keeps_open: Callable[[bytes], bool] = lambda _: False
        # The methods of messages, HTTP methods except POST, and "left" when a client leaves such an answer.
        self.methods: list[str] = []
        self.targets: list[str] = []  # the targets of requests, unparsed
        odd = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                del format, args

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                odd.targets.append(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer_headers, content = odd.answer(self.command, urlsplit(self.path).path, body, headers)
                self.send_response(status)
                for name, value in answer_headers.items():
                    self.send_header(name, value)
                if "content-length" not in answer_headers:
                    self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                if odd.keeps_open(body):
                    with suppress(OSError):
                        self.wfile.flush()
                        self.rfile.read(1)
                    odd.methods.append("left")

            do_GET = do_POST = do_DELETE = do_CONNECT = _answer  # noqa: N815 - their names in the library

        class Listener(ThreadingHTTPServer):
            request_queue_size = 256

        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        if tls is not None:
            self.listener.socket = tls.wrap_socket(
                self.listener.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.listener.server_port
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def answer(self, command: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Return the status, headers and body of an answer."""
        if command != "POST":
            self.methods.append(command)
            return (403, {}, b"") if command == "CONNECT" else (404, {}, b"") if path == "/sse" else self.answer_to_get
        message: Json = json.loads(body)
        self.methods.append(message.get("method", ""))
        if message["method"] != "initialize" and headers.get("mcp-session-id") != self.session:
            return self.unknown_status, {}, b"No valid session ID provided"
        if (answer := self.override(message, headers)) is not None:
            return answer
        if "id" not in message:
            return 202, {}, b""
        return 200, {**JSON, "mcp-session-id": self.session}, json.dumps(self.usual(message)).encode()

    def usual(self, message: Json) -> Json:
        """Return the regular answer to a request."""
        description = {"capabilities": self.capabilities, "serverInfo": {"name": "odd", "version": "1"}}
        text = str(message.get("params", {}).get("arguments", {}).get("text"))
        results: dict[str, Json] = {
            "initialize": {"protocolVersion": self.revision, **description},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": text}]},
            "ping": {},
        }
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if (result := results.get(message["method"])) is None:
            return {**answer, "error": {"code": -32601, "message": "not known"}}
        return {**answer, "result": result}

    def count(self, method: str) -> int:
        """Return how many requests had this method."""
        return self.methods.count(method)


@contextmanager
def odd_server(tls: ssl.SSLContext | None = None) -> Generator[OddServer]:
    """Run a server until the context ends."""
    odd = OddServer(tls)
    with served_by_thread(odd.listener):
        yield odd
