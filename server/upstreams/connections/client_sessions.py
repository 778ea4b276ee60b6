"""An upstream's sessions, one per client, so that questions and state never reach another client.

A session opens when a client first uses the upstream. It closes when it has been idle for a long time, when the
client's connection is closed, when the upstream's entry changes, or when it must make room for another session. Each
session has an owner task, because the same task must open and close a connection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange
from server.upstreams.connections.connection import (
    Audience,
    LoginNeededError,
    SessionKey,
    Upstream,
    UpstreamState,
    failure_of,
)
from server.upstreams.session.protocol_era import EraChoice
from server.upstreams.session.upstream_questions import SessionOptions
from server.upstreams.session.upstream_session import UpstreamSession, open_session
from server.upstreams.wire.upstream_transports import Transport, transports_to
from tools.contract.tool_errors import ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.shell.process_spec import ProcessStarter

IDLE_SECONDS = 600.0  # idle sessions are closed after this time


@dataclass(slots=True)
class _SessionSlot:
    """A session, or the attempt to open one."""

    ready: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    session: UpstreamSession | None = None
    problem: str = ""
    wants_login: bool = False
    last_used: float = 0.0


@dataclass(eq=False, repr=False, slots=True)
class ClientSessions:
    upstream: Upstream
    audience: Audience
    tasks: TaskGroup
    starter: ProcessStarter
    login_principal: Callable[[Exchange], str]
    idle_seconds: ClassVar[float] = IDLE_SECONDS
    _held: dict[SessionKey, _SessionSlot] = field(default_factory=dict[SessionKey, _SessionSlot], init=False)
    _may_shake_hands: bool = field(default=True, init=False)

    def __len__(self) -> int:
        return len(self._held)

    async def session_for(self, exchange: Exchange) -> UpstreamSession:
        """Return the session for a client's request.

        Raises:
            ToolError: No session is available.
        """
        upstream = self.upstream
        listing_session = upstream.live_session
        principal = self.login_principal(exchange)
        is_shared = self.audience.is_one or upstream.entry.isolation == "shared" or not exchange.client_key
        is_shared = is_shared and not principal
        held: _SessionSlot | None = None
        if self._held and not is_shared:
            held = self._held.get(key := key_of(exchange))
            if held is not None and (
                held.closing.is_set() or (held.session is not None and held.session.lost.is_set())
            ):
                self._close(key)
                held = None
        if held is None:
            if listing_session is None and upstream.is_renewing:
                await upstream.come_back()
                listing_session = upstream.live_session
            if listing_session is None:
                raise upstream.unavailable()
            if is_shared:
                return listing_session
            entry, transport = upstream.entry, upstream.transport
            shakes_hands = entry.protocol == "auto" and not exchange.is_modern and self._may_shake_hands
            # Without a handshake, a remote server has no state per connection, so no separate session is needed.
            is_remote = transport is not None and transport.name != "stdio"
            if not shakes_hands and listing_session.era.is_modern and is_remote and not principal:
                return listing_session
            # Use the client's revision if the upstream may support it, otherwise the listing session's revision.
            wanted = EraChoice(listing_session.era.is_modern, is_only=True)
            held = self._open(key_of(exchange), exchange, EraChoice(is_modern=False) if shakes_hands else wanted)
        elif listing_session is None:
            # The client's own session still works, but nothing can be listed until there is a new listing session.
            upstream.retry_now()
        if not held.ready.is_set():
            await held.ready.wait()
        held.last_used = anyio.current_time()
        if held.session is None:
            login = upstream.login_of(principal)
            if held.wants_login and login is not None:
                raise LoginNeededError(login)
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"A separate connection to the server {upstream.alias} could not be opened: {held.problem}. "
                "Try the call again later, or continue without it.",
            )
        return held.session

    def opened(self, serial: int) -> UpstreamSession | None:
        """Return the session with this serial number and mark it as in use; `None` if it is closed."""
        for held in self._held.values():
            if held.session is not None and held.session.serial == serial and not held.session.lost.is_set():
                held.last_used = anyio.current_time()
                return held.session
        listing = self.upstream.live_session
        return listing if listing is not None and listing.serial == serial else None

    def _open(self, key: SessionKey, exchange: Exchange, wanted: EraChoice) -> _SessionSlot:
        upstream, entry = self.upstream, self.upstream.entry
        most = entry.max_sessions
        if len(self._held) >= most and not self._make_room(key[0], max(most // 2, 1)):
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"The server {upstream.alias} already has the maximum number of clients, {most} "
                f"(mcpServers.{upstream.alias}.maxSessions). Try the call again later, or continue without it.",
            )
        known, login = upstream.transport, upstream.login_of(self.login_principal(exchange))
        transports = transports_to(upstream.alias, entry, self.starter, login=login, by_proxy=upstream.by_proxy)
        transport = next((each for each in transports if known is None or each.name == known.name), transports[0])
        held = self._held[key] = _SessionSlot(last_used=anyio.current_time())
        observer_of = self.audience.observer_of
        options = SessionOptions(
            upstream.alias,
            wanted,
            exchange.capabilities,
            self.audience.question_seconds,
            upstream.list_changed,
            partial(upstream.resource_updated, whose=key),  # updates go only to this client
            client=exchange.outside_request(),
            observer=observer_of and observer_of(upstream.alias, entry),
        )
        self.tasks.start_soon(self._own, key, held, transport, options, exchange, name=f"session with {upstream.alias}")
        exchange.at_end(held.closing.set)
        return held

    def _make_room(self, client_key: str, share: int) -> bool:
        """Close the most dispensable session to make room for this client. Returns whether a session was closed.

        A session in use is closed only if its client has more than `share` sessions, and this client has fewer than
        `share`.
        """
        counts = Counter(key[0] for key in self._held)
        may_take = [key for key in self._held if key[0] == client_key or counts[client_key] < share]
        idle = [
            (key[0] != client_key and counts[key[0]] <= share, self._held[key].last_used, key)
            for key in may_take
            if (session := self._held[key].session) is not None and self._is_unused(session)
        ]
        if idle:
            self._close(min(idle)[2])
            return True
        taken = [key for key in may_take if key[0] != client_key and counts[key[0]] > share]
        if not taken:
            return False
        # The sessions are in the order in which they were opened. Close the newest one.
        self.upstream.log.info(
            "a client's session with upstream %s was closed to make room for another client", self.upstream.alias
        )
        self._close(taken[-1])
        return True

    def _is_unused(self, session: UpstreamSession) -> bool:
        if session.questions.calls or session.task_ends or session.subscriptions:
            return False
        return not session.streams and anyio.current_time() > session.wanted_until

    async def _own(
        self, key: SessionKey, held: _SessionSlot, transport: Transport, options: SessionOptions, exchange: Exchange
    ) -> None:
        try:
            deadline = anyio.current_time() + self.upstream.entry.connect_timeout / 1000
            with anyio.CancelScope(deadline=deadline) as scope:
                if transport.name == "stdio":
                    options = replace(options, folders=await self.audience.folders_of(exchange))
                async with open_session(transport, options) as session:
                    scope.deadline = float("inf")
                    self._may_shake_hands = options.wanted.is_modern or not session.era.is_modern
                    if not session.era.is_modern and options.told(options.announced).get("roots") is not None:
                        # File servers request the roots right after the handshake. If a server requested them during
                        # the first call, that request would end with the call, and the call would run without roots.
                        await session.flush()
                        if await session.questions.until_roots_are_told() or options.announced.get("roots") is None:
                            await session.flush()
                    held.session = session
                    held.ready.set()
                    if transport.name != "stdio":  # over stdio, a new session is a new program
                        self.upstream.session_began()
                    await self._until_unused(held, session)
            if held.session is None:
                held.problem = "it did not connect in time"
        except Exception as error:  # noqa: BLE001 - the task boundary: one bad upstream never takes others down
            state, held.problem = failure_of(error)
            held.wants_login = state is UpstreamState.NEEDS_AUTHENTICATION
            self.upstream.warn_once("has no session for a client", held.problem)
        finally:
            if self._held.get(key) is held:
                del self._held[key]
            held.ready.set()

    async def _until_unused(self, held: _SessionSlot, session: UpstreamSession) -> None:
        async with anyio.create_task_group() as group:

            async def end_with(event: anyio.Event) -> None:
                await event.wait()
                group.cancel_scope.cancel()

            group.start_soon(end_with, session.lost)
            group.start_soon(end_with, held.closing)
            while True:
                left = held.last_used + self.idle_seconds - anyio.current_time()
                await anyio.sleep(max(left, self.idle_seconds / 10))
                if anyio.current_time() >= held.last_used + self.idle_seconds and self._is_unused(session):
                    break
            group.cancel_scope.cancel()

    def _close(self, key: SessionKey) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            held.closing.set()

    def forget(self, client_key: str) -> None:
        for key, held in tuple(self._held.items()):
            if key[0] == client_key:
                held.closing.set()

    def end(self) -> None:
        for held in self._held.values():
            held.closing.set()

    def opened_by(self, exchange: Exchange) -> list[UpstreamSession]:
        """Return the sessions that a client uses: its own, and the listing session if all clients share it."""
        own = [held.session for key, held in self._held.items() if key == key_of(exchange)]
        is_shared = self.audience.is_one or self.upstream.entry.isolation == "shared"
        return [session for session in (*own, self.upstream.session if is_shared else None) if session is not None]


def key_of(exchange: Exchange) -> SessionKey:
    """Return the key of a client's session: the client, its connection, and the capabilities that it declares."""
    return exchange.client_key, id(exchange.connection), json.dumps(exchange.capabilities, sort_keys=True)
