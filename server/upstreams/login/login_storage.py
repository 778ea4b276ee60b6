"""The seam to where logins are kept: the files of this machine, or the store that the replicas of a server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from server.upstreams.login.token_files import StoredLogin, TokenStore, TokenStoreError
from tools.machine.threads import THREADS

Release = Callable[[], Awaitable[None]]


class LoginsUnavailableError(TokenStoreError):
    """The store that replicas share cannot be used now, so nothing is known of a login that it keeps."""

    def __init__(self) -> None:
        super().__init__(
            "The store that keeps the logins (store.url) cannot be used now, so nothing was changed there. Try again a "
            "little later; if it stays so, the operator has to look at the store and the log."
        )


class LoginStore(Protocol):
    """Any of it may raise `TokenStoreError`; a `LoginsUnavailableError` where that may pass by itself."""

    async def run(self) -> None:
        """Do what goes on beside calls, until it is cancelled."""
        ...

    async def read(self, resource: str, principal: str) -> StoredLogin | None: ...

    async def write(self, login: StoredLogin) -> StoredLogin | None:
        """Keep a login in place of the one that it was made from; `None` where that has been replaced meanwhile."""
        ...

    async def remove(self, resource: str, principal: str) -> bool:
        """Forget a login, also one that cannot be used; whether there was one."""
        ...

    async def all(self) -> list[StoredLogin | TokenStoreError]: ...

    async def stamp(self, resource: str, principal: str) -> object | None:
        """What differs once a login was written again or removed."""
        ...

    async def lock(self, resource: str, principal: str) -> Release | None:
        """Keep others away from a login, until what is given back is called; `None` while another one does."""
        ...


class FileLogins:
    """Logins in the files of this machine, or its keyring."""

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
