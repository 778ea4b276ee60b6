"""A real server over stdio, watched from outside: its memory, its children, and whether it answers during a call."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import fork_server, forked
from tests.harness import HANDSHAKE, LAUNCHER, server_arguments

SERVER = Path(__file__).with_name("readable_server.py")

MEGABYTE = 1 << 20

PING_PAUSE = 0.02
"""Seconds between two pings: often enough to notice a server that hangs, without putting a load on it."""

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not run: this system has no /proc")
"""Marks tests that read memory and children from `/proc`."""


@dataclass
class WatchedServer:
    """A client and the process of its server."""

    client: Client
    pid: int
    first_children: frozenset[int]
    """The watchdog, which starts before the server answers."""

    def children(self) -> list[int]:
        """Return the live descendants of the server, except its watchdog."""
        return [pid for pid in _descendants(self.pid) if pid not in self.first_children and _state(pid) != "Z"]

    def reset_peak(self) -> int:
        """Reset the peak of the server's memory, and return its current memory, in bytes."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS")

    def peak(self) -> int:
        """Return the peak of its memory since the reset, in bytes."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> int:
        match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None
        return int(match[1]) * 1024

    async def wait_for_children(self, expected: bool) -> None:
        """Wait until the server has descendants, or none."""
        while bool(self.children()) is not expected:  # noqa: ASYNC110 - the process table sends no notifications
            await anyio.sleep(0.01)

    async def call(self, tool: str, **arguments: Any) -> types.CallToolResult:
        """Call a tool, and ping the server until the answer comes. Every ping must be answered."""
        answers: list[types.CallToolResult] = []

        async def ask() -> None:
            answers.append(await self.client.call_tool(tool, arguments))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not answers:
                await anyio.sleep(PING_PAUSE)
                with anyio.fail_after(20):
                    await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        return answers[0]


def _stat_fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", "0"]


def _state(pid: int) -> str:
    return _stat_fields(pid)[0]


def _children_of(pid: int) -> list[int]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [number for number in numbers if _stat_fields(number)[1] == str(pid)]


def _descendants(pid: int) -> list[int]:
    pids = _children_of(pid)
    for child in list(pids):
        pids += _descendants(child)
    return pids


@asynccontextmanager
async def watched_server(root: Path, *, environment: Mapping[str, str] | None = None) -> AsyncGenerator[WatchedServer]:
    """Start a server for one root, with these environment variables in addition to the usual ones.

    It is forked, so only growth of its memory means something, not the total.
    """
    arguments = [str(SERVER) if argument == str(LAUNCHER) else argument for argument in server_arguments(root, None)]
    parameters = StdioServerParameters(
        command=sys.executable, args=forked(arguments), env=dict(environment) if environment else None
    )
    siblings = set(_children_of(fork_server()))
    async with Client(parameters, mode=HANDSHAKE, cache=None) as client:
        (pid,) = set(_children_of(fork_server())) - siblings
        yield WatchedServer(client, pid, frozenset(_children_of(pid)))


def facts_of(result: types.CallToolResult) -> dict[str, Any]:
    """Return the facts in the result's metadata."""
    return (result.meta or {})["coretools-mcp/facts"]


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """Return the structured content."""
    return cast("dict[str, Any]", result.structured_content)
