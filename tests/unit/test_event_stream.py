"""What a stream keeps for a client that is away, and which readers are woken."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from typing import Any

import anyio
import pytest
from starlette.types import Message

from server.protocol.request_table import RequestTable
from server.transports.http_messages import (
    KEPT_BYTES,
    LARGE_BYTES,
    ClientWatch,
    EventStream,
    RequestRefusedError,
    RequestStream,
    read_posted,
    send_events,
)
from server.transports.streamable_http import KEPT_BYTES as SESSION_BYTES
from server.transports.streamable_http import MAX_KEPT, HttpSession

HTTPX_SECONDS = 5.0  # the default read timeout of httpx

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("http.resumption")]


async def test_an_answer_of_any_length_waits_for_a_client_that_is_away() -> None:
    stream = RequestStream("1")
    stream.is_read = False
    for _ in range(3):
        stream.put(b"n" * KEPT_BYTES)
    stream.put_answer(b"a" * (KEPT_BYTES + 1))
    assert stream.take() == [b"a" * (KEPT_BYTES + 1)]
    stream.rewind(0)
    assert stream.take() == [b"a" * (KEPT_BYTES + 1)], "an answer that was sent may not have arrived"


async def test_the_latest_unread_messages_are_kept() -> None:
    stream = EventStream("0", is_read=False)
    for number in range(5):
        stream.put(b"%d" % number + b"n" * (KEPT_BYTES // 2 - 1))
    assert [line[:1] for line in stream.take()] == [b"3", b"4"]


async def test_a_reader_that_is_replaced_is_woken_at_once() -> None:
    stream = RequestStream("1")
    first = asyncio.create_task(stream.wait(60))
    await anyio.wait_all_tasks_blocked()
    stream.take_turn()
    second = asyncio.create_task(stream.wait(60))
    assert await first
    await anyio.wait_all_tasks_blocked()
    stream.put(b"x")
    assert await asyncio.wait_for(second, 10)


async def test_a_session_keeps_a_limited_number_of_answers_for_clients_that_are_away() -> None:
    session = HttpSession(RequestTable(), None, "")
    streams = [session.new_stream() for _ in range(MAX_KEPT + 10)]
    for stream in streams:
        session.streams[stream.name] = stream
        stream.is_read = False
    for stream in streams[:-1]:
        stream.put_answer(b"a")
    assert len(session.streams) == MAX_KEPT + 1, "the kept streams and one that still works on a request"
    streams[-1].put_answer(b"a" * (SESSION_BYTES + 1))
    assert session.streams == {}
    await session.aclose()


@pytest.mark.requirement("http.never_silent")
async def test_a_stream_sends_pings_before_common_read_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert EventStream.ping_seconds < HTTPX_SECONDS
    monkeypatch.setattr(EventStream, "ping_seconds", 0.001)
    stream, bodies = RequestStream("1"), list[bytes]()

    async def receive() -> dict[str, str]:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))
        if bodies.count(b": ping\r\n\r\n") == 3:
            stream.put_answer(b"{}")

    with ClientWatch(receive, stream) as watch:
        await send_events(stream, watch, send)
    assert b"data: {}" in bodies[-2]


@pytest.mark.requirement("http.large")
async def test_a_large_refused_body_is_freed_without_garbage_collection() -> None:
    body = b"x" * (LARGE_BYTES + 1)

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    gc.disable()
    try:
        before = sys.getrefcount(body)
        for _ in range(10):
            with suppress(RequestRefusedError):
                await read_posted({"headers": [(b"content-type", b"application/json")]}, receive, 2 * len(body))
        assert sys.getrefcount(body) < before + 10
    finally:
        gc.enable()
