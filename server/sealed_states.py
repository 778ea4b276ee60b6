"""States that travel to a client and back and cannot be forged: of a question, a relayed call, or where a task is.

The SDK's cipher around claims of our own: the action, the client, a time limit, and a nonce that is spent where a state
counts once. Nothing is kept for an open question, only which nonces were spent.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

logger = logging.getLogger(__name__)


class SealedStates:
    """Seals states that count for some seconds, and remembers which were used. The key ends with the process."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._codec = AESGCMRequestStateCodec([os.urandom(32)])
        self._spent: dict[str, float] = {}

    def seal(self, fingerprint: str, client_key: str, carried: Mapping[str, Any] | None = None) -> str:
        """A state for one action of one client, with which `carried` comes back.

        The client key is empty for a client that cannot be told from others.
        """
        claims = {
            "fingerprint": fingerprint,
            "client": client_key,
            "carried": carried or {},
            "nonce": os.urandom(12).hex(),
            "expires": self._clock() + self._seconds,
        }
        return self._codec.seal(json.dumps(claims).encode())

    def open(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Use up a state: what it carries, `None` if it is forged, replayed, late, or belongs to something else."""
        claims = self._claims(state, fingerprint, client_key, logging.WARNING)
        now = self._clock()
        self._spent = {nonce: expires for nonce, expires in self._spent.items() if expires > now}
        if claims is None or claims["nonce"] in self._spent:
            return None
        self._spent[claims["nonce"]] = claims["expires"]
        return dict(claims["carried"])

    def read(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """What a state carries that counts as often as it comes; `None` as for `open`."""
        # An id of a task may be from before the last start, which is no attack.
        claims = self._claims(state, fingerprint, client_key, logging.DEBUG)
        return None if claims is None else dict(claims["carried"])

    def _claims(self, state: str, fingerprint: str, client_key: str, level: int) -> Mapping[str, Any] | None:
        try:
            claims: Mapping[str, Any] = json.loads(self._codec.unseal(state))
        except (InvalidRequestState, ValueError):
            logger.log(level, "a client sent a state that this server did not seal")
            return None
        is_late = claims["expires"] <= self._clock()
        is_other = claims["fingerprint"] != fingerprint or claims["client"] != client_key
        return None if is_late or is_other else claims
