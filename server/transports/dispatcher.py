"""JSON-RPC with one client, whatever its messages travel by: a task for each request, and nothing between."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from server.protocol.json_rpc import (
    ID_IS_TAKEN,
    AnyId,
    ErrorResponse,
    Json,
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
)
from server.protocol.protocol_errors import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from server.protocol.request_table import (
    NO_WAY,
    McpConnection,
    RequestContext,
    RequestTable,
    answer_to,
    has_envelope,
    opened_by,
)
from server.protocol.revisions import MODERN_PROTOCOL_VERSIONS
from server.transports.json_lines import OUTGOING_BYTES, UNREAD_BYTES, Outgoing

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

logger = logging.getLogger(__name__)

ENDING_SECONDS = 5.0  # how long requests that are cancelled at the end may take to clean up (the SDK's number)
READER_CHECK_SECONDS = 0.1  # how often, after the end of input, it is looked whether anybody still reads the answers
MOST_AT_WORK = 128  # requests at work at once; each holds memory, and its answer later
FEW_AT_WORK = 16
"""The same while the client leaves answers unread, since each would add another. So many begin together as well: only
their answers show whether the client reads."""
TOGETHER_SECONDS = 0.05  # how long the next ones wait for those that began together, if none of these is done before
WORK_BYTES = 8 << 20  # bytes of requests that are at work at once, where there is more than one
WAITING_BYTES = 8 << 20  # bytes of messages that wait for their turn before no more is read
LINE_BYTES = 256  # what a line that waits costs besides its own bytes
MOST_EARLY = 8  # notifications before the first request that are kept for it (the SDK's number)
MOST_HELD = 256  # messages that wait for an answer to the handshake before no more is read
WITH_BATCHES = "2025-03-26"  # the only revision in which messages come in arrays
AT_ONCE = frozenset({"initialize", "ping", "server/discover"})
"""Never wait for others: their answers are small, and tell whether anybody is there."""
INLINE = frozenset({"initialize"})
"""The messages after such a request wait until it is answered: some clients do not wait for that."""
TOO_MANY = (
    "This was not done: too many requests wait already, and a question to you is open. Answer it, wait for answers, "
    "and send this again."
)
CLOSED = "Connection closed"
INPUT_ENDED = (
    "The input ended while this was at work, so it was cancelled; a command was ended with all that it had started. "
    "Keep the input open until the answer has come."
)


@dataclass(eq=False)
class Incoming:
    """One message of the client until it is answered, and the way back to the client for as long."""

    dispatcher: Dispatcher
    outgoing: Outgoing  # takes its answer, and what belongs to it
    http_request: HttpRequest | None = None  # that it came with
    request_id: RequestId | None = None
    key: RequestId = ""  # as ids are compared: a number and its text are the same
    method: str = ""
    tool: object = None  # the name of the tool that it calls, as it came
    line: bytes = b""  # kept while it waits for its turn
    size: int = 0
    scope: anyio.CancelScope | None = None  # ends the work on it, once that has begun
    task: asyncio.Task[None] | None = None  # does the work
    round: int = 0  # with which others it began
    is_cancelled: bool = False  # it gets no answer, since the client wants none or was told an error in its place
    is_done: bool = False  # nothing more is sent for it

    @contextmanager
    def person_is_asked(self) -> Generator[None]:
        """For as long as a person is asked in another way than through the client: all is read, as with a question."""
        self.dispatcher.asked_elsewhere += 1
        self.dispatcher.room_changed()
        try:
            yield
        finally:
            self.dispatcher.asked_elsewhere -= 1

    def cancel(self) -> None:
        """End the work on it, or never begin it."""
        self.is_cancelled = True
        if self.scope is not None:
            self.scope.cancel()

    async def request(self, method: str, params: Json | None) -> Json:
        if self.is_done:
            raise MCPError(INVALID_REQUEST, f"The client cannot be asked '{method}' after the answer to its request.")
        return await self.dispatcher.ask(self.outgoing, method, params)

    async def notify(self, method: str, params: Json | None) -> None:
        if not self.is_done:
            await self.dispatcher.tell(self.outgoing, method, params)


OnRequest = Callable[[Incoming, Request], Awaitable[Json]]
OnNotify = Callable[[Incoming, Notification], Awaitable[None]]


class Dispatcher:
    """Sorts what comes from a client, sends what goes to it, and knows what is open on both sides.

    What a client that reads nothing costs is bounded: so many requests are at work at once, few begin together, few
    are at work while it leaves answers unread, and none begins while much is unread. The others wait as they came, and
    when these are many nothing more is read. But while a question to the client is open everything is read, since its
    answer may come behind any number of requests; those that would be too many are refused then.
    """

    def __init__(self, outgoing: Outgoing, on_room: Callable[[], None], *, is_bounded: bool = True) -> None:
        self.takes_batches = False  # whether arrays of messages are known in this revision
        self.may_ask = True  # whether requests may be sent to the client in this revision
        self._outgoing = outgoing
        self._is_bounded = is_bounded  # else what brings the messages bounds how much is at work
        self._on_room = on_room  # called when more may be read
        self.owed: dict[RequestId, Incoming] = {}  # requests without an answer, by their ids as ids are compared
        # Messages behind one that is inline, and the bytes of each.
        self._held: deque[tuple[Message, Incoming | None, int]] = deque()
        self._is_held = True
        self.waiting: OrderedDict[Incoming, None] = OrderedDict()  # requests that wait for their turn, as they came
        self._waiting_bytes = 0
        self._at_work = 0
        self._begun = 0  # requests at work that began together
        self._round = 0  # counts those who began together
        self._next_round: asyncio.TimerHandle | None = None
        self._work_bytes = 0
        self._asked: dict[RequestId, asyncio.Future[Json]] = {}  # questions to the client that are open
        self.asked_elsewhere = 0  # questions to a person that are open and do not go through the client
        self._running: set[Incoming] = set()  # messages whose tasks are not at their end
        self._next_id = 0
        self._answered = asyncio.Event()
        self._is_input_ended = False  # the client asks for nothing more, and answers nothing
        self._is_ended = False
        self._ended = asyncio.Event()
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for now."""
        return (
            self._outgoing.size > OUTGOING_BYTES
            or len(self._held) >= MOST_HELD
            or (self._waiting_bytes > WAITING_BYTES and not self._is_person_asked)
        )

    @property
    def _is_person_asked(self) -> bool:
        return bool(self._asked or self.asked_elsewhere)

    def room_changed(self) -> None:
        """More may be read now than before."""
        self._on_room()

    def has_open(self, identity: RequestId) -> bool:
        """Whether a request of this id has no answer yet."""
        return comparable_id(identity) in self.owed

    def receive(
        self,
        message: Message,
        line: bytes,
        outgoing: Outgoing | None = None,
        http_request: HttpRequest | None = None,
    ) -> None:
        """Take in a message, and the line that it came in.

        `outgoing` takes its answer, where that goes by another way than what belongs to no request.
        """
        incoming, outgoing = None, outgoing or self._outgoing
        if isinstance(message, Request):
            key = comparable_id(message.id)
            tool = message.params.get("name") if message.params is not None and message.method == "tools/call" else None
            incoming = Incoming(self, outgoing, http_request, message.id, key, message.method, tool, line, len(line))
            if self.owed.setdefault(incoming.key, incoming) is not incoming:
                self.refuse(error_of(message.id, ID_IS_TAKEN), outgoing)
                return
        elif isinstance(message, Notification):
            incoming = Incoming(self, outgoing, http_request)
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            identity: Any = as_mapping(message.params).get("requestId")
            cancelled = self.owed.get(comparable_id(identity)) if type(identity) in (int, str) else None
            if cancelled is not None and cancelled.method not in INLINE:
                self._cancel(cancelled)
        if self._is_held:
            self._held.append((message, incoming, len(line)))
            self._waiting_bytes += LINE_BYTES + len(line)
        else:
            self._accept_message(message, incoming)

    def receive_batch(
        self, messages: Sequence[Message], outgoing: Outgoing | None = None, http_request: HttpRequest | None = None
    ) -> None:
        """Take in the messages of an array; the answers go out as one."""
        count = sum(isinstance(message, Request) for message in messages)
        answers = _BatchAnswers(outgoing or self._outgoing, count)
        for message in messages:
            self.receive(message, encoded(fields_of(message)), answers, http_request)

    def refuse(self, error: Json, outgoing: Outgoing | None = None) -> None:
        """Answer what was not taken in with an error."""
        # Not by the encoder of answers: an id may hold half a character.
        (outgoing or self._outgoing).put_answer(json.dumps(error).encode())

    def fail_question(self, identity: AnyId | None) -> None:
        """Have a question of this server fail, if one with this id is open, since what answers it is not an answer."""
        asked = None if identity is None or isinstance(identity, float) else self._asked.get(identity)
        if asked is not None and not asked.done():
            asked.set_exception(MCPError(INVALID_REQUEST, "The client's answer is not a JSON-RPC response."))

    def go_on(self) -> None:
        """Begin requests that wait, as far as they may be at work; called when something is done, or has been read."""
        while self.waiting and self._may_begin(next(iter(self.waiting)).size):
            incoming, _ = self.waiting.popitem(last=False)
            self._waiting_bytes -= LINE_BYTES + incoming.size
            request = read_message(incoming.line, is_of_client=True)
            if isinstance(request, Request):  # it was one when it came, too
                self._begin(request, incoming)

    async def finish(self, seconds_for: Callable[[object], float], is_read: Callable[[], bool]) -> None:
        """End after the end of input: fail what can no longer be answered to us, and wait for what we still owe.

        `seconds_for` tells how long calls of a tool may still take, by its name as it came.
        """
        self._is_input_ended = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(MCPError(CONNECTION_CLOSED, "The client closed its end."))
        loop = asyncio.get_running_loop()
        ended = loop.time()
        while self.owed and is_read():
            self._answered.clear()
            with anyio.move_on_after(READER_CHECK_SECONDS):
                await self._answered.wait()
            passed = loop.time() - ended
            for incoming in tuple(self.owed.values()):
                if incoming.request_id is not None and passed >= seconds_for(incoming.tool):
                    self.refuse(error_of(incoming.request_id, INPUT_ENDED, CONNECTION_CLOSED), incoming.outgoing)
                    self._cancel(incoming)
        self.end()

    def end(self) -> None:
        """End the run: nothing more comes, and nothing that is owed is waited for."""
        self._is_ended = True
        if not self._is_held or self._on_request is None:
            self._ended.set()

    async def run(self, on_request: OnRequest, on_notify: OnNotify) -> None:
        """Work on what comes in, until nothing more comes; what is still at work then is cancelled."""
        self.start(on_request, on_notify)
        try:
            await self._ended.wait()
        finally:
            await self.aclose()

    def start(self, on_request: OnRequest, on_notify: OnNotify) -> None:
        """Begin to work on what comes in."""
        self._on_request, self._on_notify = on_request, on_notify
        self._release()

    def give_up(self, why: str = CLOSED) -> None:
        """End the run: what is owed is answered with the reason, and what is at work is cancelled."""
        self._ended.set()
        self._is_ended = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(MCPError(CONNECTION_CLOSED, CLOSED))
        for incoming in tuple(self.owed.values()):
            self.refuse(error_of(incoming.request_id, why, CONNECTION_CLOSED), incoming.outgoing)
            self._cancel(incoming)

    async def aclose(self, why: str = CLOSED) -> None:
        """End the run as `give_up` does, and wait until nothing is at work any more."""
        self.give_up(why)
        self._on_request = self._on_notify = None  # what holds it by these could not be freed otherwise
        with anyio.move_on_after(ENDING_SECONDS, shield=True):
            if tasks := [incoming.task for incoming in self._running if incoming.task is not None]:
                await asyncio.wait(tasks)

    async def request(self, method: str, params: Json | None) -> Json:
        """Ask the client outside of its requests."""
        return await self.ask(self._outgoing, method, params)

    async def notify(self, method: str, params: Json | None) -> None:
        """Tell the client something outside of its requests."""
        await self.tell(self._outgoing, method, params)

    async def ask(self, outgoing: Outgoing, method: str, params: Json | None) -> Json:
        """Ask the client, and wait for its answer; `MCPError` where that is an error, or the client is gone."""
        if not self.may_ask:
            raise MCPError(INVALID_REQUEST, f"A client of this revision cannot be asked '{method}'.")
        # Before it is sent: one that is cancelled meanwhile leaves nothing behind.
        await outgoing.backpressure.wait()
        if self._ended.is_set() or self._is_input_ended:
            raise MCPError(CONNECTION_CLOSED, CLOSED)
        self._next_id += 1
        identity = self._next_id
        message: Json = {"jsonrpc": "2.0", "id": identity, "method": method}
        if params:
            message["params"] = dict(params)
        asked = self._asked[identity] = asyncio.get_running_loop().create_future()
        outgoing.put(encoded(message))
        self._on_room()
        try:
            return await asked
        finally:
            del self._asked[identity]
            if not asked.done() or asked.cancelled():
                cancelled = {"requestId": identity, "reason": "nobody waits for it any more"}
                outgoing.put(encoded({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}))

    async def tell(self, outgoing: Outgoing, method: str, params: Json | None) -> None:
        """Tell the client something; once it is gone, or waits for nothing but answers, that is dropped."""
        if self._ended.is_set() or self._is_input_ended:
            return
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        outgoing.put(encoded(message))
        await outgoing.backpressure.wait()

    def _cancel(self, incoming: Incoming) -> None:
        """End the work on a request without an answer; its id is free at once."""
        del self.owed[incoming.key]
        incoming.cancel()
        if incoming.request_id is not None:
            incoming.outgoing.leave_unanswered(incoming.request_id)
        if incoming in self.waiting:
            del self.waiting[incoming]
            self._waiting_bytes -= LINE_BYTES + incoming.size

    def _release(self) -> None:
        """Go on with what is held, up to the next message that others have to wait for."""
        self._is_held = False
        while self._held and not self._is_held:
            message, incoming, size = self._held.popleft()
            self._waiting_bytes -= LINE_BYTES + size
            self._accept_message(message, incoming)
        if self._is_held:
            return
        self._on_room()
        if self._is_ended:
            self._ended.set()

    def _accept_message(self, message: Message, incoming: Incoming | None) -> None:
        """Begin with a message, or let it wait."""
        match message:
            case Request():
                if incoming is None or incoming.is_cancelled:
                    return
                if message.method in AT_ONCE or (not self.waiting and self._may_begin(incoming.size)):
                    self._begin(message, incoming)
                elif self._waiting_bytes > WAITING_BYTES and self._is_person_asked:
                    del self.owed[incoming.key]
                    self.refuse(error_of(message.id, TOO_MANY, INTERNAL_ERROR), incoming.outgoing)
                else:
                    self.waiting[incoming] = None
                    self._waiting_bytes += LINE_BYTES + incoming.size
            case Notification():
                if incoming is not None:
                    incoming.task = asyncio.get_running_loop().create_task(self._hear(incoming, message))
                    self._running.add(incoming)
            case Response() | ErrorResponse():
                asked = self._asked.get(comparable_id(message.id)) if message.id is not None else None
                if asked is None or asked.done():
                    return
                if isinstance(message, Response):
                    asked.set_result(message.result)
                else:
                    error = message.error
                    asked.set_exception(MCPError(error["code"], error["message"], error.get("data")))

    def _may_begin(self, size: int) -> bool:
        """Whether one more request may be at work."""
        if not self._is_bounded:
            return True
        if self._outgoing.size > OUTGOING_BYTES or not self._at_work:
            return self._outgoing.size <= OUTGOING_BYTES
        most = FEW_AT_WORK if self._outgoing.size > UNREAD_BYTES else MOST_AT_WORK
        return self._begun < FEW_AT_WORK and self._at_work < most and self._work_bytes + size <= WORK_BYTES

    def _begin(self, request: Request, incoming: Incoming) -> None:
        incoming.line = b""
        incoming.scope = scope = anyio.CancelScope()
        incoming.round = self._round
        self._at_work += 1
        self._begun += 1
        self._work_bytes += incoming.size
        loop = asyncio.get_running_loop()
        if self._begun >= FEW_AT_WORK and self._next_round is None:
            self._next_round = loop.call_later(TOGETHER_SECONDS, self._begin_round)
        if request.method in INLINE:
            self._is_held = True
        # It takes itself off at the end of its task: a callback would cost a turn of the loop.
        self._running.add(incoming)
        incoming.task = loop.create_task(self._work(request, incoming, scope))

    def _begin_round(self) -> None:
        self._next_round = None
        self._round += 1
        self._begun = 0
        self.go_on()
        self._on_room()

    async def _work(self, request: Request, incoming: Incoming, scope: anyio.CancelScope) -> None:
        """Work on one request, and answer it, unless the client has cancelled it."""
        answer: Json | None = None
        try:
            try:
                with scope:
                    if self._on_request is not None:
                        answer = await answer_to(request, self._on_request(incoming, request))
            finally:
                incoming.is_done = True
                if self.owed.get(incoming.key) is incoming:
                    del self.owed[incoming.key]
                if request.method in INLINE:
                    self._release()
            if answer is not None and not incoming.is_cancelled:
                self._answered.set()
                incoming.outgoing.put_answer(encoded(answer))
        finally:
            self._running.discard(incoming)
            self._at_work -= 1
            self._begun -= incoming.round == self._round
            self._work_bytes -= incoming.size
            if self.waiting:
                self.go_on()
                self._on_room()

    async def _hear(self, incoming: Incoming, notification: Notification) -> None:
        try:
            if self._on_notify is not None:
                await self._on_notify(incoming, notification)
        except Exception:
            logger.exception("a handler of %r raised", notification.method)
        finally:
            self._running.discard(incoming)


