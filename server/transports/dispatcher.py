"""Dispatches JSON-RPC messages from and to one client, over any transport, with one task per request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from server.protocol.json_rpc import (
    CONNECTION_CLOSED,
    ID_IS_TAKEN,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    AnyId,
    ErrorResponse,
    Json,
    MCPError,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    as_mapping,
    comparable_id,
    encoded,
    error_of,
    fields_of,
    read_message,
    response_to,
)
from server.protocol.request_table import NO_OUTBOUND, McpConnection, RequestContext, RequestTable, opened_by
from server.protocol.revisions import MODERN_PROTOCOL_VERSIONS, PROTOCOL_VERSION_META_KEY
from server.transports.json_lines import OUTGOING_BYTES, UNREAD_BYTES, Outgoing

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

logger = logging.getLogger(__name__)

ENDING_SECONDS = 5.0  # limit for the cleanup of cancelled requests at shutdown (the SDK's value)
READER_CHECK_SECONDS = 0.1  # how often to check, after the end of input, whether anybody still reads the responses
MAX_IN_PROGRESS = 128  # maximum number of requests in progress; each needs memory for itself and for its response
FEW_IN_PROGRESS = 16
"""The maximum number of requests in progress while many responses are unread, because each request adds a response.
Also the maximum number of requests that start together, because only their responses show whether the client reads.
"""
TOGETHER_SECONDS = 0.05  # how long later requests wait if `FEW_IN_PROGRESS` have started together and none has finished
WORK_BYTES = 8 << 20  # maximum total size of the requests in progress; a single request may be larger
WAITING_BYTES = 8 << 20  # size of the queued messages above which reading pauses
LINE_BYTES = 256  # estimated memory for a queued message, in addition to the bytes of its line
MAX_EARLY = 8  # maximum number of notifications kept until the first request (the SDK's value)
MAX_HELD = 256  # number of messages waiting for the response to `initialize` above which reading pauses
WITH_BATCHES = "2025-03-26"  # the only revision with batches
AT_ONCE = frozenset({"initialize", "ping", "server/discover"})
"""Requests that the limits do not delay: their responses are small, and show the client that the server is alive."""
INLINE = frozenset({"initialize"})
"""Requests after which later messages wait for the response, because some clients do not wait for it themselves."""
TOO_MANY = (
    "This was not done: too many requests are waiting, and a question to you is open. Answer it, wait for "
    "responses to your other requests, then send this again."
)
CLOSED = "Connection closed"
INPUT_ENDED = (
    "The input ended during this request, so it was cancelled; if it ran a command, that command was stopped with "
    "everything that it had started. Keep the input open until the response arrives."
)


@dataclass(eq=False)
class Incoming:
    """One message from the client, tracked until it is answered. Its handler can send messages back to the client."""

    dispatcher: Dispatcher
    outgoing: Outgoing  # receives the response and related messages
    http_request: HttpRequest | None = None  # the HTTP request that carried the message
    request_id: RequestId | None = None
    key: RequestId = ""  # the id in comparable form: a number equals its string
    method: str = ""
    tool: object = None  # the name of the called tool, as received
    line: bytes = b""  # the received line, kept while the message waits for its turn
    size: int = 0
    scope: anyio.CancelScope | None = None  # cancels the task that processes a request, once it has started
    task: asyncio.Task[None] | None = None  # the task that processes the message
    round: int = 0  # the number of the group of requests in which this request started
    is_cancelled: bool = False  # no response is sent, because the client cancelled the request or received an error
    is_done: bool = False  # no more messages are sent for this request

    @contextmanager
    def person_is_asked(self) -> Generator[None]:
        """Count a question to a person as open, although it is not sent to the client as a request.

        Until the question is answered, waiting requests do not pause reading, as with a question to the client.
        """
        self.dispatcher.other_questions += 1
        self.dispatcher.on_resume()
        try:
            yield
        finally:
            self.dispatcher.other_questions -= 1

    def cancel(self) -> None:
        """Cancel the task of this message, or prevent its start."""
        self.is_cancelled = True
        if self.scope is not None:
            self.scope.cancel()

    async def request(self, method: str, params: Json | None) -> Json:
        if self.is_done:
            raise MCPError(
                INVALID_REQUEST,
                f"The client cannot receive a request '{method}' after the response to its own request.",
            )
        return await self.dispatcher.request(method, params, self.outgoing)

    async def notify(self, method: str, params: Json | None) -> None:
        if not self.is_done:
            await self.dispatcher.notify(method, params, self.outgoing)


OnRequest = Callable[[Incoming, Request], Awaitable[Json]]  # outside of tests, `Conversation.on_request`
OnNotify = Callable[[Incoming, Notification], Awaitable[None]]


class Dispatcher:
    """Dispatches messages from and to one client, and tracks the open requests in both directions.

    The cost of a client that reads nothing is bounded. There are limits on the number of requests in progress, on their
    size, and on the number that start together. The first limit is lower while many responses are unread; while too
    many are unread, only requests in `AT_ONCE` start. Other requests wait unparsed; if too many are waiting, reading
    pauses. While a question to the client is open, waiting requests do not pause reading, because the answer may come
    after any number of requests; surplus requests are refused instead.
    """

    def __init__(self, outgoing: Outgoing, on_resume: Callable[[], None], *, is_bounded: bool = True) -> None:
        self.takes_batches = False  # whether the client's revision has batches
        self.may_ask = True  # whether the client's revision allows requests to the client
        self._outgoing = outgoing
        self._is_bounded = is_bounded  # false if other limits apply to the work in progress
        self.on_resume = on_resume  # called when reading may continue
        self.unanswered: dict[RequestId, Incoming] = {}  # unanswered requests, keyed by comparable id
        self._held: deque[tuple[Message, Incoming]] = deque()  # waiting for the response to an inline request
        self._is_held = True
        self.waiting: OrderedDict[Incoming, None] = OrderedDict()  # unparsed requests that are waiting for their turn
        self._waiting_bytes = 0
        self._in_progress = 0
        self._started = 0  # number of requests in progress that started in the current group
        self._round = 0  # the number of the current group of requests that start together
        self._next_round: asyncio.TimerHandle | None = None
        self._work_bytes = 0
        self._questions: dict[RequestId, asyncio.Future[Json]] = {}  # open questions to the client
        self.other_questions = 0  # number of open questions that are not requests to the client
        self._running: set[Incoming] = set()  # messages whose tasks are running
        self._next_id = 0
        self._answered = asyncio.Event()
        self._is_input_ended = False  # the client will send nothing more
        self._is_ended = False
        self._ended = asyncio.Event()
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None

    @property
    def is_full(self) -> bool:
        """Whether reading should pause for now."""
        return (
            self._outgoing.size > OUTGOING_BYTES
            or len(self._held) >= MAX_HELD
            or (self._waiting_bytes > WAITING_BYTES and not self._is_person_asked)
        )

    @property
    def _is_person_asked(self) -> bool:
        return bool(self._questions or self.other_questions)

    def has_open(self, identity: RequestId) -> bool:
        return comparable_id(identity) in self.unanswered

    def receive(
        self,
        message: Message | list[Message],
        line: bytes,
        outgoing: Outgoing | None = None,
        http_request: HttpRequest | None = None,
    ) -> None:
        """Receive a message or a batch, and the line that contained it.

        `outgoing` receives the response; the response to a batch is a batch. By default, the response goes to the same
        stream as messages that belong to no request.
        """
        outgoing = outgoing or self._outgoing
        if isinstance(message, list):
            answers = _BatchAnswers(outgoing, sum(isinstance(member, Request) for member in message))
            for member in message:
                self.receive(member, encoded(fields_of(member)), answers, http_request)
            return
        if isinstance(message, Request):
            key = comparable_id(message.id)
            tool = message.params.get("name") if message.params is not None and message.method == "tools/call" else None
            incoming = Incoming(self, outgoing, http_request, message.id, key, message.method, tool, line, len(line))
            if self.unanswered.setdefault(key, incoming) is not incoming:
                self.refuse(error_of(message.id, ID_IS_TAKEN), outgoing)
                return
        else:
            incoming = Incoming(self, outgoing, http_request, size=len(line))
            if isinstance(message, Notification) and message.method == "notifications/cancelled":
                identity: Any = as_mapping(message.params).get("requestId")
                target = self.unanswered.get(comparable_id(identity)) if type(identity) in (int, str) else None
                if target is not None and target.method not in INLINE:
                    self._cancel(target)
        if self._is_held:
            self._held.append((message, incoming))
            self._waiting_bytes += LINE_BYTES + incoming.size
        else:
            self._accept_message(message, incoming)

    def refuse(self, error: Json, outgoing: Outgoing | None = None) -> None:
        """Respond to a rejected message with an error."""
        # Unlike `encoded`, `json.dumps` preserves lone surrogates, which an id may contain.
        (outgoing or self._outgoing).put_answer(json.dumps(error).encode())

    def fail_question(self, identity: AnyId | None) -> None:
        """Fail the open question with this id, because the client's response to it is malformed."""
        is_usable = isinstance(identity, str | int)
        future = self._questions.get(comparable_id(identity)) if is_usable else None
        if future is not None and not future.done():
            future.set_exception(MCPError(INVALID_REQUEST, "The client's answer is not a JSON-RPC response."))

    def start_waiting(self) -> None:
        """Start waiting requests, as far as the limits allow."""
        while self.waiting and self._may_start(next(iter(self.waiting)).size):
            incoming, _ = self.waiting.popitem(last=False)
            self._waiting_bytes -= LINE_BYTES + incoming.size
            request = read_message(incoming.line, is_of_client=True)
            if isinstance(request, Request):  # always true, because the line was parsed successfully on arrival
                self._start_request(request, incoming)

    async def finish(self, seconds_for: Callable[[object], float], is_read: Callable[[], bool]) -> None:
        """After the end of input, fail the open questions and wait for the remaining responses.

        `seconds_for` takes a tool's name as received, and returns how long calls to the tool may still take.
        """
        self._is_input_ended = True
        for future in self._questions.values():
            if not future.done():
                future.set_exception(MCPError(CONNECTION_CLOSED, "The client has closed the connection."))
        loop = asyncio.get_running_loop()
        ended_at = loop.time()
        while self.unanswered and is_read():
            self._answered.clear()
            with anyio.move_on_after(READER_CHECK_SECONDS):
                await self._answered.wait()
            elapsed = loop.time() - ended_at
            for incoming in tuple(self.unanswered.values()):
                if incoming.request_id is not None and elapsed >= seconds_for(incoming.tool):
                    self.refuse(error_of(incoming.request_id, INPUT_ENDED, CONNECTION_CLOSED), incoming.outgoing)
                    self._cancel(incoming)
        self.end()

    def end(self) -> None:
        """End the run without waiting for unsent responses."""
        self._is_ended = True
        if not self._is_held or self._on_request is None:
            self._ended.set()

    async def run(self, on_request: OnRequest, on_notify: OnNotify) -> None:
        """Process messages until there are no more, then cancel requests still in progress."""
        self.start(on_request, on_notify)
        try:
            await self._ended.wait()
        finally:
            await self.aclose()

    def start(self, on_request: OnRequest, on_notify: OnNotify) -> None:
        self._on_request, self._on_notify = on_request, on_notify
        self._process_held()

    def abort(self, reason: str = CLOSED) -> None:
        """End the run: answer open requests with the reason, and cancel their tasks."""
        self._ended.set()
        self._is_ended = True
        for future in self._questions.values():
            if not future.done():
                future.set_exception(MCPError(CONNECTION_CLOSED, CLOSED))
        for incoming in tuple(self.unanswered.values()):
            self.refuse(error_of(incoming.request_id, reason, CONNECTION_CLOSED), incoming.outgoing)
            self._cancel(incoming)

    async def aclose(self, reason: str = CLOSED) -> None:
        """End the run like `abort`, and wait up to `ENDING_SECONDS` until no task is left."""
        self.abort(reason)
        self._on_request = self._on_notify = None  # these callbacks would keep their objects alive
        with anyio.move_on_after(ENDING_SECONDS, shield=True):
            if tasks := [incoming.task for incoming in self._running if incoming.task is not None]:
                await asyncio.wait(tasks)

    async def request(self, method: str, params: Json | None, outgoing: Outgoing | None = None) -> Json:
        """Send the client a request, by default outside of the client's own requests, and return the result.

        Raises `MCPError` if the response is an error, or if the client is gone or cannot receive requests.
        """
        outgoing = outgoing or self._outgoing
        if not self.may_ask:
            return await NO_OUTBOUND.request(method, params)
        # Wait before the request is registered, so that a cancellation during the wait leaves nothing behind.
        await outgoing.backpressure.wait()
        if self._ended.is_set() or self._is_input_ended:
            raise MCPError(CONNECTION_CLOSED, CLOSED)
        self._next_id += 1
        identity = self._next_id
        future = self._questions[identity] = asyncio.get_running_loop().create_future()
        outgoing.put(encoded(fields_of(Request(identity, method, params or None))))
        self.on_resume()
        try:
            return await future
        finally:
            del self._questions[identity]
            if not future.done() or future.cancelled():
                cancellation = {"requestId": identity, "reason": "its result is no longer needed"}
                outgoing.put(encoded(fields_of(Notification("notifications/cancelled", cancellation))))

    async def notify(self, method: str, params: Json | None, outgoing: Outgoing | None = None) -> None:
        """Send the client a notification, or drop it if the client is gone or will send nothing more."""
        outgoing = outgoing or self._outgoing
        if self._ended.is_set() or self._is_input_ended:
            return
        outgoing.put(encoded(fields_of(Notification(method, params))))
        await outgoing.backpressure.wait()

    def _cancel(self, incoming: Incoming) -> None:
        """Cancel an unanswered request. The client may reuse the request's id at once."""
        del self.unanswered[incoming.key]
        incoming.cancel()
        if incoming.request_id is not None:
            incoming.outgoing.leave_unanswered(incoming.request_id)
        if incoming in self.waiting:
            del self.waiting[incoming]
            self._waiting_bytes -= LINE_BYTES + incoming.size

    def _process_held(self) -> None:
        """Process held messages, up to the next inline request."""
        self._is_held = False
        while self._held and not self._is_held:
            message, incoming = self._held.popleft()
            self._waiting_bytes -= LINE_BYTES + incoming.size
            self._accept_message(message, incoming)
        if self._is_held:
            return
        self.on_resume()
        if self._is_ended:
            self._ended.set()

    def _accept_message(self, message: Message, incoming: Incoming) -> None:
        match message:
            case Request():
                if incoming.is_cancelled:
                    return
                if message.method in AT_ONCE or (not self.waiting and self._may_start(incoming.size)):
                    self._start_request(message, incoming)
                elif self._waiting_bytes > WAITING_BYTES and self._is_person_asked:
                    del self.unanswered[incoming.key]
                    self.refuse(error_of(message.id, TOO_MANY, INTERNAL_ERROR), incoming.outgoing)
                else:
                    self.waiting[incoming] = None
                    self._waiting_bytes += LINE_BYTES + incoming.size
            case Notification():
                incoming.task = asyncio.get_running_loop().create_task(self._handle_notification(incoming, message))
                self._running.add(incoming)
            case Response() | ErrorResponse():
                # `request` waits for this future.
                future = self._questions.get(comparable_id(message.id)) if message.id is not None else None
                if future is None or future.done():
                    return
                if isinstance(message, Response):
                    future.set_result(message.result)
                else:
                    error = message.error
                    future.set_exception(MCPError(error["code"], error["message"], error.get("data")))

    def _may_start(self, size: int) -> bool:
        if not self._is_bounded:
            return True
        if self._outgoing.size > OUTGOING_BYTES or not self._in_progress:
            return self._outgoing.size <= OUTGOING_BYTES
        limit = FEW_IN_PROGRESS if self._outgoing.size > UNREAD_BYTES else MAX_IN_PROGRESS
        return self._started < FEW_IN_PROGRESS and self._in_progress < limit and self._work_bytes + size <= WORK_BYTES

    def _start_request(self, request: Request, incoming: Incoming) -> None:
        incoming.line = b""
        incoming.scope = scope = anyio.CancelScope()
        incoming.round = self._round
        self._in_progress += 1
        self._started += 1
        self._work_bytes += incoming.size
        loop = asyncio.get_running_loop()
        if self._started >= FEW_IN_PROGRESS and self._next_round is None:
            self._next_round = loop.call_later(TOGETHER_SECONDS, self._start_round)
        if request.method in INLINE:
            self._is_held = True
        # The task removes itself at its end, because a callback would cost an iteration of the event loop.
        self._running.add(incoming)
        incoming.task = loop.create_task(self._process(request, incoming, scope))

    def _start_round(self) -> None:
        self._next_round = None
        self._round += 1
        self._started = 0
        self.start_waiting()
        self.on_resume()

    async def _process(self, request: Request, incoming: Incoming, scope: anyio.CancelScope) -> None:
        """Process a request and respond to it, unless the client has cancelled it."""
        answer: Json | None = None
        try:
            try:
                with scope:
                    if self._on_request is not None:
                        answer = await response_to(request, self._on_request(incoming, request))
            finally:
                incoming.is_done = True
                if self.unanswered.get(incoming.key) is incoming:
                    del self.unanswered[incoming.key]
                if request.method in INLINE:
                    self._process_held()
            if answer is not None and not incoming.is_cancelled:
                self._answered.set()
                incoming.outgoing.put_answer(encoded(answer))
        finally:
            self._running.discard(incoming)
            self._in_progress -= 1
            self._started -= incoming.round == self._round
            self._work_bytes -= incoming.size
            if self.waiting:
                self.start_waiting()
                self.on_resume()

    async def _handle_notification(self, incoming: Incoming, notification: Notification) -> None:
        try:
            if self._on_notify is not None:
                await self._on_notify(incoming, notification)
        except Exception:
            logger.exception("a handler of %r raised", notification.method)
        finally:
            self._running.discard(incoming)


