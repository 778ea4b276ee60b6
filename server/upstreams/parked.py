"""Calls that wait with their upstream while a client of the 2026-07-28 revision has their question.

An upstream of the handshake era asks in the middle of a call, and its call has to stay open until the answer comes. It
waits here, for its owner and for a limited time; then it is cancelled, and its question with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from dataclasses import dataclass, field

import anyio

from server.upstreams.conversation import Conversation
from server.upstreams.leg import Leg
from server.upstreams.session import UpstreamSession

logger = logging.getLogger(__name__)

MOST_PARKED = 256
MOST_OF_ONE = MOST_PARKED // 4
"""Calls parked at once, of all clients and of one; further questions are refused."""


@dataclass(slots=True)
class ParkedCall:
    """A call that is open with its upstream while nobody waits for it.

    Args:
        owner: Whose it is, as `ClientState.key`.
        session: With the upstream.
        leg: Its place in the session.
        handed_out: The questions that the client has.
    """

    owner: str
    session: UpstreamSession
    leg: Leg
    handed_out: list[str]
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def conversation(self) -> Conversation:
        """With the upstream."""
        return self.leg.conversation

    async def cancel(self) -> None:
        """Nobody will go on with it. The upstream is told of the call first: an answer might make it go on."""
        await self.conversation.close()
        self.session.questions.refuse(self.handed_out)
        self.session.end(self.leg)


class ParkedCalls:
    """Keeps parked calls, each until its owner goes on with it or its time is over.

    Args:
        seconds: How long a call waits.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: dict[str, ParkedCall] = {}

    def has_room(self, owner: str) -> bool:
        """Whether there is room for another call of a client, perhaps in place of one of whoever has the most."""
        counts = self._counts()
        own = counts[owner]
        return own < MOST_OF_ONE and (len(self._calls) < MOST_PARKED or own + 1 < max(counts.values()))

    def park(self, call: ParkedCall) -> str:
        """Keep a call for which there is room; returns the name under which its owner finds it again."""
        if len(self._calls) >= MOST_PARKED:
            ((greediest, _),) = self._counts().most_common(1)
            self._expire(next(name for name in reversed(self._calls) if self._calls[name].owner == greediest))
        name = secrets.token_hex(12)
        self._calls[name] = call
        call.leg.is_parked = True
        call.expiry = asyncio.get_running_loop().call_later(self._seconds, self._expire, name)
        return name

    def take(self, name: str, owner: str) -> ParkedCall | None:
        """Take a call out again; `None` if there is none of this owner."""
        call = self._calls.get(name)
        if call is None or call.owner != owner:
            return None
        self._remove(name)
        return call

    def forget(self, owner: str) -> None:
        """The client is gone: its calls are cancelled."""
        for name in [name for name, call in self._calls.items() if call.owner == owner]:
            self._expire(name)

    def is_used(self, session: UpstreamSession) -> bool:
        """Whether a call of this session is parked."""
        return any(call.session is session for call in self._calls.values())

    def _counts(self) -> Counter[str]:
        return Counter(call.owner for call in self._calls.values())

    def _remove(self, name: str) -> None:
        call = self._calls.pop(name)
        if call.expiry is not None:
            call.expiry.cancel()

    def _expire(self, name: str) -> None:
        call = self._calls[name]
        self._remove(name)
        logger.info("a parked call of upstream %s was cancelled: its question has no answer", call.session.alias)
        if not call.session.lost.is_set():
            call.session.tasks.start_soon(_cancel, call)


async def _cancel(call: ParkedCall) -> None:
    with anyio.CancelScope(shield=True):
        await call.cancel()
