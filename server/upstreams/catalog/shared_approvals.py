"""Approvals that replicas share in a row of their store, in addition to those in the lock file.

Rows are encrypted and authenticated, so that nobody can approve anything by writing to the store. A row's key depends
on the content of the lock file. A new file from `coretools-mcp lock` therefore starts without shared approvals, and
during a rolling restart, replicas with the old and the new file have separate rows. The worst possible attack is to
restore an old row, which revives approvals that a person once gave for exactly this file.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import anyio

from server.clients.announcements import ListChange
from server.protocol.json_rpc import Json
from server.settings.settings_files import LOCK_NAME
from server.store.replica import Replica
from server.store.sealing import SealedRow, SealedRows
from server.store.shared_store import ABSENT, StoreUnavailableError
from server.upstreams.catalog.lock_file import Lock, lock_text, parse_lock, with_approved
from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

LIFE_SECONDS = 365 * 86_400.0  # lifetime of a row after the last approval or the last start of a replica that uses it
READ_INTERVAL_SECONDS = 1.0  # minimum time between two reads of the store


class SharedApprovals:
    """The approvals in the store, for a replica that has the shared keys. `apply` checks all tools against a lock."""

    def __init__(self, replica: Replica, file: Lock | None, apply: Callable[[Lock | None], Awaitable[None]]) -> None:
        self._rows = SealedRows(replica, "approvals", (parse_lock, lock_text), LIFE_SECONDS, are_large=True)
        self._file = file
        self._apply = apply
        self._row: SealedRow[dict[str, Json]] = SealedRow(None, ABSENT)  # the latest known approvals for this file
        self._is_renewed = False  # whether this replica has renewed the row since it began to use the file
        self._mutex = anyio.Lock()
        self._refresh_needed = anyio.Event()

    def on_change(self, change: ListChange) -> None:
        """Have the approvals read again if a tool list has changed: an approval on another replica may be the cause."""
        if change.kind == "tools":
            self._refresh_needed.set()

    async def follow(self) -> None:
        """Load approvals from other replicas until cancelled."""
        while True:
            await self._refresh_needed.wait()
            self._refresh_needed = anyio.Event()
            await self.refresh()
            await anyio.sleep(READ_INTERVAL_SECONDS)

    async def use_file(self, file: Lock | None) -> None:
        async with self._mutex:
            if _digest_of(file) != _digest_of(self._file):
                self._row, self._is_renewed = SealedRow(None, ABSENT), False
            self._file = file
        await self.refresh()

    async def refresh(self) -> None:
        """Apply the file and the approvals in the store, or the last known approvals if the store is unavailable."""
        async with self._mutex:
            if digest := _digest_of(self._file):
                try:
                    row = self._row = await self._rows.read(digest, self._row)
                    if row.value and not self._is_renewed:
                        # Write the row again, to renew its lifetime and to encrypt it with the first key, so that
                        # the other keys can be retired.
                        if version := await self._rows.write(digest, row.value, row.version):
                            self._row, self._is_renewed = SealedRow(row.value, version), True
                        else:
                            # Another replica has written the row in the meantime, so read it again.
                            self._refresh_needed.set()
                except ToolError:  # the store is unavailable, or threads are exhausted
                    self._refresh_needed.set()
            await self._apply_all()

    async def approve(self, lock: Lock, alias: str, tools: Mapping[str, Json]) -> None:
        """Approve these tools of a server on all replicas with the same lock file. Raises `ToolError` if that fails."""
        reason = "too many tools are being approved at once"
        try:
            async with self._mutex:
                row = await self._rows.change(
                    lock.digest, lambda approvals: with_approved(approvals or {}, {alias: {"tools": tools}})
                )
                if row is not None:
                    if lock.digest == _digest_of(self._file):
                        self._row = row
                    await self._apply_all()
                    return
        except StoreUnavailableError:
            reason = "the store that the replicas of this server share is unavailable"
        except ValueError:
            raise ToolError(
                ToolErrorType.FILE_WRITE_FAILURE,
                f"The approval does not count, because the approvals in the store would exceed their size limit. The "
                f"operator must write {LOCK_NAME} again, with `{lock.command}`.",
            ) from None
        finally:
            self._refresh_needed.set()  # after a cancellation or a lost reply, the row may have been written
        raise ToolError(
            ToolErrorType.STORE_UNAVAILABLE,
            f"The approval does not count: {reason}. Try again a little later, if the tool is still blocked. If this "
            "persists, the operator must check store.url and the log.",
        )

    async def _apply_all(self) -> None:
        lock = self._file
        if lock is not None and self._row.value:
            lock = replace(lock, servers=with_approved(lock.servers, self._row.value))
        await self._apply(lock)


def _digest_of(file: Lock | None) -> str:
    return "" if file is None else file.digest