class _BatchAnswers:
    """Gathers the answers to the requests of an array."""

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
    """The client, whose first request says how it speaks."""

    def __init__(self, table: RequestTable, dispatcher: Dispatcher, *, is_modern: bool | None = None) -> None:
        self.connection = McpConnection(dispatcher)
        self._table = table
        self._dispatcher = dispatcher
        self._is_modern = is_modern  # `None` until that is known
        self._early: list[tuple[Incoming, Notification]] = []

    async def on_request(self, incoming: Incoming, request: Request) -> Json:
        _, method, params = request
        is_enveloped = method != "initialize" and has_envelope(params)
        if self._is_modern is None:
            self._is_modern = is_enveloped
            self._dispatcher.may_ask = not is_enveloped
            early, self._early = self._early, []
            for notification in early:
                await self.on_notify(*notification)
        connection = self.connection
        if self._is_modern:
            if method == "initialize":
                raise _no_handshake(params)
            connection = opened_by(params, NO_WAY)
        elif is_enveloped:
            message = "This connection was opened with the handshake, so requests of 2026-07-28 are not taken on it."
            raise MCPError(INVALID_REQUEST, message)
        ctx = RequestContext(method, params, request.id, connection, incoming, incoming.http_request)
        answer = await self._table.answer(ctx)
        self._dispatcher.takes_batches = self.connection.protocol_version == WITH_BATCHES
        return answer

    async def on_notify(self, incoming: Incoming, notification: Notification) -> None:
        if self._is_modern is None:
            if len(self._early) < MOST_EARLY:
                self._early.append((incoming, notification))
        elif not self._is_modern:  # in 2026-07-28 there are none but what the dispatcher knows
            method, params = notification
            ctx = RequestContext(method, params, None, self.connection, incoming, incoming.http_request)
            await self._table.take_notification(ctx)


def _no_handshake(params: Json | None) -> MCPError:
    asked = as_mapping(params).get("protocolVersion")
    data: Json = {"supported": list(MODERN_PROTOCOL_VERSIONS)} | (
        {"requested": asked} if isinstance(asked, str) else {}
    )
    message = "This connection speaks 2026-07-28, which has no initialize."
    return MCPError(UNSUPPORTED_PROTOCOL_VERSION, message, data)
