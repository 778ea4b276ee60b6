"""Two principals use every network transport at once, with the same JSON-RPC ids; neither sees the other's data."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.network.lanes import Lane, open_lane
from tests.interaction.network.test_who_is_let_in import TOKENS, serving, write_settings
from tests.interaction.raw_clients import Message

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

CALLS = [200, pytest.param(10_000, marks=pytest.mark.long)]
"""The number of calls: a few rounds of all lanes, or thousands of calls in the long tests"""

KINDS = ("session", "lone", "sse")
PRINCIPALS = tuple(TOKENS)
ONCE: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}
DENY: Mapping[str, Any] = {"action": "accept", "content": {"decision": "deny"}}


def text_of(result: Message) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


class Principal:
    """A principal, with its own folder, background job and todo list.

    Args:
        name: The principal's name.
        folder: Its own root.
        shared_folder: The root that both principals have.
    """

    def __init__(self, name: str, folder: Path, shared_folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.shared_folder = shared_folder
        folder.mkdir()
        (folder / "same.txt").write_text(f"belongs to {name}\n")

    def prepare(self, lane: Lane) -> None:
        """Create the files that one lane changes."""
        (self.folder / f"{lane.name}.txt").write_text("count 0\n")
        (self.shared_folder / f"{lane.name}.txt").write_text("0\n")

    async def begin(self, lane: Lane) -> None:
        """Start a background job that has the principal's name in its command."""
        lane.reply = ONCE
        result = await lane.call("run_shell_command", command=f"exec sleep 300 # {self.name}", is_background=True)
        assert not result.get("isError"), result


class Walk:
    """Makes the calls of one lane, one after the other, and checks each answer.

    Args:
        lane: The lane.
        own_principal: The principal of the lane.
        other_principal: The other principal.
        peer: A lane of the other principal.
    """

    def __init__(self, lane: Lane, own_principal: Principal, other_principal: Principal, peer: Lane) -> None:
        self._lane = lane
        self._own_principal = own_principal
        self._other_principal = other_principal
        self._peer = peer
        self._count = 0

    async def round(self, number: int) -> None:
        """Make one call of each kind, and read the own file between them."""
        await self._own_file()
        await self._foreign_file()
        await self._own_file()
        await self._jobs()
        await self._own_file()
        await self._change(accepts=number % 2 == PRINCIPALS.index(self._own_principal.name))
        await self._own_file()
        await self._todos()
        await self._own_file()
        await self._stale(number)

    async def _own_file(self) -> None:
        result = await self._lane.call("read_file", file_path="same.txt")
        assert text_of(result) == f"belongs to {self._own_principal.name}\n"

    async def _foreign_file(self) -> None:
        result = await self._lane.call("read_file", file_path=str(self._other_principal.folder / "same.txt"))
        assert "[path_not_in_workspace]" in text_of(result)

    async def _jobs(self) -> None:
        jobs = text_of(await self._lane.call("list_background_jobs"))
        assert f"# {self._own_principal.name}" in jobs
        assert f"# {self._other_principal.name}" not in jobs

    async def _change(self, *, accepts: bool) -> None:
        """Check that the question about an edit comes on this lane, and that this lane's answer decides."""
        file = f"{self._lane.name}.txt"
        self._lane.reply = ONCE if accepts else DENY
        old, new = f"count {self._count}", f"count {self._count + 1}"
        result = await self._lane.call("edit", file_path=file, old_string=old, new_string=new)
        (question,) = self._lane.questions[-1:]
        assert f"+{new}" in question
        assert file in question
        assert bool(result.get("isError")) is not accepts, text_of(result)
        self._count += accepts
        assert (self._own_principal.folder / file).read_text() == f"count {self._count}\n"

    async def _todos(self) -> None:
        todos = [{"id": "1", "content": f"of {self._own_principal.name}", "status": "pending"}]
        result = await self._lane.call("todo_write", todos=todos)
        assert result["structuredContent"]["kept"]
        resource = await self._lane.ask("resources/read", {"uri": "todo://list"})
        assert json.loads(resource["contents"][0]["text"]) == {"todos": todos}

    async def _stale(self, number: int) -> None:
        """Check that a read by the other principal does not count as a read by this one."""
        path = self._own_principal.shared_folder / f"{self._lane.name}.txt"
        assert text_of(await self._lane.call("read_file", file_path=str(path))) == path.read_text()
        path.write_text(f"{number} changed\n")
        assert text_of(await self._peer.call("read_file", file_path=str(path))) == path.read_text()
        question_count = len(self._lane.questions)
        edit = {"file_path": str(path), "old_string": "changed", "new_string": "edited"}
        refusal = await self._lane.call("edit", **edit)
        assert "[file_changed_since_read]" in text_of(refusal)
        assert len(self._lane.questions) == question_count
        self._peer.reply = ONCE
        assert not (await self._peer.call("edit", **edit)).get("isError")
        assert path.read_text() == f"{number} edited\n"


@pytest.mark.requirement("network.two_principals")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("calls", CALLS)
async def test_two_principals_see_nothing_of_each_other_in_thousands_of_interleaved_calls(
    calls: int, tmp_path: Path
) -> None:
    shared_folder = tmp_path / "shared"
    shared_folder.mkdir()
    owners = {name: Principal(name, tmp_path / name, shared_folder) for name in PRINCIPALS}
    # The operator sets no folder, so each client works in the roots that it announces.
    async with serving(None, write_settings(tmp_path)) as url, AsyncExitStack() as stack:

        async def new_lane(kind: str, owner: Principal, suffix: str = "") -> Lane:
            name = f"{owner.name}-{kind}{suffix}"
            roots = (owner.folder, shared_folder)
            return await stack.enter_async_context(open_lane(kind, url, name, TOKENS[owner.name], roots))

        walks: list[Walk] = []
        lanes: list[Lane] = []
        for principal, other_principal in (owners.values(), reversed(owners.values())):
            for kind in KINDS:
                lane, peer = await new_lane(kind, principal), await new_lane(kind, other_principal, "-peer")
                lanes += [lane, peer]
                principal.prepare(lane)
                walks.append(Walk(lane, principal, other_principal, peer))
            await principal.begin(lanes[-2])
        # A call of a session asks for the roots, which are then valid for the whole principal.
        rounds = 0
        while sum(lane.calls for lane in lanes) < calls:
            rounds += 1
            async with asyncio.TaskGroup() as tasks:
                for walk in walks:
                    tasks.create_task(walk.round(rounds))
        for lane, peer in zip(lanes[::2], lanes[1::2], strict=True):
            assert len(lane.questions) >= rounds
            assert all(f"{lane.name}.txt" in question for question in lane.questions[-rounds:] + peer.questions)
