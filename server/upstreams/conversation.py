"""One request to an upstream: whatever the upstream says of it, up to its answer, and how long it is waited for.

What waits for whoever relays it is bounded in number and in bytes. Only progress and remarks are left out where there
is too much: a question, the end of the time and the answer always arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic_core import to_json

from server.json_rpc import Json, RequestId

logger = logging.getLogger(__name__)

MOST_EVENTS = 1_000
MOST_EVENT_BYTES = 4 << 20
"""Events of one request that wait for whoever relays them. Of more, the newest progress replaces the one before, and
remarks are dropped."""

NEVER_CANCELLED = frozenset({"initialize", "server/discover"})
"""The specification forbids to cancel them."""


@dataclass(slots=True)
class Progress:
    """Progress of a request, as it came."""

    params: Json
    size: int = 0
    """Its bytes, where it has to wait behind others."""


@dataclass(slots=True)
class Remark:
    """Another notification that came while a request was at work."""

    method: str
    params: Json
    size: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a request: its result, or why there is none."""

    result: Json | None
    problem: Exception | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """Nothing was said in the time that was given."""


def outcome(answer: Answer) -> Json:
    """The result of a request.

    Raises:
        UpstreamError: The answer is an error.
        UnusableAnswerError: It is none.
        ConnectionLostError: There will be none.
    """
    if answer.problem is not None:
        raise answer.problem
    return answer.result if answer.result is not None else {}


class Partner(Protocol):
    """With whom the conversation is."""

    def watch(self, seconds: float) -> float:
        """Look after this time whether a conversation has expired; the time that is then."""
        ...

    def forget(self, identity: RequestId) -> None:
        """Take no more of a request."""
        ...

    async def notify_briefly(self, method: str, params: Json) -> None:
        """Send a notification if that is possible at once, also while being cancelled."""
        ...


class Conversation:
    """One request to an upstream, until it is answered or given up. Left by `with`, it is cancelled if still open.

    Args:
        partner: Where it was sent.
        identity: Its id there.
        method: What was asked for.
    """

    def __init__(self, partner: Partner, identity: RequestId, method: str) -> None:
        self.identity = identity
        self.is_answered = False
        self.at_end: Callable[[], None] | None = None
        """Called when the upstream has answered, or is not waited for any more; perhaps twice."""
        self._partner = partner
        self.method = method
        self._events: deque[Any] = deque()
        self._waiting_bytes = 0
        self._newest: Progress | None = None
        """The last progress that waits."""
        self._dropped = 0
        self._waiter: asyncio.Future[None] | None = None
        self.deadline: float | None = None
        """When it counts as expired, in the loop's time."""
        self._patience: float | None = None
        self._questions = 0
        """How many people are asked because of it."""

    def expect(self, seconds: float | None, first: float | None = None) -> None:
        """Tell `Expired` after this time without a word; `None` for never.

        Args:
            seconds: The time.
            first: Another one for the first word.
        """
        self._patience = seconds
        self._wait(seconds if first is None else first)

    def renew(self) -> None:
        """It has said something, whether or not that is passed on yet."""
        if self.deadline is not None:
            self._wait(self._patience)

    def ask(self, *, is_open: bool) -> None:
        """A person is being asked from now on, or no longer: a person's time is not the upstream's."""
        self._questions += 1 if is_open else -1
        self._wait(self._patience)

    def _wait(self, seconds: float | None) -> None:
        self.deadline = None if seconds is None or self._questions else self._partner.watch(seconds)

    def tell(self, event: Any) -> None:
        """Take in an event; whoever waits for one is woken."""
        if isinstance(event, Answer):
            self.is_answered = True
            if self.at_end is not None:
                self.at_end()
        elif self._events and not self._has_place(event):
            if type(event) is Progress:
                self.renew()
            return
        if type(event) is Progress:
            self._newest = event
            self.renew()
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_place(self, event: Any) -> bool:
        """Whether an event has to be added to those that wait."""
        if not isinstance(event, Progress | Remark):
            return event not in self._events  # once is enough
        event.size = len(to_json(event.params, inf_nan_mode="null"))
        if len(self._events) < MOST_EVENTS and self._waiting_bytes + event.size <= MOST_EVENT_BYTES:
            self._waiting_bytes += event.size
            return True
        if isinstance(event, Remark):
            self._dropped += 1
            return False
        if self._newest is None:
            self._waiting_bytes += event.size
            return True
        self._waiting_bytes += event.size - self._newest.size
        self._newest.params, self._newest.size = event.params, event.size
        return False

    async def next(self) -> Any:
        """The next event; after the answer there is none."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if type(event) is Progress or type(event) is Remark:
            self._waiting_bytes -= event.size
            if event is self._newest:
                self._newest = None
        return event

    async def result(self) -> Json:
        """The result, passing over everything else.

        Raises:
            UpstreamError: The answer is an error.
            ConnectionLostError: There will be none.
        """
        while True:
            event = await self.next()
            if isinstance(event, Answer):
                return outcome(event)

    async def close(self) -> None:
        """Wait for no answer any more; the upstream is told, if it has not answered."""
        self._partner.forget(self.identity)
        if self._dropped:
            logger.info("%d remarks of a call were dropped, since its client reads too slowly", self._dropped)
            self._dropped = 0
        if not self.is_answered and self.method not in NEVER_CANCELLED:
            params = {"requestId": self.identity, "reason": "The caller does not wait for it any more."}
            await self._partner.notify_briefly("notifications/cancelled", params)
        if self.at_end is not None:
            self.at_end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
