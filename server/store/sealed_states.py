"""Encrypted states that travel to a client and back: for a question, a relayed call, or a task's location.

A state contains claims: the action, the client, an expiry, and a nonce that makes it valid only once. Nothing is stored
for an open question; only spent nonces are stored. Replicas with the same keys can decrypt each other's states, and
record spent nonces in the shared store.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from server.settings.settings_files import read_stored
from server.store.replica import Replica
from tools.machine.cached_properties import cached_property

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 30.0  # allowed difference between the clocks of two hosts
CLOCK_ERROR_SECONDS = 3_600.0  # how far a host's clock may be off before a spent answer could be accepted again


class Sealer:
    """Authenticated encryption: encrypts with the first of several 32-byte keys, and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    @cached_property
    def _fernet(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - loaded on first use

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self._keys])

    def seal(self, payload: bytes) -> str:
        return self._fernet.encrypt(payload).decode("ascii")

    def unseal(self, sealed: str) -> bytes:
        """Decrypt a string, or raise `ValueError` if it was not encrypted with one of the keys."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - loaded on first use

        # A different encoding means that the string was changed, even if it decodes to the same bytes.
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed)).decode() != sealed:
            raise ValueError("changed after encryption")
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise ValueError("not encrypted with a known key") from None


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
    """Encrypts states for one purpose, valid for a limited time.

    Without shared keys, the states become useless when the process exits.

    Args:
        purpose: The purpose of the states; states for another purpose cannot be decrypted.
        seconds: How long the states are valid.
        replica: Provides the keys, and the store that records spent nonces.
        clock: Returns the time in seconds. Replicas that share keys must use the wall clock (`time.time`).
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
        # The margin keeps a wrong clock from making an answer valid again.
        self._spent_seconds = seconds + (CLOCK_ERROR_SECONDS if is_shared else 0.0)

    def seal(self, fingerprint: str, client_key: str, carried: Mapping[str, Any] | None = None) -> str:
        """Encrypt a state for one action of one client, with `carried` as its content.

        The client key is empty for an unidentified client.
        """
        now = self._clock()
        nonce, store = os.urandom(12).hex(), self._store.generation
        claims = _Claims(fingerprint, client_key, dict(carried or {}), nonce, store, now, now + self._seconds)
        return self._codec.seal(json.dumps(asdict(claims)).encode())

    async def open(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Spend a state and return its content; `None` if it is forged, replayed, expired, or for another purpose.

        The result is also `None` if the store has since lost its record of spent nonces.

        Raises:
            StoreUnavailableError: It is unknown whether the state was spent before, so the state is not accepted.
        """
        claims = self._claims(state, fingerprint, client_key, logging.WARNING)
        if claims is None:
            return None
        is_ours = await self._store.take_once(f"spent:{claims.nonce}", self._spent_seconds, claims.store)
        return claims.carried if is_ours else None

    def read(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Return the content of a reusable state; `None` if it is forged, expired, or for another purpose."""
        # A task id from before the last restart does not indicate an attack, so the level is only debug.
        claims = self._claims(state, fingerprint, client_key, logging.DEBUG)
        return None if claims is None else claims.carried

    def _claims(self, state: str, fingerprint: str, client_key: str, level: int) -> _Claims | None:
        try:
            claims = read_stored(_Claims, self._codec.unseal(state))
        except ValueError:
            logger.log(level, "a client sent a state that this server did not encrypt")
            return None
        now = self._clock()
        if claims.sealed > now + self._leeway:
            message = (
                "a state was encrypted with a clock that is %d s ahead, so it is refused: synchronize the clocks of "
                "the hosts"
            )
            logger.warning(message, claims.sealed - now)
            return None
        is_late = claims.expires + self._leeway <= now
        is_other = claims.fingerprint != fingerprint or claims.client != client_key
        return None if is_late or is_other else claims
