"""The bench's own client: blocking pipes and JSON lines, so that the server is what is measured."""

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
NAME = {"name": "bench", "version": "1"}

DESCRIBED = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": NAME,
    }
}
"""What each request of the revision without a handshake tells of its sender."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a server is started.

    Args:
        command: The program and its arguments.
        environment: Its environment variables; `None` are ours.
    """

    command: Sequence[str]
    environment: Mapping[str, str] | None = None


def processes_below(pid: int) -> list[int]:
    """The processes that a process has started and that still run, theirs included; none where there is no /proc."""
    parents = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += (child for child, parent in parents.items() if parent == each)
    return found[1:]


class LineClient:
    """Speaks to a server over its pipes.

    Args:
        start: How the server is started.
        modern: Whether the 2026-07-28 revision is spoken instead of one with a handshake.
    """

    def __init__(self, start: Start, *, modern: bool = False) -> None:
        self._start = start
        self._modern = modern
        self._next = 0
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context
        self.seconds_to_first_answer = 0.0

    @property
    def processes(self) -> int:
        """The server's, itself and all that it has started."""
        return 1 + len(processes_below(self._process.pid))

    def __enter__(self) -> Self:
        started = time.perf_counter()
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
            self.send("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": NAME})
        self.receive()
        self.seconds_to_first_answer = time.perf_counter() - started
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
            # A server may be in the middle of a long answer that nobody waits for any more.
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
        """The server's process number."""
        return self._process.pid

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        """One request as it goes over the pipe, with the next number."""
        self._next += 1
        described = {**params, **DESCRIBED} if self._modern else params
        return json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": described}).encode() + b"\n"

    def tool_request(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """One call of a tool as it goes over the pipe."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    @property
    def last_id(self) -> int:
        """The number of the request made last."""
        return self._next

    def write(self, line: bytes) -> None:
        """Write one line, also if it is longer than the pipe."""
        view = memoryview(line)
        while view:
            view = view[self._stdin.write(view) or 0 :]

    def read(self) -> bytes:
        """Read one line."""
        line = self._stdout.readline()
        if not line:
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace")
            raise RuntimeError(f"the server has closed its output; it said: {said[-1000:]}")
        return line

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Write one request."""
        self.write(self.request(method, params))

    def receive(self) -> dict[str, Any]:
        """Read one message; an error ends the bench."""
        return checked(self.read())

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One call, there and back: its result."""
        self.write(self.tool_request(tool, arguments))
        return self.receive()["result"]

    def timed_call(self, tool: str, arguments: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Milliseconds of one call, and its result; what this client encodes and decodes does not count."""
        return self.timed_request("tools/call", {"name": tool, "arguments": arguments})

    def timed_request(self, method: str, params: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Milliseconds of one request, and its result."""
        line = self.request(method, params)
        started = time.perf_counter()
        self.write(line)
        answer = self.read()
        taken = time.perf_counter() - started
        return taken * 1000, checked(answer)["result"]

    def calls_per_second(self, tool: str, arguments: dict[str, Any], count: int, in_flight: int) -> float:
        """Keep this many calls in flight until all are answered."""
        started = time.perf_counter()
        for _ in range(in_flight):
            self.write(self.tool_request(tool, arguments))
        for number in range(count):
            self.receive()
            if number + in_flight < count:
                self.write(self.tool_request(tool, arguments))
        return count / (time.perf_counter() - started)

    def call_median(self, tool: str, arguments: dict[str, Any], count: int) -> float:
        """The median of one call after another, in milliseconds."""
        taken: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            self.call(tool, arguments)
            taken.append(time.perf_counter() - started)
        return sorted(taken)[count // 2] * 1000


def checked(line: bytes) -> dict[str, Any]:
    """A message that is no error.

    Raises:
        RuntimeError: It is one.
    """
    message = json.loads(line)
    if "error" in message or message.get("result", {}).get("isError"):
        raise RuntimeError(line.decode()[:2000])
    return message


def text_of(result: dict[str, Any]) -> str:
    """The text blocks of a result, one after the other."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
