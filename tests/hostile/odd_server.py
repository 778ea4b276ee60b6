"""A remote MCP server in this process that answers as a test tells it to, and remembers what it was asked."""

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
Said = tuple[int, dict[str, str], bytes]
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


class OddServer:
    """It knows one session at a time, and one tool, `echo`. It can be asked as a proxy, too."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.session = "first"
        self.unknown_status = 404  # in another session
        self.revision = "2025-11-25"
        self.say: Callable[[Json, dict[str, str]], Said | None] = lambda _message, _headers: None
        self.capabilities: Json = {"tools": {}}
        self.opened: Said = (405, {}, b"")  # what a GET is answered
        self.holds: Callable[[bytes], bool] = lambda _: False  # whether an answer goes on until its client leaves
        self.seen: list[str] = []  # methods of messages, and of HTTP what is no POST
        self.targets: list[str] = []  # of requests, as they came
        odd = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                del format, args

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                odd.targets.append(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, given, content = odd.answer(self.command, urlsplit(self.path).path, body, headers)
                self.send_response(status)
                for name, value in given.items():
                    self.send_header(name, value)
                if "content-length" not in given:
                    self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                if odd.holds(body):
                    with suppress(OSError):
                        self.wfile.flush()
                        self.rfile.read(1)
                    odd.seen.append("left")

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

    def answer(self, command: str, path: str, body: bytes, headers: dict[str, str]) -> Said:
        """Status, headers and body of an answer."""
        if command != "POST":
            self.seen.append(command)
            return (403, {}, b"") if command == "CONNECT" else (404, {}, b"") if path == "/sse" else self.opened
        message: Json = json.loads(body)
        self.seen.append(message.get("method", ""))
        if message["method"] != "initialize" and headers.get("mcp-session-id") != self.session:
            return self.unknown_status, {}, b"No valid session ID provided"
        if (said := self.say(message, headers)) is not None:
            return said
        if "id" not in message:
            return 202, {}, b""
        return 200, {**JSON, "mcp-session-id": self.session}, json.dumps(self.usual(message)).encode()

    def usual(self, message: Json) -> Json:
        """The honest answer to a request."""
        about = {"capabilities": self.capabilities, "serverInfo": {"name": "odd", "version": "1"}}
        text = str(message.get("params", {}).get("arguments", {}).get("text"))
        results: dict[str, Json] = {
            "initialize": {"protocolVersion": self.revision, **about},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": text}]},
            "ping": {},
        }
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if (result := results.get(message["method"])) is None:
            return {**answer, "error": {"code": -32601, "message": "not known"}}
        return {**answer, "result": result}

    def count(self, what: str) -> int:
        """How often something came."""
        return self.seen.count(what)


@contextmanager
def odd_server(tls: ssl.SSLContext | None = None) -> Generator[OddServer]:
    """One that ends with the context."""
    odd = OddServer(tls)
    with served_by_thread(odd.listener):
        yield odd
