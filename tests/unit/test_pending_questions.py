"""Questions that wait on the dashboard: how many and how long, and that each is answered only once."""

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


async def note(progress: float, total: float | None = None, message: str | None = None) -> None:
    assert (progress, total) == (0, None)
    assert message is not None
    assert "coretools-mcp dashboard" in message


async def ask(questions: PendingQuestions, answers: list[Answer | Unavailable]) -> None:
    answers.append(await questions.ask(QUESTION, "client", "", note))


async def test_no_more_questions_are_asked_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_confirmer, "MAX_WAITING", 2)
    questions, answers = PendingQuestions(60), list[Answer | Unavailable]()
    async with anyio.create_task_group() as calls:
        for _ in range(2):
            calls.start_soon(ask, questions, answers)
        await until(lambda: len(questions.all()) == 2)
        monkeypatch.setattr(client_confirmer, "MAX_WAITING", 1)
        assert await questions.ask(QUESTION, "client", "", note) is TOO_MANY
        first, second = questions.all()
        for pending, decision in ((first, Decision.ONCE), (second, Decision.DENY)):
            assert questions.find(pending.id) is pending
            questions.give(pending, Answer(decision))
            assert questions.find(pending.id) is None, "a question with an answer can still be found"
    assert answers == [Answer(Decision.ONCE), Answer(Decision.DENY)]
    assert questions.all() == []


async def test_a_question_that_nobody_answers_is_a_denial_and_its_time_can_be_extended() -> None:
    questions, answers, changes = PendingQuestions(60), list[Answer | Unavailable](), list[int]()
    questions.on_change = lambda: changes.append(len(questions.all()))
    async with anyio.create_task_group() as calls:
        calls.start_soon(partial(ask, questions, answers))
        await until(questions.all)
        (pending,) = questions.all()
        pending.scope.deadline = math.inf
        questions.wait_longer(pending)
        assert 0 < pending.seconds_left <= 60
        pending.scope.deadline = -math.inf
    assert answers == [Answer(Decision.DENY, ConsentChannel.NOBODY_CAME)]
    assert changes == [1, 1, 0], "the dashboard is notified of each change"
