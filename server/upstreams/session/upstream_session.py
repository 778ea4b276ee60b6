"""One session with an upstream: opens it, adapts requests to its era, and routes the upstream's messages."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange
from server.protocol.json_rpc import METHOD_NOT_FOUND, Json, RequestId, as_mapping
from server.protocol.revisions import LOG_LEVEL_META_KEY, SUBSCRIPTION_ID_META_KEY
from server.upstreams.session.protocol_era import ENVELOPE_KEYS, Era, envelope, greet, headers_of
from server.upstreams.session.upstream_questions import (
    QUESTIONS,
    BoundedTasks,
    MessageLimit,
    SessionOptions,
    SessionQuestions,
)
from server.upstreams.session.upstream_subscriptions import ResourceSubscriptions
from server.upstreams.wire.json_rpc_channel import (
    Challenge,
    JsonRpcChannel,
    MessageWriter,
    Notice,
    PendingRequest,
    UnusableAnswerError,
    UpstreamError,
)
from server.upstreams.wire.own_meta import chained
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
        self.streams: dict[str, Callable[[str, Json], None]] = {}
        """Receivers for messages on clients' streams, by the id of the stream's request."""
        self._background = BoundedTasks(self.alias, tasks)
        self.questions = SessionQuestions(options, self.channel, tasks, self._background)
        self.subscriptions = ResourceSubscriptions(self.alias, self.request, tasks, lost)  # for the handshake era
        self.log_limit, self._other_limit = (MessageLimit(self.alias, self._tell_left_out) for _ in range(2))

    @property
    def is_greeted(self) -> bool:
        return self.era.version != ""

    async def start(
        self, method: str, params: Json, exchange: Exchange | None = None, headers: Mapping[str, str] | None = None
    ) -> PendingRequest:
        """Send a request of this server or of a client; `params` must have the upstream's own names and URIs.

        Raises:
            ToolError: A client's request has passed through this server before, or through too many servers.
        """
        era, meta = self.era, dict(as_mapping(params.get("_meta")))
        for name in ENVELOPE_KEYS:
            meta.pop(name, None)
        if exchange is not None:
            meta["progressToken"] = 0
            meta |= chained(meta, self.alias)
        if era.is_modern:
            announced = exchange.capabilities if exchange is not None else self.options.announced
            meta |= envelope(era.version, self.options.told(announced))
            if exchange is not None and (level := exchange.log_level) is not None:
                meta[LOG_LEVEL_META_KEY] = level
        stamped = {**params, "_meta": meta}
        if not meta:
            del stamped["_meta"]
        if self.channel.writer.takes_headers:
            headers = {**headers_of(era, method, params), **(headers or {})}
        client_key = exchange.client_key if exchange is not None and self.options.is_shared else None
        return await self.channel.start(method, stamped, headers, client_key)

    async def request(
        self, method: str, params: Json, seconds: float | None = None, exchange: Exchange | None = None
    ) -> Json:
        """Send a request as `start` does, and wait for its result. Raises a `RelayError` or a `TimeoutError`."""
        with anyio.fail_after(seconds):
            async with aclosing(await self.start(method, params, exchange)) as pending:
                return await pending.result()

    def _on_refusal(self, challenge: Challenge | None) -> None:
        if self.is_greeted:
            self.refusal, self.is_forgotten = challenge, challenge is None
            self.lost.set()

    async def set_level(self, level: str) -> None:
        """Send the client's log level to a handshake-era upstream; other upstreams get it with each request."""
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
        if self.is_greeted and method in QUESTIONS:
            self.questions.receive(identity, method, params)
        elif self.is_greeted and method == "ping":
            self._background.start(self.channel.answer, identity, dict[str, Any]())
        else:
            why = "Method not found" if self.is_greeted else "This is not possible before the session is initialized."
            self._background.start(self.channel.refuse, identity, METHOD_NOT_FOUND, why)

    def _on_notification(self, method: str, params: Json) -> None:
        if not self.is_greeted:
            return
        if (kind := LIST_CHANGES.get(method)) is not None:
            self.options.list_changed(kind, True)
        elif method == "notifications/resources/updated":
            self.options.resource_updated(str(params.get("uri", "")))
        elif method == "notifications/cancelled":
            self.questions.withdraw(params.get("requestId"))
        elif method in IN_STREAMS:
            identity = as_mapping(params.get("_meta")).get(SUBSCRIPTION_ID_META_KEY)
            if (take := self.streams.get(str(identity))) is not None:
                take(method, params)
            elif method == ACKNOWLEDGED:  # the change stream has begun; changes before that were not announced
                for kind in LIST_CHANGES.values():
                    self.options.list_changed(kind, False)
        elif method != LOG:
            if self._other_limit.admits():
                self._pass_on(method, params)
        elif self.log_limit.admits():
            # Prefix the logger with the alias, so that the upstream cannot imitate this server or another upstream.
            named = params.get("logger")
            said_by = f"{self.alias}/{visible_line(named)}" if isinstance(named, str) and named else self.alias
            self._pass_on(method, {**params, "logger": said_by})

    def _tell_left_out(self, told: Json) -> None:
        if not self.lost.is_set():
            self._pass_on(LOG, told)

    def _pass_on(self, method: str, params: Json) -> None:
        call = next((call for call in self.questions.suspects() if not call.is_suspended), None)
        if call is not None:
            call.pending.put(Notice(method, params))
        elif (client := self.options.client) is not None and method != "notifications/initialized":
            self._background.start(client.notify, method, params)


@asynccontextmanager
async def open_session(transport: Transport, options: SessionOptions) -> AsyncGenerator[UpstreamSession]:
    """Open a session until the context exits. The context must be entered and exited in the same task.

    Raises:
        IncompatibleError: There is no common revision.
        RelayError: A request failed.
    """
    lost = anyio.Event()
    session: UpstreamSession | None = None
    on_end: Callable[[], None] | None = None

    def on_doubt() -> None:
        # A single failed request does not mean that the session is lost if other requests are still open.
        if session is not None and session.is_greeted and session.channel.open_requests <= 1:
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
            session.era = await greet(session.channel, options.wanted, options.told(options.announced))
            if options.observer is not None:
                on_end = options.observer.begin_session(session.era.version)
            if options.client is not None and (level := options.client.chosen_level) is not None:
                await session.set_level(level)
            yield session
        finally:
            tasks.cancel_scope.cancel()
            lost.set()
            if on_end is not None:
                on_end()
            for end in tuple(session.task_ends):
                end()
            if session.on_lost is not None:
                session.on_lost()
