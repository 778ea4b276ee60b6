"""States that travel to a client and back and cannot be forged: of a question, a relayed call, or where a task is.

Sealed are claims: the action, the client, a time limit, and a nonce that is spent where a state counts once. Nothing is
kept for an open question, only which nonces were spent. Replicas that have the same keys open each other's states, and
spend nonces in the store that they share.
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

LEEWAY_SECONDS = 30.0  # that the clocks of two hosts may differ
CLOCK_ERROR_SECONDS = 3_600.0  # that the clock of a host may be wrong until an answer could count there again


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
    """Seals states that count for some seconds, for one purpose. Without keys to share they end with the process.

    Args:
        purpose: What the states are for; those for another purpose are not opened.
        seconds: How long they count.
        replica: Whose keys seal, and whose store remembers what is spent.
        clock: In seconds; where replicas share keys one that they all have, the time of day.
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
        # No clock is asked about it, so that nothing counts again by a clock that is wrong.
        self._spent_seconds = seconds + (CLOCK_ERROR_SECONDS if is_shared else 0.0)

    def seal(self, fingerprint: str, client_key: str, carried: Mapping[str, Any] | None = None) -> str:
        """A state for one action of one client, with which `carried` comes back.

        The client key is empty for a client that cannot be told from others.
        """
        now = self._clock()
        nonce, store = os.urandom(12).hex(), self._store.generation
        claims = _Claims(fingerprint, client_key, dict(carried or {}), nonce, store, now, now + self._seconds)
        return self._codec.seal(json.dumps(asdict(claims)).encode())

    async def open(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Use up a state: what it carries, `None` if it is forged, replayed, late, or belongs to something else.

        Also `None` where the store has forgotten since what was spent.

        Raises:
            StoreUnavailableError: It is not known whether it was used; it counts for nothing.
        """
        claims = self._claims(state, fingerprint, client_key, logging.WARNING)
        if claims is None:
            return None
        is_ours = await self._store.take_once(f"spent:{claims.nonce}", self._spent_seconds, claims.store)
        return claims.carried if is_ours else None

    def read(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """What a state carries that counts as often as it comes; `None` as for `open`."""
        # An id of a task may be from before the last start, which is no attack.
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
            message = "a state was sealed by a clock that is %d s ahead, so it is refused: set the clocks of the hosts"
            logger.warning(message, claims.sealed - now)
            return None
        is_late = claims.expires + self._leeway <= now
        is_other = claims.fingerprint != fingerprint or claims.client != client_key
        return None if is_late or is_other else claims
