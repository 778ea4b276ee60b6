"""Two principals at once, over every network transport, with the same JSON-RPC ids: nothing crosses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.network.lanes import Lane, lane
from tests.interaction.network.test_who_is_let_in import TOKENS, serving, settings
from tests.interaction.raw_clients import Message

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

CALLS = [200, pytest.param(10_000, marks=pytest.mark.long)]
"""A few rounds of all lanes, and thousands of calls in the long form."""

KINDS = ("session", "lone", "sse")
PRINCIPALS = tuple(TOKENS)
ONCE: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}
DENY: Mapping[str, Any] = {"action": "accept", "content": {"decision": "deny"}}


def text_of(result: Message) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


class Principal:
    """What belongs to one of them: a folder of its own, a job, a todo list.

    Args:
        name: Its name.
        folder: Its own root.
        shared: The root that both have.
    """

    def __init__(self, name: str, folder: Path, shared: Path) -> None:
        self.name = name
        self.folder = folder
        self.shared = shared
        folder.mkdir()
        (folder / "same.txt").write_text(f"belongs to {name}\n")

    def prepare(self, lane: Lane) -> None:
        """The files that one lane changes."""
        (self.folder / f"{lane.name}.txt").write_text("count 0\n")
        (self.shared / f"{lane.name}.txt").write_text("0\n")

    async def begin(self, lane: Lane) -> None:
        """Start a job, and tell what is to do."""
        lane.reply = ONCE
        started = await lane.call("run_shell_command", command=f"exec sleep 300 # {self.name}", is_background=True)
        assert not started.get("isError"), started


class Walk:
    """The calls of one lane, one after the other; each answer is looked at.

    Args:
        lane: The way.
        own: Whose it is.
        other: The other principal.
        peer: A way of the other principal.
    """

    def __init__(self, lane: Lane, own: Principal, other: Principal, peer: Lane) -> None:
        self._lane = lane
        self._own = own
        self._other = other
        self._peer = peer
        self._count = 0

    async def round(self, number: int) -> None:
        """One call of each kind, files more often than the rest."""
        await self._own_file()
        await self._foreign_file()
        await self._own_file()
        await self._jobs()
        await self._own_file()
        await self._change(accepts=number % 2 == PRINCIPALS.index(self._own.name))
        await self._own_file()
        await self._todos()
        await self._own_file()
        await self._stale(number)

    async def _own_file(self) -> None:
        read = await self._lane.call("read_file", file_path="same.txt")
        assert text_of(read) == f"belongs to {self._own.name}\n"

    async def _foreign_file(self) -> None:
        read = await self._lane.call("read_file", file_path=str(self._other.folder / "same.txt"))
        assert "[path_not_in_workspace]" in text_of(read)

    async def _jobs(self) -> None:
        listed = text_of(await self._lane.call("list_background_jobs"))
        assert f"# {self._own.name}" in listed
        assert f"# {self._other.name}" not in listed

    async def _change(self, *, accepts: bool) -> None:
        """An edit with a question: it is asked on this lane, and what is answered here decides."""
        file = f"{self._lane.name}.txt"
        self._lane.reply = ONCE if accepts else DENY
        old, new = f"count {self._count}", f"count {self._count + 1}"
        edited = await self._lane.call("edit", file_path=file, old_string=old, new_string=new)
        (question,) = self._lane.questions[-1:]
        assert f"+{new}" in question
        assert file in question
        assert bool(edited.get("isError")) is not accepts, text_of(edited)
        self._count += accepts
        assert (self._own.folder / file).read_text() == f"count {self._count}\n"

    async def _todos(self) -> None:
        todos = [{"id": "1", "content": f"of {self._own.name}", "status": "pending"}]
        written = await self._lane.call("todo_write", todos=todos)
        assert written["structuredContent"]["kept"]
        read = await self._lane.ask("resources/read", {"uri": "todo://list"})
        assert json.loads(read["contents"][0]["text"]) == {"todos": todos}

    async def _stale(self, number: int) -> None:
        """What the other one has read is not what this one has read."""
        path = self._own.shared / f"{self._lane.name}.txt"
        assert text_of(await self._lane.call("read_file", file_path=str(path))) == path.read_text()
        path.write_text(f"{number} changed\n")
        assert text_of(await self._peer.call("read_file", file_path=str(path))) == path.read_text()
        asked = len(self._lane.questions)
        edit = {"file_path": str(path), "old_string": "changed", "new_string": "edited"}
        refused = await self._lane.call("edit", **edit)
        assert "[file_changed_since_read]" in text_of(refused)
        assert len(self._lane.questions) == asked
        self._peer.reply = ONCE
        assert not (await self._peer.call("edit", **edit)).get("isError")
        assert path.read_text() == f"{number} edited\n"


@pytest.mark.requirement("network.two_principals")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("calls", CALLS)
async def test_nothing_of_two_principals_crosses_in_thousands_of_interleaved_calls(calls: int, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    owners = {name: Principal(name, tmp_path / name, shared) for name in PRINCIPALS}
    # No folder of the operator: each works in those that it names.
    async with serving(None, settings(tmp_path)) as url, AsyncExitStack() as stack:

        async def opened(kind: str, owner: Principal, suffix: str = "") -> Lane:
            name = f"{owner.name}-{kind}{suffix}"
            roots = (owner.folder, shared)
            return await stack.enter_async_context(lane(kind, url, name, TOKENS[owner.name], roots))

        walks: list[Walk] = []
        lanes: list[Lane] = []
        for own, other in (owners.values(), reversed(owners.values())):
            for kind in KINDS:
                way, peer = await opened(kind, own), await opened(kind, other, "-peer")
                lanes += [way, peer]
                own.prepare(way)
                walks.append(Walk(way, own, other, peer))
            await own.begin(lanes[-2])
        # A call of a session asks for its roots, which count for its principal from then on.
        rounds = 0
        while sum(way.calls for way in lanes) < calls:
            rounds += 1
            async with asyncio.TaskGroup() as tasks:
                for walk in walks:
                    tasks.create_task(walk.round(rounds))
        for way, peer in zip(lanes[::2], lanes[1::2], strict=True):
            assert len(way.questions) >= rounds
            assert all(f"{way.name}.txt" in question for question in way.questions[-rounds:] + peer.questions)
