"""Limits of pending requests to an upstream, for slow clients and for calls that nobody waits for any more."""

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


def ignore(*_: object) -> None:
    """Do nothing with a message."""


def fail_if_called(*_: object) -> Any:
    """Fail: no request is expected."""
    raise AssertionError


@pytest.fixture
async def pending() -> AsyncGenerator[PendingRequest]:
    """A call that an upstream is working on."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    outgoing = StdinWriter(write_end, on_lost=lambda: None)
    yield await JsonRpcChannel(outgoing, ignore, ignore).start("tools/call", {})
    outgoing.close()
    os.close(read_end)


async def drain(pending: PendingRequest) -> list[Any]:
    """Return all waiting events. The answer comes last."""
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
async def test_too_many_progress_reports_are_thinned_out_and_no_question_is_lost(pending: PendingRequest) -> None:
    flood(pending, 2 * MAX_EVENTS)
    for _ in range(3):
        pending.put(QuestionWaits())
        pending.put(Progress({"progress": 10_000}))
    *events, _ = await drain(pending)
    assert events.count(QuestionWaits()) == 1
    steps = [event.params["progress"] for event in events if isinstance(event, Progress)]
    assert steps == sorted(steps)
    assert steps[-1] == 10_000
    assert len(events) <= MAX_EVENTS + 2


@pytest.mark.requirement("relay.bounded")
async def test_the_size_of_waiting_events_is_limited(pending: PendingRequest) -> None:
    flood(pending, 100, "x" * MB)
    for _ in range(100):
        pending.put(Notice("notifications/message", {"data": "x" * MB}))
    flood(pending, 200, "x" * MB)
    *events, _ = await drain(pending)
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
    assert len(await drain(pending)) == MAX_EVENTS + 1
    await pending.aclose()
    assert "notifications dropped during a call, because its client reads too slowly: 5" in caplog.text


@pytest.mark.requirement("relay.bounded")
async def test_a_response_reaches_its_caller_even_if_its_observer_fails(
    pending: PendingRequest, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[bool] = []
    pending.on_answer, pending.at_end = fail_if_called, lambda: ended.append(True)
    pending.channel.receive(Response(pending.identity, {"content": []}))
    with anyio.fail_after(CEILING):
        assert await pending.result() == {"content": []}
    assert ended == [True]
    assert "the response to tools/call was not measured" in caplog.text


@pytest.mark.requirement("relay.time_limit")
async def test_the_timeout_of_a_call_is_paused_while_a_person_is_asked(
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
async def test_progress_extends_the_timeout_of_a_call_even_if_nobody_reads_it(
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
    """A connection to an upstream that never answers."""
    writer = StdinWriter(os.open(os.devnull, os.O_WRONLY), on_lost=lambda: None)
    yield JsonRpcChannel(writer, ignore, ignore)
    writer.close()


async def abandon(peer: JsonRpcChannel, client_key: str) -> int:
    """Start a call, stop waiting for it, and return its id."""
    pending = await peer.start("tools/call", {}, client_key=client_key)
    await pending.aclose()
    return pending.identity


@pytest.mark.requirement("proxy.isolation.lists")
async def test_an_abandoned_call_that_is_never_answered_is_forgotten_after_a_time(
    peer: JsonRpcChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await abandon(peer, "ada")
    assert peer.may_be_abandoned_by_others("bob")
    assert peer.may_be_abandoned_by_others("")
    assert not peer.may_be_abandoned_by_others("ada")
    assert peer.open_requests == 0
    peer.receive(Response(call, {}))
    assert not peer.may_be_abandoned_by_others("bob")
    call = await abandon(peer, "")
    assert peer.may_be_abandoned_by_others("")
    peer.receive(Response(call, {}))
    monkeypatch.setattr(peers, "ABANDONED_SECONDS", 0.0)
    await abandon(peer, "ada")
    assert not peer.may_be_abandoned_by_others("bob")


@pytest.mark.requirement("proxy.isolation.lists")
async def test_abandoned_calls_beyond_the_limit_count_for_all_clients(peer: JsonRpcChannel) -> None:
    call_of_ada = await abandon(peer, "ada")
    calls_of_bob = [await abandon(peer, "bob") for _ in range(peers.MAX_ABANDONED - 1)]
    assert peer.may_be_abandoned_by_others("bob")
    peer.receive(Response(call_of_ada, {}))
    assert not peer.may_be_abandoned_by_others("bob")
    calls_of_bob += [await abandon(peer, "bob") for _ in range(2)]
    for call in calls_of_bob:
        peer.receive(Response(call, {}))
    assert peer.may_be_abandoned_by_others("bob")


@pytest.mark.requirement("stdio.slow_reader.questions")
async def test_a_question_to_a_client_that_does_not_read_waits_and_leaves_nothing_if_it_is_withdrawn() -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    dispatcher = Dispatcher(outgoing, on_resume=lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.run, fail_if_called, fail_if_called)
        await dispatcher.notify("notifications/message", {"data": "x"})
        outgoing.put(b"x" * OUTGOING_BYTES)
        full_size = outgoing.size
        for _ in range(10):
            with anyio.move_on_after(0.01):
                await dispatcher.request("elicitation/create", {"message": "x" * MB})
        assert outgoing.size == full_size
        tasks.start_soon(dispatcher.request, "elicitation/create", {"message": "who?"})
        await anyio.wait_all_tasks_blocked()
        outgoing.written(full_size)
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
async def test_a_request_that_fails_for_lack_of_a_login_carries_the_servers_challenge(pending: PendingRequest) -> None:
    challenge = Challenge(403, ('Bearer error="insufficient_scope", scope="write"',))
    pending.channel.receive(unusable(pending.identity, "it requires a token or a login (HTTP status 403)", challenge))
    with pytest.raises(UnusableAnswerError) as error:
        await pending.result()
    assert error.value.challenge == challenge
    assert "insufficient_scope" not in f"{error.value!r} {error.value.reason} {error.value.challenge!r}"
