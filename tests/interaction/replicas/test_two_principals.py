"""Two principals over three replicas, with the same ids at the same time, in every way: nothing crosses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.network.lanes import Lane, lane
from tests.interaction.network.wires import connection, post, request
from tests.interaction.replicas.callers import answered, is_done
from tests.interaction.replicas.scene import TOKENS, Replicas, bearer, needs_haproxy, needs_redis, replicas
from tests.interaction.replicas.test_questions import result_of, writing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("network.two_principals"),
    needs_haproxy,
    needs_redis,
]

ROUNDS = 12
ONCE: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}
DENY: Mapping[str, Any] = {"action": "accept", "content": {"decision": "deny"}}


async def walk(way: Lane, own: Path, other: Path, *, has_session: bool) -> None:
    """Calls of one lane, one after the other; each answer is looked at."""
    for number in range(ROUNDS):
        read = await way.call("read_file", file_path=str(own / "same.txt"))
        assert read["content"][0]["text"] == f"belongs to {own.name}\n"
        # As both name the same file, what one is asked or allowed is of the same action as the other's.
        file, accepts = other.parent / "shared" / f"{way.name}-{number}.txt", number % 3 > 0
        way.reply = ONCE if accepts else DENY
        written = await way.call("write_file", file_path=str(file), content=own.name)
        assert file.name in way.questions[-1]
        assert bool(written.get("isError")) is not accepts, written
        assert file.exists() is accepts
        if has_session:
            todos = [{"id": "1", "content": f"of {way.name}", "status": "pending"}]
            assert not (await way.call("todo_write", todos=todos)).get("isError")
            listed = await way.call("list_background_jobs")
            assert f"# {other.name}" not in str(listed)
    assert len(way.questions) == ROUNDS


async def test_nothing_of_two_principals_crosses_between_replicas(root: Path, tmp_path: Path) -> None:
    folders = {name: root / name for name in (*TOKENS, "shared")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "same.txt").write_text(f"belongs to {folder.name}\n")
    with replicas(tmp_path, root, {"shell": {"sandbox": "off"}}, shares=True) as scene:
        async with AsyncExitStack() as stack, asyncio.timeout(120):
            walks = list[tuple[Lane, str, str]]()
            for name, other in (tuple(TOKENS), tuple(reversed(TOKENS))):
                for kind in ("session", "session", "lone", "lone", "sse"):
                    suffix = f"{name}-{kind}{len(walks)}"
                    way = await stack.enter_async_context(
                        lane(kind, scene.url, suffix, TOKENS[name], [root], f"127.0.0.{len(walks) + 1}")
                    )
                    walks.append((way, name, other))
            for way, name, _ in walks:
                if "lone" not in way.name:
                    way.reply = ONCE
                    command = f"exec sleep 300 # {name}"
                    started = await way.call("run_shell_command", command=command, is_background=True)
                    assert not started.get("isError"), started
                    way.questions.clear()
            async with asyncio.TaskGroup() as tasks:
                for way, name, other in walks:
                    has_session = "lone" not in way.name
                    tasks.create_task(walk(way, folders[name], folders[other], has_session=has_session))
            sessions = [way for way, name, _ in walks if "session" in way.name and name == "ada"]
            for url in (scene.url, *scene.urls.values()):
                for way in sessions:
                    headers = {**way.headers, **bearer("bob")}
                    async with connection(url) as wire:
                        assert (await post(wire, "/mcp", request(900, "ping"), headers)).status == 404
            await foreign_answers(scene, root)


async def foreign_answers(scene: Replicas, root: Path) -> None:
    """A yes counts for anyone who was asked, at every replica."""
    file = root / "asked.txt"
    again = answered(writing(file), await result_of(scene.urls["r1"], writing(file), "ada"))
    for url in scene.urls.values():
        assert not is_done(await result_of(url, again, "bob"))
        assert not file.exists()
    assert is_done(await result_of(scene.urls["r2"], again, "ada"))
