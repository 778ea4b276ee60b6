"""Calls of 2026-07-28 with their questions, and clients that call again and again while replicas are started again."""

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


async def result_over(wire: Connection, params: Mapping[str, Any], whose: str = "ada") -> Message:
    """What a call comes to."""
    message = modern(1, "tools/call", params, **FORM)
    head = await post(wire, "/mcp", message, bearer(whose) | modern_headers(message))
    return [answer async for answer in wire.messages(head)][-1]["result"]


def answered(params: Mapping[str, Any], asked: Message, decision: str = "once") -> Mapping[str, Any]:
    """The same call, with an answer to the question that it was answered with."""
    assert asked["resultType"] == "input_required", asked
    reply = {"action": "accept", "content": {"decision": decision}}
    return {
        **params,
        "inputResponses": dict.fromkeys(asked["inputRequests"], reply),
        "requestState": asked["requestState"],
    }


def is_done(result: Message) -> bool:
    return result.get("resultType", "complete") == "complete" and not result.get("isError")


class Caller:
    """A client.

    Args:
        url: Where it calls.
        source: The address that it calls from.
        name: Its calls are named after it.
        ledger: The file to which each call adds its name, once.
        seconds: How long each call takes at least.
        has_sessions: Whether it speaks the revision of sessions, or that of 2026-07-28.
    """

    def __init__(self, url: str, source: str, name: str, ledger: Path, seconds: float, *, has_sessions: bool) -> None:
        self._url = url
        self._source = source
        self._name = name
        self._ledger = ledger
        self._seconds = seconds
        self._has_sessions = has_sessions
        self.done: list[str] = []
        self.lost: list[str] = []
        self.begun_again = 0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            try:
                async with connection(self._url, self._source) as wire:
                    await (self._in_sessions(wire) if self._has_sessions else self._alone(wire))
            except (OSError, EOFError, ValueError, AssertionError) as error:
                self.lost.append(repr(error))

    async def _alone(self, wire: Connection) -> None:
        while not self.is_over:
            message = modern(1, "tools/call", self._call())
            head = await post(wire, "/mcp", message, bearer("ada") | modern_headers(message))
            self._take([answer async for answer in wire.messages(head)])

    async def _in_sessions(self, wire: Connection) -> None:
        """As the protocol wants it: at 404 it opens a new session, and calls again there."""
        while not self.is_over:
            opened = await post(wire, "/mcp", initialize(REVISION, {}), bearer("ada"))
            assert [message["id"] async for message in wire.messages(opened)] == [0]
            self.begun_again += 1
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": REVISION}
            while not self.is_over:
                head = await post(wire, "/mcp", request(1, "tools/call", self._call()), bearer("ada") | session)
                answers = [answer async for answer in wire.messages(head)]
                if head.status == 404:
                    break
                self._take(answers)

    def _call(self) -> Mapping[str, object]:
        name = f"{self._name}-{len(self.done) + len(self.lost)}"
        command = f"sleep {self._seconds}; echo {name} >> {self._ledger}; echo {name}"
        return {"name": "run_shell_command", "arguments": {"command": command}}

    def _take(self, answers: list[Message]) -> None:
        result: Message = answers[-1].get("result", {}) if answers else {}
        if result and not result.get("isError"):
            self.done.append(result["content"][0]["text"].split()[-1])
        else:
            self.lost.append(str(answers))


async def restart_under(callers: Sequence[Caller], scene: Replicas) -> None:
    """Start one replica after the other again, while all of these call."""
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(caller.run())
        for name in NAMES:
            await asyncio.to_thread(scene.restart, name)
        for caller in callers:
            caller.is_over = True
