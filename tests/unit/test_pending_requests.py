"""Requests to an upstream that wait, for a client that reads slowly too, or that nobody waits for any more: bounded."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from server.protocol.json_rpc import MCPError, Response
from server.transports.dispatcher import Dispatcher
from server.transports.json_lines import OUTGOING_BYTES, Backpressure, OutgoingLines
from server.upstreams.session.upstream_questions import QuestionWaits
from server.upstreams.wire import json_rpc_channel as peers
from server.upstreams.wire.json_rpc_channel import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    Challenge,
    JsonRpcChannel,
    Notice,
    PendingRequest,
    Progress,
    RpcAnswer,
    UnusableAnswerError,
    unusable,
)
from tests.waiting import CEILING

if sys.platform == "win32":
    pytest.skip("not run: the SDK's transport serves on Windows", allow_module_level=True)

from server.upstreams.wire.stdio_upstream import StdinWriter

pytestmark = pytest.mark.anyio

MB = 1 << 20


def ignored(*_: object) -> None:
    """Nobody listens here."""


def nobody(*_: object) -> Any:
    """Nothing is asked here."""
    raise AssertionError


@pytest.fixture
async def pending() -> AsyncGenerator[PendingRequest]:
    """A call that an upstream works on."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    outgoing = StdinWriter(writing, on_lost=lambda: None)
    yield await JsonRpcChannel(outgoing, ignored, ignored).start("tools/call", {})
    outgoing.close()
    os.close(reading)


async def waiting(pending: PendingRequest) -> list[Any]:
    """Everything that waits, with the answer at the end."""
    events: list[Any] = []
    pending.put(RpcAnswer({}))
    with anyio.fail_after(60):
        while not (events and isinstance(events[-1], RpcAnswer)):
            events.append(await pending.next())
    return events


def flood(pending: PendingRequest, count: int, text: str = "") -> None:
    for number in range(count):
        pending.put(Progress({"progress": number, "message": text}))


@pytest.mark.requirement("relay.bounded")
async def test_of_too_much_progress_the_newest_is_kept_and_no_question_is_lost(pending: PendingRequest) -> None:
    flood(pending, 2 * MAX_EVENTS)
    for _ in range(3):
        pending.put(QuestionWaits())
        pending.put(Progress({"progress": 10_000}))
    *events, _ = await waiting(pending)
    assert events.count(QuestionWaits()) == 1
    steps = [event.params["progress"] for event in events if isinstance(event, Progress)]
    assert steps == sorted(steps)
    assert steps[-1] == 10_000
    assert len(events) <= MAX_EVENTS + 2


