"""At most maxConcurrent calls of an upstream run at once, including suspended ones, and no call waits forever."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.relay.clients import (
    WireClient,
    answer_with,
    proxy_client,
    stdio_entry,
    text_or_json,
    wait_for_file,
)
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.eras import by_era
from tests.interaction.relay.questions import ANSWERS, FORM, call_until_question

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("proxy.limits.concurrency")]

ACCEPT = answer_with(elicitation=ANSWERS["accept"])


@asynccontextmanager
async def client_of(folder: Path, entry: dict[str, Any], **settings: Any) -> AsyncGenerator[WireClient]:
    """Start a proxy, and yield a client of revision 2026-07-28 that accepts every question."""
    async with proxy_client(folder, {"up": entry}, "modern", settings=settings, answer=ACCEPT) as client:
        yield client


async def make_round_trips(client: WireClient) -> None:
    """Make two round trips. After them, every earlier call that could be sent has been sent."""
    for _ in range(2):
        await client.request("tools/list")


async def test_a_suspended_call_keeps_its_place_until_it_has_ended(remote: Entry, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1)) as client, anyio.create_task_group() as calls:
        params, result = await call_until_question(
            client, "up__ask_then_wait", {"questions": [FORM], "mark": str(first)}
        )
        calls.start_soon(client.call, "up__wait", {"mark": str(second)})
        await make_round_trips(client)
        assert not second.with_suffix(".began").exists()
        async with anyio.create_task_group() as later_round:
            later_round.start_soon(client.request, "tools/call", {**params, **await client.answers_to(result)})
            await wait_for_file(first.with_suffix(".began"))
            await make_round_trips(client)
            assert not second.with_suffix(".began").exists()
            later_round.cancel_scope.cancel()
        await wait_for_file(second.with_suffix(".began"))
        calls.cancel_scope.cancel()


@pytest.mark.requirement("limits.upstream")
async def test_calls_above_the_limit_per_minute_are_not_sent_and_answers_to_questions_do_not_count(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path, stdio_entry("handshake", callsPerMinute=1)) as client:
        assert await client.call_and_parse("up__ask_twice", {"questions": [FORM]}) == [ANSWERS["accept"]] * 2
        refusal = await client.call("up__ask_twice", {"questions": [FORM]})
        assert refusal["isError"]
        assert "mcpServers.up.callsPerMinute" in refusal["content"][0]["text"]


async def test_the_place_is_free_again_when_the_suspended_call_has_ended(remote: Entry, tmp_path: Path) -> None:
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1)) as client:
        for _ in range(3):
            assert await client.call_and_parse("up__ask_twice", {"questions": [FORM]}) == [ANSWERS["accept"]] * 2


async def test_a_client_that_never_answers_loses_its_place_after_the_time_limit(remote: Entry, tmp_path: Path) -> None:
    confirmation = {"timeout": 300}
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1), confirmation=confirmation) as client:
        await call_until_question(client, "up__ask", {"questions": [FORM]})
        assert await client.call_and_parse("up__whoami")


async def test_a_suspended_call_of_a_lost_connection_has_no_place(tmp_path: Path) -> None:
    async with client_of(tmp_path, stdio_entry("handshake", maxConcurrent=1)) as client:
        pid = (await client.call_and_parse("up__whoami"))["pid"]
        await call_until_question(client, "up__ask", {"questions": [FORM]})
        os.kill(pid, signal.SIGKILL)
        while (result := await client.call("up__whoami")).get("isError"):  # noqa: ASYNC110 - no event tells of a restart
            await anyio.sleep(0.05)
        assert text_or_json(result)["pid"] != pid


@by_era
async def test_a_call_that_gets_no_place_within_its_time_limit_is_told_that_the_server_is_busy(
    era: str, remote: Entry, tmp_path: Path
) -> None:
    async with (
        client_of(tmp_path, remote(era, maxConcurrent=1, timeout=700)) as client,
        anyio.create_task_group() as calls,
    ):
        # This call has no time limit as long as it reports progress.
        calls.start_soon(client.call, "up__steps", {"steps": 10_000, "pause": 0.1}, {"progressToken": "mine"})
        await client.wait_for_notifications("notifications/progress")
        result = await client.call("up__whoami")
        assert result["isError"]
        (message,) = (block["text"] for block in result["content"])
        assert "up is busy" in message
        assert "limit on concurrent requests (mcpServers.up.maxConcurrent: 1)" in message
        assert "mcpServers.up.timeout" in message
        calls.cancel_scope.cancel()


async def test_the_wait_for_a_place_counts_towards_the_time_limit_of_a_call(remote: Entry, tmp_path: Path) -> None:
    servers = {"up": remote("handshake", maxConcurrent=1, timeout=1_500), "free": remote("handshake", timeout=1_500)}
    finished_tools: list[str] = []
    async with proxy_client(tmp_path, servers, "handshake") as client, anyio.create_task_group() as calls:

        async def hang(tool: str) -> None:
            assert (await client.call(tool))["isError"]
            finished_tools.append(tool)

        calls.start_soon(client.call, "up__steps", {"steps": 10, "pause": 0.1}, {"progressToken": "mine"})
        await client.wait_for_notifications("notifications/progress")
        calls.start_soon(hang, "up__wait")
        # This call begins after half of the steps, which the other call has spent waiting, and has its full time limit.
        await client.wait_for_notifications("notifications/progress", 6)
        calls.start_soon(hang, "free__wait")
    assert finished_tools == ["up__wait", "free__wait"]
