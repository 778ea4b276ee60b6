"""States that travel to a client and back and cannot be forged: of a question, a relayed call, or a task's location.

A sealed state holds claims: the action, the client, a time limit, and a nonce that is spent if the state counts once.
Nothing is stored for an open question, only which nonces are spent. Replicas with the same keys open each other's
states, and record spent nonces in the store that they share.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from server.settings.stored_json import read_stored
from server.store.replica import Replica
from server.store.sealing import Sealer

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 30.0  # allowed difference between the clocks of two hosts
CLOCK_ERROR_SECONDS = 3_600.0  # how far a host's clock may be wrong before a spent answer could count again


@dataclass(frozen=True, slots=True)
class _Claims:
    fingerprint: str
    client: str
    carried: dict[str, Any]
    nonce: str
    store: str
    sealed: float
    expires: float


class SealedStates:
    """Seals states for one purpose that are valid for a limited time. Without shared keys they end with the process.

    Args:
        purpose: What the states are for; states for another purpose cannot be opened.
        seconds: How long they are valid.
        replica: Has the keys to seal, and the store that records spent nonces.
        clock: In seconds. If replicas share keys it must be common to all: the time of day.
    """

    def __init__(
        self, purpose: str, seconds: float, replica: Replica, clock: Callable[[], float] | None = None
    ) -> None:
        is_shared = bool(replica.seal_keys)
        self._seconds = seconds
        self._store = replica.store
        self._codec = Sealer(replica.keys_for(purpose))
        self._clock = clock or (time.time if is_shared else time.monotonic)
        self._leeway = LEEWAY_SECONDS if is_shared else 0.0
        # No clock is consulted for this, so a wrong clock cannot make an answer count again.
        self._spent_seconds = seconds + (CLOCK_ERROR_SECONDS if is_shared else 0.0)

    def seal(self, fingerprint: str, client_key: str, carried: Mapping[str, Any] | None = None) -> str:
        """Seal a state for one action of one client, with `carried` as its content.

        The client key is empty for a client that cannot be distinguished from others.
        """
        now = self._clock()
        nonce, store = os.urandom(12).hex(), self._store.generation
        claims = _Claims(fingerprint, client_key, dict(carried or {}), nonce, store, now, now + self._seconds)
        return self._codec.seal(json.dumps(asdict(claims)).encode())

    async def open(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Spend a state and return its content; `None` if it is forged, replayed, late, or belongs to something else.

        It is also `None` if the store has since lost its record of spent nonces.

        Raises:
            StoreUnavailableError: It is unknown whether the state was spent before, so it does not count.
        """
        claims = self._claims(state, fingerprint, client_key, logging.WARNING)
        if claims is None:
            return None
        is_ours = await self._store.take_once(f"spent:{claims.nonce}", self._spent_seconds, claims.store)
        return claims.carried if is_ours else None

    def read(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Return the content of a state that may be used many times; `None` as for `open`."""
        # The id of a task may be from before the last restart, which is no attack.
        claims = self._claims(state, fingerprint, client_key, logging.DEBUG)
        return None if claims is None else claims.carried

    def _claims(self, state: str, fingerprint: str, client_key: str, level: int) -> _Claims | None:
        try:
            claims = read_stored(_Claims, self._codec.unseal(state))
        except ValueError:
            logger.log(level, "a client sent a state that this server did not seal")
            return None
        now = self._clock()
        if claims.sealed > now + self._leeway:
            message = (
                "a state was sealed by a clock that is %d s ahead, so it is refused: synchronize the clocks of "
                "the hosts"
            )
            logger.warning(message, claims.sealed - now)
            return None
        is_late = claims.expires + self._leeway <= now
        is_other = claims.fingerprint != fingerprint or claims.client != client_key
        return None if is_late or is_other else claims
