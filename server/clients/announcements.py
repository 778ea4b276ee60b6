"""Notifies clients that a list has changed. All sessions are notified concurrently, and rapid changes are combined.

A client of the 2026-07-28 revision may listen for changes on one replica and request lists from another, so it is
notified of changes on all replicas. A session belongs to one replica and sees only that replica's lists.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import principal_of
from server.protocol.json_rpc import INTERNAL_ERROR, Json, MCPError, as_list, as_mapping
from server.protocol.request_table import McpConnection, RequestContext
from server.protocol.revisions import SUBSCRIPTION_ID_META_KEY
from server.store.replica import Replica
from server.store.shared_store import StoreUnavailableError
from tools.contract.tool_errors import ToolErrorType

logger = logging.getLogger(__name__)

ListKind = Literal["tools", "prompts", "resources"]
LIST_KINDS: tuple[ListKind, ...] = ("tools", "prompts", "resources")
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
MAX_CLIENT_STREAMS = 256  # maximum number of open streams per client
MAX_UNIDENTIFIED_STREAMS = 1_024  # maximum number of open streams for all unidentified clients together
MAX_STREAMS = 10_000  # maximum number of open streams for all clients together
NOTIFY_SECONDS = 10.0  # time limit for notifying one session
CHANNEL = "lists"  # the store's channel for notifications between replicas
RETRY_SECONDS = 1.0  # pause before the next attempt to notify the other replicas
SETTLE_SECONDS = 0.02  # how long changes are collected before they are sent, because a new upstream changes three lists


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change that clients are notified of: to a list or to a resource."""

    kind: ListKind | Literal["resource"]
    uri: str = ""  # the resource's URI; empty for a list

    @property
    def method(self) -> str:
        return "notifications/resources/updated" if self.uri else f"notifications/{self.kind}/list_changed"


Listener = Callable[[ListChange], None]
_STREAM: ContextVar[tuple[object, Collection[str]]] = ContextVar("stream", default=(None, ()))


class ListenBus:
    """Sends changes to every stream, or to the stream of one exchange."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._streams: dict[int, Listener] = {}

    @contextmanager
    def stream(self, exchange: object, uris: Collection[str]) -> Generator[None]:
        """Within this context, a subscription by this task becomes the stream of `exchange`, compared by identity.

        The stream reports changes of the resources `uris`, and of no others.
        """
        token = _STREAM.set((exchange, uris))
        try:
            yield
        finally:
            _STREAM.reset(token)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Send changes to a listener, which must neither raise nor block. Return a function that unsubscribes."""
        token, exchange_id = object(), id(_STREAM.get()[0])
        self._listeners[token] = self._streams[exchange_id] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)
            self._streams.pop(exchange_id, None)

        return unsubscribe

    def publish(self, change: ListChange) -> None:
        for listener in tuple(self._listeners.values()):
            listener(change)

    def publish_to(self, exchange: object, change: ListChange) -> None:
        """Send a change only to the stream of `exchange`, if that stream is open."""
        if (listener := self._streams.get(id(exchange))) is not None:
            listener(change)


