"""What people have approved over the lock file, where replicas share that: a row in their store, and not the file.

A row is sealed, so that whoever can write in the store approves nothing, by a key of its own for each content of the
file: a new file, as `coretools-mcp lock` writes it, begins without approvals, and replicas with the old and the new
one, as in a rolling restart, have a row each. Of a row that was there before, the worst is that it is put back: then
counts again what a person has once approved, over exactly this file.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import anyio
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from mcp.shared.subscriptions import ServerEvent, ToolsListChanged

from server.json_rpc import Json
from server.store.contract import ABSENT, StoreUnavailableError
from server.store.replica import Replica
from server.upstreams.lock_file import Lock, lock_text, parse_lock, with_approved
from tools.contract.errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

LIFE_SECONDS = 365 * 86_400.0  # of a row, after the last approval or start of a replica that uses it (ours)
LOOK_SECONDS = 1.0  # between two looks at the store (ours)
MOST_TRIES = 10  # to write while others write too (ours)


class SharedApprovals:
    """The approvals in the store of a replica that has keys.

    Args:
        replica: Whose keys seal, and whose store has them.
        file: The lock file as it is at the start.
        judge: Has all tools judged by a lock.
    """

    def __init__(self, replica: Replica, file: Lock | None, judge: Callable[[Lock | None], Awaitable[None]]) -> None:
        self._replica, self._store = replica, replica.store
        self._file = file
        self._judge = judge
        self._approved: dict[str, dict[str, Json]] = {}  # by the digests of files, as it is known last
        self._turns = anyio.Lock()
        self._news = anyio.Event()

    def on_change(self, event: ServerEvent) -> None:
        """An approval changes the list of tools where it is given, of which all replicas hear."""
        if isinstance(event, ToolsListChanged):
            self._news.set()

    async def follow(self) -> None:
        """Take up what is approved at other replicas, for ever."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.look()
            await anyio.sleep(LOOK_SECONDS)

    async def use(self, file: Lock | None) -> None:
        """Judge by another state of the file."""
        self._file = file
        await self.look()

    async def look(self) -> None:
        """Judge by the file and by what the store has over it; while that is away, by what is known of it."""
        async with self._turns:
            if self._file is not None and (digest := self._file.digest):
                try:
                    known, (approved, version) = self._approved.get(digest), await self._read(digest)
                    self._approved[digest] = approved
                    if known is None and approved:
                        # It lives on, and is sealed with the first key, so that another one can be left out.
                        await self._write(digest, approved, version)
                except StoreUnavailableError:
                    self._news.set()
            await self._judge_anew()

    async def approve(self, lock: Lock, alias: str, tools: Mapping[str, Json]) -> None:
        """Have these tools of a server count as approved at all replicas with the file of this lock.

        Raises:
            ToolError: It cannot be written.
        """
        try:
            async with self._turns:
                for _ in range(MOST_TRIES):
                    before, version = await self._read(lock.digest)
                    approved = with_approved(before, {alias: {"tools": tools}})
                    if await self._write(lock.digest, approved, version) is not None:
                        self._approved[lock.digest] = approved
                        await self._judge_anew()
                        return
            why = "too many tools are approved at once"
        except StoreUnavailableError:
            why = "the store that the replicas of this server share cannot be used now"
        except ValueError as error:
            why = f"it cannot be written: {error}"
        finally:
            self._news.set()  # what is cancelled, or of which the store says nothing, may have been written
        raise ToolError(
            ToolErrorType.STORE_UNAVAILABLE,
            f"The approval does not count, because {why}. Call again a little later: the user is then asked anew, "
            "unless it counts by then. If it stays so, tell the user that the operator has to look at store.url and "
            "the log.",
        )

    async def _judge_anew(self) -> None:
        lock = self._file
        if lock is not None and (approved := self._approved.get(lock.digest)):
            lock = replace(lock, servers=with_approved(lock.servers, approved))
        await self._judge(lock)

    def _codec(self, digest: str) -> AESGCMRequestStateCodec:
        return AESGCMRequestStateCodec(self._replica.keys_for(f"approvals {digest}"))

    async def _read(self, digest: str) -> tuple[dict[str, Json], str]:
        held = await self._store.get(f"approvals:{digest}")
        if held is None:
            return {}, ABSENT
        try:
            return parse_lock(self._codec(digest).unseal(held.value)), held.version
        except (InvalidRequestState, ValueError):
            logger.warning("the store has a row of approvals that was not sealed with our keys; it counts for nothing")
            return {}, held.version

    async def _write(self, digest: str, approved: Mapping[str, Json], over: str) -> str | None:
        sealed = self._codec(digest).seal(lock_text(approved))
        return await self._store.put(f"approvals:{digest}", sealed, LIFE_SECONDS, if_version=over)
