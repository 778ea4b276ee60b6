"""What is measured for each request, and the metrics that `/metrics` serves in the Prometheus text format (0.0.4).

The number of different label values is bounded, no matter what clients send.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from server.protocol.json_rpc import as_mapping
from server.questions.client_confirmer import ASKED
from server.requests.call_contexts import ClientTable
from server.requests.wire_results import ERROR_KEY
from server.upstreams.connections.connection import UpstreamState
from server.upstreams.resource_and_prompt_router import ResourceAndPromptRouter
from tools.machine.threads import THREADS

OTHER = "_OTHER"  # replaces unknown and surplus names (a value from the OpenTelemetry conventions)
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the histogram buckets, in seconds (from the OpenTelemetry conventions for MCP)."""
MAX_NAMES = 200  # maximum number of tools with their own label, and of prompts; all others share `OTHER`
MAX_CODES = 50  # error codes with their own label; upstreams may choose codes freely
START_TIME: Final = time.time()
Labels = tuple[str, ...]

METRICS: Mapping[str, tuple[str, Labels, str]] = {
    "coretools_mcp_requests_total": ("counter", ("method", "outcome"), "Answered requests from clients."),
    "coretools_mcp_request_duration_seconds": ("histogram", ("method",), "Duration of clients' requests."),
    "coretools_mcp_tool_calls_total": ("counter", ("tool", "outcome"), "Tool calls."),
    "coretools_mcp_refusals_total": ("counter", ("code",), "Failed and cancelled requests, by error code or cause."),
    "coretools_mcp_http_refusals_total": ("counter", ("status",), "HTTP requests that were refused, by status."),
    "coretools_mcp_questions_total": ("counter", ("event",), "Questions to people, asked and answered."),
    "coretools_mcp_questions_open": ("gauge", (), "Requests waiting for a person's answer."),
    "coretools_mcp_sessions": ("gauge", (), "Client connections that began with a handshake."),
    "coretools_mcp_calls_at_work": ("gauge", (), "Tool calls in progress."),
    "coretools_mcp_upstream_requests_total": ("counter", ("upstream", "outcome"), "Requests to upstream servers."),
    "coretools_mcp_upstream_request_duration_seconds": (
        "histogram",
        ("upstream",),
        "Duration of requests to upstream servers.",
    ),
    "coretools_mcp_upstream_state": ("gauge", ("upstream", "state"), "1 for the current state of an upstream server."),
    "coretools_mcp_upstream_sessions": ("gauge", ("upstream",), "Per-client sessions with an upstream server."),
    "process_cpu_seconds_total": ("counter", (), "CPU time of this process."),
    "process_open_fds": ("gauge", (), "Open file descriptors of this process."),
    "process_resident_memory_bytes": ("gauge", (), "Memory of this process."),
    "process_start_time_seconds": ("gauge", (), "Start time of this process, in seconds since the epoch."),
}
"""The metrics: kind, labels and description."""


