"""The benchmark's own client: blocking pipes and JSON lines, so that hardly anything but the server is measured."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ENDING_SECONDS = 20.0
CLIENT_INFO = {"name": "bench", "version": "1"}

REQUEST_META = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
    }
}
"""What each request tells about its sender in the revision without a handshake."""


@dataclass(frozen=True, slots=True)
class Start:
    """A command that starts a server.

    Args:
        command: The program and its arguments.
        environment: Its environment variables; `None` stands for our own.
    """

    command: Sequence[str]
    environment: Mapping[str, str] | None = None


def descendants_of(pid: int) -> list[int]:
    """Return the running descendants of a process, or an empty list if there is no /proc."""
    parents = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    pids = [pid]
    for process_id in pids:
        pids += (child for child, parent in parents.items() if parent == process_id)
    return pids[1:]


class LineClient:
    """A client of a server over its pipes.

    Args:
        start: Command that starts the server.
        modern: Whether to use the 2026-07-28 revision instead of one with a handshake.
    """

    def __init__(self, start: Start, *, modern: bool = False) -> None:
        self._start = start
        self._modern = modern
        self._next = 0
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context
        self.seconds_to_first_answer = 0.0

    @property
    def processes(self) -> int:
        """The number of the server's processes, including descendants."""
        return 1 + len(descendants_of(self._process.pid))

    def __enter__(self) -> Self:
        start = time.perf_counter()
        self._process = subprocess.Popen(
            self._start.command,
            env=self._start.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = open(self._process.stdout.fileno(), "rb", buffering=1 << 20, closefd=False)
        if self._modern:
            self.send("server/discover", {})
        else:
            self.send("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO})
        self.receive()
        self.seconds_to_first_answer = time.perf_counter() - start
        if not self._modern:
            self._stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stdin.close()
        overdue = threading.Timer(ENDING_SECONDS, self._process.kill)
        overdue.start()
        try:
            # The server may still be writing a long answer that nobody waits for any more.
            while self._stdout.read(1 << 20):
                pass
            code = self._process.wait()
        finally:
            overdue.cancel()
            self._stdout.close()
            self._stderr.close()
        if code < 0:
            raise RuntimeError(f"the server had to be killed: {self._start.command}") from error

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        """Encode a request with the next id."""
        self._next += 1
        full_params = {**params, **REQUEST_META} if self._modern else params
        return (
            json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": full_params}).encode() + b"\n"
        )

    def tool_request(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """Encode one tool call."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    @property
    def last_id(self) -> int:
        """The id of the last request."""
        return self._next

    def write(self, line: bytes) -> None:
        """Write one line, even if it is longer than the pipe's buffer."""
        view = memoryview(line)
        while view:
            view = view[self._stdin.write(view) or 0 :]

    def read(self) -> bytes:
        """Read one line."""
        line = self._stdout.readline()
        if not line:
            self._stderr.seek(0)
            stderr = self._stderr.read().decode(errors="replace")
            raise RuntimeError(f"the server closed its output; it wrote: {stderr[-1000:]}")
        return line

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Write one request."""
        self.write(self.request(method, params))

    def receive(self) -> dict[str, Any]:
        """Read one message; raise RuntimeError if it is an error."""
        return parse_answer(self.read())

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool, and return the result."""
        self.write(self.tool_request(tool, arguments))
        return self.receive()["result"]

    def timed_call(self, tool: str, arguments: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Return the milliseconds of one call, without encoding and decoding in this client, and its result."""
        return self.timed_request("tools/call", {"name": tool, "arguments": arguments})

    def timed_request(self, method: str, params: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Return the milliseconds of one request, and its result."""
        line = self.request(method, params)
        start = time.perf_counter()
        self.write(line)
        answer = self.read()
        seconds = time.perf_counter() - start
        return seconds * 1000, parse_answer(answer)["result"]

    def calls_per_second(self, tool: str, arguments: dict[str, Any], count: int, in_flight: int) -> float:
        """Make `count` calls, with `in_flight` of them at a time, and return the calls per second."""
        start = time.perf_counter()
        for _ in range(in_flight):
            self.write(self.tool_request(tool, arguments))
        for number in range(count):
            self.receive()
            if number + in_flight < count:
                self.write(self.tool_request(tool, arguments))
        return count / (time.perf_counter() - start)

    def call_median(self, tool: str, arguments: dict[str, Any], count: int) -> float:
        """Return the median duration of sequential calls in milliseconds."""
        durations: list[float] = []
        for _ in range(count):
            start = time.perf_counter()
            self.call(tool, arguments)
            durations.append(time.perf_counter() - start)
        return sorted(durations)[count // 2] * 1000


def parse_answer(line: bytes) -> dict[str, Any]:
    """Parse a message.

    Raises:
        RuntimeError: The message is an error.
    """
    message = json.loads(line)
    if "error" in message or message.get("result", {}).get("isError"):
        raise RuntimeError(line.decode()[:2000])
    return message


def text_of(result: dict[str, Any]) -> str:
    """Return the text blocks of a result, one per line."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
