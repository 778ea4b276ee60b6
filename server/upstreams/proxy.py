"""The proxy half of the server: the upstreams, and what brings requests of clients to them, wired together."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from mcp.shared.subscriptions import ResourceUpdated

from server.announcements import TELL_SECONDS, ListenBus, ListKind
from server.exchange import Exchange, exchange_of
from server.json_rpc import Json
from server.sdk_seams import RequestContext
from server.settings import SettingsReport
from server.upstreams.connection import Audience, SessionKey, Upstream
from server.upstreams.features import Own, UpstreamFeatures
from server.upstreams.pool import UpstreamPool, bounded_gather
from server.upstreams.relay import Relay
from server.upstreams.session.listing import Kind
from server.upstreams.session.session import UpstreamSession
from server.upstreams.watching import Watch
from server.upstreams.wire.peer import ConnectionLostError
from tools.call.registry import ToolRegistry

logger = logging.getLogger(__name__)

EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
"""What is announced in a session that only lists, since some servers list less to clients that can do less."""

MOST_UPDATED = 10_000
"""Changed resources that may wait to be told of (ours)."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the proxy needs of the server around it.

    Args:
        registry: Where tools are published.
        served_over: Whether there is one client or many.
        key_of: Whose request it is, as `ClientState.key`.
        own: What is ours.
        why_denied: Why nothing of an upstream is there, as a sentence; empty if it is.
        before: Called before each request: starts what is started by the first one.
        bus: Reaches the clients of the 2026-07-28 revision that listen.
        changed: Told that a list is another one, or is said to be.
    """

    registry: ToolRegistry
    served_over: Literal["stdio", "network"]
    key_of: Callable[[RequestContext], str]
    own: Own
    why_denied: Callable[[str], str]
    before: Callable[[RequestContext], Awaitable[None]]
    bus: ListenBus
    changed: Callable[[ListKind], None]


class Proxy:
    """The servers behind us.

    Args:
        report: The merged settings, and which upstreams are to be used.
        dependencies: The server around it.
    """

    def __init__(self, report: SettingsReport, dependencies: Dependencies) -> None:
        settings = report.settings
        self._question_seconds = settings.confirmation.timeout / 1000
        self._dependencies = dependencies
        self._tasks: TaskGroup | None = None
        self.untold: dict[tuple[str, str, SessionKey | None], Upstream] = {}
        """Changed resources that nobody has been told of yet."""
        self._is_telling = False
        self.pool = UpstreamPool(
            report.upstreams,
            dependencies.registry,
            settings.proxy.first_list_wait / 1000,
            settings.proxy.name_budget,
            lambda upstream: partial(self.relay.call, upstream),
            on_offer=self._on_offer,
            on_updated=self._on_updated,
            is_suspended=self._is_suspended,
            left_out=report.left_out,
        )
        self.relay = Relay(self.pool, self._question_seconds, self._published_uri)
        self.features = UpstreamFeatures(
            self.relay,
            dependencies.key_of,
            dependencies.own,
            settings.proxy.name_budget,
            dependencies.before,
            why_denied=dependencies.why_denied,
            bus=dependencies.bus,
        )

    def start(self, tasks: TaskGroup, ctx: RequestContext | None) -> None:
        """Start the upstreams, once.

        Args:
            tasks: Runs their owner tasks.
            ctx: The request that makes us start them, where there is one.
        """
        if self._tasks is tasks:
            return
        self._tasks = tasks
        self.features.start(tasks)
        client = exchange_of(ctx, self._dependencies.key_of(ctx)) if ctx is not None else None
        is_one = self._dependencies.served_over == "stdio"
        self.pool.start(
            tasks,
            Audience(
                announced=client.capabilities if is_one and client is not None else EVERYTHING,
                client=client.outside_request() if is_one and client is not None else None,
                is_one=is_one,
                is_modern=client is None or not is_one or client.is_modern,
                question_seconds=self._question_seconds,
            ),
        )

    async def roots_changed(self, exchange: Exchange) -> None:
        """Tell the sessions of a client that its roots are other ones."""

        async def tell(session: UpstreamSession) -> None:
            with suppress(ConnectionLostError):
                await session.peer.notify("notifications/roots/list_changed")

        sessions = [session for session in self.pool.opened_by(exchange) if not session.era.is_modern]
        if self._tasks is not None and sessions:
            await bounded_gather(self._tasks, [partial(tell, session) for session in sessions])

    def settings_changed(self) -> None:
        """Servers, or the rules about them, are other ones now."""
        self.features.forget()
        self._dependencies.changed("prompts")
        self._dependencies.changed("resources")

    def _is_suspended(self, session: UpstreamSession) -> bool:
        return self.relay.suspended.is_used(session)

    def _published_uri(self, upstream: Upstream, uri: str, is_sought: bool) -> str:
        return self.features.routes.published(upstream, uri, is_sought)

    def _on_offer(self, kind: Kind, is_said: bool) -> None:
        self.features.forget()
        if is_said:
            self._dependencies.changed(kind.capability)

    def _on_updated(self, upstream: Upstream, uri: str, whose: SessionKey | None) -> None:
        """A resource has changed. However often that is said, it waits to be told once."""
        if self._tasks is None or len(self.untold) >= MOST_UPDATED:
            return
        self.untold[upstream.alias, uri, whose] = upstream
        if not self._is_telling:
            self._is_telling = True
            self._tasks.start_soon(self._tell_all_updated)

    async def _tell_all_updated(self) -> None:
        try:
            while self.untold:
                alias, uri, whose = next(iter(self.untold))
                with anyio.move_on_after(TELL_SECONDS):
                    await self._tell_updated(self.untold.pop((alias, uri, whose)), uri, whose)
        finally:
            self._is_telling = False

    async def _tell_updated(self, upstream: Upstream, uri: str, whose: SessionKey | None) -> None:
        """A resource has changed: tell who watches it, by the name under which each does."""
        if upstream.alias in self.features.denied:
            return
        async with anyio.create_task_group() as tasks:
            for watch in self.features.watching.told(upstream, uri, whose):
                tasks.start_soon(self._tell, watch)

    async def _tell(self, watch: Watch) -> None:
        if watch.is_told_directly:
            await watch.exchange.notify("notifications/resources/updated", {"uri": watch.name})
        else:
            await self._dependencies.bus.publish_to(watch.exchange, ResourceUpdated(watch.name))
