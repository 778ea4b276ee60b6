"""This process among the replicas that serve the same clients: its name, its keys, and the shared store."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from server.settings import SettingsError
from server.settings.server_models import StoreSettings
from server.store.shared_store import LocalUses, OneTimeUses, Store


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """One process of the server."""

    name: str  # a human-readable name, followed by a part unique to this process
    shared_store: Store | None = None  # `None` if this process shares no state with others
    seal_keys: Sequence[bytes] = field(default=(), repr=False)  # from `http.stateKeys`; see `keys_for`
    local_uses: LocalUses = field(default_factory=LocalUses)

    @property
    def store(self) -> Store:
        """The store that replicas share. Raises a `LookupError` if there is none."""
        if self.shared_store is None:
            raise LookupError("this process shares no store")
        return self.shared_store

    @property
    def uses(self) -> OneTimeUses:
        return self.shared_store or self.local_uses

    @property
    def place(self) -> str:
        """The part of the name that survives a restart; load balancers find it in link tokens and OAuth states."""
        return self.name.rpartition("-")[0]

    @property
    def shares_secrets(self) -> bool:
        return self.shared_store is not None and bool(self.seal_keys)

    def keys_for(self, purpose: str) -> list[bytes]:
        """Return the keys for one purpose, the current one first; without shared keys, a new random key.

        With these keys, nothing can be decrypted or forged that is for another purpose.
        """
        return [hmac.digest(key, purpose.encode(), "sha256") for key in self.seal_keys] or [os.urandom(32)]


def lone_replica() -> Replica:
    return Replica(_unique(""))


def read_replica(settings: StoreSettings, password: str, state_keys: Sequence[str]) -> Replica:
    """Return the replica that the settings describe.

    Raises a `SettingsError` if `store.url` is invalid, or if the package for its kind of store is not installed.
    """
    kind, _, place = settings.url.partition(":")
    store: Store | None = None
    if kind == "sqlite":
        from server.store.sqlite_store import SqliteStore  # noqa: PLC0415 - loaded only if the settings choose it

        path = os.path.expanduser(place)
        if not os.path.isabs(path):
            raise SettingsError([f"store.url: '{place}' is not an absolute path. It must begin with / or ~/."])
        store = SqliteStore(path)
    elif kind != "memory":
        try:
            from server.store.valkey_store import ValkeyStore  # noqa: PLC0415 - importing it takes 80 ms

            store = ValkeyStore(settings.url, password)
        except ImportError:
            from tools.machine.installation import install_command  # noqa: PLC0415 - needed only if valkey is missing

            hint = f"Run: {install_command('valkey')}"
            raise SettingsError(
                [f"store.url names a Valkey server, but the `valkey` extra is not installed. {hint}"]
            ) from None
        except ValueError:
            raise SettingsError(["store.url: the port is out of range. Use one from 1 to 65535."]) from None
    secret_keys = [hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest() for key in state_keys]
    return Replica(_unique(settings.replica), store, tuple(secret_keys))


def _unique(name: str) -> str:
    return f"{name or socket.gethostname()}-{secrets.token_hex(4)}"
