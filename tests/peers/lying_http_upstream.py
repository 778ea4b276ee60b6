"""The HTTP version of `lying_upstream.py`.

python lying_http_upstream.py http|sse DEED[@PHASE][*TIMES] ...

It has three more phases: `any`, `get` and `cancelled`. It prints its port on standard error.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peers.lying_deeds import LONG, NEVER, PHASES, QUESTIONS, Json, Liar, answer_message, note

WRITE_LOCK = threading.RLock()
"""Held while an event is written, because the answers to several requests may share one stream"""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    liar: Liar
    streams: list[Handler]


class Handler(BaseHTTPRequestHandler):
    """Handles requests."""

    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def do_GET(self) -> None:
        if self.path == "/sse":
            self.stream("text/event-stream")
            self.event("endpoint", "/messages")
            self.server.streams.append(self)
            time.sleep(NEVER)
        elif "no-get" in self.server.liar.of("get"):
            self.plain(404)
        elif "stream" in self.server.liar.of("get"):
            self.stream("text/event-stream")
            self.server.streams.append(self)
            time.sleep(NEVER)
        else:
            self.plain(405)

    def do_DELETE(self) -> None:
        self.plain(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        message: Json = json.loads(body)
        for name, value in self.headers.items():
            if name.lower().startswith("mcp-param-"):
                note(f"{name}: {value}")
        phase = PHASES.get(message.get("method", ""), "other")
        for deed in (*self.server.liar.of("any"), *self.server.liar.of(phase)):
            if self.refuse(deed, message):
                note(phase)
                return
        if self.path == "/messages":
            self.plain(202)
            if self.server.streams:
                stream = self.server.streams[-1]
                answer_message(self.server.liar, message, stream)
        elif "id" not in message or "method" not in message:
            name = message.get("method", "answer").rpartition("/")[2]
            note(name)
            if "hang" in self.server.liar.of(name):
                time.sleep(NEVER)
            self.plain(202)
        else:
            self.stream("text/event-stream")
            answer_message(self.server.liar, message, self)
            self.chunk(b"")

    def refuse(self, deed: str, message: Json) -> bool:
        """Do a deed that only HTTP allows; return whether the request is answered by that."""
        name, _, value = deed.partition(":")
        match name:
            case "status":
                self.plain(int(value))
            case "redirect":
                self.plain(307, {"location": value or "http://127.0.0.1:9/elsewhere"})
            case "redirect-here":
                self.plain(307, {"location": self.path})
            case "type":
                self.plain(200, {"content-type": value}, b"<html>Log in</html>")
            case "bad-json":
                self.plain(200, {"content-type": "application/json"}, b'{"jsonrpc": "2.0", "id": SECRET')
            case "json-list":
                self.plain(200, {"content-type": "application/json"}, b"[1, 2]")
            case "break-off":
                self.stream("text/event-stream")
                self.chunk(b"event: message\ndata: {\n")
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            case "break-off-json":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"jsonrpc"')
                self.wfile.flush()
                self.close_connection = True
            case "end":
                self.stream("text/event-stream")
                self.chunk(b": nothing\n\n")
                self.chunk(b"")
            case "endless":
                self.stream("text/event-stream")
                while True:
                    self.chunk(b": still here\n\n")
                    time.sleep(0.05)
            case "long-json":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(LONG))
                self.end_headers()
                for _ in range(LONG >> 20):
                    self.wfile.write(b"x" * (1 << 20))
            case "bomb":
                import gzip

                body = gzip.compress(b" " * LONG)
                self.plain(200, {"content-type": "application/json", "content-encoding": "gzip"}, body)
            case "wrong-stream":
                answer = {"id": message["id"], "result": self.server.liar.result(message["method"], {})}
                self.stream("text/event-stream")
                while not self.server.streams:
                    time.sleep(0.01)
                self.server.streams[-1].say(answer)
                time.sleep(NEVER)
            case "header-flood":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"x-y: z\r\n" * 1_000_000)
            case "no-http":
                self.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
                self.close_connection = True
            case _:
                return False
        return True

    def plain(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("mcp-session-id", "a-session")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, name: str, data: str) -> None:
        with WRITE_LOCK:
            self.chunk(f"event: {name}\ndata: {data}\n\n".encode())

    def say(self, message: Json) -> None:
        self.event("message", json.dumps({"jsonrpc": "2.0", **message}))

    def raw(self, pieces: Iterable[bytes]) -> None:
        with WRITE_LOCK:
            self.chunk(b"event: message\ndata: ")
            for piece in pieces:
                self.chunk(piece)
            self.chunk(b"\n\n")

    def ask(self, method: str, answer: Json) -> None:
        self.say({"id": "asked", "method": method, "params": QUESTIONS[method]})
        time.sleep(NEVER)


def over_http(liar: Liar) -> None:
    server = Server(("127.0.0.1", 0), Handler)
    server.liar, server.streams = liar, []
    sys.stderr.write(f"port {server.server_address[1]}\n")
    sys.stderr.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    signal.alarm(NEVER)
    over_http(Liar(sys.argv[2:]))
