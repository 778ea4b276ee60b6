"""What a person at a terminal reads about upstreams: which one is waited for, and why one is not there."""

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
    from server.upstreams.connections.connection import Upstream


def quiet_log(level: str) -> None:
    """Leave out of the log what the command itself tells, unless the person wants to see everything."""
    if level not in ("debug", "info"):
        for name in ("connections", "catalog"):
            logging.getLogger(f"server.upstreams.{name}").setLevel(logging.ERROR)
        logging.disable(logging.INFO)


async def wait_for(upstreams: Sequence[Upstream], spinner: Spinner) -> None:
    """Wait until it is clear where each stands, and say meanwhile which are waited for."""
    waited = list(upstreams)

    async def wait(upstream: Upstream) -> None:
        await upstream.known.wait()
        waited.remove(upstream)
        spinner.say(f"waiting for {', '.join(each.alias for each in waited)}" if waited else "")

    spinner.say(f"waiting for {', '.join(each.alias for each in waited)}" if waited else "")
    async with anyio.create_task_group() as group:
        for upstream in upstreams:
            group.start_soon(wait, upstream)


def why_it_failed(upstream: Upstream) -> str:
    """Why a server is not there: what went wrong, the command that was not found, how the program ended."""
    status, end = upstream.status, upstream.status.program_end
    told = status.problem or "it did not answer"
    if upstream.entry.transport == "stdio":
        told += f" (its command is '{visible_line(upstream.entry.command or '')}'"
        if end is not None and end.exit is not None:
            by = f"exit code {end.exit.code}" if end.exit.signal is None else end.exit.signal
            told += f"; it ended with {by}"
        told += ")"
    return told


def not_approved(counts: Mapping[str, int]) -> str:
    """How many tools of a server are not as the lock file says, and how they stand to it; empty where all are."""
    return ", ".join(f"{number} {standing}" for standing, number in counts.items() if standing != "approved")


def last_words(upstream: Upstream) -> tuple[str, ...]:
    """What its program wrote last on standard error, without what looks like a secret."""
    end = upstream.status.program_end
    return tuple(visible_line(redact(line)) for line in end.last_lines) if end is not None else ()


def show_failure(what: str, upstream: Upstream) -> None:
    """Tell on standard error why a server is not there, with what its program wrote last."""
    note(f"{what}: {upstream.status.state}: {why_it_failed(upstream)}")
    show(*(f"  it said: {line}" for line in last_words(upstream)), stream=sys.stderr)
