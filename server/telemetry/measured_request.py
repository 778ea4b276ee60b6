"""One measured request, and what may be a label of it: a bounded number of names, whatever is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from server.protocol.json_rpc import as_mapping
from server.requests.protocol_mapping import ERROR_KEY

OTHER = "_OTHER"  # in place of a name that is nobody's, or one too many (the word of the OpenTelemetry conventions)
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds in seconds of what is counted together (those of the OpenTelemetry conventions for MCP)."""
MOST_NAMES = 200  # tools, and as many prompts, that are counted by their names; all others are counted together
MOST_CODES = 50  # the same for codes of errors, which upstreams may choose


class Names:
    """As many different names as may be labels; the first ones count, each further one is `OTHER`."""

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
    """One request, of a client to us or of this server to an upstream."""

    method: str
    tool: str = ""  # that it calls, where there is such a tool
    prompt: str = ""
    version: str = ""  # of the protocol
    error: str = ""  # why it failed: the code of a JSON-RPC error, or a word; empty where it did not
    refusal: str = ""  # the stable code of a call that we failed
    asks: bool = False  # whether its result is a question
    answers: bool = False  # whether it brings the answer to one
    is_done: bool = False
    began: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """In a word of a small set: `ok`, `asks`, `failed` (a tool says so), `cancelled`, `error`."""
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
    version: str = ""  # of the protocol, once that is known
