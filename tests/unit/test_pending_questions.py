"""Questions that wait for a person at the dashboard: how many, how long, and that each is answered once."""

from __future__ import annotations

import math
from functools import partial

import anyio
import pytest

from server.questions import client_confirmer
from server.questions.client_confirmer import TOO_MANY, PendingQuestions
from tests.waiting import until
from tools.contract.confirmation import Answer, ConsentChannel, Decision, InfoConfirmation, Question, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("dashboard.answers")]

QUESTION = Question("a call", InfoConfirmation(title="t", prompt="p"), "fingerprint")


async def told(progress: float, total: float | None = None, message: str | None = None) -> None:
    assert (progress, total) == (0, None)
    assert message is not None
    assert "coretools-mcp dashboard" in message


async def ask(waiting: PendingQuestions, answers: list[Answer | Unavailable]) -> None:
    answers.append(await waiting.ask(QUESTION, "client", told))


async def test_above_a_number_of_questions_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_confirmer, "MAX_WAITING", 2)
    waiting, answers = PendingQuestions(60), list[Answer | Unavailable]()
    async with anyio.create_task_group() as calls:
        for _ in range(2):
            calls.start_soon(ask, waiting, answers)
        await until(lambda: len(waiting.all()) == 2)
        monkeypatch.setattr(client_confirmer, "MAX_WAITING", 1)
        assert await waiting.ask(QUESTION, "client", told) is TOO_MANY
        first, second = waiting.all()
        for pending, decision in ((first, Decision.ONCE), (second, Decision.DENY)):
            assert waiting.find(pending.id) is pending
            waiting.give(pending, Answer(decision))
            assert waiting.find(pending.id) is None, "it is answered once"
    assert answers == [Answer(Decision.ONCE), Answer(Decision.DENY)]
    assert waiting.all() == []


async def test_a_question_that_nobody_answers_is_a_denial_and_its_time_begins_again_where_that_is_wanted() -> None:
    waiting, answers, changes = PendingQuestions(60), list[Answer | Unavailable](), list[int]()
    waiting.on_change = lambda: changes.append(len(waiting.all()))
    async with anyio.create_task_group() as calls:
        calls.start_soon(partial(ask, waiting, answers))
        await until(waiting.all)
        (pending,) = waiting.all()
        pending.scope.deadline = math.inf
        waiting.wait_longer(pending)
        assert 0 < pending.seconds_left <= 60
        pending.scope.deadline = -math.inf
    assert answers == [Answer(Decision.DENY, ConsentChannel.NOBODY_CAME)]
    assert changes == [1, 1, 0], "the page follows each change"
