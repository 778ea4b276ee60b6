"""What users allowed for the rest of a session, shared by all replicas that their client reaches.

This is only for clients with a token: a session without one belongs to its replica. A row is sealed, so that write
access to the store cannot grant anything. It expires with the client's idle time after the last answer. It counts only
with the same upstreams: a rule names a tool by the alias of its server, which new settings may give to another server.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256

from server.clients.client_request import principal_in
from server.settings.stored_json import read_stored
from server.store.replica import Replica
from server.store.sealing import Sealer
from server.store.shared_store import ABSENT, StoreUnavailableError
from tools.call.tool_context import ClientState

logger = logging.getLogger(__name__)

MOST_RULES = 1_000  # of one client; the oldest ones are asked about again
MOST_TRIES = 5  # to write while others write too


@dataclass(frozen=True, slots=True)
class _GrantRow:
    whose: str
    rules: list[str]
    expires: float


class SharedGrants:
    """The grants that a client's calls share across replicas.

    Args:
        replica: Has the keys to seal and the store.
        idle_seconds: How long a client may be silent before it is forgotten.
        servers: A digest of the present upstreams.
    """

    def __init__(self, replica: Replica, idle_seconds: float, servers: Callable[[], str]) -> None:
        self._store = replica.store
        self._seconds = idle_seconds
        self._servers = servers
        self._codec = Sealer(replica.keys_for("grants"))

    async def take_up(self, client: ClientState) -> bool:
        """Load what was allowed at other replicas.

        Returns whether there was anything; nothing is loaded if the store is unavailable.
        """
        if client.grants is None or not principal_in(client.key):
            return False
        with suppress(StoreUnavailableError):
            rules, _ = await self._read(self._whose(client))
            fresh = [rule for rule in rules if rule not in client.grants]
            client.grants.extend(fresh)
            return bool(fresh)
        return False

    async def add(self, client: ClientState, rules: Sequence[str]) -> None:
        """Share rules with other replicas; while the store is unavailable they count only here."""
        if not principal_in(client.key):
            return
        whose = self._whose(client)
        with suppress(StoreUnavailableError):
            for _ in range(MOST_TRIES):
                before, version = await self._read(whose)
                now = list(dict.fromkeys([*before, *rules]))[-MOST_RULES:]
                row = _GrantRow(whose, now, time.time() + self._seconds)
                sealed = self._codec.seal(json.dumps(asdict(row)).encode())
                if await self._store.put(f"grants:{whose}", sealed, self._seconds, if_version=version) is not None:
                    return
            logger.warning("what a user allowed is not shared with other replicas: too many write at once")

    def _whose(self, client: ClientState) -> str:
        whose = f"{client.key} {self._servers()}"
        return sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()

    async def _read(self, whose: str) -> tuple[list[str], str]:
        held = await self._store.get(f"grants:{whose}")
        if held is None:
            return [], ABSENT
        try:
            row = read_stored(_GrantRow, self._codec.unseal(held.value))
        except ValueError:
            logger.warning(
                "the store has a row of grants that was not sealed with the keys of this server; it is ignored"
            )
            return [], held.version
        # It may be an old row that somebody restored, or that of another client.
        return row.rules if row.whose == whose and row.expires > time.time() else [], held.version
