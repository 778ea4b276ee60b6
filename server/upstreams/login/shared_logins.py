"""The logins that replicas share: each is stored encrypted, with a digest as its key in the store.

A refresh token that is used twice looks stolen, and the process that got a new token may have died or be unable to
write it. Therefore a lock does not expire by the store's clock. Another replica takes over a lock if it has seen
no change to the lock for LOCK_SECONDS, and the store was available all that time. By then, a living owner would have
written its token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import anyio

from server.store.replica import Replica
from server.store.sealing import MAX_TRIES, SealedRow, SealedRows, stored_dataclass
from server.store.shared_store import ABSENT, StoreUnavailableError
from server.upstreams.login.login_storage import (
    NEW_LOGIN_HINT,
    LoginsUnavailableError,
    Release,
    StoredLogin,
    TokenStoreError,
    issuer_key_of,
    key_of,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOCK_SECONDS = 20.0  # longer than a renewal (aborted after 15 s) and its requests to the store take
CHECK_SECONDS = 1.0  # how often to check for changed logins and to retry unfinished work
# After this long without a check, a lock may have changed unnoticed. Requests to a store that does not respond time out
# sooner than this.
GAP_SECONDS = 5.0
FORGOTTEN_SECONDS = 600.0  # after this time, an unchanged lock is no longer watched
# The store's keys of two lists, separated by spaces: the keys of all logins, and of the known authorization servers
_INDEX, _ISSUER_INDEX = "logins", "login-clients"


@dataclass(slots=True)
class _WatchedLock:
    """Another replica's lock, which did not change between `since` and `last`, both by the monotonic clock."""

    version: str
    since: float
    last: float


