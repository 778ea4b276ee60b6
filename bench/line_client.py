"""The bench's own client: blocking pipes and JSON lines, so that the server is what is measured."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self


class LineClient:
    """Speaks the handshake era to a server over its pipes.

    Args:
        command: How the server is started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._next = 0
        self.seconds_to_first_answer = 0.0

    def __enter__(self) -> Self:
        started = time.perf_counter()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = open(self._process.stdout.fileno(), "rb", buffering=1 << 20, closefd=False)
        client = {"name": "bench", "version": "1"}
        params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.send("initialize", params)
        self.receive()
        self.seconds_to_first_answer = time.perf_counter() - started
        self._stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stdin.close()
        self._process.wait(20)
        self._stdout.close()

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Write one request."""
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self._stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Read one message; an error ends the bench."""
        line = self._stdout.readline()
        message = json.loads(line)
        if "error" in message or message.get("result", {}).get("isError"):
            raise RuntimeError(line.decode()[:2000])
        return message

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One call, there and back."""
        self.send("tools/call", {"name": tool, "arguments": arguments})
        return self.receive()

    def calls_per_second(self, tool: str, arguments: dict[str, Any], count: int, in_flight: int) -> float:
        """Keep this many calls in flight until all are answered."""
        started = time.perf_counter()
        for _ in range(in_flight):
            self.send("tools/call", {"name": tool, "arguments": arguments})
        for number in range(count):
            self.receive()
            if number + in_flight < count:
                self.send("tools/call", {"name": tool, "arguments": arguments})
        return count / (time.perf_counter() - started)

    def call_median(self, tool: str, arguments: dict[str, Any], count: int) -> float:
        """The median of one call after another, in seconds."""
        taken: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            self.call(tool, arguments)
            taken.append(time.perf_counter() - started)
        return sorted(taken)[count // 2]
