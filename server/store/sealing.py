"""Encrypts what leaves this process: states that travel to a client and back, and rows in the shared store.

A state is for a question, a relayed call, or a task's location. It contains claims: the action, the client, an expiry,
and a nonce. `open` spends the nonce, so it accepts a state only once; `read` accepts a state repeatedly. Nothing is
stored for an open question; only spent nonces are stored. Replicas with the same keys can decrypt each other's states,
and record spent nonces in the shared store.

A row is bound to its key: write access to the store is not enough to forge one. However, somebody with write access can
restore an old row under its key, so readers must not assume that a row is current.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from server.settings.settings_files import read_stored
from server.store.replica import Replica
from server.store.shared_store import ABSENT
from tools.machine.threads import THREADS
from tools.machine.unlocked_cached_property import cached_property

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

T = TypeVar("T")

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 30.0  # allowed difference between the clocks of two hosts
CLOCK_ERROR_SECONDS = 3_600.0  # how far a host's clock may be off before a spent answer could be accepted again
MAX_TRIES = 32  # attempts at a write while others write concurrently


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

    def unseal(self, token: str) -> bytes:
        """Decrypt a string, or raise `ValueError` if it was not encrypted with one of the keys."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - loaded on first use

        # A different encoding means that the string was changed, even if it decodes to the same bytes.
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)).decode() != token:
            raise ValueError("changed after encryption")
        try:
            return self._fernet.decrypt(token)
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
    """Encrypts states for one `purpose`, valid for `seconds`. Without shared keys, only this process accepts them.

    The replica provides the keys, and the store that records spent nonces. Replicas that share keys must use the wall
    clock (`time.time`).
    """

    def __init__(
        self, purpose: str, seconds: float, replica: Replica, clock: Callable[[], float] | None = None
    ) -> None:
        is_shared = bool(replica.seal_keys)
        self._seconds = seconds
        self._uses = replica.uses
        self._codec = Sealer(replica.keys_for(purpose))
        self._clock = clock or (time.time if is_shared else time.monotonic)
        self._leeway = LEEWAY_SECONDS if is_shared else 0.0
        # The margin prevents a host whose clock is wrong from accepting a spent answer.
        self._spent_seconds = seconds + (CLOCK_ERROR_SECONDS if is_shared else 0.0)

    def seal(self, fingerprint: str, client_key: str, content: Mapping[str, Any] | None = None) -> str:
        """Encrypt a state for one action of one client, whose key is empty if it is unidentified."""
        now = self._clock()
        nonce, store = os.urandom(12).hex(), self._uses.generation
        claims = _Claims(fingerprint, client_key, dict(content or {}), nonce, store, now, now + self._seconds)
        return self._codec.seal(json.dumps(asdict(claims)).encode())

    async def open(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Spend a state and return its content; `None` if it is forged, replayed or expired.

        The result is also `None` if the state is for another purpose, action or client, or if the store has since lost
        its record of spent nonces. Raises a `StoreUnavailableError`, without accepting the state, if it is unknown
        whether the state was spent.
        """
        claims = self._claims(state, fingerprint, client_key, logging.WARNING)
        if claims is None:
            return None
        is_first_use = await self._uses.take_once(f"spent:{claims.nonce}", self._spent_seconds, claims.store)
        return claims.carried if is_first_use else None

    def read(self, state: str, fingerprint: str, client_key: str) -> dict[str, Any] | None:
        """Return the content of a state that may be used repeatedly.

        `None` means that the state is forged, expired, or for another purpose, action or client.
        """
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
                "a state was encrypted with a clock that is %d s ahead, so it is refused: synchronise the clocks of "
                "the hosts"
            )
            logger.warning(message, claims.sealed - now)
            return None
        is_late = claims.expires + self._leeway <= now
        is_other = claims.fingerprint != fingerprint or claims.client != client_key
        return None if is_late or is_other else claims


@dataclass(frozen=True, slots=True)
class SealedRow(Generic[T]):
    value: T | None  # `None` if the row is missing or unusable
    version: str
    is_current: bool = True  # whether it is encrypted with the first key


def stored_dataclass(kind: type[T]) -> tuple[Callable[[bytes], T], Callable[[T], bytes]]:
    """Return a parser and a serialiser for rows that contain the fields of a dataclass."""
    return partial(read_stored, kind), lambda value: json.dumps(asdict(value)).encode()  # pyright: ignore[reportArgumentType] - it is a dataclass


@dataclass(frozen=True, slots=True, eq=False)
class SealedRows(Generic[T]):
    """The rows for one purpose. Every method may raise `StoreUnavailableError`."""

    replica: Replica
    purpose: str  # the beginning of the rows' keys in the store
    form: tuple[Callable[[bytes], T], Callable[[T], bytes]]
    """A parser, which raises `ValueError` for a damaged row, and a serialiser."""
    seconds: float | None = None  # the lifetime of a row after its last write; forever by default
    are_large: bool = field(default=False, kw_only=True)  # whether to decrypt and encrypt in threads

    async def read(self, key: str, known_row: SealedRow[T] | None = None) -> SealedRow[T]:
        """Read a row. If `known_row` still has the current version, return it without decrypting or logging."""
        entry = await self.replica.store.get(self._name(key))
        if entry is None:
            return SealedRow(None, ABSENT)
        if known_row is not None and entry.version == known_row.version:
            return known_row

        def decrypt() -> SealedRow[T]:
            parse, _ = self.form
            for index, secret_key in enumerate(self._keys(key)):
                try:
                    content = Sealer([secret_key]).unseal(entry.value)
                except ValueError:
                    continue
                return SealedRow(parse(content), entry.version, index == 0)
            raise ValueError("not encrypted with a known key")

        try:
            return await THREADS.run(decrypt) if self.are_large else decrypt()
        except ValueError:
            message = (
                "the store has a row for %s that is damaged or not encrypted with this server's keys; it is ignored"
            )
            logger.warning(message, self.purpose)
            return SealedRow(None, entry.version)

    async def version(self, key: str) -> str:
        entry = await self.replica.store.get(self._name(key))
        return ABSENT if entry is None else entry.version

    async def write(self, key: str, value: T, over: str | None) -> str | None:
        """Write a row if its current version is `over`; if `over` is `None`, write it whatever its version.

        Returns the new version; `None` if the version differs. Raises a `ValueError` if the value cannot be serialised.
        """

        def encrypt() -> str:
            _, write = self.form
            return Sealer(self._keys(key)).seal(write(value))

        text = await THREADS.run(encrypt) if self.are_large else encrypt()
        return await self.replica.store.put(self._name(key), text, self.seconds, if_version=over)

    async def change(self, key: str, change: Callable[[T | None], T]) -> SealedRow[T] | None:
        """Change a row. Returns the written row, or `None` if too many replicas write concurrently."""
        for _ in range(MAX_TRIES):
            row = await self.read(key)
            value = change(row.value)
            if version := await self.write(key, value, row.version):
                return SealedRow(value, version)
        return None

    async def seal_again(self, key: str, row: SealedRow[T]) -> None:
        """Re-encrypt a row with the first key if another key was used, so that the other key can be retired."""
        if row.value is not None and not row.is_current:
            await self.write(key, row.value, row.version)

    async def remove(self, key: str) -> None:
        await self.replica.store.delete(self._name(key))

    def _name(self, key: str) -> str:
        return f"{self.purpose}:{key}"

    def _keys(self, key: str) -> list[bytes]:
        return self.replica.keys_for(f"{self.purpose} {key}")