class SharedLogins:
    """The logins in the store that replicas share, encrypted with the replicas' keys."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self._store = replica, replica.store
        self._rows = SealedRows(replica, "upstream-logins", stored_dataclass(StoredLogin))
        self._issuers = SealedRows(replica, "login-issuers", (bytes.decode, str.encode))
        # Maps each login's key to the time of the last check and the version then, `None` if the store was unavailable
        self._checks: dict[str, tuple[float, str | None]] = {}
        self._unsaved: dict[str, StoredLogin] = {}  # logins whose write is unconfirmed
        self._unreleased: dict[str, str] = {}  # versions of this replica's locks that are still to be released
        self._watched: dict[str, _WatchedLock] = {}

    async def run(self) -> None:
        is_sealed_again = False
        while True:
            with suppress(LoginsUnavailableError):
                for key, login in tuple(self._unsaved.items()):
                    await self._save(key, login)
                for key, version in tuple(self._unreleased.items()):
                    await self._release(key, version)
                for key, lock in tuple(self._watched.items()):
                    if lock.last > lock.since + FORGOTTEN_SECONDS:
                        del self._watched[key]
                    else:
                        await self._watch(key)
                is_sealed_again = is_sealed_again or await self._seal_again()
            await anyio.sleep(CHECK_SECONDS)

    async def read(self, resource: str, principal: str) -> StoredLogin | None:
        key = key_of(resource, principal)
        if (login := self._unsaved.get(key)) is not None:
            return login
        row = await self._access(self._rows.read(key))
        self._checks[key] = (time.monotonic(), row.version)
        return None if row.version == ABSENT else _login_in(row)

    async def write(self, login: StoredLogin) -> StoredLogin | None:
        key = key_of(login.resource, login.principal)
        self._unsaved[key] = login  # set first, so that `run` completes the write after a cancellation or store outage
        return await self._save(key, login)

    async def remove(self, resource: str, principal: str) -> bool:
        key = key_of(resource, principal)
        was_present = await self._access(self._rows.version(key)) != ABSENT
        await self._access(self._rows.remove(key))
        self._unsaved.pop(key, None)
        self._checks[key] = (time.monotonic(), ABSENT)
        await self._update_index(key, is_present=False)
        return was_present

    async def all(self) -> list[StoredLogin | TokenStoreError]:
        entries: list[StoredLogin | TokenStoreError] = []
        for key in await self._index_keys():
            row = await self._access(self._rows.read(key))
            if row.version != ABSENT:
                try:
                    entries.append(_login_in(row))
                except TokenStoreError as error:
                    entries.append(error)
        return entries

    async def stamp(self, resource: str, principal: str) -> object | None:
        """Return the login's version, cached for CHECK_SECONDS: until there is a token, every call asks for it."""
        key, now = key_of(resource, principal), time.monotonic()
        check = self._checks.get(key)
        if check is None or now > check[0] + CHECK_SECONDS:
            if check is not None:
                self._checks[key] = (now, check[1])  # avoids concurrent requests
            check = self._checks[key] = (now, await self._access(self._rows.version(key), key))
        if check[1] is None:
            raise LoginsUnavailableError
        return check[1] or None

    async def issuer_of(self, resource: str, client_id: str) -> str | None:
        key = issuer_key_of(resource, client_id)
        row = await self._access(self._issuers.read(key))
        if row.version != ABSENT and row.value is None:
            raise TokenStoreError(
                "The record of a client's authorization server in the store (store.url) cannot be decrypted with "
                "http.stateKeys, or is damaged: set oauth.issuer in the server's entry."
            )
        await self._access(self._issuers.seal_again(key, row))
        return row.value

    async def set_issuer(self, resource: str, client_id: str, issuer: str) -> None:
        key = issuer_key_of(resource, client_id)
        await self._access(self._issuers.write(key, issuer, None))
        await self._update_index(key, is_present=True, index=_ISSUER_INDEX)

    async def lock(self, resource: str, principal: str) -> Release | None:
        return await self._lock(key_of(resource, principal))

    async def _lock(self, key: str) -> Release | None:
        old_version = await self._watch(key)
        if old_version is None:
            return None
        version = await self._access(self._store.put(_lock_name(key), self._replica.name, if_version=old_version))
        if version is None:
            return None
        if old_version != ABSENT:
            logger.warning(
                "the replica that had locked a login has exited or cannot reach the store; this replica takes over"
            )
        self._watched.pop(key, None)
        return partial(self._release, key, version)

    async def _watch(self, key: str) -> str | None:
        """Watch a lock. Returns the version to replace in order to take the lock; `None` if it may not be taken yet."""
        entry = await self._access(self._store.get(_lock_name(key)))
        if entry is None:
            self._watched.pop(key, None)
            return ABSENT
        now = time.monotonic()
        lock = self._watched.get(key)
        if lock is None or lock.version != entry.version or now > lock.last + GAP_SECONDS:
            lock = self._watched[key] = _WatchedLock(entry.version, now, now)
        lock.last = now
        return entry.version if now > lock.since + LOCK_SECONDS else None

    async def _release(self, key: str, version: str) -> None:
        """Release a login's lock; if the login's write is unconfirmed, `run` does so after completing the write."""
        self._unreleased[key] = version
        if key not in self._unsaved:
            with suppress(LoginsUnavailableError):
                await self._access(self._store.delete(_lock_name(key), if_version=version))
                if self._unreleased.get(key) == version:
                    del self._unreleased[key]

    async def _save(self, key: str, login: StoredLogin) -> StoredLogin | None:
        version = await self._access(self._rows.write(key, login, login.version))
        if self._unsaved.get(key) is login:
            del self._unsaved[key]
        if version is None:
            return None
        self._checks[key] = (time.monotonic(), version)
        with suppress(LoginsUnavailableError):  # if this fails, the next write adds the login to the index
            await self._update_index(key, is_present=True)
        return replace(login, version=version)

    async def _update_index(self, key: str, *, is_present: bool, index: str = _INDEX) -> None:
        """Add a key to the index; if `is_present` is false, remove it."""
        for _ in range(MAX_TRIES):
            entry = await self._access(self._store.get(index))
            keys = set[str]() if entry is None else set(entry.value.split())
            if (key in keys) == is_present:
                return
            text = " ".join(sorted(keys | {key} if is_present else keys - {key}))
            if await self._access(self._store.put(index, text, if_version=ABSENT if entry is None else entry.version)):
                return
        logger.warning("the index of the logins in the store is being changed by too many processes at once")

    async def _index_keys(self, index: str = _INDEX) -> list[str]:
        entry = await self._access(self._store.get(index))
        return [] if entry is None else entry.value.split()

    async def _seal_again(self) -> bool:
        """Encrypt all rows with the first key, to retire the others. Returns false if locked logins were skipped."""
        is_done = True
        for key in await self._index_keys(_ISSUER_INDEX):
            await self._access(self._issuers.seal_again(key, await self._access(self._issuers.read(key))))
        for key in await self._index_keys():
            if (await self._access(self._rows.read(key))).is_current:
                continue
            # Without the lock, re-encryption could replace the version on which a renewal in progress is based.
            release = await self._lock(key)
            if release is None:
                is_done = False
                continue
            try:
                await self._access(self._rows.seal_again(key, await self._access(self._rows.read(key))))
            finally:
                await release()
        return is_done

    async def _access(self, work: Awaitable[T], stamp_of: str | None = None) -> T:
        try:
            return await work
        except StoreUnavailableError:
            self._watched.clear()  # the owner of a lock may also have been unable to write
            if stamp_of is not None:
                self._checks[stamp_of] = (time.monotonic(), None)
            raise LoginsUnavailableError from None


def _login_in(row: SealedRow[StoredLogin]) -> StoredLogin:
    if row.value is None:
        raise TokenStoreError(
            "A login in the store (store.url) cannot be decrypted with http.stateKeys, or is damaged: "
            f"{NEW_LOGIN_HINT}."
        )
    return replace(row.value, version=row.version)


def _lock_name(key: str) -> str:
    return f"login-lock:{key}"
