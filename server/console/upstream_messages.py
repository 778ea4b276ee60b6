"""Terminal messages about upstreams: which ones are still connecting, and why one failed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from server.console.terminal import Spinner, note, show
from tools.contract.display import visible_line
from tools.text.secrets import redact

if TYPE_CHECKING:
    from server.app import App
    from server.upstreams.connections.connection import Upstream


def quiet_log(level: str) -> None:
    """Suppress log messages about what the command itself prints, unless the log level is debug or info."""
    if level not in ("debug", "info"):
        for name in ("connections", "catalog"):
            logging.getLogger(f"server.upstreams.{name}").setLevel(logging.ERROR)
        logging.disable(logging.INFO)


async def connect(app: App, upstreams: Sequence[Upstream]) -> None:
    """Start all upstreams. Wait until each of `upstreams` is connected or has failed; show those still connecting."""
    waiting_for = [upstream.alias for upstream in upstreams]

    async def wait(upstream: Upstream) -> None:
        await upstream.known.wait()
        waiting_for.remove(upstream.alias)
        if waiting_for:
            spinner.text = text()

    def text() -> str:
        seconds = max((app.pool.by_alias[alias].entry.connect_timeout / 1000 for alias in waiting_for), default=0)
        return f"waiting for {', '.join(waiting_for)} (at most {seconds:g} s to connect: connectTimeout)"

    with Spinner(text(), announces=True) as spinner:
        app.start_upstreams()
        async with anyio.create_task_group() as group:
            for upstream in upstreams:
                group.start_soon(wait, upstream)


def published_tools(app: App, alias: str) -> str:
    return tool_count_text(sum(origin.alias == alias for origin in app.pool.catalog.names.published.values()))


def tool_count_text(number: int) -> str:
    return f"{number} {'tool' if number == 1 else 'tools'}"


def failure_text(upstream: Upstream) -> str:
    """Return why an upstream failed: the error, and over stdio also the command and how its program ended."""
    status, end = upstream.status, upstream.status.program_end
    text = status.problem or "it did not answer"
    if upstream.entry.transport == "stdio":
        text += f" (its command is '{visible_line(upstream.entry.command or '')}'"
        if end is not None and end.exit is not None:
            exit_text = f"exit code {end.exit.code}" if end.exit.signal is None else end.exit.signal
            text += f"; it ended with {exit_text}"
        text += ")"
    return text


def unapproved_text(counts: Mapping[str, int]) -> str:
    """Return how many of a server's tools differ from the lock file, and how; empty if none does."""
    return ", ".join(f"{number} {standing}" for standing, number in counts.items() if standing != "approved")


def last_output(upstream: Upstream) -> tuple[str, ...]:
    """Return the last lines of an upstream's standard error, without likely secrets."""
    end = upstream.status.program_end
    return tuple(visible_line(redact(line)) for line in end.last_lines) if end is not None else ()


def show_failure(subject: str, upstream: Upstream) -> None:
    """Print to standard error why an upstream failed, with its last output."""
    note(f"{subject}: {upstream.status.state}: {failure_text(upstream)}")
    show(*(f"  its output: {line}" for line in last_output(upstream)), stream=sys.stderr)
    if upstream.wants_login and upstream.login is not None:
        show(f"  Run: {upstream.login.command}", stream=sys.stderr)
