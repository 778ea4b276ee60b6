"""Counters in the Prometheus text format (0.0.4), for `/metrics`."""

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
from typing import Final

from server.questions.client_confirmer import ASKED
from server.requests.call_contexts import ClientTable
from server.telemetry.measured_request import BUCKETS, MAX_CODES, MAX_NAMES, Names, Operation
from server.upstreams.connections.connection import UpstreamState
from server.upstreams.upstream_router import UpstreamRouter
from tools.machine.threads import THREADS

STATES = tuple(state.value for state in UpstreamState)
BEGAN: Final = time.time()
Labels = tuple[str, ...]

METRICS: Mapping[str, tuple[str, Labels, str]] = {
    "coretools_mcp_requests_total": ("counter", ("method", "outcome"), "Answered requests from clients."),
    "coretools_mcp_request_duration_seconds": ("histogram", ("method",), "Duration of clients' requests."),
    "coretools_mcp_tool_calls_total": ("counter", ("tool", "outcome"), "Tool calls."),
    "coretools_mcp_refusals_total": ("counter", ("code",), "Failed requests, by the error code sent to the client."),
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
    "coretools_mcp_upstream_sessions": ("gauge", ("upstream",), "Upstream sessions that each belong to one client."),
    "process_cpu_seconds_total": ("counter", (), "CPU time of this process."),
    "process_open_fds": ("gauge", (), "Open descriptors of this process."),
    "process_resident_memory_bytes": ("gauge", (), "Memory of this process."),
    "process_start_time_seconds": ("gauge", (), "Start time of this process, in seconds since the epoch."),
}
"""The metrics: kind, labels and description."""


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

    async def text(self, clients: ClientTable, router: UpstreamRouter) -> str:
        """Return all metrics as text, with the current values of gauges."""
        samples: dict[str, list[tuple[Labels, float]]] = {name: [] for name in METRICS}
        for (name, labels), count in self.counts.items():
            samples[name].append((labels, count))
        for event, count in (("asked", ASKED.asked), ("answered", ASKED.answered)):
            returned = self.counts["coretools_mcp_questions_total", (event,)]
            total = samples["coretools_mcp_questions_total"]
            total[:] = [each for each in total if each[0] != (event,)] + [((event,), returned + count)]
        samples["coretools_mcp_questions_open"] = [((), ASKED.open)]
        samples["coretools_mcp_sessions"] = [((), sum(1 for _ in clients.connections()))]
        samples["coretools_mcp_calls_at_work"] = [((), sum(client.calls for client in clients.all()))]
        for upstream in router.pool.upstreams:
            alias, now = upstream.alias, upstream.status.state.value
            samples["coretools_mcp_upstream_state"] += [((alias, state), state == now) for state in STATES]
            held = len(router.pool.sessions.get(upstream, ()))
            samples["coretools_mcp_upstream_sessions"].append(((alias,), held))
        for name, value in (await THREADS.run(_of_process)).items():
            samples[name] = [((), value)]
        lines: list[str] = []
        for name, (kind, labels, about) in METRICS.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels, values)} {_number(value)}" for values, value in samples[name]]
            for (of, values), (buckets, (total,)) in self.durations.items():
                if of == name:
                    for bound, count in zip((*map(_number, BUCKETS), "+Inf"), accumulate(buckets), strict=True):
                        lines.append(f"{name}_bucket{_labels((*labels, 'le'), (*values, bound))} {count}")
                    lines.append(f"{name}_sum{_labels(labels, values)} {_number(total)}")
                    lines.append(f"{name}_count{_labels(labels, values)} {sum(buckets)}")
        return "\n".join(lines) + "\n"


def _labels(names: Labels, values: Labels) -> str:
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    pairs = ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _of_process() -> dict[str, float]:
    """Return what the system reports about this process; memory and descriptors need `/proc`. This call blocks."""
    times = os.times()
    found: dict[str, float] = {
        "process_cpu_seconds_total": times.user + times.system,
        "process_start_time_seconds": BEGAN,
    }
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            found["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
            found["process_open_fds"] = len(os.listdir("/proc/self/fd"))
    return found
