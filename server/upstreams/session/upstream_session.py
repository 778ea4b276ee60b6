"""One session with an upstream: opens the session, adapts requests to the upstream's era, and routes its messages.

Subscriptions depend on the era. In the handshake era, a session subscribes to a resource once for all its watchers, and
waits for each response before it sends the next request for that resource. In the 2026-07-28 revision, one stream per
upstream reports changed lists and resources.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange
from server.protocol.json_rpc import Json, RequestId, as_mapping
from server.protocol.revisions import LOG_LEVEL_META_KEY, SUBSCRIPTION_ID_META_KEY
from server.upstreams.session.protocol_era import ENVELOPE_KEYS, Era, envelope, headers_of, negotiate
from server.upstreams.session.upstream_questions import QUESTIONS, BoundedTasks, SessionOptions, SessionQuestions
from server.upstreams.wire.json_rpc_channel import (
    Challenge,
    ConnectionLostError,
    JsonRpcChannel,
    MessageWriter,
    Notice,
    PendingRequest,
    RelayError,
    UnusableAnswerError,
    UpstreamError,
)
from server.upstreams.wire.origin_meta import chained
from server.upstreams.wire.rate_window import RateWindow
from server.upstreams.wire.upstream_transports import Transport
from tools.contract.display import visible_line

logger = logging.getLogger(__name__)

_SERIALS = itertools.count(1)

LEVEL_SECONDS = 5.0  # time limit for an upstream to accept a log level or to respond to a ping

LOG = "notifications/message"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
IN_STREAMS = frozenset({ACKNOWLEDGED, "notifications/tasks"})  # sent only on a `subscriptions/listen` stream

LIST_CHANGES: Mapping[str, str] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}

MAX_PER_SECOND = 100  # log messages relayed per second and session; other notifications have the same limit
SUBSCRIBE_SECONDS = 10.0  # time limit for an upstream to respond to `resources/subscribe` or `resources/unsubscribe`
PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 60.0
"""Minimum and maximum pause before an ended stream is reopened; pauses double while streams end quickly."""


class UpstreamSession:
    """An open session, created by `open_session`. `lost` is set once the session is gone."""

    def __init__(self, options: SessionOptions, writer: MessageWriter, tasks: TaskGroup, lost: anyio.Event) -> None:
        self.options = options
        self.alias = options.alias
        self.log = logging.LoggerAdapter(logger, {"upstream": self.alias})
        self.serial = next(_SERIALS)  # unique in this process
        self.era = Era("", {}, is_modern=False)  # set after negotiation
        self.channel = JsonRpcChannel(
            writer, self._on_request, self._on_notification, self._on_refusal, options.observer
        )
        self.tasks = tasks
        self.lost = lost
        self.is_forgotten = False  # whether the upstream no longer knows the session, so refused requests had no effect
        self.refusal: Challenge | None = None  # the upstream's challenge, if the session is gone for lack of a login
        self.on_lost: Callable[[], None] | None = None  # called when the session is gone
        self.task_ends = set[Callable[[], None]]()  # one callback per followed task, called when the session is gone
        self.wanted_until = float("-inf")  # until when tasks need the session, by the loop's clock
        self.tool_changes = 0  # how often the upstream has said, in this session, that its tools may have changed
        self.streams: dict[str, Callable[[str, Json], None]] = {}
        """Receivers for messages on clients' streams, by the id of the stream's request."""
        self._background = BoundedTasks(self.alias, tasks)
        self.questions = SessionQuestions(options, self.channel, self._background)
        self.subscriptions = ResourceSubscriptions(self)  # for the handshake era
        self.log_window, self.other_window = (RateWindow(MAX_PER_SECOND, self._log_dropped) for _ in range(2))

    @property
    def is_initialized(self) -> bool:
        return self.era.version != ""

    async def start(
        self, method: str, params: Json, exchange: Exchange | None = None, headers: Mapping[str, str] | None = None
    ) -> PendingRequest:
        """Send a request of this server or, with `exchange`, of a client. Raises the `ToolError` of `chained`.

        `params` contains the names and URIs that the upstream uses.
        """
        era, meta = self.era, dict(as_mapping(params.get("_meta")))
        for name in ENVELOPE_KEYS:
            meta.pop(name, None)
        if exchange is not None:
            meta["progressToken"] = 0
            meta |= chained(meta, self.alias)
        if era.is_modern:
            capabilities = exchange.capabilities if exchange is not None else self.options.client_capabilities
            meta |= envelope(era.version, self.options.capabilities_to_declare(capabilities))
            if exchange is not None and (level := exchange.log_level) is not None:
                meta[LOG_LEVEL_META_KEY] = level
        final_params = {**params, "_meta": meta}
        if not meta:
            del final_params["_meta"]
        if self.channel.writer.takes_headers:
            headers = {**headers_of(era, method, params), **(headers or {})}
        client_key = exchange.client_key if exchange is not None and self.options.is_shared else None
        return await self.channel.start(method, final_params, headers, client_key)

    async def request(
        self, method: str, params: Json, seconds: float | None = None, exchange: Exchange | None = None
    ) -> Json:
        """Send a request as `start` does, and wait for its result. Raises a `RelayError` or a `TimeoutError`."""
        with anyio.fail_after(seconds):
            async with aclosing(await self.start(method, params, exchange)) as pending:
                return await pending.result()

    def _on_refusal(self, challenge: Challenge | None) -> None:
        if self.is_initialized:
            self.refusal, self.is_forgotten = challenge, challenge is None
            self.lost.set()

    async def set_level(self, level: str) -> None:
        """Send the client's log level to a handshake-era upstream; other upstreams receive it with each request."""
        if self.era.is_modern or not self.era.announces("logging"):
            return
        try:
            await self.request("logging/setLevel", {"level": level}, LEVEL_SECONDS)
        except (UpstreamError, TimeoutError):
            self.log.info("upstream %s did not accept a log level", self.alias)

    async def flush(self) -> None:
        """Ping the upstream, to make sure that it has read everything sent so far."""
        with suppress(UpstreamError, UnusableAnswerError, TimeoutError):
            await self.request("ping", {}, LEVEL_SECONDS)

    def _on_request(self, identity: RequestId, method: str, params: Json) -> None:
        # A 2026-07-28 server must not send requests. Its questions are results, so such a request is refused below.
        if self.is_initialized and method in QUESTIONS and not self.era.is_modern:
            self.questions.receive(identity, method, params)
        elif self.is_initialized and method == "ping":
            self._background.start(self.channel.answer, identity, dict[str, Any]())
        elif self.is_initialized:
            self._background.start(self.channel.refuse, identity, "Method not found")
        else:
            message = "This is not possible before the session is initialized."
            self._background.start(self.channel.refuse, identity, message)

    def _on_notification(self, method: str, params: Json) -> None:
        if not self.is_initialized:
            return
        if method == ACKNOWLEDGED or LIST_CHANGES.get(method) == "tools":
            self.tool_changes += 1
        if (kind := LIST_CHANGES.get(method)) is not None:
            self.options.list_changed(kind, True)
        elif method == "notifications/resources/updated":
            self.options.resource_updated(str(params.get("uri", "")))
        elif method == "notifications/cancelled":
            self.questions.withdraw(params.get("requestId"))
        elif method in IN_STREAMS:
            identity = as_mapping(params.get("_meta")).get(SUBSCRIPTION_ID_META_KEY)
            if (receiver := self.streams.get(str(identity))) is not None:
                receiver(method, params)
            elif method == ACKNOWLEDGED:  # the change stream has begun; changes before that were not announced
                for kind in LIST_CHANGES.values():
                    self.options.list_changed(kind, False)
        elif method != LOG:
            if self.other_window.admits():
                self._relay_notification(method, params)
        elif self.log_window.admits():
            # Prefix the logger with the alias, so that the upstream cannot imitate this server or another upstream.
            prefixed_name = self.alias
            if isinstance(logger_name := params.get("logger"), str) and logger_name:
                prefixed_name += f"/{visible_line(logger_name)}"
            self._relay_notification(method, {**params, "logger": prefixed_name})

    def _log_dropped(self, count: int) -> None:
        self.log.warning(
            "upstream %s sent more than %d messages in one second; dropped: %d", self.alias, MAX_PER_SECOND, count
        )

    def _relay_notification(self, method: str, params: Json) -> None:
        call = next((call for call in self.questions.suspects() if not call.is_suspended), None)
        client = self.options.client if call is None else call.exchange
        if client is None or self.options.is_denied_to(client):
            return
        if call is not None:
            call.pending.put(Notice(method, params))
        elif method != "notifications/initialized":
            self._background.start(client.notify, method, params)


