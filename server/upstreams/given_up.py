"""Calls that were given up, and that an upstream may still be at work on: what it says now may be about one of them."""

from __future__ import annotations

import time

FORGOTTEN_AFTER = 120.0
"""Seconds after which a call that was never answered counts as done (ours)."""

MOST_OF_ONE = 100
"""Calls of one client that are remembered; of more, the oldest count as open until their time is over (ours)."""

MOST_OWNERS = 1_000
"""Clients that are told apart; those of more count as one that is nobody's (ours)."""

Identity = int | str


class GivenUpCalls:
    """The calls of one session that its clients do not wait for any more."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[Identity, float]] = {}
        self._owners: dict[Identity, str] = {}
        self._not_counted: dict[str, float] = {}
        """Until when there may be calls of a client that are not remembered one by one."""

    def note(self, identity: Identity, client_key: str) -> None:
        """A call is given up.

        Args:
            identity: The id of the request to the upstream.
            client_key: Whose call it was; empty for a client that cannot be told from others.
        """
        self._forget_old()
        owner = client_key if client_key in self._calls or len(self._calls) < MOST_OWNERS else ""
        calls = self._calls.setdefault(owner, {})
        calls[identity] = time.monotonic() + FORGOTTEN_AFTER
        self._owners[identity] = owner
        if len(calls) > MOST_OF_ONE:
            oldest = next(iter(calls))
            self._not_counted[owner] = calls.pop(oldest)
            self._owners.pop(oldest, None)

    def answered(self, identity: Identity) -> None:
        """The upstream has answered it after all."""
        owner = self._owners.pop(identity, None)
        if owner is not None:
            del self._calls[owner][identity]

    def may_be_of_others(self, client_key: str) -> bool:
        """Whether there is one of somebody else than this client."""
        self._forget_old()
        open_owners = {owner for owner, calls in self._calls.items() if calls} | self._not_counted.keys()
        return any(not client_key or owner != client_key for owner in open_owners)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for owner, calls in tuple(self._calls.items()):
            while calls and next(iter(calls.values())) <= now:
                self._owners.pop(identity := next(iter(calls)), None)
                del calls[identity]
            if not calls:
                del self._calls[owner]
        self._not_counted = {owner: until for owner, until in self._not_counted.items() if until > now}
