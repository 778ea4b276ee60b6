"""Questions that wait for an answer on the dashboard, because the client cannot ask the user."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tools.contract.confirmation import Answer, ConsentChannel, Decision, Question, Unavailable
from tools.contract.limits import Progress

MAX_WAITING = 100  # maximum number of open questions for all clients together; more than a person would answer
COMMAND = "coretools-mcp dashboard"
TOO_MANY = Unavailable(
    client_decides=False,
    way_out=f"{MAX_WAITING} questions are already waiting for an answer. The user can answer them with {COMMAND}.",
)


class AskedQuestions:
    """Counts questions: asked, answered, and open (a request is waiting for the answer)."""

    asked = answered = open = 0

    def __enter__(self) -> None:
        self.asked += 1
        self.open += 1

    def __exit__(self, kind: object, *_: object) -> None:
        self.open -= 1
        self.answered += kind is None


ASKED = AskedQuestions()


@dataclass(eq=False, slots=True)
class PendingQuestion:
    """One question, which is answered once or disappears with its call."""

    question: Question
    client: str  # the client's own name for itself
    scope: anyio.CancelScope  # its deadline ends the wait
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    asked: float = field(default_factory=time.time)  # seconds since the epoch
    answer: Answer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)

    @property
    def seconds_left(self) -> float:
        return self.scope.deadline - anyio.current_time()


class PendingQuestions:
    """All waiting questions, oldest first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[str, PendingQuestion] = {}
        self.on_change: Callable[[], None] = lambda: None  # called when a question is added or removed

    async def ask(self, question: Question, client: str, progress: Progress) -> Answer | Unavailable:
        """Tell the client how to answer the question, then wait for the answer. A timeout counts as a denial."""
        if len(self._waiting) >= MAX_WAITING:
            return TOO_MANY
        pending = PendingQuestion(question, client, anyio.move_on_after(self._seconds))
        self._waiting[pending.id] = pending
        self.on_change()
        try:
            with pending.scope, ASKED:
                await progress(0, None, f"Run {COMMAND} in a terminal to answer a question")
                await pending.answered.wait()
        finally:
            del self._waiting[pending.id]
            self.on_change()
        return pending.answer or Answer(Decision.DENY, ConsentChannel.NOBODY_CAME)

    def all(self) -> list[PendingQuestion]:
        return list(self._waiting.values())

    def find(self, id: str) -> PendingQuestion | None:  # noqa: A002 - the usual name
        """Return the question with this id, if it is still waiting."""
        pending = self._waiting.get(id)
        return pending if pending is not None and pending.answer is None else None

    def give(self, pending: PendingQuestion, answer: Answer) -> None:
        """Answer a question that `find` has returned. A question must be answered only once."""
        pending.answer = answer
        pending.answered.set()

    def wait_longer(self, pending: PendingQuestion) -> None:
        """Restart the time limit for the answer."""
        pending.scope.deadline = anyio.current_time() + self._seconds
        self.on_change()
