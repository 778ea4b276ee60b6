"""What clients are told of changes: that a list is another one, to every session at once, many changes as one.

A client of the 2026-07-28 revision listens at one replica and may list at another one, so it hears of changes at all of
them. A session is at one replica, and what that lists is all that it sees.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import INTERNAL_ERROR, SubscriptionsListenRequestParams, SubscriptionsListenResult

from server.principals import principal_of
from server.sdk_seams import RequestContext
from server.store.contract import StoreUnavailableError
from server.store.replica import Replica
from tools.contract.errors import ToolErrorType

_STREAM: ContextVar[object | None] = ContextVar("stream", default=None)


class ListenBus(InMemorySubscriptionBus):
    """The SDK's bus tells every stream that listens to a URI; of some changes only one client may hear."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[int, Callable[[ServerEvent], None]] = {}

    @contextmanager
    def stream(self, whose: object) -> Generator[None]:
        """What subscribes meanwhile in this task is the stream of `whose`, by identity."""
        token = _STREAM.set(whose)
        try:
            yield
        finally:
            _STREAM.reset(token)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        end, whose = super().subscribe(listener), id(_STREAM.get())
        self._streams[whose] = listener

        def unsubscribe() -> None:
            end()
            self._streams.pop(whose, None)

        return unsubscribe

    async def publish_to(self, whose: object, event: ServerEvent) -> None:
        """Tell one stream, if it is still there and wants to hear of that."""
        if (listener := self._streams.get(id(whose))) is not None:
            listener(event)
            # As in `publish`: what was told can be sent before more is.
            await anyio.lowlevel.checkpoint()


class ListenStreams(ListenHandler):
    """Serves `subscriptions/listen` to each client so often at once that none keeps the others out.

    A stream ends with the token that it was asked for with: its client listens anew.

    Args:
        bus: Tells of changes.
        key_of: Whose a request is; empty for a client that cannot be told from others.
    """

    def __init__(self, bus: SubscriptionBus, key_of: Callable[[RequestContext], str]) -> None:
        super().__init__(bus, max_subscriptions=MOST_STREAMS)
        self._key_of = key_of
        self._open = Counter[str]()

    async def __call__(
        self, ctx: RequestContext, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        key, principal = self._key_of(ctx), principal_of(ctx.request)
        if self._open[key] >= (most := STREAMS_OF_ONE if key else STREAMS_OF_UNKNOWN):
            told = f"{most} streams of changes are open for this client, which is the most. End one, and listen again."
            raise MCPError(INTERNAL_ERROR, told, {"type": ToolErrorType.TOO_MANY_CALLS.value})
        self._open[key] += 1
        try:
            with anyio.move_on_after(math.inf if principal is None else principal.seconds_left):
                return await super().__call__(ctx, params)
            ended: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
            return SubscriptionsListenResult(_meta=ended)
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


STREAMS_OF_ONE = 256  # streams of changes that one client may have open (ours)
STREAMS_OF_UNKNOWN = 1_024  # and all together who cannot be told apart (ours)
MOST_STREAMS = 10_000  # of all clients (ours)

TELL_SECONDS = 10.0  # how long a session may take to hear of a change
CHANNEL = "lists"  # of the store, on which replicas tell each other of changes
RETRY_SECONDS = 1.0  # after which a change is told to the other replicas once more (ours)
SETTLE_SECONDS = 0.02  # how long changes are gathered: an upstream that comes changes three lists

ListKind = Literal["tools", "prompts", "resources"]
_TOLD: dict[ListKind, tuple[ServerEvent, Callable[[ServerSession], Awaitable[None]]]] = {
    "tools": (ToolsListChanged(), ServerSession.send_tool_list_changed),
    "prompts": (PromptsListChanged(), ServerSession.send_prompt_list_changed),
    "resources": (ResourcesListChanged(), ServerSession.send_resource_list_changed),
}


class Announcements:
    """Tells clients of changed lists: those of the 2026-07-28 revision over the bus, the others in their sessions."""

    def __init__(self, bus: SubscriptionBus, sessions: Callable[[], Iterable[ServerSession]], replica: Replica) -> None:
        self._bus = bus
        self._replica = replica
        self._sessions = sessions
        self._changed: set[ListKind] = set()
        self._untold: set[ListKind] = set()  # of which the other replicas have to hear yet
        self._timer: asyncio.TimerHandle | None = None

    def note(self, kind: ListKind, tasks: TaskGroup | None) -> None:
        """A list has changed for everybody; `tasks` tells it, `None` while nobody is served."""
        if tasks is None:
            return
        self._changed.add(kind)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._begin, tasks)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, tasks: TaskGroup) -> None:
        self._timer = None
        changed, self._changed = self._changed, set()
        for kind in sorted(changed):
            tasks.start_soon(self.tell, kind, list(self._sessions()))
        if self._replica.store.is_shared:
            is_telling, self._untold = bool(self._untold), self._untold | changed
            if not is_telling:
                tasks.start_soon(self._tell_replicas)

    async def _tell_replicas(self) -> None:
        while self._untold:
            kind = min(self._untold)
            self._untold.discard(kind)  # it may change once more meanwhile
            try:
                await self._replica.store.publish(CHANNEL, f"{kind} {self._replica.name}")
            except StoreUnavailableError:
                self._untold.add(kind)
                await anyio.sleep(RETRY_SECONDS)  # until they hear of it: their own connections may have no gap

    async def follow_replicas(self) -> None:
        """Tell who listens here of changes at other replicas, for ever."""
        async with aclosing(self._replica.store.subscribe(CHANNEL)) as messages:
            async for text in messages:
                kind, _, replica = (text or "").partition(" ")
                for name, (event, _) in _TOLD.items():
                    # Where some may have been missed, all lists may have changed.
                    if text is None or (name == kind and replica != self._replica.name):
                        await self._bus.publish(event)

    async def tell(self, kind: ListKind, sessions: Sequence[ServerSession]) -> None:
        async def tell_one(session: ServerSession) -> None:
            # One that has just ended needs no word either.
            with anyio.move_on_after(TELL_SECONDS), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await send(session)

        event, send = _TOLD[kind]
        await self._bus.publish(event)
        # Side by side: one that does not read must not keep the others from hearing of it.
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(tell_one, session)
