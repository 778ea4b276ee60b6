"""An upstream's sessions, one per client, so that questions and state never reach another client.

A session opens when a client first uses the upstream. It closes when it has been idle for a long time, when the client
or the upstream closes its connection, when the upstream's entry changes, or when it must make room for another session.
Each session has an owner task, because the same task must open and close a connection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange
from server.protocol.json_rpc import Json
from server.upstreams.connections.connection import (
    LONGEST_SETTLE_SECONDS,
    SETTLE_SECONDS,
    Audience,
    LoginNeededError,
    SessionKey,
    Upstream,
    UpstreamState,
    failure_of,
)
from server.upstreams.session.list_reader import TOOLS, IsThisServerError, Offer, in_turns, read_list
from server.upstreams.session.protocol_era import EraChoice
from server.upstreams.session.upstream_questions import SessionOptions
from server.upstreams.session.upstream_session import ChangeStream, UpstreamSession, open_session
from server.upstreams.wire.json_rpc_channel import ConnectionLostError, RelayError, UpstreamError
from server.upstreams.wire.upstream_transports import Transport, transports_to
from tools.contract.tool_errors import ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.shell.process_spec import ProcessStarter


@dataclass(slots=True)
class _SessionSlot:
    """A session, or the attempt to open one."""

    ready: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    session: UpstreamSession | None = None
    problem: str = ""
    wants_login: bool = False
    last_used: float = 0.0
    reading: anyio.Lock = field(default_factory=anyio.Lock)  # held while the tools of the session are read
    tools: Mapping[str, Json] = field(default_factory=dict[str, Json])  # by name; shares objects with the common list
    tools_changed: anyio.Event = field(default_factory=anyio.Event)  # set when the session announces other tools
    tools_basis: tuple[int, list[Json]] | None = None  # the session's changes and the common list when they were read


@dataclass(eq=False, repr=False, slots=True)
class ClientSessions:
    upstream: Upstream
    audience: Audience
    tasks: TaskGroup
    starter: ProcessStarter
    login_principal: Callable[[Exchange], str]
    idle_seconds: ClassVar[float] = 600.0  # idle sessions are closed after this time
    _slots: dict[SessionKey, _SessionSlot] = field(default_factory=dict[SessionKey, _SessionSlot], init=False)
    _may_use_handshake: bool = field(default=True, init=False)

    def __len__(self) -> int:
        return len(self._slots)

    async def session_for(self, exchange: Exchange) -> UpstreamSession:
        """Return the session for a client's request. Raises `ToolError` if none is available."""
        upstream = self.upstream
        listing_session = upstream.live_session
        principal = self.login_principal(exchange)
        is_shared = self.audience.is_one or upstream.entry.isolation == "shared" or not exchange.client_key
        is_shared = is_shared and not principal
        slot: _SessionSlot | None = None
        if self._slots and not is_shared:
            slot = self._slots.get(key := key_of(exchange))
            if slot is not None and (
                slot.closing.is_set() or (slot.session is not None and slot.session.lost.is_set())
            ):
                self._close(key)
                slot = None
        if slot is None:
            if listing_session is None and upstream.is_renewing:
                await upstream.reconnect()
                listing_session = upstream.live_session
            if listing_session is None:
                raise upstream.unavailable()
            if is_shared:
                # It may keep state of clients that nobody can tell apart.
                wanted_until = anyio.current_time() + self.idle_seconds
                listing_session.wanted_until = max(listing_session.wanted_until, wanted_until)
                return listing_session
            entry, transport = upstream.entry, upstream.transport
            uses_handshake = entry.protocol == "auto" and not exchange.is_modern and self._may_use_handshake
            # Without a handshake, a remote server has no state per connection, so no separate session is needed.
            is_remote = transport is not None and transport.name != "stdio"
            if not uses_handshake and listing_session.era.is_modern and is_remote and not principal:
                return listing_session
            # Use the client's revision if the upstream may support it, otherwise the listing session's revision.
            listing_era = EraChoice(listing_session.era.is_modern, is_only=True)
            slot = self._open(key_of(exchange), exchange, EraChoice(is_modern=False) if uses_handshake else listing_era)
        elif listing_session is None:
            # The client's own session still works, but nothing can be listed until there is a new listing session.
            upstream.retry_now()
        if not slot.ready.is_set():
            await slot.ready.wait()
        slot.last_used = anyio.current_time()
        if slot.session is None:
            login = upstream.login_of(principal)
            if slot.wants_login and login is not None:
                raise LoginNeededError(login)
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"A separate connection to the server {upstream.alias} could not be opened: {slot.problem}. "
                "Try the call again later, or continue without it.",
            )
        return slot.session

    async def tools_of(self, exchange: Exchange, session: UpstreamSession) -> Mapping[str, Json]:
        """Return the tools that a client's own session lists, by name; empty for the listing session.

        They are read before the first call, and again once the session or the common list has changed. Raises
        `ToolError` if the upstream does not list them, and otherwise a `RelayError`.
        """
        slot = self._slots.get(key_of(exchange))
        if slot is not None and slot.session is session:
            # An upstream that waits for the answer to its question may list nothing before it has the answer.
            is_fixed = "suspended" in exchange.carried
            is_current = is_fixed or slot.tools_basis == (session.tool_changes, self.upstream.offer.items(TOOLS))
            return slot.tools if is_current else await self._updated_tools(slot, session)
        if session is not self.upstream.session:
            raise ConnectionLostError  # nobody knows what a session lists that is just being closed
        return {}

    async def _updated_tools(self, slot: _SessionSlot, session: UpstreamSession) -> Mapping[str, Json]:
        try:
            # The limit includes the wait for another call that reads the tools.
            with anyio.fail_after(self.upstream.entry.list_timeout / 1000):
                async with slot.reading:
                    if slot.tools_basis != (session.tool_changes, self.upstream.offer.items(TOOLS)):
                        await self._read_tools(slot, session)
                    return slot.tools
        except (UpstreamError, IsThisServerError, TimeoutError) as error:
            if isinstance(error, UpstreamError) and not session.era.announces("tools"):
                return {}
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"The server {self.upstream.alias} did not list its tools on this client's own connection, so the call "
                "was not sent. Try the call again later, or continue without it.",
            ) from None

    async def _read_tools(self, slot: _SessionSlot, session: UpstreamSession) -> None:
        upstream, common = self.upstream, self.upstream.offer
        basis = session.tool_changes, common.items(TOOLS)
        offer = Offer({}, dict(common.digests), dict(common.omissions), set(common.truncated))
        tools = {item["name"]: item for item in await read_list(session, TOOLS, offer)}
        listed = {item["name"]: item for item in basis[1]}
        is_other_era = session.era.is_modern != (upstream.era is not None and upstream.era.is_modern)
        async for name in in_turns(tools.keys() & listed.keys()):
            if is_same_tool(tools[name], listed[name], is_other_era=is_other_era):
                tools[name] = listed[name]
        is_announced = slot.tools_basis is not None and slot.tools_basis[0] != basis[0]
        slot.tools, slot.tools_basis = tools, basis
        if tools.keys() != listed.keys() or any(tools[name] is not listed[name] for name in tools):
            self._renew_common_list(session, is_announced=is_announced)

    def _renew_common_list(self, session: UpstreamSession, *, is_announced: bool) -> None:
        """Have the listing process replaced, unless it is in use, if a newer process of the program lists other tools.

        `is_announced` means that the process of this session has just announced its tools.
        """
        listing_session, transport = self.upstream.live_session, self.upstream.transport
        if listing_session is None or transport is None or transport.name != "stdio":
            return
        if (is_announced or session.serial > listing_session.serial) and self._is_unused(listing_session):
            self.upstream.renew(is_announced=is_announced)

    async def _follow_changes(self, slot: _SessionSlot, session: UpstreamSession) -> None:
        while True:
            await slot.tools_changed.wait()
            await anyio.sleep(SETTLE_SECONDS)
            slot.tools_changed = anyio.Event()
            with suppress(ToolError, RelayError):  # the next call reports the error
                await self._updated_tools(slot, session)
            await anyio.sleep(LONGEST_SETTLE_SECONDS)  # a server may announce changes all the time

    def find_open(self, serial: int) -> UpstreamSession | None:
        """Return the session with this serial number and mark it as in use; `None` if it is closed."""
        for slot in self._slots.values():
            if slot.session is not None and slot.session.serial == serial and not slot.session.lost.is_set():
                slot.last_used = anyio.current_time()
                return slot.session
        listing_session = self.upstream.live_session
        return listing_session if listing_session is not None and listing_session.serial == serial else None

    def _open(self, key: SessionKey, exchange: Exchange, era_choice: EraChoice) -> _SessionSlot:
        upstream, entry = self.upstream, self.upstream.entry
        max_sessions = entry.max_sessions
        if len(self._slots) >= max_sessions and not self._make_room(key[0], max(max_sessions // 2, 1)):
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"The server {upstream.alias} already has the maximum number of sessions, {max_sessions} "
                f"(mcpServers.{upstream.alias}.maxSessions). Try the call again later, or continue without it.",
            )
        current_transport, login = upstream.transport, upstream.login_of(self.login_principal(exchange))
        transports = transports_to(upstream.alias, entry, self.starter, login=login, by_proxy=upstream.by_proxy)
        by_name = {transport.name: transport for transport in transports}
        transport = by_name.get("" if current_transport is None else current_transport.name, transports[0])
        slot = self._slots[key] = _SessionSlot(last_used=anyio.current_time())
        observer_of = self.audience.observer_of
        options = SessionOptions(
            upstream.alias,
            era_choice,
            exchange.capabilities,
            self.audience.question_seconds,
            partial(self._list_changed, slot),
            partial(upstream.resource_updated, session_key=key),  # updates go only to this client
            client=exchange.outside_request(),
            observer=observer_of and observer_of(upstream.alias, entry),
            why_denied=self.audience.why_denied,
        )
        self.tasks.start_soon(
            self._run_session, key, slot, transport, options, exchange, name=f"session with {upstream.alias}"
        )
        exchange.at_end(slot.closing.set)
        return slot

    def _list_changed(self, slot: _SessionSlot, kind: str, is_announced: bool) -> None:
        if is_announced:
            self.upstream.list_changed(kind, True)
            if kind == TOOLS.capability:
                slot.tools_changed.set()

    def _make_room(self, client_key: str, share: int) -> bool:
        """Close the most dispensable session to make room for this client. Returns whether a session was closed.

        A session in use is closed only if its client has more than `share` sessions, and this client has fewer than
        `share`.
        """
        counts = Counter(key[0] for key in self._slots)
        candidates = [key for key in self._slots if key[0] == client_key or counts[client_key] < share]
        idle = [
            (key[0] != client_key and counts[key[0]] <= share, self._slots[key].last_used, key)
            for key in candidates
            if (session := self._slots[key].session) is not None and self._is_unused(session)
        ]
        if idle:
            self._close(min(idle)[2])
            return True
        surplus_sessions = [key for key in candidates if key[0] != client_key and counts[key[0]] > share]
        if not surplus_sessions:
            return False
        # The sessions are in the order in which they were opened. Close the newest one.
        self.upstream.log.info(
            "a client's session with upstream %s was closed to make room for another client", self.upstream.alias
        )
        self._close(surplus_sessions[-1])
        return True

    def _is_unused(self, session: UpstreamSession) -> bool:
        if session.questions.calls or session.task_ends or session.subscriptions:
            return False
        return not session.streams and anyio.current_time() > session.wanted_until

    async def _run_session(
        self, key: SessionKey, slot: _SessionSlot, transport: Transport, options: SessionOptions, exchange: Exchange
    ) -> None:
        try:
            deadline = anyio.current_time() + self.upstream.entry.connect_timeout / 1000
            with anyio.CancelScope(deadline=deadline) as scope:
                if transport.name == "stdio":
                    options = replace(options, folders=await self.audience.folders_of(exchange))
                async with open_session(transport, options) as session:
                    scope.deadline = float("inf")
                    self._may_use_handshake = options.era_choice.is_modern or not session.era.is_modern
                    if (
                        not session.era.is_modern
                        and options.capabilities_to_declare(options.client_capabilities).get("roots") is not None
                    ):
                        # File servers request the roots right after the handshake. If such a server requested the roots
                        # during the first call, that request would end with the call, and the call would run without
                        # roots.
                        await session.flush()
                        was_asked = await session.questions.wait_for_roots()
                        if was_asked or options.client is None or options.client_capabilities.get("roots") is None:
                            await session.flush()
                    slot.session = session
                    slot.ready.set()
                    if transport.name != "stdio":  # over stdio, each session has its own process
                        self.upstream.session_began()
                    await self._wait_until_unused(slot, session)
            if slot.session is None:
                slot.problem = "it did not connect in time"
        except Exception as error:  # noqa: BLE001 - the task boundary: one bad upstream never takes others down
            state, slot.problem = failure_of(error)
            slot.wants_login = state is UpstreamState.NEEDS_AUTHENTICATION
            self.upstream.warn_once("has no session for a client", slot.problem)
        finally:
            if self._slots.get(key) is slot:
                del self._slots[key]
            slot.ready.set()

    async def _wait_until_unused(self, slot: _SessionSlot, session: UpstreamSession) -> None:
        async with anyio.create_task_group() as group:

            async def end_with(event: anyio.Event) -> None:
                await event.wait()
                group.cancel_scope.cancel()

            group.start_soon(end_with, session.lost)
            group.start_soon(end_with, slot.closing)
            group.start_soon(self._follow_changes, slot, session)
            if session.era.is_modern:
                group.start_soon(ChangeStream(session).run)
            while True:
                remaining_seconds = slot.last_used + self.idle_seconds - anyio.current_time()
                await anyio.sleep(max(remaining_seconds, self.idle_seconds / 10))
                if anyio.current_time() >= slot.last_used + self.idle_seconds and self._is_unused(session):
                    break
            group.cancel_scope.cancel()

    def _close(self, key: SessionKey) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.closing.set()

    def end(self, client_key: str | None = None) -> None:
        """End the sessions of a client; `None` stands for all clients."""
        for key, slot in self._slots.items():
            if client_key in (None, key[0]):
                slot.closing.set()

    def sessions_of(self, exchange: Exchange) -> list[UpstreamSession]:
        """Return the sessions that a client uses: its own, and the listing session if all clients share it."""
        slot = self._slots.get(key_of(exchange))
        is_shared = self.audience.is_one or self.upstream.entry.isolation == "shared"
        sessions = (None if slot is None else slot.session, self.upstream.session if is_shared else None)
        return [session for session in sessions if session is not None]


def is_same_tool(tool: Mapping[str, Any], listed_tool: Mapping[str, Any], *, is_other_era: bool = False) -> bool:
    """Return whether two sessions list the same tool. In another era, it may lack an output schema.

    `_meta` does not count: nobody is asked about it, and it may contain the id of a process.
    """
    if tool == listed_tool:
        return True
    tool, listed_tool = ({**version, "_meta": None} for version in (tool, listed_tool))
    if is_other_era:
        from server.protocol.item_schemas import for_handshake  # noqa: PLC0415 - imported with the first list

        tool, listed_tool = for_handshake(tool), for_handshake(listed_tool)
    return tool == listed_tool


def key_of(exchange: Exchange) -> SessionKey:
    """Return the key of a client's session: the client, its connection, and the capabilities that it declares."""
    return exchange.client_key, id(exchange.connection), json.dumps(exchange.capabilities, sort_keys=True)
