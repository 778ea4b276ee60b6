"""No more calls than maxConcurrent are in flight in an upstream, suspended ones too, and nobody waits without end."""

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
    """A client of the 2026-07-28 revision."""
    async with proxy_client(folder, {"up": entry}, "modern", settings=settings, answer=ACCEPT) as client:
        yield client


async def sent_or_waiting(client: WireClient) -> None:
    """Two more round trips: what was to be sent before has begun after them."""
    for _ in range(2):
        await client.request("tools/list")


async def test_a_suspended_call_keeps_its_place_when_it_goes_on_too(remote: Entry, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1)) as client, anyio.create_task_group() as calls:
        params, result = await call_until_question(
            client, "up__ask_then_wait", {"questions": [FORM], "mark": str(first)}
        )
        calls.start_soon(client.call, "up__wait", {"mark": str(second)})
        await sent_or_waiting(client)
        assert not second.with_suffix(".began").exists()
        async with anyio.create_task_group() as going_on:
            going_on.start_soon(client.request, "tools/call", {**params, **await client.answers_to(result)})
            await wait_for_file(first.with_suffix(".began"))
            await sent_or_waiting(client)
            assert not second.with_suffix(".began").exists()
            going_on.cancel_scope.cancel()
        await wait_for_file(second.with_suffix(".began"))
        calls.cancel_scope.cancel()


@pytest.mark.requirement("limits.upstream")
async def test_a_call_above_those_of_a_minute_is_not_sent_and_the_answer_to_a_question_is_no_call(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path, stdio_entry("handshake", callsPerMinute=1)) as client:
        assert await client.call_and_parse("up__ask_twice", {"questions": [FORM]}) == [ANSWERS["accept"]] * 2
        refused = await client.call("up__ask_twice", {"questions": [FORM]})
        assert refused["isError"]
        assert "mcpServers.up.callsPerMinute" in refused["content"][0]["text"]


async def test_the_place_is_free_again_when_the_suspended_call_has_ended(remote: Entry, tmp_path: Path) -> None:
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1)) as client:
        for _ in range(3):
            assert await client.call_and_parse("up__ask_twice", {"questions": [FORM]}) == [ANSWERS["accept"]] * 2


async def test_a_client_that_never_answers_gives_its_place_up_after_its_time(remote: Entry, tmp_path: Path) -> None:
    confirmation = {"timeout": 300}
    async with client_of(tmp_path, remote("handshake", maxConcurrent=1), confirmation=confirmation) as client:
        await call_until_question(client, "up__ask", {"questions": [FORM]})
        assert await client.call_and_parse("up__whoami")


async def test_a_suspended_call_of_a_lost_connection_has_no_place(tmp_path: Path) -> None:
    async with client_of(tmp_path, stdio_entry("handshake", maxConcurrent=1)) as client:
        pid = (await client.call_and_parse("up__whoami"))["pid"]
        await call_until_question(client, "up__ask", {"questions": [FORM]})
        os.kill(pid, signal.SIGKILL)
        while (result := await client.call("up__whoami")).get("isError"):  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.05)
        assert text_or_json(result)["pid"] != pid


@by_era
async def test_who_finds_no_place_in_its_time_is_told_that_the_server_is_busy(
    era: str, remote: Entry, tmp_path: Path
) -> None:
    async with (
        client_of(tmp_path, remote(era, maxConcurrent=1, timeout=700)) as client,
        anyio.create_task_group() as calls,
    ):
        # It goes on for as long as it tells its progress.
        calls.start_soon(client.call, "up__steps", {"steps": 10_000, "pause": 0.1}, {"progressToken": "mine"})
        await client.wait_for_notifications("notifications/progress")
        result = await client.call("up__whoami")
        assert result["isError"]
        (told,) = (block["text"] for block in result["content"])
        assert "up is busy" in told
        assert "limit on concurrent requests (mcpServers.up.maxConcurrent: 1)" in told
        assert "mcpServers.up.timeout" in told
        calls.cancel_scope.cancel()


async def test_the_wait_for_a_place_is_part_of_the_time_of_a_call(remote: Entry, tmp_path: Path) -> None:
    servers = {"up": remote("handshake", maxConcurrent=1, timeout=1_500), "free": remote("handshake", timeout=1_500)}
    ended: list[str] = []
    async with proxy_client(tmp_path, servers, "handshake") as client, anyio.create_task_group() as calls:

        async def hang(tool: str) -> None:
            assert (await client.call(tool))["isError"]
            ended.append(tool)

        calls.start_soon(client.call, "up__steps", {"steps": 10, "pause": 0.1}, {"progressToken": "mine"})
        await client.wait_for_notifications("notifications/progress")
        calls.start_soon(hang, "up__wait")
        # This one begins when the other one has waited for half of the steps, and has its whole time.
        await client.wait_for_notifications("notifications/progress", 6)
        calls.start_soon(hang, "free__wait")
    assert ended == ["up__wait", "free__wait"]
