"""Two principals use three replicas at once, in every way and with the same ids; neither sees the other's data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.network.lanes import Lane, open_lane
from tests.interaction.network.wires import connection, post, request
from tests.interaction.replicas.callers import has_succeeded, with_answers
from tests.interaction.replicas.scene import TOKENS, Replicas, bearer, needs_haproxy, needs_redis, replicas
from tests.interaction.replicas.test_questions import result_of, write_call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.two_principals"),
    needs_haproxy,
    needs_redis,
]

ROUNDS = 12
ONCE: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}
DENY: Mapping[str, Any] = {"action": "accept", "content": {"decision": "deny"}}


async def walk(lane: Lane, own_folder: Path, other_folder: Path, *, has_session: bool) -> None:
    """Make the calls of one lane, one after the other, and check each answer."""
    for number in range(ROUNDS):
        result = await lane.call("read_file", file_path=str(own_folder / "same.txt"))
        assert result["content"][0]["text"] == f"belongs to {own_folder.name}\n"
        # Both principals work in the same folder, so a permission of one could match the other's actions.
        file, accepts = other_folder.parent / "shared" / f"{lane.name}-{number}.txt", number % 3 > 0
        lane.reply = ONCE if accepts else DENY
        write_result = await lane.call("write_file", file_path=str(file), content=own_folder.name)
        assert file.name in lane.questions[-1]
        assert bool(write_result.get("isError")) is not accepts, write_result
        assert file.exists() is accepts
        if has_session:
            todos = [{"id": "1", "content": f"of {lane.name}", "status": "pending"}]
            assert not (await lane.call("todo_write", todos=todos)).get("isError")
            jobs = await lane.call("list_background_jobs")
            assert f"# {other_folder.name}" not in str(jobs)
    assert len(lane.questions) == ROUNDS


async def test_two_principals_see_nothing_of_each_other_between_replicas(root: Path, tmp_path: Path) -> None:
    folders = {name: root / name for name in (*TOKENS, "shared")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "same.txt").write_text(f"belongs to {folder.name}\n")
    with replicas(tmp_path, root, {"shell": {"sandbox": "off"}}, shares=True) as scene:
        async with AsyncExitStack() as stack, asyncio.timeout(120):
            walks = list[tuple[Lane, str, str]]()
            for name, other_name in (tuple(TOKENS), tuple(reversed(TOKENS))):
                for kind in ("session", "session", "lone", "lone", "sse"):
                    lane_name = f"{name}-{kind}{len(walks)}"
                    lane = await stack.enter_async_context(
                        open_lane(kind, scene.url, lane_name, TOKENS[name], [root], f"127.0.0.{len(walks) + 1}")
                    )
                    walks.append((lane, name, other_name))
            for lane, name, _ in walks:
                if "lone" not in lane.name:
                    lane.reply = ONCE
                    command = f"exec sleep 300 # {name}"
                    job = await lane.call("run_shell_command", command=command, is_background=True)
                    assert not job.get("isError"), job
                    lane.questions.clear()
            async with asyncio.TaskGroup() as tasks:
                for lane, name, other_name in walks:
                    has_session = "lone" not in lane.name
                    tasks.create_task(walk(lane, folders[name], folders[other_name], has_session=has_session))
            sessions = [lane for lane, name, _ in walks if "session" in lane.name and name == "ada"]
            for url in (scene.url, *scene.urls.values()):
                for lane in sessions:
                    headers = {**lane.headers, **bearer("bob")}
                    async with connection(url) as wire:
                        assert (await post(wire, "/mcp", request(900, "ping"), headers)).status == 404
            await foreign_answers(scene, root)


async def foreign_answers(scene: Replicas, root: Path) -> None:
    """Check at every replica that an answer is valid only for the principal who was asked."""
    file = root / "asked.txt"
    answer = with_answers(write_call(file), await result_of(scene.urls["r1"], write_call(file), "ada"))
    for url in scene.urls.values():
        assert not has_succeeded(await result_of(url, answer, "bob"))
        assert not file.exists()
    assert has_succeeded(await result_of(scene.urls["r2"], answer, "ada"))