@dataclass(frozen=True, slots=True)
class ListenStreams:
    """Handles `subscriptions/listen`, with a limit per client so that no client shuts out others.

    A stream is closed when the token of its request expires; the client must then listen again with a new token.
    """

    bus: ListenBus
    key_of: Callable[[RequestContext], str]  # returns the key of a request's client; empty for an unidentified client
    _open: Counter[str] = field(default_factory=Counter[str], init=False)

    async def __call__(self, ctx: RequestContext) -> Json:
        key, principal = self.key_of(ctx), None if ctx.http_request is None else principal_of(ctx.http_request)
        limit = MAX_CLIENT_STREAMS if key else MAX_UNIDENTIFIED_STREAMS
        if self._open[key] >= limit or self._open.total() >= MAX_STREAMS:
            owner = "this client" if key else "all unidentified clients together"
            message = (
                f"Too many subscription streams are open: at most {limit:,} are allowed for {owner}, and "
                f"{MAX_STREAMS:,} in total. Close a stream or wait, then listen again."
            )
            raise MCPError(INTERNAL_ERROR, message, {"type": ToolErrorType.TOO_MANY_CALLS.value})
        self._open[key] += 1
        try:
            with anyio.move_on_after(math.inf if principal is None else principal.seconds_left):
                await self._send_changes(ctx)
            return {"_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    async def _send_changes(self, ctx: RequestContext) -> None:
        """Send the requested changes until cancelled. While a client is slow, a change that recurs is sent once."""
        requested_filter = as_mapping(as_mapping(ctx.params).get("notifications"))
        flags: dict[str, ListKind] = {f"{kind}ListChanged": kind for kind in LIST_KINDS}
        watched_uris = _STREAM.get()[1]
        uris = [uri for uri in as_list(requested_filter.get("resourceSubscriptions")) if uri in watched_uris]
        honored_filter: Json = {flag: True for flag in flags if requested_filter.get(flag) is True}
        if uris:
            honored_filter["resourceSubscriptions"] = uris
        subscriptions = {ListChange(kind) for flag, kind in flags.items() if flag in honored_filter}
        subscriptions |= {ListChange("resource", uri) for uri in uris}
        pending, has_pending = dict[ListChange, None](), asyncio.Event()

        def listen(change: ListChange) -> None:
            if change in subscriptions:
                pending[change] = None
                has_pending.set()

        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        unsubscribe = self.bus.subscribe(listen)
        try:
            await ctx.outbound.notify(ACKNOWLEDGED, {"notifications": honored_filter, "_meta": meta})
            while await has_pending.wait():
                has_pending.clear()
                while pending:
                    change = next(iter(pending))
                    del pending[change]
                    params = {"uri": change.uri} if change.uri else {}
                    await ctx.outbound.notify(change.method, {**params, "_meta": meta})
        finally:
            unsubscribe()


class Announcements:
    """Notifies clients of changed lists: over streams in the 2026-07-28 revision, over sessions in older ones."""

    def __init__(self, bus: ListenBus, connections: Callable[[], Iterable[McpConnection]], replica: Replica) -> None:
        self._bus = bus
        self._replica = replica
        self._connections = connections
        self._changed: set[ListKind] = set()
        self._unpublished: set[ListKind] = set()  # changes that other replicas have not been notified of
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, kind: ListKind, tasks: TaskGroup | None) -> None:
        """Record that a list has changed, and let a task in `tasks` notify clients. Without `tasks`, do nothing."""
        if tasks is None:
            return
        self._changed.add(kind)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._start_notifying, tasks)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_notifying(self, tasks: TaskGroup) -> None:
        self._timer = None
        kinds, self._changed = self._changed, set()
        for kind in sorted(kinds):
            tasks.start_soon(self.notify, kind, list(self._connections()))
        if self._replica.shared_store is not None:
            is_publishing, self._unpublished = bool(self._unpublished), self._unpublished | kinds
            if not is_publishing:
                tasks.start_soon(self._notify_replicas)

    async def _notify_replicas(self) -> None:
        while self._unpublished:
            kind = min(self._unpublished)
            self._unpublished.discard(kind)  # before publishing, because the list may change again meanwhile
            try:
                await self._replica.store.publish(CHANNEL, f"{kind} {self._replica.name}")
            except StoreUnavailableError:
                self._unpublished.add(kind)
                # Never give up: other replicas notice a lost message only if their own connection was interrupted.
                await anyio.sleep(RETRY_SECONDS)

    async def follow_replicas(self) -> None:
        """Forward changes from other replicas to local listeners, until cancelled."""
        async with aclosing(self._replica.store.subscribe(CHANNEL)) as messages:
            async for text in messages:
                kind, _, replica = (text or "").partition(" ")
                for name in LIST_KINDS:
                    # `None` means that messages may have been lost, so any list may have changed.
                    if text is None or (name == kind and replica != self._replica.name):
                        self._bus.publish(ListChange(name))

    async def notify(self, kind: ListKind, connections: Sequence[McpConnection]) -> None:
        change = ListChange(kind)

        async def notify_one(connection: McpConnection) -> None:
            with anyio.move_on_after(NOTIFY_SECONDS):
                await connection.outbound.notify(change.method, None)

        self._bus.publish(change)
        # Notify concurrently: one slow reader must not delay the others.
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(notify_one, connection)