class _BatchAnswers:
    """Collects the responses to the requests in a batch."""

    def __init__(self, outgoing: Outgoing, count: int) -> None:
        self.size = 0
        self.backpressure = outgoing.backpressure
        self.put = outgoing.put
        self._outgoing = outgoing
        self._count = count
        self._answers: list[bytes] = []

    def put_answer(self, line: bytes) -> None:
        self._answers.append(line)
        if len(self._answers) == self._count:
            self._outgoing.put_answer(b"[%b]" % b",".join(self._answers))

    def leave_unanswered(self, identity: RequestId) -> None:
        self._count -= 1
        if not self._count:
            self._outgoing.leave_unanswered(identity)
        elif len(self._answers) == self._count:
            self.put_answer(self._answers.pop())


class Conversation:
    """A conversation with a client. The client's first request determines the revision."""

    def __init__(self, table: RequestTable, dispatcher: Dispatcher, *, is_modern: bool | None = None) -> None:
        self.connection = McpConnection(dispatcher)
        self._table = table
        self._dispatcher = dispatcher
        self._is_modern = is_modern  # `None` until known
        self._early: list[tuple[Incoming, Notification]] = []

    async def on_request(self, incoming: Incoming, request: Request) -> Json:
        _, method, params = request
        meta = as_mapping(as_mapping(params).get("_meta"))
        is_enveloped = method != "initialize" and PROTOCOL_VERSION_META_KEY in meta  # declares its own revision
        if self._is_modern is None:
            self._is_modern = is_enveloped
            self._dispatcher.may_ask = not is_enveloped
            early, self._early = self._early, []
            for notification in early:
                await self.on_notify(*notification)
        connection = self.connection
        if self._is_modern:
            if method == "initialize":
                data: Json = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
                if isinstance(requested := as_mapping(params).get("protocolVersion"), str):
                    data["requested"] = requested
                message = "This connection uses the 2026-07-28 revision, which has no initialize."
                raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, message, data)
            connection = opened_by(params)
        elif is_enveloped:
            message = (
                "This connection was opened with the handshake, so it accepts no requests of the 2026-07-28 revision."
            )
            raise MCPError(INVALID_REQUEST, message)
        ctx = RequestContext(method, params, request.id, connection, incoming, incoming.http_request)
        answer = await self._table.answer(ctx)
        self._dispatcher.takes_batches = self.connection.protocol_version == WITH_BATCHES
        return answer

    async def on_notify(self, incoming: Incoming, notification: Notification) -> None:
        if self._is_modern is None:
            if len(self._early) < MAX_EARLY:
                self._early.append((incoming, notification))
        # From 2026-07-28 clients, only cancellations are expected, which the dispatcher handles. Other notifications
        # are ignored.
        elif not self._is_modern:
            method, params = notification
            ctx = RequestContext(method, params, None, self.connection, incoming, incoming.http_request)
            await self._table.take_notification(ctx)
