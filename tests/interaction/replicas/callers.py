"""Calls of 2026-07-28 with questions, and clients that call again and again while the replicas are restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interaction.network.wires import (
    FORM,
    Connection,
    connection,
    initialize,
    modern,
    modern_headers,
    post,
    request,
)
from tests.interaction.raw_clients import Message
from tests.interaction.replicas.scene import NAMES, Replicas, bearer

REVISION = "2025-11-25"


async def result_over(wire: Connection, params: Mapping[str, Any], principal: str = "ada") -> Message:
    """Make a call; return its result."""
    message = modern(1, "tools/call", params, **FORM)
    head = await post(wire, "/mcp", message, bearer(principal) | modern_headers(message))
    return [answer async for answer in wire.messages(head)][-1]["result"]


def with_answers(params: Mapping[str, Any], result: Message, decision: str = "once") -> Mapping[str, Any]:
    """The same call again, with answers to the questions of its first result."""
    assert result["resultType"] == "input_required", result
    reply = {"action": "accept", "content": {"decision": decision}}
    return {
        **params,
        "inputResponses": dict.fromkeys(result["inputRequests"], reply),
        "requestState": result["requestState"],
    }


def has_succeeded(result: Message) -> bool:
    return result.get("resultType", "complete") == "complete" and not result.get("isError")


class Caller:
    """A client that calls again and again.

    Args:
        url: The URL of the server.
        source: The client's own address.
        name: The prefix of the names of its calls.
        ledger: The file to which each call appends its name.
        seconds: The minimum duration of a call.
        has_sessions: True for a revision with sessions, false for 2026-07-28.
    """

    def __init__(self, url: str, source: str, name: str, ledger: Path, seconds: float, *, has_sessions: bool) -> None:
        self._url = url
        self._source = source
        self._name = name
        self._ledger = ledger
        self._seconds = seconds
        self._has_sessions = has_sessions
        self.completed_calls: list[str] = []
        self.lost_calls: list[str] = []
        self.session_count = 0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            try:
                async with connection(self._url, self._source) as wire:
                    await (self._in_sessions(wire) if self._has_sessions else self._alone(wire))
            except (OSError, EOFError, ValueError, AssertionError) as error:
                self.lost_calls.append(repr(error))

    async def _alone(self, wire: Connection) -> None:
        while not self.is_over:
            message = modern(1, "tools/call", self._call())
            head = await post(wire, "/mcp", message, bearer("ada") | modern_headers(message))
            self._take([answer async for answer in wire.messages(head)])

    async def _in_sessions(self, wire: Connection) -> None:
        """Call in sessions; after a 404, open a new session and repeat the call, as the protocol demands."""
        while not self.is_over:
            opening_head = await post(wire, "/mcp", initialize(REVISION, {}), bearer("ada"))
            assert [message["id"] async for message in wire.messages(opening_head)] == [0]
            self.session_count += 1
            session = {"Mcp-Session-Id": opening_head.headers["mcp-session-id"], "MCP-Protocol-Version": REVISION}
            while not self.is_over:
                head = await post(wire, "/mcp", request(1, "tools/call", self._call()), bearer("ada") | session)
                answers = [answer async for answer in wire.messages(head)]
                if head.status == 404:
                    break
                self._take(answers)

    def _call(self) -> Mapping[str, object]:
        name = f"{self._name}-{len(self.completed_calls) + len(self.lost_calls)}"
        command = f"sleep {self._seconds}; echo {name} >> {self._ledger}; echo {name}"
        return {"name": "run_shell_command", "arguments": {"command": command}}

    def _take(self, answers: list[Message]) -> None:
        result: Message = answers[-1].get("result", {}) if answers else {}
        if result and not result.get("isError"):
            self.completed_calls.append(result["content"][0]["text"].split()[-1])
        else:
            self.lost_calls.append(str(answers))


async def restart_under(callers: Sequence[Caller], scene: Replicas) -> None:
    """Restart one replica after the other while the callers call."""
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(caller.run())
        for name in NAMES:
            await asyncio.to_thread(scene.restart, name)
        for caller in callers:
            caller.is_over = True
