"""A client over Streamable HTTP that costs next to nothing itself, and the servers it speaks to."""

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

from bench.line_client import DESCRIBED, HANDSHAKE, MODERN, NAME, Start

STARTING_SECONDS = 30.0
ENDING_SECONDS = 20.0
ANSWER_SECONDS = 60.0

ADDRESS = re.compile(r"serving MCP at http://([\d.]+):(\d+),")
SESSION = re.compile(rb"\r\nmcp-session-id: (\S+)\r\n", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)

LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that waits for clients.

    Args:
        address: Where.
        pid: Its process number.
    """

    address: tuple[str, int]
    pid: int


@contextmanager
def listening(start: Start) -> Generator[Listening]:
    """Run a server until the end of the context."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(start.command, env=start.environment, stderr=said)
        try:
            until = time.monotonic() + STARTING_SECONDS
            while (found := ADDRESS.search(_text(said))) is None:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the server does not tell its address; it said: {_text(said)[-1000:]}")
                time.sleep(0.01)
            yield Listening((found[1], int(found[2])), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _text(said: Any) -> str:
    said.seek(0)
    return said.read().decode(errors="replace")


def head(
    length: int, session: bytes, *, modern: bool, method: str, name: str = "", token: str = "", path: str = "/mcp"
) -> bytes:
    """The head of one request."""
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


class KeptConnection:
    """Speaks over one connection.

    Args:
        server: Where to.
        modern: Whether the 2026-07-28 revision is spoken instead of one with a handshake.
        path: Of the address.
    """

    def __init__(self, server: Listening, *, modern: bool = False, path: str = "/mcp") -> None:
        self._modern = modern
        self._path = path
        self.token = ""  # who it comes from; empty where nobody asks
        self._next = 0
        self._session = b""
        self._server = server
        self.socket = self._connected()
        if not modern:
            self._open_session()

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(self._server.address, ANSWER_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def connect_again(self) -> None:
        """Go on with the session over a new connection: servers close one that says nothing for some seconds."""
        self.socket.close()
        self.socket = self._connected()

    def _open_session(self) -> None:
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": NAME}
        answer = self.exchange(self.request("initialize", params))
        found = SESSION.search(answer)
        if found is None:
            raise RuntimeError(f"there is no session: {answer[:1000]!r}")
        self._session = found[1]
        self.exchange(self.request("notifications/initialized", None))

    def request(self, method: str, params: dict[str, Any] | None) -> bytes:
        """One request as it goes over the connection, with the next number; without params a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self._next += 1
            message |= {"id": self._next, "params": {**DESCRIBED, **params} if self._modern else params}
        body = json.dumps(message).encode()
        name = (params or {}).get("name", "")
        told = {"method": method, "name": name, "token": self.token, "path": self._path}
        return head(len(body), self._session, modern=self._modern, **told) + body

    def tool_request(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """One call of a tool as it goes over the connection."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def exchange(self, request: bytes) -> bytes:
        """Send a request and take the whole answer.

        Raises:
            RuntimeError: It is an error.
        """
        self.socket.sendall(request)
        answer = self._answer()
        check(answer)
        return answer

    def timed(self, request: bytes) -> float:
        """Milliseconds until the whole answer to a request is there."""
        started = time.perf_counter()
        self.socket.sendall(request)
        answer = self._answer()
        taken = time.perf_counter() - started
        check(answer)
        return taken * 1000

    def _answer(self) -> bytes:
        answer = b""
        while not is_whole(answer):
            data = self.socket.recv(1 << 16)
            if not data:
                raise RuntimeError(f"the server closed the connection: {answer[:1000]!r}")
            answer += data
        return answer

    def close(self) -> None:
        """Go away."""
        self.socket.close()

    def vanish(self) -> None:
        """Go away at once, so that the system remembers nothing of this connection."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def is_whole(answer: bytes) -> bool:
    """Whether all of an answer is there."""
    top = answer.find(b"\r\n\r\n")
    if top < 0:
        return False
    found = LENGTH.search(answer, 0, top + 2)
    return len(answer) >= top + 4 + int(found[1]) if found else answer.endswith(LAST_CHUNK)


def check(answer: bytes) -> None:
    """Raises RuntimeError for an answer that is an error."""
    is_good = answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202"))
    if not is_good or b'"error":' in answer or b'"isError":true' in answer:
        raise RuntimeError(answer.decode(errors="replace")[:2000])
