"""A call that is open in a session with an upstream."""

from __future__ import annotations

from dataclasses import dataclass

from server.exchange import Exchange
from server.upstreams.conversation import Conversation


@dataclass(frozen=True, slots=True)
class QuestionWaits:
    """A question waits for a client that takes it as the result of its call."""


@dataclass(slots=True)
class Leg:
    """A call that is open in a session.

    Args:
        conversation: With the upstream.
        exchange: With the client; the latest one while the call is parked.
        is_parked: Whether the client has a question, and nobody waits for the call now.
    """

    conversation: Conversation
    exchange: Exchange
    is_parked: bool = False
