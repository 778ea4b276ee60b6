"""Sessions of replicas that share nothing: each stays at the replica that opened it, as long as that replica runs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.interaction.network.lanes import Lane, open_lane
from tests.interaction.network.test_ended_requests import assert_never_done, send_request, wait_for_pid, waiting_call
from tests.interaction.network.wires import connection, modern, modern_headers, post, request
from tests.interaction.raw_clients import Message
from tests.interaction.replicas.callers import Caller, restart_under
from tests.interaction.replicas.scene import NAMES, TOKENS, Replicas, bearer, needs_haproxy, replicas
from tests.interaction.test_conversation import UNASKED
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.replicas"),
    needs_haproxy,
]

SESSIONS = 20
REVISION = "2025-11-25"
DRAIN = {"drain": 2_500, "grace": 20_000}
"""Longer than the balancer of `deploy/haproxy.cfg` takes to notice that a server drains"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace").resolve()


@pytest.fixture(scope="module")
def scene(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Replicas]:
    with replicas(tmp_path_factory.mktemp("replicas"), root, {**UNASKED, "http": DRAIN}, shares=False) as replica_set:
        yield replica_set


async def status_of(url: str, headers: Mapping[str, str], message: Message) -> tuple[int, list[Message]]:
    async with connection(url) as wire:
        head = await post(wire, "/mcp", message, headers)
        return head.status, [answer async for answer in wire.messages(head)]


async def owners_of(scene: Replicas, lane: Lane) -> list[str]:
    """The replicas that know a session."""
    answers = {name: await status_of(url, lane.headers, request(900, "ping")) for name, url in scene.urls.items()}
    return [name for name, (status, _) in answers.items() if status == 200]


async def test_twenty_of_twenty_sessions_work_wherever_they_are(scene: Replicas, root: Path) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(CEILING):
        lanes = [
            await stack.enter_async_context(
                open_lane("session", scene.url, f"session-{number}", TOKENS["ada"], [root], f"127.0.0.{number + 1}")
            )
            for number in range(SESSIONS)
        ]
        for lane in lanes:
            lane.reply = {"action": "accept", "content": {"decision": "once"}}
        for turn in ("first", "second"):
            names = [f"{lane.name}-{turn}.txt" for lane in lanes]
            results = await asyncio.gather(
                *(
                    lane.call("write_file", file_path=str(root / name), content=lane.name)
                    for lane, name in zip(lanes, names, strict=True)
                )
            )
            assert [result for result in results if result.get("isError")] == []
            assert [(root / name).read_text() for name in names] == [lane.name for lane in lanes]
        assert [len(lane.questions) for lane in lanes] == [2] * SESSIONS
        owners = [await owners_of(scene, lane) for lane in lanes]
        assert {len(replica_names) for replica_names in owners} == {1}
        assert {name for replica_names in owners for name in replica_names} == set(NAMES)


async def test_sessions_of_the_older_transport_work(scene: Replicas, root: Path) -> None:
    (root / "seen.txt").write_text("seen\n")
    async with AsyncExitStack() as stack, asyncio.timeout(CEILING):
        for number in range(4):
            lane = await stack.enter_async_context(
                open_lane("sse", scene.url, f"sse-{number}", TOKENS["ada"], [root], f"127.0.0.{number + 1}")
            )
            result = await lane.call("read_file", file_path=str(root / "seen.txt"))
            assert result["content"][0]["text"] == "seen\n"


async def test_a_client_with_a_session_that_no_replica_knows_is_told_to_initialize_again(scene: Replicas) -> None:
    headers = bearer("ada") | {"Mcp-Session-Id": "0" * 32, "MCP-Protocol-Version": REVISION}
    status, (answer,) = await status_of(scene.url, headers, request(1, "tools/list"))
    assert status == 404
    assert "initialize" in answer["error"]["message"]


@pytest.mark.requirement("network.drain")
async def test_a_rolling_restart_during_calls_loses_none_and_repeats_none(scene: Replicas, root: Path) -> None:
    ledger = root / "ledger.txt"
    callers = [
        Caller(scene.url, f"127.0.0.{number + 1}", f"caller{number}", ledger, 0.2, has_sessions=number % 2 > 0)
        for number in range(6)
    ]
    async with asyncio.timeout(CEILING):
        await restart_under(callers, scene)
    assert [call for caller in callers for call in caller.lost_calls] == []
    completed_calls = [call for caller in callers for call in caller.completed_calls]
    assert sorted(ledger.read_text().split()) == sorted(completed_calls)
    assert len(set(completed_calls)) == len(completed_calls)
    assert max(caller.session_count for caller in callers) > 1


async def test_a_call_of_a_client_that_leaves_ends_at_its_replica(scene: Replicas, root: Path) -> None:
    place = root / "left"
    place.mkdir()
    message = modern(1, "tools/call", waiting_call(place))
    async with connection(scene.url) as wire:
        await send_request(wire, message, bearer("ada") | modern_headers(message))
        pid = await wait_for_pid(place)
    await assert_never_done(place, pid)


async def test_a_client_without_sessions_works_on_with_what_it_has_changed_itself(scene: Replicas, root: Path) -> None:
    file = root / "counted.txt"
    file.write_text("count 0\n")
    for number in range(9):
        edit = {"file_path": str(file), "old_string": f"count {number}", "new_string": f"count {number + 1}"}
        message = modern(1, "tools/call", {"name": "edit", "arguments": edit})
        # Each call uses a new connection.
        async with connection(scene.url, "127.0.0.9") as wire:
            head = await post(wire, "/mcp", message, bearer("ada") | modern_headers(message))
            (answer,) = [reply async for reply in wire.messages(head)]
            assert not answer["result"].get("isError"), answer
