"""What users have allowed for the rest of a session, known to every replica that their client reaches.

Of clients that show a token alone: a session without one belongs to its replica. A row is sealed, so that what can
write in the store allows nothing; it ends with the client's idle time after the last answer. It counts where the same
servers are behind us: a rule names a tool by the alias of its server, which may be another one after new settings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from server.clients.client_request import principal_in
from server.store.replica import Replica
from server.store.sealed_rows import SealedRows, stored_dataclass
from server.store.shared_store import StoreUnavailableError
from tools.call.tool_context import ClientState

logger = logging.getLogger(__name__)

MOST_RULES = 1_000  # of one client; the oldest are asked about again


@dataclass(frozen=True, slots=True)
class _Grants:
    rules: list[str]
    expires: float  # an old row may have been put back


class SharedGrants:
    """The `SharedGrants` of a flow.

    Args:
        replica: Whose keys seal, and whose store has them.
        idle_seconds: How long a client may be silent until it is forgotten.
        servers: What differs where other servers are behind this server, at this moment.
    """

    def __init__(self, replica: Replica, idle_seconds: float, servers: Callable[[], str]) -> None:
        self._seconds = idle_seconds
        self._servers = servers
        self._rows = SealedRows(replica, "grants", stored_dataclass(_Grants), idle_seconds)

    async def take_up(self, client: ClientState) -> bool:
        """Let what was allowed at other replicas count here; whether there was anything. Nothing if it is not known."""
        if client.grants is None or not principal_in(client.key):
            return False
        whose, fresh = self._whose(client), list[str]()
        with suppress(StoreUnavailableError):
            row = await self._rows.read(whose)
            fresh = [rule for rule in _rules_in(row.value) if rule not in client.grants]
            client.grants.extend(fresh)
            if not row.is_current:
                await self._rows.seal_again(whose)
        return bool(fresh)

    async def add(self, client: ClientState, rules: Sequence[str]) -> None:
        """Let other replicas know of rules; while the store is away they count here alone."""
        if not principal_in(client.key):
            return

        def added(before: _Grants | None) -> _Grants:
            now = list(dict.fromkeys([*_rules_in(before), *rules]))[-MOST_RULES:]
            return _Grants(now, time.time() + self._seconds)

        with suppress(StoreUnavailableError):
            if await self._rows.change(self._whose(client), added) is None:
                logger.warning("what a user has allowed is not known to other replicas: too many write at once")

    def _whose(self, client: ClientState) -> str:
        whose = f"{client.key} {self._servers()}"
        return sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()


def _rules_in(row: _Grants | None) -> list[str]:
    return row.rules if row is not None and row.expires > time.time() else []
