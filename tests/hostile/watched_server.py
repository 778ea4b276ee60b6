"""A real server over stdio, watched from outside: its memory, its children, and whether it answers meanwhile."""

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
"""Seconds between two pings: often enough to meet a server that stands still, and no load of their own."""

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not run: this system has no /proc")
"""Memory and children are read where Linux shows them."""


@dataclass
class WatchedServer:
    """A client and the process it talks to."""

    client: Client
    pid: int
    first_children: frozenset[int]
    """Its watchdog, which is there before it answers."""

    def children(self) -> list[int]:
        """The processes below the server that are alive, without its watchdog."""
        return [pid for pid in _descendants(self.pid) if pid not in self.first_children and _state(pid) != "Z"]

    def forget_peak(self) -> int:
        """Let the peak of its memory begin again; returns what it uses now, in bytes."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS")

    def peak(self) -> int:
        """The most memory it used since then, in bytes."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> int:
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    async def until_children(self, are_there: bool) -> None:
        """Wait until there are processes below the server, or none."""
        while bool(self.children()) is not are_there:  # noqa: ASYNC110 - the table of processes tells nobody of changes
            await anyio.sleep(0.01)

    async def call(self, tool: str, **arguments: Any) -> types.CallToolResult:
        """Call a tool while the server is pinged again and again; every ping is answered."""
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
    found = _children_of(pid)
    for child in list(found):
        found += _descendants(child)
    return found


@asynccontextmanager
async def watched_server(root: Path, *, environment: Mapping[str, str] | None = None) -> AsyncGenerator[WatchedServer]:
    """A server of its own for one root, with these variables beside the usual ones.

    It is forked: what it uses more than at a time counts, not what it uses.
    """
    arguments = [str(SERVER) if each == str(LAUNCHER) else each for each in server_arguments(root, None)]
    parameters = StdioServerParameters(
        command=sys.executable, args=forked(arguments), env=dict(environment) if environment else None
    )
    there = set(_children_of(fork_server()))
    async with Client(parameters, mode=HANDSHAKE, cache=None) as client:
        (pid,) = set(_children_of(fork_server())) - there
        yield WatchedServer(client, pid, frozenset(_children_of(pid)))


def facts_of(result: types.CallToolResult) -> dict[str, Any]:
    """What programs are told."""
    return (result.meta or {})["coretools-mcp/facts"]


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """What a client computes with."""
    return cast("dict[str, Any]", result.structured_content)
