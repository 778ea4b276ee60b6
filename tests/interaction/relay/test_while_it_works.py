"""What happens while a call is running: progress, log messages, its time limit, cancellation."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from server.upstreams.session import upstream_session
from tests.hostile.lying import over_stdio
from tests.interaction.relay.clients import (
    PROGRESS,
    AnswerError,
    proxy_client,
    stdio_entry,
    text_or_json,
    wait_for_file,
)
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.eras import by_era, by_eras, by_eras_each_way

pytestmark = pytest.mark.anyio

LEVEL = "io.modelcontextprotocol/logLevel"
MESSAGE = "notifications/message"
DROPPED_PATTERN = re.compile(r"upstream up sent more than 5 messages in one second; dropped: (\d+)")


@pytest.mark.requirement("relay.progress")
@by_eras_each_way
async def test_all_progress_comes_unchanged_and_in_order_before_the_result(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        assert text_or_json(await client.call("up__steps", {"steps": 30}, {"progressToken": "of mine"})) == "done"
        progress = [params for method, params in client.messages if method == PROGRESS]
        assert progress == [
            {"progressToken": "of mine", "progress": step, "total": 9, "message": f"step {step}", "x-step": step}
            for step in range(1, 31)
        ]
        assert [method for method, _ in client.messages if method in (PROGRESS, "answer")][-1] == "answer"
        client.messages.clear()
        assert text_or_json(await client.call("up__steps", {"steps": 2})) == "done"
        assert PROGRESS not in [method for method, _ in client.messages]


@pytest.mark.requirement("relay.logs")
@by_eras_each_way
async def test_log_messages_reach_clients_that_want_them(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:

        async def levels(meta: dict[str, str]) -> list[str]:
            client.messages.clear()
            await client.call("up__logs", {}, meta)
            return [params["level"] for method, params in client.messages if method == MESSAGE]

        assert await levels({}) == ([] if client.is_modern else ["debug", "info", "error"])
        if client.is_modern:
            assert await levels({LEVEL: "info"}) == ["info", "error"]
            assert await levels({LEVEL: "debug"}) == ["debug", "info", "error"]
        else:
            await client.request("logging/setLevel", {"level": "alert"})
            assert await levels({}) == ["debug", "info", "error"], "the upstream decides which levels are sent"
        message = next(params for method, params in client.messages if method == MESSAGE)
        assert message == {"level": "debug", "logger": "up/asking", "data": {"said": "debug"}, "x-unknown": 1}


@pytest.mark.requirement("relay.logs")
@pytest.mark.parametrize("upstream_era", ["handshake", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_upstream_is_told_which_level_a_client_wants(
    upstream_era: str, transport: str, remote: Entry, tmp_path: Path
) -> None:
    entry = stdio_entry(upstream_era) if transport == "stdio" else remote(upstream_era)
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.request("logging/setLevel", {"level": "warning"})
        assert await client.call_and_parse("up__logs", {}) == {"level": "warning"}
        with pytest.raises(AnswerError):
            await client.request("logging/setLevel", {"level": "loud"})
    async with proxy_client(tmp_path, {"up": entry}, "modern") as client:
        assert text_or_json(await client.call("up__logs", {}, {LEVEL: "error"})) == {
            "level": "error" if upstream_era == "modern" else None
        }


@pytest.mark.requirement("relay.logs")
@by_eras
async def test_log_messages_come_over_one_stream_too(client_era: str, upstream_era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": stdio_entry(upstream_era)}, client_era) as client:
        await client.call("up__logs", {}, {LEVEL: "info"})
        levels = [params["level"] for method, params in client.messages if method == MESSAGE]
        assert levels[-2:] == ["info", "error"]


@pytest.mark.requirement("relay.logs")
@by_eras
async def test_some_log_messages_of_a_flood_are_passed_on_and_the_log_says_how_many_were_dropped(
    client_era: str,
    upstream_era: str,
    remote: Entry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(upstream_session, "MAX_PER_SECOND", 5)
    caplog.set_level("WARNING")  # the default of `log.level`
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        await client.call("up__logs", {"times": 200}, {LEVEL: "debug"})
        assert client.messages[-1][0] == "answer", "all messages must come before the result"
        shown_count = [method for method, _ in client.messages].count(MESSAGE)
        client.messages.clear()
        while [method for method, _ in client.messages].count(MESSAGE) != 3:
            # In a later second, all messages are passed on again, because there are few.
            client.messages.clear()
            await anyio.sleep(1)
            await client.call("up__logs", {}, {LEVEL: "debug"})
    dropped_counts = [
        int(match[1]) for record in caplog.records if (match := DROPPED_PATTERN.match(record.getMessage()))
    ]
    assert shown_count + sum(dropped_counts) == 600


@pytest.mark.requirement("relay.time_limit")
@by_eras
async def test_a_call_without_progress_ends_at_its_time_limit_and_progress_extends_it(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era, timeout=2_000)}, client_era) as client:
        assert await client.call_and_parse("up__steps", {"steps": 8, "pause": 0.3}) == "done"
        result = await client.call("up__wait", {"mark": str(tmp_path / "late")})
        assert result["isError"]
        assert "mcpServers.up.timeout" in result["content"][0]["text"]
        await wait_for_file(tmp_path / "late.cancelled")
        assert await client.call_and_parse("up__whoami")


@pytest.mark.requirement("relay.time_limit")
@by_eras_each_way
async def test_a_cancelled_call_ends_the_work_of_the_upstream(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    servers = {"near": stdio_entry(upstream_era), "far": remote(upstream_era), "sse": remote(upstream_era, "sse")}
    if upstream_era == "modern":
        del servers["sse"]  # the old SSE transport does not exist in the modern era
    async with proxy_client(tmp_path, servers, client_era) as client:
        for alias in servers:
            mark = tmp_path / alias
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call, f"{alias}__wait", {"mark": str(mark)})
                await wait_for_file(mark.with_suffix(".began"))
                assert not mark.with_suffix(".cancelled").exists()
                calls.cancel_scope.cancel()
            await wait_for_file(mark.with_suffix(".cancelled"))
            assert await client.call_and_parse(f"{alias}__whoami")


@pytest.mark.requirement("relay.time_limit")
@by_eras
async def test_the_calls_of_a_client_that_disconnects_are_cancelled(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    mark = tmp_path / "gone"
    async with (
        proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client,
        anyio.create_task_group() as calls,
    ):
        calls.start_soon(client.request, "tools/call", {"name": "up__wait", "arguments": {"mark": str(mark)}})
        await wait_for_file(mark.with_suffix(".began"))
        client.notify = _send_nothing  # it disconnects without sending a cancellation
        calls.cancel_scope.cancel()
    await wait_for_file(mark.with_suffix(".cancelled"))


async def _send_nothing(method: str, params: object = None) -> None:
    del method, params


@pytest.mark.requirement("relay.claims")
@by_era
async def test_an_upstream_cannot_send_messages_in_the_name_of_another(era: str, tmp_path: Path) -> None:
    entry = over_stdio("claim", protocol="legacy")
    async with proxy_client(tmp_path, {"up": entry}, era) as client:
        result = await client.call("up__echo", {}, {"progressToken": "mine", LEVEL: "debug"})
        loggers = [params["logger"] for method, params in client.messages if method == MESSAGE]
        assert loggers == ["up/coretools-mcp", "up/good/x", "up", "up", "up/a<U+202E>b"]
        assert [params["progress"] for method, params in client.messages if method == PROGRESS] == [2]
    assert result["_meta"].get("kept") == 1
    assert "coretools-mcp/upstream" not in result["_meta"]
    assert [part.get("_meta") for part in result["content"]] == [{"kept": 1}, None]
