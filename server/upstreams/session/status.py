"""Where an upstream stands, in words and numbers for people."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class UpstreamState(StrEnum):
    """Where an upstream stands, as people are told."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CRASHING = "crashing again and again"
    NEEDS_AUTHENTICATION = "needs authentication"
    LEFT_OUT = "left out"


WAYS_TO_AUTHENTICATE = (
    'Put a token into its headers (for example "Authorization": "Bearer ${TOKEN}"), or use a bridge that logs in, '
    "such as npx mcp-remote, as its command."
)


@dataclass(slots=True)
class Standing:
    """What is known of an upstream's connection.

    Args:
        state: Where it stands.
        problem: Why it is not connected, in our own words.
        last_error: The latest of these, also after it has come back.
        connect_ms: How long the latest connection took, until it had initialized.
        list_ms: How long its lists took then.
        since: Seconds since the epoch of the latest change of its state.
        attempts: Attempts to connect since it was connected last.
        losses: How often a connection was lost soon after it was there, in a row.
    """

    state: UpstreamState = UpstreamState.WAITING
    problem: str = ""
    last_error: str = ""
    connect_ms: float | None = None
    list_ms: float | None = None
    since: float = field(default_factory=time.time)
    attempts: int = 0
    losses: int = 0

    def change(self, state: UpstreamState, problem: str = "") -> None:
        """Note another state."""
        if (state, problem) != (self.state, self.problem):
            self.since = time.time()
        self.state, self.problem = state, problem
        if problem:
            self.last_error = problem

    def as_facts(self) -> dict[str, Any]:
        """The same in the shape of JSON."""
        facts: dict[str, Any] = {"state": self.state.value, "since": round(self.since, 3)}
        if self.problem:
            facts["problem"] = self.problem
        elif self.last_error:
            facts["lastError"] = self.last_error
        if self.connect_ms is not None:
            facts["connectMs"] = round(self.connect_ms, 1)
        if self.list_ms is not None:
            facts["listMs"] = round(self.list_ms, 1)
        if self.attempts:
            facts["attempts"] = self.attempts
        return facts
