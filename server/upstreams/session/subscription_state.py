"""What an upstream of the handshake era is to tell of in one session: for all who watch, one request at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from server.json_rpc import Json
from server.upstreams.wire.peer import ConnectionLostError, RelayError

logger = logging.getLogger(__name__)

SECONDS = 10.0
"""How long an upstream may take to note a subscription."""

Request = Callable[[str, Json, float], Awaitable[Json]]


@dataclass(slots=True)
class _Attempt:
    """To have a resource noted; all who want it meanwhile wait for the same one."""

    done: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


@dataclass(slots=True)
class _Note:
    """How one resource stands."""

    wanted: int = 0
    is_noted: bool = False
    is_settling: bool = False
    attempt: _Attempt = field(default_factory=_Attempt)


class Noted:
    """The resources that are watched in a session.

    Args:
        alias: The server's name in our configuration.
        request: Asks it.
        tasks: Of the session.
        lost: Set once the session has gone.
    """

    def __init__(self, alias: str, request: Request, tasks: TaskGroup, lost: anyio.Event) -> None:
        self._alias = alias
        self._request = request
        self._tasks = tasks
        self._lost = lost
        self._notes: dict[str, _Note] = {}

    def __len__(self) -> int:
        return len(self._notes)

    async def watch(self, uri: str) -> None:
        """One more wants to hear of a resource.

        Raises:
            UpstreamError: The upstream refuses.
            ConnectionLostError: There is no connection any more.
            TimeoutError: It was not noted in time.
        """
        if self._lost.is_set():
            raise ConnectionLostError
        note = self._notes.setdefault(uri, _Note())
        note.wanted += 1
        attempt = note.attempt
        self._settle(uri, note)
        try:
            await attempt.done.wait()
        except BaseException:
            if attempt.error is None:
                self.unwatch(uri)
            raise
        if attempt.error is not None:
            raise attempt.error

    def unwatch(self, uri: str) -> None:
        """One who wanted to hear of it does so no longer."""
        note = self._notes.get(uri)
        if note is not None and note.wanted:
            note.wanted -= 1
            self._settle(uri, note)

    def _settle(self, uri: str, note: _Note) -> None:
        """Bring the upstream to what is wanted.

        By a task of the session: who began it may leave before others do.
        """
        if not note.is_settling and bool(note.wanted) != note.is_noted and not self._lost.is_set():
            note.is_settling = True
            self._tasks.start_soon(self._until_settled, uri, note)

    async def _until_settled(self, uri: str, note: _Note) -> None:
        try:
            while bool(note.wanted) != note.is_noted:
                await (self._subscribe(uri, note) if note.wanted else self._unsubscribe(uri, note))
        finally:
            note.is_settling = False
            if not note.is_noted:
                self._notes.pop(uri, None)
                note.attempt.fail(ConnectionLostError())

    async def _subscribe(self, uri: str, note: _Note) -> None:
        try:
            await self._request("resources/subscribe", {"uri": uri}, SECONDS)
        except (RelayError, TimeoutError) as error:
            failed, note.attempt, note.wanted = note.attempt, _Attempt(), 0
            failed.fail(error)
        else:
            note.is_noted = True
            note.attempt.done.set()

    async def _unsubscribe(self, uri: str, note: _Note) -> None:
        note.is_noted, note.attempt = False, _Attempt()
        try:
            await self._request("resources/unsubscribe", {"uri": uri}, SECONDS)
        except (RelayError, TimeoutError):
            logger.info("upstream %s goes on to tell of a resource", self._alias)
