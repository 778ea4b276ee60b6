"""A client that reports changes of its roots again and again: the server's requests, and the roots that count."""

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

CHANGE_COUNTS = {"stdio": 3_000, "http": 300, "sse": 300}
"""Numbers of changes: over the network each notification is a separate request, so there are fewer."""

MAX_REQUESTS = 8
"""One at the start, one for the first change, one for the last, and some more because a busy machine is slow."""

CHANGED = "notifications/roots/list_changed"


class MovingRoots:
    """The roots of a client that moves to another folder before each notification.

    Args:
        folder: The parent of its folders.
        count: The number of its folders.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folders = [folder / f"{number:04}" for number in range(count)]
        for place in self.folders:
            place.mkdir()
            (place / "a.txt").write_text(f"in {place.name}")
        self.folder = self.folders[0]
        self.requests = 0
        self.last_listed = anyio.Event()

    async def roots(self, _context: Any) -> types.ListRootsResult:
        self.requests += 1
        if self.folder is self.folders[-1]:
            self.last_listed.set()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(self.folder.as_uri()))])

    async def move(self, client: Client, count: int) -> None:
        for number in range(count):
            self.folder = self.folders[number * len(self.folders) // count]
            await client.session.send_notification(types.RootsListChangedNotification())


def count_notifications(record: Path) -> int:
    return record.read_text().split().count(CHANGED) if record.exists() else 0


@pytest.fixture
def moving_roots(tmp_path: Path) -> MovingRoots:
    folder = tmp_path.resolve() / "folders"
    folder.mkdir()
    return MovingRoots(folder, 300)


@pytest.mark.parametrize("transport", CHANGE_COUNTS)
async def test_however_often_roots_change_there_are_few_requests_and_notifications_and_the_last_roots_count(
    transport: str, moving_roots: MovingRoots, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    config = write_config(tmp_path, {"mcpServers": {"up": listing_entry("up", tale=str(record))}})
    async with connected(transport, HANDSHAKE, None, config, list_roots_callback=moving_roots.roots) as client:
        await client.list_prompts()
        await moving_roots.move(client, CHANGE_COUNTS[transport])
        with anyio.fail_after(CEILING):
            await moving_roots.last_listed.wait()
        requests = moving_roots.requests
        last_answer = await call(client, "read_file", file_path=str(moving_roots.folders[-1] / "a.txt"))
        assert "in 0299" in last_answer.text
        for folder in (moving_roots.folders[0], moving_roots.folders[-2]):
            assert (await call(client, "read_file", file_path=str(folder / "a.txt"))).code == "path_not_in_workspace"
        with anyio.fail_after(CEILING):
            while transport == "stdio" and not count_notifications(record):  # noqa: ASYNC110 - there is no event for a new line
                await anyio.sleep(0.02)
    assert requests <= MAX_REQUESTS
    assert count_notifications(record) <= MAX_REQUESTS


async def test_while_roots_change_all_the_time_calls_use_the_current_ones(
    moving_roots: MovingRoots,
) -> None:
    async with connected("stdio", HANDSHAKE, None, list_roots_callback=moving_roots.roots) as client:
        for number in range(0, 300, 10):
            for place in moving_roots.folders[number : number + 10]:
                moving_roots.folder = place
                await client.session.send_notification(types.RootsListChangedNotification())
            assert (
                f"in {moving_roots.folder.name}"
                in (await call(client, "read_file", file_path=f"{moving_roots.folder}/a.txt")).text
            )


async def test_the_answer_to_a_request_from_before_the_last_change_is_not_kept(
    moving_roots: MovingRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", float(CEILING))
    first_request, may_answer = anyio.Event(), anyio.Event()

    async def list_roots_slowly(_context: Any) -> types.ListRootsResult:
        folder = moving_roots.folder
        if not first_request.is_set():
            first_request.set()
            await may_answer.wait()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(folder.as_uri()))])

    async with connected("memory", HANDSHAKE, None, list_roots_callback=list_roots_slowly) as client:
        await first_request.wait()
        moving_roots.folder = moving_roots.folders[1]
        await client.session.send_notification(types.RootsListChangedNotification())
        assert "in 0001" in (await call(client, "read_file", file_path=f"{moving_roots.folder}/a.txt")).text
        may_answer.set()
        for _ in range(3):  # give the server time to handle the answer
            await client.list_tools()
        assert "in 0001" in (await call(client, "read_file", file_path=f"{moving_roots.folder}/a.txt")).text


@pytest.mark.requirement("roots.session")
async def test_a_call_uses_the_roots_of_an_earlier_request_if_the_client_lists_them_only_once(
    moving_roots: MovingRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_workspaces, "ROOTS_WAIT_SECONDS", float(CEILING))
    requests, second_request = 0, anyio.Event()

    async def list_roots_once(_context: Any) -> types.ListRootsResult | types.ErrorData:
        nonlocal requests
        requests += 1
        if requests == 1:
            await second_request.wait()
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(moving_roots.folder.as_uri()))])
        second_request.set()
        for _ in range(3):  # give the server time to handle the answer
            await client.list_tools()
        return types.ErrorData(code=-32000, message="you have asked already")

    async with connected("memory", HANDSHAKE, None, list_roots_callback=list_roots_once) as client:
        assert "in 0000" in (await call(client, "read_file", file_path=f"{moving_roots.folder}/a.txt")).text
    assert requests == 2


async def test_at_most_one_change_is_handled_and_only_the_latest_one_waits() -> None:
    state, contexts, has_started, may_finish = client_workspaces.RootsState(), list[Any](), anyio.Event(), anyio.Event()
    follow_roots: Any = client_workspaces.follow_roots  # the test passes numbers and strings as contexts

    async def handle(ctx: Any) -> None:
        contexts.append(ctx)
        has_started.set()
        await may_finish.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_roots, state, "first", handle)
        await has_started.wait()
        for number in range(100):
            await follow_roots(state, number, handle)
        may_finish.set()
    assert contexts == ["first", 99]
    await follow_roots(state, "later", handle)
    assert contexts == ["first", 99, "later"]
