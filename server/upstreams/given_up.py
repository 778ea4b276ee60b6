"""Calls that were given up, and that an upstream may still be at work on: what it says now may be about one of them."""

from __future__ import annotations

import time

FORGOTTEN_AFTER = 300.0
"""Seconds after which a call that was never answered counts as done (ours)."""

MOST_GIVEN_UP = 1_000
"""Calls that are remembered; of more the first ones are forgotten (ours)."""


class GivenUpCalls:
    """The calls of one session that its clients do not wait for any more."""

    def __init__(self) -> None:
        self._calls: dict[int | str, tuple[str, float]] = {}

    def note(self, identity: int | str, client_key: str) -> None:
        """A call is given up.

        Args:
            identity: The id of the request to the upstream.
            client_key: Whose call it was; empty for a client that cannot be told from others.
        """
        self._calls[identity] = client_key, time.monotonic() + FORGOTTEN_AFTER
        if len(self._calls) > MOST_GIVEN_UP:
            del self._calls[next(iter(self._calls))]

    def answered(self, identity: int | str) -> None:
        """The upstream has answered it after all."""
        self._calls.pop(identity, None)

    def may_be_of_others(self, client_key: str) -> bool:
        """Whether there is one of somebody else than this client."""
        now = time.monotonic()
        while self._calls and next(iter(self._calls.values()))[1] <= now:
            del self._calls[next(iter(self._calls))]
        return any(not client_key or owner != client_key for owner, _ in self._calls.values())