class Names:
    """Limits the number of different label values: the first ones are kept, all others become `OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known = set[str]()

    def __call__(self, name: str) -> str:
        if name in self._known or not name:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name


@dataclass(slots=True)
class Operation:
    """One request, from a client to this server or from this server to an upstream."""

    method: str
    tool: str = ""  # the called tool; `OTHER` if a client calls one that does not exist
    prompt: str = ""
    version: str = ""  # the protocol revision
    error: str = ""  # the cause of a failure, as a JSON-RPC error code or a word; empty on success
    refusal: str = ""  # the `ToolErrorType` in a failed result; empty if it has none
    asks: bool = False  # whether the result is a question
    answers: bool = False  # whether the request carries the answer to a question
    is_done: bool = False
    started_at: float = field(default_factory=time.perf_counter)
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
        self.is_done, self.seconds = True, time.perf_counter() - self.started_at


@dataclass(slots=True)
class UpstreamInfo:
    """The upstream of a session, as spans and metrics describe it."""

    alias: str
    is_remote: bool
    host: str = ""
    port: int | None = None
    version: str = ""  # the protocol revision, once known


@dataclass(slots=True)
class Metrics:
    """The counts since startup."""

    counts: Counter[tuple[str, Labels]] = field(default_factory=Counter[tuple[str, Labels]])
    durations: dict[tuple[str, Labels], tuple[list[int], list[float]]] = field(
        default_factory=dict[tuple[str, Labels], tuple[list[int], list[float]]]
    )
    """For each metric and its labels, the count per bucket, and a list with the sum of all durations in seconds."""
    tools: Names = field(default_factory=lambda: Names(MAX_NAMES))
    codes: Names = field(default_factory=lambda: Names(MAX_CODES))

    def count_request(self, operation: Operation) -> None:
        counts, outcome = self.counts, operation.outcome
        counts["coretools_mcp_requests_total", (operation.method, outcome)] += 1
        self._record("coretools_mcp_request_duration_seconds", (operation.method,), operation.seconds)
        if operation.tool:
            counts["coretools_mcp_tool_calls_total", (self.tools(operation.tool), outcome)] += 1
        if operation.error:
            counts["coretools_mcp_refusals_total", (self.codes(operation.refusal or operation.error),)] += 1
        if operation.asks:
            counts["coretools_mcp_questions_total", ("asked",)] += 1
        if operation.answers:
            counts["coretools_mcp_questions_total", ("answered",)] += 1

    def count_http_refusal(self, status: int) -> None:
        self.counts["coretools_mcp_http_refusals_total", (str(status),)] += 1

    def count_upstream_request(self, alias: str, operation: Operation) -> None:
        self.counts["coretools_mcp_upstream_requests_total", (alias, operation.outcome)] += 1
        self._record("coretools_mcp_upstream_request_duration_seconds", (alias,), operation.seconds)

    def _record(self, name: str, labels: Labels, seconds: float) -> None:
        series = self.durations.get((name, labels))
        if series is None:
            series = self.durations[name, labels] = [0] * (len(BUCKETS) + 1), [0.0]
        series[0][bisect_left(BUCKETS, seconds)] += 1
        series[1][0] += seconds

    async def text(self, clients: ClientTable, router: ResourceAndPromptRouter) -> str:
        """Return all metrics as text, with the current values of gauges."""
        samples: dict[str, list[tuple[Labels, float]]] = {name: [] for name in METRICS}
        for (name, labels), count in self.counts.items():
            samples[name].append((labels, count))
        questions, events = "coretools_mcp_questions_total", (("asked", ASKED.asked), ("answered", ASKED.answered))
        samples[questions] = [((event,), self.counts[questions, (event,)] + count) for event, count in events]
        samples["coretools_mcp_questions_open"] = [((), ASKED.open)]
        samples["coretools_mcp_sessions"] = [((), sum(1 for _ in clients.connections()))]
        samples["coretools_mcp_calls_at_work"] = [((), sum(client.calls for client in clients.all()))]
        for upstream in router.pool.upstreams:
            alias, current_state = upstream.alias, upstream.status.state
            samples["coretools_mcp_upstream_state"] += [
                ((alias, state.value), state is current_state) for state in UpstreamState
            ]
            session_count = len(router.pool.sessions.get(upstream, ()))
            samples["coretools_mcp_upstream_sessions"].append(((alias,), session_count))
        for name, value in (await THREADS.run(_process_values)).items():
            samples[name] = [((), value)]
        lines: list[str] = []
        for name, (kind, labels, description) in METRICS.items():
            lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels, values)} {_number(value)}" for values, value in samples[name]]
            for (metric, values), (buckets, (total,)) in self.durations.items():
                if metric == name:
                    for upper_bound, count in zip((*map(_number, BUCKETS), "+Inf"), accumulate(buckets), strict=True):
                        lines.append(f"{name}_bucket{_labels((*labels, 'le'), (*values, upper_bound))} {count}")
                    lines.append(f"{name}_sum{_labels(labels, values)} {_number(total)}")
                    lines.append(f"{name}_count{_labels(labels, values)} {sum(buckets)}")
        return "\n".join(lines) + "\n"


def _labels(names: Labels, values: Labels) -> str:
    escaped_values = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    pairs = ",".join(f'{name}="{value}"' for name, value in zip(names, escaped_values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _process_values() -> dict[str, float]:
    """Return what the system reports about this process; memory and descriptors need `/proc`. This call blocks."""
    times = os.times()
    values: dict[str, float] = {
        "process_cpu_seconds_total": times.user + times.system,
        "process_start_time_seconds": START_TIME,
    }
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            values["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
            values["process_open_fds"] = len(os.listdir("/proc/self/fd"))
    return values