@asynccontextmanager
async def open_session(transport: Transport, options: SessionOptions) -> AsyncGenerator[UpstreamSession]:
    """Open a session, which is closed when the context exits. The context must be entered and exited in the same task.

    Raises an `IncompatibleError` if there is no common revision, a `RelayError` if a request failed, or the error of
    the transport.
    """
    lost = anyio.Event()
    session: UpstreamSession | None = None
    on_end: Callable[[], None] | None = None

    def on_doubt() -> None:
        # A single failed request does not mean that the session is lost if other requests are still open.
        if session is not None and session.is_initialized and session.channel.open_requests <= 1:
            lost.set()

    async with transport.open(on_doubt, options.folders) as (reader, writer), anyio.create_task_group() as tasks:
        session = UpstreamSession(options, writer, tasks, lost)

        async def read(channel: JsonRpcChannel) -> None:
            try:
                await channel.read(reader)
            finally:
                lost.set()

        tasks.start_soon(read, session.channel)
        try:
            session.era = await negotiate(
                session.channel, options.era_choice, options.capabilities_to_declare(options.client_capabilities)
            )
            if options.observer is not None:
                on_end = options.observer.begin_session(session.era.version)
            if options.client is not None and (level := options.client.chosen_level) is not None:
                await session.set_level(level)
            yield session
        finally:
            tasks.cancel_scope.cancel()
            lost.set()
            session.log_window.close()
            session.other_window.close()
            if on_end is not None:
                on_end()
            for end in tuple(session.task_ends):
                end()
            if session.on_lost is not None:
                session.on_lost()


