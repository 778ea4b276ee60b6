"""What waits for a client that reads slowly: bounded, with nothing lost that a call cannot do without."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from server.transports.dispatcher import WireDispatcher
from server.transports.lines import OUTGOING_BYTES, Backpressure, OutgoingLines
from server.upstreams.session.session import QuestionWaits
from server.upstreams.wire.peer import MOST_EVENT_BYTES, MOST_EVENTS, Answer, Conversation, Peer, Progress, Remark

if sys.platform == "win32":
    pytest.skip("not run: the SDK's transport serves on Windows", allow_module_level=True)

from server.upstreams.wire.stdio import Outgoing

pytestmark = pytest.mark.anyio

MB = 1 << 20


def ignored(*_: object) -> None:
    """Nobody listens here."""


def nobody(*_: object) -> Any:
    """Nothing is asked here."""
    raise AssertionError


@pytest.fixture
async def talk() -> AsyncGenerator[Conversation]:
    """A call that an upstream works on."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    outgoing = Outgoing(writing, on_lost=lambda: None)
    yield await Peer(outgoing, ignored, ignored).start("tools/call", {})
    outgoing.close()
    os.close(reading)


async def waiting(talk: Conversation) -> list[Any]:
    """Everything that waits, with the answer at the end."""
    events: list[Any] = []
    talk.tell(Answer({}))
    with anyio.fail_after(60):
        while not (events and isinstance(events[-1], Answer)):
            events.append(await talk.next())
    return events


def flood(talk: Conversation, count: int, text: str = "") -> None:
    for number in range(count):
        talk.tell(Progress({"progress": number, "message": text}))


@pytest.mark.requirement("relay.bounded")
async def test_of_too_much_progress_the_newest_is_kept_and_no_question_is_lost(talk: Conversation) -> None:
    flood(talk, 2 * MOST_EVENTS)
    for _ in range(3):
        talk.tell(QuestionWaits())
        talk.tell(Progress({"progress": 10_000}))
    *events, _ = await waiting(talk)
    assert events.count(QuestionWaits()) == 1
    steps = [event.params["progress"] for event in events if isinstance(event, Progress)]
    assert steps == sorted(steps)
    assert steps[-1] == 10_000
    assert len(events) <= MOST_EVENTS + 2


@pytest.mark.requirement("relay.bounded")
async def test_what_waits_is_bounded_in_bytes(talk: Conversation) -> None:
    flood(talk, 100, "x" * MB)
    for _ in range(100):
        talk.tell(Remark("notifications/message", {"data": "x" * MB}))
    flood(talk, 200, "x" * MB)
    *events, _ = await waiting(talk)
    texts = [event.params.get("message") or event.params["data"] for event in events]
    assert sum(map(len, texts)) <= MOST_EVENT_BYTES + 2 * MB
    assert events[-1].params["progress"] == 199
    flood(talk, 3)
    assert [(await talk.next()).params["progress"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.requirement("relay.bounded")
async def test_remarks_that_are_dropped_are_counted(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(MOST_EVENTS + 5):
        talk.tell(Remark("notifications/message", {"data": number}))
    assert len(await waiting(talk)) == MOST_EVENTS + 1
    await talk.close()
    assert "5 remarks of a call were dropped" in caplog.text


@pytest.mark.requirement("relay.time_limit")
async def test_the_time_of_a_call_stands_still_while_a_person_is_asked_whatever_is_said_meanwhile(
    talk: Conversation,
) -> None:
    talk.expect(60)
    assert talk.deadline is not None
    talk.ask(is_open=True)
    talk.ask(is_open=True)
    flood(talk, 2 * MOST_EVENTS)
    talk.ask(is_open=False)
    talk.renew()
    assert talk.deadline is None
    talk.ask(is_open=False)
    assert talk.deadline is not None


@pytest.mark.requirement("relay.time_limit")
async def test_progress_gives_a_call_more_time_when_it_comes_though_nobody_has_taken_it(talk: Conversation) -> None:
    for count in (1, 2 * MOST_EVENTS):
        talk.expect(60)
        talk.deadline = 1.0
        flood(talk, count)
        assert talk.deadline > 1.0
    talk.expect(None)
    flood(talk, 1)
    assert talk.deadline is None


@pytest.mark.requirement("stdio.slow_reader.questions")
async def test_a_question_to_a_client_that_does_not_read_waits_and_leaves_nothing_when_it_is_taken_back() -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    dispatcher = WireDispatcher(outgoing, on_room=lambda: None)
    async with anyio.create_task_group() as tasks:
        await tasks.start(dispatcher.run, nobody, nobody)
        await dispatcher.notify("notifications/message", {"data": "x"})
        outgoing.put(b"x" * OUTGOING_BYTES)
        full = outgoing.size
        for _ in range(10):
            with anyio.move_on_after(0.01):
                await dispatcher.send_raw_request("elicitation/create", {"message": "x" * MB})
        assert outgoing.size == full
        tasks.start_soon(dispatcher.send_raw_request, "elicitation/create", {"message": "who?"})
        await anyio.wait_all_tasks_blocked()
        outgoing.written(full)
        await anyio.wait_all_tasks_blocked()
        assert b"who?" in b"".join(outgoing.next_pieces())
        tasks.cancel_scope.cancel()
