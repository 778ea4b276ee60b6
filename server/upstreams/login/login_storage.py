"""The interface to login storage, and the storage on this machine; `shared_logins` has the storage for replicas.

Both also keep the authorization server of each OAuth client from the settings (`issuer_of`). That server is the same
for all principals, and stays stored after a logout.

On this machine, each login is a file in the user's state folder, with its secrets there or in the system keyring. A
file's name is a digest of the server's address and the principal. The file names the authorization server and contains
everything that came from it, so a login is never used with another server. Moving between files and the keyring
requires a new login.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, Protocol, cast

from server.protocol.json_rpc import Json
from server.settings.settings_files import read_stored
from tools.files.change.writer import PRIVATE_MODE, REAL_DISK, Disk, replace_private_file, try_lock
from tools.files.path_opener import Folder, identity_of, is_ours, open_private_folder
from tools.machine.threads import THREADS

logger = logging.getLogger(__name__)

FOLDER = "logins"  # a folder in the user's state folder
SERVICE = "coretools-mcp"  # the service name in the keyring
MAX_BYTES = 8 << 20  # maximum size of a file, far more than a login needs

_SUFFIX, _LOCK_SUFFIX, _ISSUER_SUFFIX = ".json", ".lock", ".issuer"
_PUBLIC_TOKEN_FIELDS = ("token_type", "scope", "expires_in")  # a token's fields that are not secret
_SECRET_CLIENT_FIELDS = ("client_secret", "registration_access_token")  # a registration's secret fields
# `Login` replaces ALIAS with the arguments that these commands need
NEW_LOGIN_HINT = "remove the login with coretools-mcp logout ALIAS, then log in with coretools-mcp login ALIAS"
_FILE_HINT = 'or set proxy.tokenStorage to "file", and log in again'


class TokenStoreError(Exception):
    """The login storage, or a stored login, cannot be used; the message tells people what to do."""


class LoginsUnavailableError(TokenStoreError):
    """The shared store is unavailable, so the logins in it are unknown."""

    def __init__(self) -> None:
        super().__init__(
            "The store with the logins (store.url) is unavailable. Try again a little later; if this persists, the "
            "operator must check the store and the log."
        )


@dataclass(frozen=True, slots=True)
class StoredLogin:
    resource: str  # the canonical address of the server
    principal: str  # empty for this machine's user
    alias: str  # the server's alias when the login was made
    issuer: str  # the authorization server
    metadata: Json = field(repr=False)  # the authorization server's metadata (RFC 8414)
    client: Json = field(repr=False)  # the registered client (RFC 7591), possibly with a secret
    scopes: str | None  # the requested scopes, separated by spaces
    token: Json | None = field(repr=False)
    """The token response (RFC 6749, 5.1); `None` before the first one, and after a refused grant."""
    expires_at: float | None  # when the access token expires, in seconds since the epoch, if known
    version: str | None = field(default=None, compare=False)
    """The version in the shared store on which this login is based; `None` if the login is new or in a file."""


Release = Callable[[], Awaitable[None]]


class LoginStore(Protocol):
    """Stores logins. Methods may raise a `TokenStoreError`: a `LoginsUnavailableError` if a retry may succeed."""

    async def run(self) -> None:
        """Do background work until cancelled."""
        ...

    async def read(self, resource: str, principal: str) -> StoredLogin | None: ...

    async def write(self, login: StoredLogin) -> StoredLogin | None:
        """Replace the version on which this login is based, and return the new one; `None` if that version is gone."""
        ...

    async def remove(self, resource: str, principal: str) -> bool:
        """Remove a login, even an unusable one. Returns whether there was one."""
        ...

    async def all(self) -> list[StoredLogin | TokenStoreError]: ...

    async def stamp(self, resource: str, principal: str) -> object | None:
        """Return a value that changes whenever a login is written or removed."""
        ...

    async def issuer_of(self, resource: str, client_id: str) -> str | None:
        """Return the authorization server to which the secret of a client from the settings goes, if one is known."""
        ...

    async def set_issuer(self, resource: str, client_id: str, issuer: str) -> None: ...

    async def lock(self, resource: str, principal: str) -> Release | None:
        """Lock a login, and return a function to release it; `None` while another process has the lock."""
        ...


@dataclass(frozen=True, slots=True)
class _Record:
    version: Literal[1]  # of the files' format
    storage: Literal["file", "keyring"]
    login: StoredLogin


@dataclass(frozen=True, slots=True)
class _Secrets:
    """The part of a login that is stored in the keyring."""

    issuer: str
    client_id: str | None
    client: Json
    token: Json | None
    expires_at: float | None


def key_of(resource: str, principal: str) -> str:
    """Return the key of a login, which is used in file names, in the keyring and in the shared store."""
    return hashlib.sha256(f"{resource}\0{principal}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def issuer_key_of(resource: str, client_id: str) -> str:
    """Return the key of the authorization server of a client.

    It is never the key of a login, because no principal begins with a null character.
    """
    return key_of(resource, f"\0{client_id}")


@dataclass(frozen=True, slots=True, eq=False)
class TokenStore:
    """The logins in one folder, which is created when it is first written to or locked. Thread-safe; blocks."""

    state_folder: str  # the real path of the user's state folder
    storage: Literal["file", "keyring"] = "file"  # whether secrets are stored in the files, or only in the keyring
    disk: Disk = field(default=REAL_DISK, kw_only=True)

    @property
    def folder(self) -> str:
        return os.path.join(self.state_folder, FOLDER)

    def read(self, resource: str, principal: str) -> StoredLogin | None:
        """Return a login; `None` if there is none. Raises a `TokenStoreError` if the file or the keyring is unusable.

        If the keyring lacks the secrets of this login, the login is returned without a token.
        """
        key = key_of(resource, principal)
        try:
            with open_private_folder(self.folder, makes=False) as folder:
                login = self._read_login(folder, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _folder_error(error) from None
        if self.storage == "file":
            return login
        with _keyring() as keyring:
            secrets_text: str | None = keyring.get_password(SERVICE, key)
        secrets = None
        with suppress(ValueError):
            secrets = read_stored(_Secrets, secrets_text or "")
        # The file and the keyring are not written atomically, so the keyring may have the secrets of another login.
        if secrets is None or (secrets.issuer, secrets.client_id) != (login.issuer, login.client.get("client_id")):
            if secrets_text:
                message = "the keyring's entry for the login to %s is damaged, or belongs to another login"
                logger.warning(message, login.alias)
            return replace(login, client={}, token=None, expires_at=None)
        client = {**login.client, **secrets.client}
        return replace(login, client=client, token=secrets.token, expires_at=secrets.expires_at)

    def stamp(self, resource: str, principal: str) -> object | None:
        """Return a value that changes whenever a login is written; `None` without a login. Does not read the login."""
        try:
            return identity_of(os.lstat(os.path.join(self.folder, key_of(resource, principal) + _SUFFIX)))
        except OSError:
            return None

    def write(self, login: StoredLogin) -> None:
        """Store a login over the previous one, which survives a `TokenStoreError` if secrets are stored in files."""
        key = key_of(login.resource, login.principal)
        file_login = login
        if self.storage == "keyring":
            client, token = login.client, login.token
            client_secrets = {name: client[name] for name in _SECRET_CLIENT_FIELDS if name in client}
            secrets = _Secrets(login.issuer, client.get("client_id"), client_secrets, token, login.expires_at)
            secrets_text = json.dumps(asdict(secrets))
            with _keyring() as keyring:
                keyring.set_password(SERVICE, key, secrets_text)
                is_kept = keyring.get_password(SERVICE, key) == secrets_text
            if not is_kept:
                raise TokenStoreError(
                    f"The keyring has not stored the login and may be disabled: enable it, {_FILE_HINT}."
                )
            file_login = replace(
                login,
                client={name: value for name, value in client.items() if name not in _SECRET_CLIENT_FIELDS},
                token=None if token is None else {name: token[name] for name in _PUBLIC_TOKEN_FIELDS if name in token},
            )
        content = json.dumps(asdict(_Record(1, self.storage, file_login))).encode()
        try:
            with open_private_folder(self.folder, makes=True) as folder:
                was_in_keyring = self.storage == "file" and self._storage_of(folder, key) == "keyring"
                replace_private_file(folder, key + _SUFFIX, content, self.disk, waits=True)
        except OSError as error:
            reason = error.strerror or "its disk has failed"
            message = f"The login to {login.alias} cannot be stored in the state folder ({reason})."
            raise TokenStoreError(message) from None
        if was_in_keyring:
            with suppress(TokenStoreError):
                _remove_from_keyring(key)

    def remove(self, resource: str, principal: str) -> bool:
        """Remove a login and its secrets, even if it is unusable. Returns whether there was one."""
        key = key_of(resource, principal)
        try:
            with open_private_folder(self.folder, makes=False) as folder:
                if folder.stat(key + _SUFFIX) is None:
                    return False
                if self._storage_of(folder, key) == "keyring":
                    _remove_from_keyring(key)
                os.unlink(folder.entry_path(key + _SUFFIX), dir_fd=folder.descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _folder_error(error) from None
        return True

    def all(self) -> list[StoredLogin | TokenStoreError]:
        """Return all logins, and the problems of unusable ones. Does not read secrets from the keyring."""
        entries: list[StoredLogin | TokenStoreError] = []
        try:
            with open_private_folder(self.folder, makes=False) as folder:
                for name in sorted(folder.names()):
                    if name.endswith(_SUFFIX):
                        try:
                            entries.append(self._read_login(folder, name.removesuffix(_SUFFIX)))
                        except FileNotFoundError:
                            pass  # removed in the meantime
                        except TokenStoreError as error:
                            entries.append(error)
        except FileNotFoundError:
            pass
        except OSError as error:
            entries.append(_folder_error(error))
        return entries

    def issuer_of(self, resource: str, client_id: str) -> str | None:
        name = issuer_key_of(resource, client_id) + _ISSUER_SUFFIX
        try:
            with open_private_folder(self.folder, makes=False) as folder, folder.open_file(name) as file:
                if not is_ours(file.info):
                    raise TokenStoreError(f"The file {name} in the folder {FOLDER} belongs to another user: remove it.")
                if issuer := file.head(MAX_BYTES).decode("utf-8", "replace"):
                    return issuer
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _folder_error(error) from None
        raise TokenStoreError(
            f"The file {name} in the folder {FOLDER} is damaged: set oauth.issuer in the server's entry."
        )

    def set_issuer(self, resource: str, client_id: str, issuer: str) -> None:
        name = issuer_key_of(resource, client_id) + _ISSUER_SUFFIX
        try:
            with open_private_folder(self.folder, makes=True) as folder:
                replace_private_file(folder, name, issuer.encode("utf-8", "replace"), self.disk, waits=True)
        except OSError as error:
            raise _folder_error(error) from None

    def try_lock(self, resource: str, principal: str) -> Callable[[], None] | None:
        """Lock a login, without waiting; `None` while another process has the lock.

        The returned function releases the lock, and so does the operating system when the process exits. If the file
        system has no locks, nothing is locked. Raises a `TokenStoreError` if the folder cannot be used.
        """
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            with open_private_folder(self.folder, makes=True) as folder:
                name = folder.entry_path(key_of(resource, principal) + _LOCK_SUFFIX)
                descriptor = os.open(name, flags, PRIVATE_MODE, dir_fd=folder.descriptor)
        except OSError as error:
            raise _folder_error(error) from None
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - exists only on Windows

            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError:
                os.close(descriptor)
                return None
        elif try_lock(descriptor) is False:
            os.close(descriptor)
            return None
        return partial(_unlock, descriptor)

    def _storage_of(self, folder: Folder, key: str) -> Literal["file", "keyring"]:
        """Return where a login's secrets are, or where they should be if its file is unreadable or missing."""
        try:
            return _read(folder, key).storage
        except (FileNotFoundError, TokenStoreError):
            return self.storage

    def _read_login(self, folder: Folder, key: str) -> StoredLogin:
        """Return the login in a file. Raises as `_read` does, and if its secrets are not where the settings say."""
        record = _read(folder, key)
        if record.storage != self.storage:
            location = {"file": "in a file", "keyring": "in the keyring"}[record.storage]
            raise TokenStoreError(
                f"The secrets of the login to {record.login.alias} are {location}, but proxy.tokenStorage is "
                f"{self.storage}: change that setting, or {NEW_LOGIN_HINT}."
            )
        return record.login