@dataclass(eq=False, slots=True)
class _Subscription:
    lock: anyio.Lock = field(default_factory=anyio.Lock)  # held while a request about the resource is open
    watchers: int = 0


class ResourceSubscriptions:
    """The resources watched in a handshake-era session."""

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session
        self._subscriptions: dict[str, _Subscription] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    @asynccontextmanager
    async def _locked(self, uri: str) -> AsyncGenerator[_Subscription]:
        subscription = self._subscriptions.setdefault(uri, _Subscription())
        try:
            async with subscription.lock:
                yield subscription
        finally:
            is_used = subscription.watchers or subscription.lock.locked()
            if not is_used and self._subscriptions.get(uri) is subscription:
                del self._subscriptions[uri]

    async def watch(self, uri: str) -> None:
        """Add a watcher of a resource. Raises the upstream's error."""
        if self._session.lost.is_set():
            raise ConnectionLostError
        async with self._locked(uri) as subscription:
            if not subscription.watchers:
                try:
                    await self._session.request("resources/subscribe", {"uri": uri}, SUBSCRIBE_SECONDS)
                except asyncio.CancelledError:
                    self.unwatch(uri, 0)  # the upstream may have subscribed nevertheless
                    raise
            subscription.watchers += 1

    def unwatch(self, uri: str, watchers: int = 1) -> None:
        """Remove watchers in a task of the session, because a watcher's own task could be cancelled early."""
        if not self._session.lost.is_set():
            self._session.tasks.start_soon(self._remove, uri, watchers)

    async def _remove(self, uri: str, watchers: int) -> None:
        async with self._locked(uri) as subscription:
            subscription.watchers -= watchers
            if not subscription.watchers:
                try:
                    await self._session.request("resources/unsubscribe", {"uri": uri}, SUBSCRIBE_SECONDS)
                except (RelayError, TimeoutError):
                    self._session.log.info("upstream %s did not confirm the end of a subscription", self._session.alias)


class ChangeStream:
    """Keeps a `subscriptions/listen` stream open to a 2026-07-28 upstream."""

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session
        self._uris: dict[str, int] = {}
        self._scope = anyio.CancelScope()

    def watch(self, uri: str) -> None:
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            self._scope.cancel()

    def unwatch(self, uri: str) -> None:
        remaining = self._uris.pop(uri, 0) - 1
        if remaining > 0:
            self._uris[uri] = remaining
        else:
            self._scope.cancel()

    async def run(self) -> None:
        """Listen until cancelled, until the upstream refuses the stream, or until the connection is lost."""
        session, era, pause = self._session, self._session.era, PAUSE_SECONDS
        while True:
            kinds = [kind for kind in LIST_CHANGES.values() if era.announces(kind, "listChanged")]
            filters: Json = {f"{kind}ListChanged": True for kind in kinds}
            if self._uris and era.announces("resources", "subscribe"):
                filters["resourceSubscriptions"] = sorted(self._uris)
            began = anyio.current_time()
            with anyio.CancelScope() as self._scope:
                if not filters:
                    await anyio.sleep_forever()
                try:
                    await session.request("subscriptions/listen", {"notifications": filters})
                except UnusableAnswerError as error:
                    session.log.info("upstream %s: the stream of changes ended: %s", session.alias, error.reason)
                except UpstreamError as error:
                    session.log.info("upstream %s refused the stream of changes (error %s)", session.alias, error.code)
                    return
                except ConnectionLostError:
                    return
            if not self._scope.cancelled_caught:
                pause = PAUSE_SECONDS if anyio.current_time() > began + LAST_PAUSE_SECONDS else pause * 2
                await anyio.sleep(min(pause, LAST_PAUSE_SECONDS))
