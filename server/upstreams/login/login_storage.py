"""The interface to login storage: files on this machine, or the replicas' shared store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from server.upstreams.login.token_files import StoredLogin, TokenStore, TokenStoreError
from tools.machine.threads import THREADS

Release = Callable[[], Awaitable[None]]


class LoginsUnavailableError(TokenStoreError):
    """The shared store is unavailable, so the logins in it are unknown."""

    def __init__(self) -> None:
        super().__init__(
            "The store with the logins (store.url) is unavailable, so nothing was changed there. Try again a little "
            "later; if this persists, the operator must check the store and the log."
        )


class LoginStore(Protocol):
    """Stores logins.

    Any method may raise `TokenStoreError`, or `LoginsUnavailableError` if the problem may be temporary.
    """

    async def run(self) -> None:
        """Do background work until cancelled."""
        ...

    async def read(self, resource: str, principal: str) -> StoredLogin | None: ...

    async def write(self, login: StoredLogin) -> StoredLogin | None:
        """Write a login over the version that it was made from, and return it with its new version.

        Returns `None`, without writing, if another process has replaced or removed that version in the meantime.
        """
        ...

    async def remove(self, resource: str, principal: str) -> bool:
        """Forget a login, even an unusable one. Returns whether there was one."""
        ...

    async def all(self) -> list[StoredLogin | TokenStoreError]: ...

    async def stamp(self, resource: str, principal: str) -> object | None:
        """Return a value that changes whenever a login is written or removed."""
        ...

    async def lock(self, resource: str, principal: str) -> Release | None:
        """Lock a login, and return a function to release it; `None` while another process has the lock."""
        ...


class FileLogins:
    """Logins in this machine's files or keyring."""

    def __init__(self, files: TokenStore) -> None:
        self._files = files

    async def run(self) -> None:
        pass

    async def read(self, resource: str, principal: str) -> StoredLogin | None:
        return await THREADS.run(partial(self._files.read, resource, principal))

    async def write(self, login: StoredLogin) -> StoredLogin | None:
        await THREADS.run(partial(self._files.write, login))
        return login

    async def remove(self, resource: str, principal: str) -> bool:
        return await THREADS.run(partial(self._files.remove, resource, principal))

    async def all(self) -> list[StoredLogin | TokenStoreError]:
        return await THREADS.run(self._files.all)

    async def stamp(self, resource: str, principal: str) -> object | None:
        return await THREADS.run(partial(self._files.stamp, resource, principal))

    async def lock(self, resource: str, principal: str) -> Release | None:
        unlock = await THREADS.run(partial(self._files.try_lock, resource, principal))
        if unlock is None:
            return None

        async def release() -> None:
            unlock()

        return release
