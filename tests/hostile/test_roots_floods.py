"""A client that says again and again that its roots are other ones: what is asked and told, and what counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from pydantic import FileUrl

from server.clients import client_workspaces
from tests.harness import HANDSHAKE, connected, write_config
from tests.hostile.every_tool import CEILING, call
from tests.interaction.relay.clients import listing_entry

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("roots.flood")]

TIMES = {"stdio": 3_000, "http": 300, "sse": 300}
"""Each is a request of its own over the network."""

MAX_ASKED = 8
"""One at the beginning, one at once, one after it, and one more for each five seconds that a busy machine takes."""

CHANGED = "notifications/roots/list_changed"


class Moving:
    """A client that works in another folder after each word that it has changed.

    Args:
        folder: Where its folders are made.
        times: How many.
    """

    def __init__(self, folder: Path, times: int) -> None:
        self.folders = [folder / f"{number:04}" for number in range(times)]
        for place in self.folders:
            place.mkdir()
            (place / "a.txt").write_text(f"in {place.name}")
        self.now = self.folders[0]
        self.asked = 0
        self.told_last = anyio.Event()

    async def roots(self, _context: Any) -> types.ListRootsResult:
        self.asked += 1
        if self.now is self.folders[-1]:
            self.told_last.set()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(self.now.as_uri()))])

    async def move(self, client: Client, times: int) -> None:
        for number in range(times):
            self.now = self.folders[number * len(self.folders) // times]
            await client.session.send_notification(types.RootsListChangedNotification())


def told(tale: Path) -> int:
    return tale.read_text().split().count(CHANGED) if tale.exists() else 0


@pytest.fixture
def moving(tmp_path: Path) -> Moving:
    folder = tmp_path.resolve() / "folders"
    folder.mkdir()
    return Moving(folder, 300)


@pytest.mark.parametrize("transport", TIMES)
async def test_however_often_roots_change_they_are_asked_for_and_told_a_few_times_and_the_last_count(
    transport: str, moving: Moving, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    config = write_config(tmp_path, {"mcpServers": {"up": listing_entry("up", tale=str(tale))}})
    async with connected(transport, HANDSHAKE, None, config, list_roots_callback=moving.roots) as client:
        await client.list_prompts()
        await moving.move(client, TIMES[transport])
        with anyio.fail_after(CEILING):
            await moving.told_last.wait()
        asked = moving.asked
        last = await call(client, "read_file", file_path=str(moving.folders[-1] / "a.txt"))
        assert "in 0299" in last.text
        for other in (moving.folders[0], moving.folders[-2]):
            assert (await call(client, "read_file", file_path=str(other / "a.txt"))).code == "path_not_in_workspace"
        with anyio.fail_after(CEILING):
            while transport == "stdio" and not told(tale):  # noqa: ASYNC110 - nobody tells of a line
                await anyio.sleep(0.02)
    assert asked <= MAX_ASKED
    assert told(tale) <= MAX_ASKED


async def test_while_roots_change_all_the_time_calls_act_in_those_of_the_moment(
    moving: Moving,
) -> None:
    async with connected("stdio", HANDSHAKE, None, list_roots_callback=moving.roots) as client:
        for number in range(0, 300, 10):
            for place in moving.folders[number : number + 10]:
                moving.now = place
                await client.session.send_notification(types.RootsListChangedNotification())
            assert f"in {moving.now.name}" in (await call(client, "read_file", file_path=f"{moving.now}/a.txt")).text


async def test_an_answer_to_a_question_from_before_the_last_change_is_not_kept(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", float(CEILING))
    first, may_answer = anyio.Event(), anyio.Event()

    async def slowly(_context: Any) -> types.ListRootsResult:
        now = moving.now
        if not first.is_set():
            first.set()
            await may_answer.wait()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(now.as_uri()))])

    async with connected("memory", HANDSHAKE, None, list_roots_callback=slowly) as client:
        await first.wait()
        moving.now = moving.folders[1]
        await client.session.send_notification(types.RootsListChangedNotification())
        assert "in 0001" in (await call(client, "read_file", file_path=f"{moving.now}/a.txt")).text
        may_answer.set()
        for _ in range(3):  # the answer is taken in meanwhile
            await client.list_tools()
        assert "in 0001" in (await call(client, "read_file", file_path=f"{moving.now}/a.txt")).text


@pytest.mark.requirement("roots.session")
async def test_roots_that_a_client_lists_once_only_are_those_of_a_call_that_asks_too(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", float(CEILING))
    asked, second = 0, anyio.Event()

    async def once(_context: Any) -> types.ListRootsResult | types.ErrorData:
        nonlocal asked
        asked += 1
        if asked == 1:
            await second.wait()
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(moving.now.as_uri()))])
        second.set()
        for _ in range(3):  # the answer is taken in meanwhile
            await client.list_tools()
        return types.ErrorData(code=-32000, message="you have asked already")

    async with connected("memory", HANDSHAKE, None, list_roots_callback=once) as client:
        assert "in 0000" in (await call(client, "read_file", file_path=f"{moving.now}/a.txt")).text
    assert asked == 2


async def test_one_is_at_work_and_one_after_it_with_the_last_word() -> None:
    state, taken, at_work, go_on = client_workspaces.RootsState(), list[Any](), anyio.Event(), anyio.Event()
    follow_roots: Any = client_workspaces.follow_roots  # a notification is whatever it is given

    async def take(ctx: Any) -> None:
        taken.append(ctx)
        at_work.set()
        await go_on.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_roots, state, "first", take)
        await at_work.wait()
        for number in range(100):
            await follow_roots(state, number, take)
        go_on.set()
    assert taken == ["first", 99]
    await follow_roots(state, "later", take)
    assert taken == ["first", 99, "later"]