class FileLogins:
    def __init__(self, files: TokenStore) -> None:
        self._files = files
        self._issuers: dict[str, str] = {}  # used if the folder cannot be written, as in a read-only container

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

    async def issuer_of(self, resource: str, client_id: str) -> str | None:
        stored_issuer = await THREADS.run(partial(self._files.issuer_of, resource, client_id))
        return stored_issuer or self._issuers.get(issuer_key_of(resource, client_id))

    async def set_issuer(self, resource: str, client_id: str, issuer: str) -> None:
        self._issuers[issuer_key_of(resource, client_id)] = issuer
        await THREADS.run(partial(self._files.set_issuer, resource, client_id, issuer))

    async def lock(self, resource: str, principal: str) -> Release | None:
        unlock = await THREADS.run(partial(self._files.try_lock, resource, principal))
        if unlock is None:
            return None

        async def release() -> None:
            unlock()

        return release


def _read(folder: Folder, key: str) -> _Record:
    """Return the content of a login's file. Raises a `FileNotFoundError`, or a `TokenStoreError` if it is unusable."""
    try:
        with folder.open_file(key + _SUFFIX) as file:
            info, content = file.info, file.head(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _login_error(f"cannot be read ({error.strerror})") from None
    if not is_ours(info):
        raise _login_error("belongs to another user")
    if sys.platform != "win32" and stat.S_IMODE(info.st_mode) & 0o077:
        raise _login_error(f"is open to other users (mode {stat.S_IMODE(info.st_mode):04o})")
    try:
        record = read_stored(_Record, content) if len(content) <= MAX_BYTES else None
    except ValueError:
        record = None
    if record is None or key_of(record.login.resource, record.login.principal) != key:
        raise _login_error("is damaged, or was written by another version")
    return record


def _login_error(problem: str) -> TokenStoreError:
    return TokenStoreError(f"A stored login {problem}: {NEW_LOGIN_HINT}.")


def _folder_error(error: OSError) -> TokenStoreError:
    reason = f"({error.strerror or 'its disk has failed'})"
    return TokenStoreError(f"The stored logins cannot be used {reason}: check the folder {FOLDER} in the state folder.")


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - does not exist on Windows

        # Closing is not enough: a child that is just starting may share the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _remove_from_keyring(key: str) -> None:
    with _keyring() as keyring:
        if keyring.get_password(SERVICE, key) is not None:
            keyring.delete_password(SERVICE, key)


@contextmanager
def _keyring() -> Generator[Any]:
    """Provide the package for the system keyring, and turn its errors into `TokenStoreError`."""
    try:
        import keyring  # noqa: PLC0415 - needed only if chosen; the import takes a tenth of a second
        from keyring import errors  # noqa: PLC0415
    except ImportError:
        from tools.machine.installation import install_command  # noqa: PLC0415 - needed only without the extra

        raise TokenStoreError(
            "This login needs the system keyring, but the package keyring is missing: run "
            f"{install_command('keyring')}, {_FILE_HINT}."
        ) from None
    try:
        yield cast("ModuleType", keyring)
    except errors.NoKeyringError:
        raise TokenStoreError(
            f"There is no keyring here, as is usual over SSH and in containers: start one, {_FILE_HINT}."
        ) from None
    except errors.KeyringLocked:
        raise TokenStoreError(f"The keyring is locked: unlock it, {_FILE_HINT}.") from None
    except Exception:  # noqa: BLE001 - each keyring has its own errors, and their texts may contain secrets
        problem = "The keyring has failed, or has no room for a login of this size:"
        raise TokenStoreError(f"{problem} unlock it, {_FILE_HINT}.") from None
