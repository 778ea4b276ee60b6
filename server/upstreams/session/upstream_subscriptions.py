"""Subscriptions at an upstream: one per resource, or one stream for all lists and resources.

In the handshake era, a session subscribes to a resource once for all its watchers, and waits for each response before
it sends the next request for that resource. In the 2026-07-28 revision, one stream per upstream reports changed
lists and resources.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from server.protocol.json_rpc import Json
from server.upstreams.session.protocol_era import Era
from server.upstreams.wire.json_rpc_channel import ConnectionLostError, RelayError, UnusableAnswerError, UpstreamError

logger = logging.getLogger(__name__)

SUBSCRIBE_SECONDS = 10.0  # time limit for an upstream to accept a subscription or its end

PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 60.0
"""The first and the longest pause before an ended stream is reopened; pauses double while streams end quickly."""

_FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}

Request = Callable[[str, Json, float | None], Awaitable[Json]]
"""Sends a request: the method, the parameters, and the time limit."""


def _attempt() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False, slots=True)
class _SubscriptionState:
    watchers: int = 0
    is_subscribed: bool = False
    is_settling: bool = False
    attempt: asyncio.Future[None] = field(default_factory=_attempt)  # the attempt that current watchers wait for

    def fail(self, error: Exception) -> None:
        """Report an error to the current waiters; later waiters wait for another attempt."""
        self.attempt.set_exception(error)
        self.attempt.exception()  # mark the error as retrieved, because there may be no waiters
        self.attempt = _attempt()


class ResourceSubscriptions:
    """The resources watched in a handshake-era session."""

    def __init__(self, alias: str, request: Request, tasks: TaskGroup, lost: anyio.Event) -> None:
        self._alias = alias
        self._log = logging.LoggerAdapter(logger, {"upstream": alias})
        self._request = request
        self._tasks = tasks
        self._lost = lost
        self._states: dict[str, _SubscriptionState] = {}

    def __len__(self) -> int:
        return len(self._states)

    async def watch(self, uri: str) -> None:
        """Add a watcher of a resource. Raises the upstream's error."""
        if self._lost.is_set():
            raise ConnectionLostError
        state = self._states.setdefault(uri, _SubscriptionState())
        state.watchers += 1
        attempt = state.attempt
        self._settle(uri, state)
        try:
            await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if not attempt.done() or attempt.exception() is None:
                self.unwatch(uri)
            raise

    def unwatch(self, uri: str) -> None:
        state = self._states.get(uri)
        if state is not None and state.watchers:
            state.watchers -= 1
            self._settle(uri, state)

    def _settle(self, uri: str, state: _SubscriptionState) -> None:
        """Subscribe or unsubscribe if the watchers require it, in a task of the session.

        A watcher's own task could be cancelled before the upstream has responded.
        """
        if not state.is_settling and bool(state.watchers) != state.is_subscribed and not self._lost.is_set():
            state.is_settling = True
            self._tasks.start_soon(self._until_settled, uri, state)

    async def _until_settled(self, uri: str, state: _SubscriptionState) -> None:
        try:
            while bool(state.watchers) != state.is_subscribed:
                if state.watchers:
                    try:
                        await self._request("resources/subscribe", {"uri": uri}, SUBSCRIBE_SECONDS)
                    except (RelayError, TimeoutError) as error:
                        state.watchers = 0
                        state.fail(error)
                    else:
                        state.is_subscribed = True
                        state.attempt.set_result(None)
                    continue
                state.is_subscribed, state.attempt = False, _attempt()
                try:
                    await self._request("resources/unsubscribe", {"uri": uri}, SUBSCRIBE_SECONDS)
                except (RelayError, TimeoutError):
                    self._log.info("upstream %s did not confirm the end of a subscription", self._alias)
        finally:
            state.is_settling = False
            if not state.is_subscribed:
                self._states.pop(uri, None)
                state.fail(ConnectionLostError())


class ChangeStream:
    """Keeps a `subscriptions/listen` stream open to a 2026-07-28 upstream."""

    def __init__(self, alias: str, era: Era, request: Request) -> None:
        self._alias = alias
        self._log = logging.LoggerAdapter(logger, {"upstream": alias})
        self._era = era
        self._request = request
        self._uris: dict[str, int] = {}
        self._scope = anyio.CancelScope()

    def watch(self, uri: str) -> None:
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            self._scope.cancel()

    def unwatch(self, uri: str) -> None:
        left = self._uris.pop(uri, 0) - 1
        if left > 0:
            self._uris[uri] = left
        else:
            self._scope.cancel()

    async def run(self) -> None:
        """Listen until cancelled, until the upstream refuses the stream, or until the connection is lost."""
        pause = PAUSE_SECONDS
        while True:
            era = self._era
            wanted: Json = {name: True for kind, name in _FILTERS.items() if era.announces(kind, "listChanged")}
            if self._uris and era.announces("resources", "subscribe"):
                wanted["resourceSubscriptions"] = sorted(self._uris)
            began = anyio.current_time()
            with anyio.CancelScope() as self._scope:
                if not wanted:
                    await anyio.sleep_forever()
                try:
                    await self._request("subscriptions/listen", {"notifications": wanted}, None)
                except UnusableAnswerError as error:
                    self._log.info("upstream %s: the stream of changes ended: %s", self._alias, error.why)
                except UpstreamError as error:
                    self._log.info("upstream %s refused the stream of changes (error %s)", self._alias, error.code)
                    return
                except ConnectionLostError:
                    return
            if not self._scope.cancelled_caught:
                pause = PAUSE_SECONDS if anyio.current_time() > began + LAST_PAUSE_SECONDS else pause * 2
                await anyio.sleep(min(pause, LAST_PAUSE_SECONDS))
