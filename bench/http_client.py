"""A Streamable HTTP client with hardly any cost of its own, and the servers that it connects to."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.line_client import CLIENT_INFO, HANDSHAKE, MODERN, REQUEST_META, Start

STARTING_SECONDS = 30.0
ENDING_SECONDS = 20.0
ANSWER_SECONDS = 60.0

ADDRESS = re.compile(r"serving MCP at http://([\d.]+):(\d+),")
SESSION = re.compile(rb"\r\nmcp-session-id: (\S+)\r\n", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)

LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server that accepts clients.

    Args:
        address: Host and port.
        pid: Process id.
    """

    address: tuple[str, int]
    pid: int


@contextmanager
def listening(start: Start) -> Generator[RunningServer]:
    """Run a server until the end of the context."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(start.command, env=start.environment, stderr=stderr)
        try:
            deadline = time.monotonic() + STARTING_SECONDS
            while (match := ADDRESS.search(_text(stderr))) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not print its address; its output: {_text(stderr)[-1000:]}")
                time.sleep(0.01)
            yield RunningServer((match[1], int(match[2])), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _text(stderr: Any) -> str:
    stderr.seek(0)
    return stderr.read().decode(errors="replace")


def head(
    length: int, session: bytes, *, modern: bool, method: str, name: str = "", token: str = "", path: str = "/mcp"
) -> bytes:
    """Return the head of one request."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1:1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {length}",
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if modern:
        lines += [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}"]
        lines += [f"Mcp-Name: {name}"] if name else []
    elif session:
        lines += [f"MCP-Protocol-Version: {HANDSHAKE}", f"Mcp-Session-Id: {session.decode()}"]
    return "\r\n".join([*lines, "", ""]).encode()


class PersistentConnection:
    """A client with one persistent connection.

    Args:
        server: The server to connect to.
        modern: Whether to use the 2026-07-28 revision instead of one with a handshake.
        path: Path of the MCP endpoint.
    """

    def __init__(self, server: RunningServer, *, modern: bool = False, path: str = "/mcp") -> None:
        self._modern = modern
        self._path = path
        self.token = ""  # bearer token; empty if the server needs none
        self._next = 0
        self._session = b""
        self._server = server
        self.socket = self._connect()
        if not modern:
            self._open_session()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._server.address, ANSWER_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def reconnect(self) -> None:
        """Continue the session over a new connection, because servers close idle connections."""
        self.socket.close()
        self.socket = self._connect()

    def _open_session(self) -> None:
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO}
        answer = self.exchange(self.request("initialize", params))
        match = SESSION.search(answer)
        if match is None:
            raise RuntimeError(f"there is no session: {answer[:1000]!r}")
        self._session = match[1]
        self.exchange(self.request("notifications/initialized", None))

    def request(self, method: str, params: dict[str, Any] | None) -> bytes:
        """Encode a request with the next id, or a notification if there are no params."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self._next += 1
            message |= {"id": self._next, "params": {**REQUEST_META, **params} if self._modern else params}
        body = json.dumps(message).encode()
        name = (params or {}).get("name", "")
        head_fields = {"method": method, "name": name, "token": self.token, "path": self._path}
        return head(len(body), self._session, modern=self._modern, **head_fields) + body

    def tool_request(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """Encode one tool call."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def exchange(self, request: bytes) -> bytes:
        """Send a request, and return the whole answer.

        Raises:
            RuntimeError: The answer is an error.
        """
        self.socket.sendall(request)
        answer = self._answer()
        check(answer)
        return answer

    def timed(self, request: bytes) -> float:
        """Return the milliseconds until the whole answer to a request has arrived."""
        start = time.perf_counter()
        self.socket.sendall(request)
        answer = self._answer()
        seconds = time.perf_counter() - start
        check(answer)
        return seconds * 1000

    def _answer(self) -> bytes:
        answer = b""
        while not is_whole(answer):
            data = self.socket.recv(1 << 16)
            if not data:
                raise RuntimeError(f"the server closed the connection: {answer[:1000]!r}")
            answer += data
        return answer

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def vanish(self) -> None:
        """Reset the connection, so that the system keeps no state of it."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def is_whole(answer: bytes) -> bool:
    """Return whether the answer is complete."""
    head_end = answer.find(b"\r\n\r\n")
    if head_end < 0:
        return False
    match = LENGTH.search(answer, 0, head_end + 2)
    return len(answer) >= head_end + 4 + int(match[1]) if match else answer.endswith(LAST_CHUNK)


def check(answer: bytes) -> None:
    """Raise RuntimeError if the answer is an error."""
    is_good = answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202"))
    if not is_good or b'"error":' in answer or b'"isError":true' in answer:
        raise RuntimeError(answer.decode(errors="replace")[:2000])