@pytest.mark.requirement("relay.bounded")
async def test_what_waits_is_bounded_in_bytes(pending: PendingRequest) -> None:
    flood(pending, 100, "x" * MB)
    for _ in range(100):
        pending.put(Notice("notifications/message", {"data": "x" * MB}))
    flood(pending, 200, "x" * MB)
    *events, _ = await waiting(pending)
    texts = [event.params.get("message") or event.params["data"] for event in events]
    assert sum(map(len, texts)) <= MAX_EVENT_BYTES + 2 * MB
    assert events[-1].params["progress"] == 199
    flood(pending, 3)
    assert [(await pending.next()).params["progress"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.requirement("relay.bounded")
async def test_notifications_that_are_dropped_are_counted(
    pending: PendingRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(MAX_EVENTS + 5):
        pending.put(Notice("notifications/message", {"data": number}))
    assert len(await waiting(pending)) == MAX_EVENTS + 1
    await pending.aclose()
    assert "notifications dropped during a call, because its client reads too slowly: 5" in caplog.text


@pytest.mark.requirement("relay.bounded")
async def test_a_response_reaches_its_caller_even_if_its_observer_fails(
    pending: PendingRequest, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[bool] = []
    pending.on_answer, pending.at_end = nobody, lambda: ended.append(True)
    pending.channel.receive(Response(pending.identity, {"content": []}))
    with anyio.fail_after(CEILING):
        assert await pending.result() == {"content": []}
    assert ended == [True]
    assert "the response to tools/call was not measured" in caplog.text


@pytest.mark.requirement("relay.time_limit")
async def test_the_time_of_a_call_stands_still_while_a_person_is_asked_whatever_is_said_meanwhile(
    pending: PendingRequest,
) -> None:
    pending.expect(60)
    assert pending.deadline is not None
    with pending.paused_clock():
        with pending.paused_clock():
            flood(pending, 2 * MAX_EVENTS)
        pending.put(Progress({"progress": 1}))
        assert pending.deadline is None
    assert pending.deadline is not None


@pytest.mark.requirement("relay.time_limit")
async def test_progress_gives_a_call_more_time_though_nobody_has_taken_it(
    pending: PendingRequest,
) -> None:
    for count in (1, 2 * MAX_EVENTS):
        pending.expect(60)
        pending.deadline = 1.0
        flood(pending, count)
        assert pending.deadline > 1.0
    pending.expect(None)
    flood(pending, 1)
    assert pending.deadline is None


@pytest.fixture
async def peer() -> AsyncGenerator[JsonRpcChannel]:
    """A connection with an upstream that never answers."""
    writer = StdinWriter(os.open(os.devnull, os.O_WRONLY), on_lost=lambda: None)
    yield JsonRpcChannel(writer, ignored, ignored)
    writer.close()


async def abandoned(peer: JsonRpcChannel, client_key: str) -> int:
    """A call that its client does not wait for any more; its id."""
    pending = await peer.start("tools/call", {}, client_key=client_key)
    await pending.aclose()
    return pending.identity


@pytest.mark.requirement("proxy.isolation.lists")
async def test_an_abandoned_call_that_is_never_answered_is_forgotten_after_a_time(
    peer: JsonRpcChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await abandoned(peer, "ada")
    assert peer.has_abandoned_beside("bob")
    assert peer.has_abandoned_beside("")
    assert not peer.has_abandoned_beside("ada")
    assert peer.open_requests == 0
    peer.receive(Response(call, {}))
    assert not peer.has_abandoned_beside("bob")
    call = await abandoned(peer, "")
    assert peer.has_abandoned_beside("")
    peer.receive(Response(call, {}))
    monkeypatch.setattr(peers, "ABANDONED_SECONDS", 0.0)
    await abandoned(peer, "ada")
    assert not peer.has_abandoned_beside("bob")


@pytest.mark.requirement("proxy.isolation.lists")
async def test_no_client_makes_the_calls_forgotten_that_others_have_abandoned(peer: JsonRpcChannel) -> None:
    of_ada = await abandoned(peer, "ada")
    of_bob = [await abandoned(peer, "bob") for _ in range(peers.MAX_ABANDONED + 100)]
    assert peer.has_abandoned_beside("bob")
    peer.receive(Response(of_ada, {}))
    assert not peer.has_abandoned_beside("bob")
    for call in of_bob:
        peer.receive(Response(call, {}))
    assert peer.has_abandoned_beside("ada"), "those that were too many count until their time is over"


@pytest.mark.requirement("proxy.isolation.lists")
async def test_abandoned_calls_of_more_clients_than_are_told_apart_count_for_everybody(peer: JsonRpcChannel) -> None:
    count = 2 * peers.MAX_ABANDONED + 1
    calls = [await abandoned(peer, f"client {number}") for number in range(count)]
    for call in calls[:-1]:
        peer.receive(Response(call, {}))
    assert peer.has_abandoned_beside(f"client {count - 1}")


@pytest.mark.requirement("stdio.slow_reader.questions")
async def test_a_question_to_a_client_that_does_not_read_waits_and_leaves_nothing_when_it_is_taken_back() -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    dispatcher = Dispatcher(outgoing, on_resume=lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.run, nobody, nobody)
        await dispatcher.notify("notifications/message", {"data": "x"})
        outgoing.put(b"x" * OUTGOING_BYTES)
        full = outgoing.size
        for _ in range(10):
            with anyio.move_on_after(0.01):
                await dispatcher.request("elicitation/create", {"message": "x" * MB})
        assert outgoing.size == full
        tasks.start_soon(dispatcher.request, "elicitation/create", {"message": "who?"})
        await anyio.wait_all_tasks_blocked()
        outgoing.written(full)
        await anyio.wait_all_tasks_blocked()
        assert b"who?" in b"".join(outgoing.next_pieces())
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize("identity", [1, "1"])
async def test_a_malformed_answer_fails_its_question_however_its_id_is_written(identity: int | str) -> None:
    dispatcher = Dispatcher(OutgoingLines(lambda: None, Backpressure()), on_resume=lambda: None)
    asyncio.get_running_loop().call_later(0.01, dispatcher.fail_question, identity)
    with anyio.fail_after(CEILING), pytest.raises(MCPError, match="not a JSON-RPC response"):
        await dispatcher.request("ping", None)


@pytest.mark.requirement("upstream.challenge")
async def test_a_request_that_fails_for_want_of_a_login_says_how_the_server_wants_it(pending: PendingRequest) -> None:
    challenge = Challenge(403, ('Bearer error="insufficient_scope", scope="write"',))
    pending.channel.receive(unusable(pending.identity, "it requires a token or a login (HTTP status 403)", challenge))
    with pytest.raises(UnusableAnswerError) as failed:
        await pending.result()
    assert failed.value.challenge == challenge
    assert "insufficient_scope" not in f"{failed.value!r} {failed.value.reason} {failed.value.challenge!r}"
