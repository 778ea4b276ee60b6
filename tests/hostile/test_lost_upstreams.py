"""Upstreams that are lost: how they come back, when they are left alone, and what may pile up for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio.abc import TaskStatus
from mcp.client import ClientRequestContext

from server.upstreams.session.upstream_questions import MAX_OPEN, MAX_TASKS, BoundedTasks
from tests.harness import HANDSHAKE, http_client, our_http_server, write_config
from tests.hostile.lying import CEILING, over_stdio, scene_with
from tests.waiting import until

pytestmark = pytest.mark.anyio


def set_retry_pauses(monkeypatch: pytest.MonkeyPatch, first: float, last: float) -> None:
    monkeypatch.setattr("server.upstreams.connections.connection.FIRST_RETRY_SECONDS", first)
    monkeypatch.setattr("server.upstreams.connections.connection.LAST_RETRY_SECONDS", last)


@pytest.mark.requirement("proxy.faults.return")
async def test_a_lost_upstream_comes_back_when_it_is_needed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retry_pauses(monkeypatch, 3_600, 3_600)
    bad = over_stdio("exit*1", env={"TALE": str(tmp_path / "tale")})
    async with scene_with(tmp_path, root, bad) as scene:
        await scene.names()
        assert "connection to the server bad was lost" in await scene.call()
        await until(lambda: scene.report()["state"] == "failed")
        assert "unavailable (state failed: it closed the connection)" in await scene.call()
        await until(lambda: scene.bad.live_session is not None)
        assert await scene.call(text="back") == "back"
        report = scene.report()
        assert (report["state"], report["lastError"]) == ("connected", "it closed the connection")


@pytest.mark.requirement("proxy.faults.return")
async def test_an_upstream_that_does_not_start_is_tried_again_after_growing_pauses(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retry_pauses(monkeypatch, 0.01, 0.1)
    pauses: list[float] = []
    move_on_after = anyio.move_on_after

    def record_pause(delay: float | None, **options: Any) -> anyio.CancelScope:
        if delay is not None and delay <= 0.1:
            pauses.append(delay)
        return move_on_after(delay, **options)

    monkeypatch.setattr("server.upstreams.connections.connection.anyio.move_on_after", record_pause)
    async with scene_with(tmp_path, root, over_stdio("exit@start")) as scene:
        await until(lambda: scene.report().get("attempts", 0) >= 6)
    assert [round(pause, 3) for pause in pauses[:5]] == [0.01, 0.02, 0.04, 0.08, 0.1]


@pytest.mark.requirement("proxy.faults.return")
async def test_an_upstream_that_ends_soon_after_each_start_is_left_alone_until_it_is_needed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retry_pauses(monkeypatch, 0.01, 3_600)
    bad = over_stdio("exit@prompts*3", env={"TALE": str(tmp_path / "tale")})
    async with scene_with(tmp_path, root, bad) as scene:
        await until(lambda: scene.report()["state"] == "crashing again and again")
        answer = await scene.call()
        assert "state crashing again and again: its connection was lost 3 times, each time within 10 s" in answer
        await until(lambda: scene.bad.live_session is not None)
        assert await scene.call(text="back") == "back"
    assert (tmp_path / "tale").read_text().count("start\n") == 4


@pytest.mark.requirement("proxy.faults.return")
async def test_not_every_call_starts_an_upstream_that_crashes_again_and_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retry_pauses(monkeypatch, 3_600, 3_600)
    tale = tmp_path / "tale"
    async with scene_with(tmp_path, root, over_stdio("exit@prompts", env={"TALE": str(tale)})) as scene:
        answer = ""
        for losses in range(1, 4):
            await until(lambda losses=losses: scene.bad.status.losses == losses)
            answer = await scene.call()
            assert "unavailable" in answer
        for _ in range(10):
            assert "state crashing again and again" in answer
            assert re.search(r"will be retried in 3[56]\d\d s; try the call again after that", answer)
            answer = await scene.call()
    assert tale.read_text().count("start\n") == 3


@pytest.mark.requirement("proxy.faults.return")
async def test_not_every_call_starts_an_upstream_that_fails_to_start(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retry_pauses(monkeypatch, 3_600, 3_600)
    tale = tmp_path / "tale"
    async with scene_with(tmp_path, root, over_stdio("exit@initialize", env={"TALE": str(tale)})) as scene:
        await until(scene.bad.tried.is_set)
        assert "will be retried automatically" in await scene.call()
        await until(lambda: scene.bad.status.attempts == 2 and scene.report()["state"] == "failed")
        for _ in range(10):
            assert "will be retried in 3" in await scene.call()
        assert scene.bad.status.attempts == 2
    assert tale.read_text().count("start\n") == 2


@pytest.mark.requirement("proxy.faults.bounds")
async def test_a_client_gets_only_so_many_questions_at_once(root: Path, tmp_path: Path) -> None:
    questions: list[str] = []

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        await anyio.sleep_forever()
        raise AssertionError

    async with scene_with(tmp_path, root, over_stdio("flood:question"), elicitation_callback=answer) as scene:
        await scene.names()
        assert await scene.call(text="hi") == "hi"
        await scene.check_others(root)
    assert 0 < len(questions) <= MAX_OPEN
    assert set(questions) == {"[bad] I am coretools-mcp. Your password?"}


@pytest.mark.requirement("proxy.faults.bounds")
async def test_an_upstream_can_cause_only_so_many_tasks_at_once() -> None:
    async with anyio.create_task_group() as tasks:
        background = BoundedTasks("bad", tasks)
        started_tasks: list[int] = []

        async def work(number: int) -> None:
            started_tasks.append(number)
            await anyio.sleep_forever()

        for number in range(MAX_TASKS + 10):
            background.start(work, number)
        await anyio.wait_all_tasks_blocked()
        assert sorted(started_tasks) == list(range(MAX_TASKS))
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.faults.bounds")
async def test_a_resource_that_changes_again_and_again_has_one_pending_notification(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio()) as scene:
        await scene.names()
        watching = scene.app.router.watching
        for number in range(1_000):
            scene.bad.resource_updated(f"x:{number % 3}")
        assert len(watching.pending_updates) == 3
        await until(lambda: not watching.pending_updates)


@pytest.mark.requirement("proxy.faults.bounds")
async def test_a_call_that_an_upstream_does_not_read_times_out(root: Path, tmp_path: Path) -> None:
    async with scene_with(tmp_path, root, over_stdio("hang", timeout=1_500)) as scene:
        await scene.names()
        for _ in range(3):
            assert "sent neither a result nor progress" in await scene.call(text="x" * (5 << 20))
        await scene.check_others(root)


@pytest.mark.requirement("proxy.limits")
async def test_a_client_whose_session_is_idle_makes_room_for_the_next_one(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"good": over_stdio(maxSessions=2)}})
    texts: list[str] = []
    async with our_http_server(root, config) as url, anyio.create_task_group() as tasks:

        async def use(name: str, *, task_status: TaskStatus[None]) -> None:
            async with http_client(url, "http", HANDSHAKE) as client:
                with anyio.fail_after(CEILING):
                    result = await client.call_tool("good__echo", {"text": name})
                texts.append(str(result.content))
                task_status.started()
                await anyio.sleep_forever()

        for name in ("one", "two", "three"):
            await tasks.start(use, name)
        tasks.cancel_scope.cancel()
    assert [name in text for name, text in zip(("one", "two", "three"), texts, strict=True)] == [True] * 3
