"""What users have allowed in all sessions of a token, shared by all replicas that its client uses.

Only the grants of clients with a token are shared: a session without a token belongs to one replica. Rows are encrypted
and authenticated, so write access to the store cannot grant anything. A row expires when nothing has been added to it
for as long as an idle client is remembered. A row is valid only as long as the upstreams stay the same: rules name
tools by the alias of their server, and new settings may give that alias to another server.
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
from server.store.sealing import SealedRows, stored_dataclass
from server.store.shared_store import StoreUnavailableError
from tools.call.base_tool import ClientState

logger = logging.getLogger(__name__)

MAX_RULES = 1_000  # maximum number of rules per client; beyond this, the oldest are dropped, and users are asked again


@dataclass(frozen=True, slots=True)
class _Grants:
    rules: list[str]
    expires: float  # checked when the row is read, because an old row may have been restored


class SharedGrants:
    """The grants that replicas share for a client."""

    def __init__(self, replica: Replica, idle_seconds: float, servers: Callable[[], str]) -> None:
        self._seconds = idle_seconds  # how long a silent client is remembered
        self._servers = servers  # returns a string that identifies the current upstreams
        self._rows = SealedRows(replica, "client-grants", stored_dataclass(_Grants), idle_seconds)

    async def take_up(self, client: ClientState) -> bool:
        """Load what was allowed on other replicas, if the store is available. Returns whether any of it was new."""
        if client.grants is None or not principal_in(client.key):
            return False
        key, new_rules = self._row_key(client), list[str]()
        with suppress(StoreUnavailableError):
            row = await self._rows.read(key)
            new_rules = [rule for rule in _rules_in(row.value) if rule not in client.grants]
            client.grants.extend(new_rules)
            await self._rows.seal_again(key, row)
        return bool(new_rules)

    async def add(self, client: ClientState, rules: Sequence[str]) -> None:
        """Share rules with other replicas; if the store is unavailable, they apply only on this replica."""
        if not principal_in(client.key):
            return

        def merge(grants: _Grants | None) -> _Grants:
            all_rules = list(dict.fromkeys([*_rules_in(grants), *rules]))[-MAX_RULES:]
            return _Grants(all_rules, time.time() + self._seconds)

        with suppress(StoreUnavailableError):
            if await self._rows.change(self._row_key(client), merge) is None:
                logger.warning("what a user allowed is not shared with other replicas: too many concurrent writes")

    def _row_key(self, client: ClientState) -> str:
        scope = f"{client.key} {self._servers()}"
        return sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()


def _rules_in(row: _Grants | None) -> list[str]:
    return row.rules if row is not None and row.expires > time.time() else []
