"""One measured request and its labels. The number of different labels is bounded, no matter what clients send."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from server.protocol.json_rpc import as_mapping
from server.requests.protocol_mapping import ERROR_KEY

OTHER = "_OTHER"  # replaces unknown and surplus names (a value from the OpenTelemetry conventions)
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the histogram buckets, in seconds (from the OpenTelemetry conventions for MCP)."""
MAX_NAMES = 200  # tools with their own label, and as many prompts; all others share the label `OTHER`
MAX_CODES = 50  # error codes with their own label; upstreams may choose codes freely


class Names:
    """Limits the number of different label values: the first ones are kept, all others become `OTHER`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known = set[str]()

    def __call__(self, name: str) -> str:
        if name in self._known or not name:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


@dataclass(slots=True)
class Operation:
    """One request, from a client to this server or from this server to an upstream."""

    method: str
    tool: str = ""  # the called tool, if it exists
    prompt: str = ""
    version: str = ""  # the protocol revision
    error: str = ""  # the cause of a failure, as a JSON-RPC error code or a word; empty on success
    refusal: str = ""  # the `ToolErrorType` in a failed result; empty if it has none
    asks: bool = False  # whether the result is a question
    answers: bool = False  # whether the request carries the answer to a question
    is_done: bool = False
    began: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """One of `ok`, `asks`, `failed` (reported by a tool), `cancelled` and `error`."""
        if self.error in ("tool_error", "cancelled"):
            return "failed" if self.error == "tool_error" else "cancelled"
        return "error" if self.error else "asks" if self.asks else "ok"

    def take_result(self, result: Mapping[str, Any]) -> None:
        self.asks = result.get("resultType") == "input_required"
        if self.method == "tools/call" and result.get("isError") is True:
            self.error = "tool_error"
            self.refusal = str(as_mapping(as_mapping(result.get("_meta")).get(ERROR_KEY)).get("type", ""))

    def end(self) -> None:
        self.is_done, self.seconds = True, time.perf_counter() - self.began


@dataclass(slots=True)
class UpstreamEnd:
    """The other end of a session with an upstream."""

    alias: str
    is_remote: bool
    host: str = ""
    port: int | None = None
    version: str = ""  # the protocol revision, once known
