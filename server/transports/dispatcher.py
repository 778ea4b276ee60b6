"""JSON-RPC on a wire of our own, as the SDK's server wants it: a task for each request, and nothing between.

The SDK's dispatcher stands on streams, with a hop of the event loop for each message in each direction; for a small
call that is most of the time. What a request may do, and what its answer is, stays the SDK's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import anyio
import anyio.abc
import mcp_types as types
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.transport_context import TransportContext

from server.json_rpc import (
    AnyId,
    Failure,
    Json,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    encoded,
    error_of,
    read_message,
)


class Room:
    """Tells when there is room for more."""

    def __init__(self) -> None:
        self.is_full = False
        self._waiting: dict[Callable[[], None], None] = {}

    def fill(self) -> None:
        """There is none."""
        self.is_full = True

    def free(self) -> None:
        """There is room again."""
        if self.is_full:
            self.is_full = False
            waiting, self._waiting = self._waiting, {}
            for tell in waiting:
                tell()

    def when_free(self, tell: Callable[[], None]) -> None:
        """Have somebody told once, when there is room again."""
        self._waiting[tell] = None

    async def wait(self) -> None:
        """Wait until there is room."""
        while self.is_full:
            free = asyncio.Event()
            self.when_free(free.set)
            await free.wait()


ROOM = Room()
"""That of this process's client over stdio; where clients come over the network there is always room."""


OUTBOX_BYTES = 4 * 1024 * 1024
"""Bytes waiting for a slow reader before senders have to wait."""

UNREAD_BYTES = 1 << 18
"""More than this waits only for a client that reads more slowly than we write."""

LARGE_LINE = 1 << 16
"""Of a smaller line a copy costs less than another piece."""

MOST_PIECES = 64
"""Written at once."""

_INPUT_ENDED = (
    "The input ended while this was at work, so it was cancelled; a command was ended with all that it had started. "
    "Keep the input open until the answer has come."
)


def _tool_of(request: Request) -> str:
    """The name of the tool that a request calls, or nothing."""
    name = (request.params or {}).get("name") if request.method == "tools/call" else None
    return name if isinstance(name, str) else ""


class Outbox:
    """Messages that go out; and the account of what is owed to whom."""

    def __init__(self, on_data: Callable[[], None]) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self._size = 0
        self._on_data = on_data
        self._is_closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._answered = asyncio.Event()
        self._owed: dict[RequestId, tuple[RequestId, str]] = {}
        """The id of each open request by what ids are compared by, and the tool that it calls; empty for none."""
        self._given_up: set[RequestId] = set()
        self._asked: set[RequestId] = set()

    @property
    def owes_answers(self) -> bool:
        return bool(self._owed)

    def give_up(self, is_too_long: Callable[[str], bool]) -> list[Notification]:
        """Answer open requests with an error, since their answers are waited for no longer.

        Args:
            is_too_long: Whether the calls of this tool have had their time.

        Returns:
            What ends the work on them.
        """
        late: list[RequestId] = []
        for key, (identity, tool) in tuple(self._owed.items()):
            if not is_too_long(tool):
                continue
            late.append(identity)
            del self._owed[key]
            self._given_up.add(key)
            self.put(json.dumps(error_of(identity, _INPUT_ENDED, types.CONNECTION_CLOSED)).encode())
        return [Notification("notifications/cancelled", {"requestId": identity}) for identity in late]

    async def wait_answered(self, seconds: float) -> None:
        """Wait until an answer goes out, at most this long."""
        self._answered.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._answered.wait()
        except TimeoutError:
            return

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def owes(self, identity: RequestId) -> bool:
        """Whether a request with this id is open; a number and its text are the same one."""
        return coerce_request_id(identity) in self._owed

    def note_received(self, message: Message) -> None:
        match message:
            case Request():
                self._owed[coerce_request_id(message.id)] = message.id, _tool_of(message)
            case Notification() if message.method == "notifications/cancelled":
                cancelled = (message.params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self._owed.pop(coerce_request_id(cancelled), None)
            case Response() | Failure():
                if message.id is not None:
                    self._asked.discard(message.id)
            case _:
                pass

    def fail_open_questions(self) -> list[Failure]:
        """Errors in place of the answers that the client can no longer give."""
        error = {"code": types.CONNECTION_CLOSED, "message": "The client closed its end."}
        return [Failure(identity, error) for identity in self._asked]

    def fail_question(self, identity: AnyId | None) -> Failure | None:
        """The error in place of an answer that is none; `None` if no such question is open."""
        if identity is None or isinstance(identity, float) or identity not in self._asked:
            return None
        self._asked.discard(identity)
        message = "The client's answer is no JSON-RPC response."
        return Failure(identity, {"code": types.INVALID_REQUEST, "message": message})

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly for more to be begun."""
        return self._size > OUTBOX_BYTES

    @property
    def is_unread(self) -> bool:
        """Whether more waits than an end that reads takes in its turn."""
        return self._size > UNREAD_BYTES

    @property
    def size(self) -> int:
        """How many bytes wait to be written."""
        return self._size

    def next_pieces(self) -> Sequence[bytes | memoryview]:
        """What is to be written next, in the pieces in which it came: what is large is not copied."""
        return self._pieces if len(self._pieces) <= MOST_PIECES else tuple(islice(self._pieces, MOST_PIECES))

    def post(self, message: dict[str, Any]) -> None:
        """Send a message. An answer that is waited for no longer is dropped."""
        if self._is_closed:
            return
        identity = message.get("id")
        if identity is not None and "method" in message:
            self._asked.add(identity)
        elif identity is not None:
            key = coerce_request_id(identity)
            self._owed.pop(key, None)
            if key in self._given_up:
                return
            self._answered.set()
        if line := encoded(message):
            self.put(line)

    async def wait_for_room(self) -> None:
        """Wait while the client reads too slowly.

        Raises:
            anyio.BrokenResourceError: Nobody reads any more.
        """
        if self.is_full:
            self._room.clear()
            await self._room.wait()
            if self._is_closed:
                raise anyio.BrokenResourceError

    def put(self, line: bytes) -> None:
        """Let a line wait to be written.

        Args:
            line: Without its end.
        """
        if len(line) < LARGE_LINE:
            self._pieces.append(line + b"\n")
        else:
            self._pieces.append(line)
            self._pieces.append(b"\n")
        self._size += len(line) + 1
        self._empty.clear()
        self._on_data()

    def written(self, count: int) -> None:
        """So many bytes have been written."""
        self._size -= count
        if not self._size:
            self._pieces.clear()
            self._room.set()
            self._empty.set()
            return
        while count:
            first = self._pieces[0]
            if len(first) > count:
                self._pieces[0] = memoryview(first)[count:]
                break
            count -= len(first)
            self._pieces.popleft()
        if not self.is_full:
            self._room.set()

    def abandon(self) -> None:
        """Nobody reads any more: drop what is waiting, let senders go."""
        self._pieces.clear()
        self._size = 0
        self._is_closed = True
        self._owed.clear()
        self._room.set()
        self._empty.set()
        self._answered.set()


logger = logging.getLogger(__name__)

ENDING_SECONDS = 5.0
"""How long requests that are cancelled at the end may take to clean up (the SDK's number)."""

MOST_AT_WORK = 128
"""Requests at work at once; each holds memory, and its answer later."""

FEW_AT_WORK = 16
"""The same while the client leaves answers unread: theirs would come on top. And so many begin together, since only
their answers show whether they are read."""

TOGETHER_SECONDS = 0.05
"""How long the next ones wait for those that began together, if none of these is done before."""

WORK_BYTES = 8 << 20
"""Bytes of requests that are at work at once, where there is more than one."""

WAITING_BYTES = 8 << 20
"""Bytes of messages that wait for their turn before no more is read."""

LINE_BYTES = 256
"""What a line that waits costs besides its own bytes."""

MOST_HELD = 256
"""Messages that wait for an answer to the handshake before no more is read."""

AT_ONCE = frozenset({"initialize", "ping", "server/discover"})
"""Never wait for others: their answers are small, and tell whether anybody is there."""

INLINE = frozenset({"initialize"})
"""The messages after such a request wait until it is answered: some clients do not wait for that."""

BOTH_WAYS = TransportContext(kind="stdio", can_send_request=True)
ONE_WAY = TransportContext(kind="stdio", can_send_request=False)

TOO_MANY = (
    "This was not done: too many requests wait already, and a question to you is open. Answer it, wait for answers, "
    "and send this again."
)

CLOSED = types.ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")


class Way(Protocol):
    """Where messages go."""

    @property
    def is_full(self) -> bool:
        """Whether too much waits to be written."""
        ...

    @property
    def is_unread(self) -> bool:
        """Whether more waits to be written than the other end has taken at once."""
        ...

    def post(self, message: Json) -> None:
        """Send a message; it may wait to be written."""
        ...

    async def wait_for_room(self) -> None:
        """Wait while too much waits to be written.

        Raises:
            anyio.BrokenResourceError: Nobody reads any more.
        """
        ...


class _Incoming:
    """One message of the client while it is worked on: the SDK's `DispatchContext`.

    Args:
        dispatcher: Where it came in.
        request_id: The request's id, `None` for a notification.
        token: The progress token of the request.
    """

    __slots__ = (
        "_cancel_requested",
        "_dispatcher",
        "_is_closed",
        "is_cancelled",
        "request_id",
        "round",
        "scope",
        "token",
    )

    message_metadata = None

    def __init__(
        self, dispatcher: WireDispatcher, request_id: RequestId | None, token: types.ProgressToken | None
    ) -> None:
        self._dispatcher = dispatcher
        self._is_closed = False
        self._cancel_requested: anyio.Event | None = None
        self.request_id = request_id
        self.token = token
        self.scope = anyio.CancelScope()
        self.round = 0
        """With which others it began."""
        self.is_cancelled = False

    @property
    def transport(self) -> TransportContext:
        """Whether the client may be asked."""
        return BOTH_WAYS if self.can_send_request else ONE_WAY

    @property
    def can_send_request(self) -> bool:
        """Whether the client may be asked now."""
        return self._dispatcher.may_ask and not self._is_closed

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set when the client wants no answer any more."""
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
            if self.is_cancelled:
                self._cancel_requested.set()
        return self._cancel_requested

    def cancel(self) -> None:
        """The client wants no answer any more."""
        self.is_cancelled = True
        if self._cancel_requested is not None:
            self._cancel_requested.set()
        self.scope.cancel()

    def close(self) -> None:
        """The request is done: nothing more is sent for it."""
        self._is_closed = True

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Ask the client."""
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the client."""
        if not self._is_closed:
            await self._dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the request is, where it wants to know."""
        if self.token is None:
            return
        params: Json = {"progressToken": self.token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)


class WireDispatcher(Dispatcher[TransportContext]):
    """Sorts what comes from a client, and sends what goes to it.

    What a client that reads nothing costs is bounded: so many requests are at work at once, few begin together, few
    are at work while it leaves answers unread, and none begins while much is unread. The others wait as they came, and
    when these are many nothing more is read. But while a question to the client is open everything is read, since its
    answer may come behind any number of requests; those that would be too many are refused then.

    Args:
        way: Where messages go.
        on_room: Called when more may be read.
    """

    def __init__(self, way: Way, on_room: Callable[[], None]) -> None:
        self.may_ask = True
        """Whether requests may be sent to the client in this revision."""
        self._way = way
        self._on_room = on_room
        self._held: deque[tuple[Message, bytes]] = deque()
        self._is_held = True
        self._waiting: OrderedDict[RequestId, bytes] = OrderedDict()
        """Requests that wait for their turn, as they came."""
        self._waiting_bytes = 0
        self._at_work = 0
        self._begun = 0
        """Requests at work that began together."""
        self._round = 0
        """Counts those who began together."""
        self._next_round: asyncio.TimerHandle | None = None
        self._work_bytes = 0
        self._open: dict[RequestId, _Incoming] = {}
        self._asked: dict[RequestId, asyncio.Future[Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_id = 0
        self._is_ended = False
        self._ended = asyncio.Event()
        self._is_running = False
        self._on_request: OnRequest = _nobody
        self._on_notify: OnNotify = _nobody
        self._intercept: OnNotifyIntercept | None = None

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for now."""
        return len(self._held) >= MOST_HELD or (self._has_many_waiting and not self._asked)

    @property
    def _has_many_waiting(self) -> bool:
        return self._waiting_bytes > WAITING_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether no request is at work, so that what is sent now is all that will be for a while."""
        return not self._open

    def receive(self, message: Message, line: bytes = b"") -> None:
        """Take in a message.

        Args:
            message: What came.
            line: As it came; none that has none waits.
        """
        if self._is_held:
            self._held.append((message, line))
            self._waiting_bytes += LINE_BYTES + len(line)
        else:
            self._take(message, line)

    def go_on(self) -> None:
        """Begin requests that wait, as far as they may be at work; called when something is done, or has been read."""
        while self._waiting and self._may_begin(len(next(iter(self._waiting.values())))):
            _, line = self._waiting.popitem(last=False)
            self._waiting_bytes -= LINE_BYTES + len(line)
            request = read_message(line, is_of_client=True)
            if isinstance(request, Request):  # as before
                self._begin(request, len(line))

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        if not (self._is_held and self._is_running):
            self._ended.set()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Work on what comes in, until nothing more comes; what is still at work then is cancelled."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        self._is_running = True
        task_status.started()
        try:
            self._release()
            await self._ended.wait()
        finally:
            self._ended.set()
            self._is_ended = True
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(MCPError(CLOSED.code, CLOSED.message))
            self._waiting.clear()
            for incoming in tuple(self._open.values()):
                incoming.scope.cancel()
            with anyio.move_on_after(ENDING_SECONDS, shield=True):
                if self._tasks:
                    await asyncio.wait(tuple(self._tasks))

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Ask the client, and wait for its answer.

        Raises:
            MCPError: The answer is an error, or there is none in time, or the client is gone.
        """
        await self._room()  # before it is sent: one that is cancelled meanwhile leaves nothing behind
        if self._ended.is_set():
            raise MCPError(CLOSED.code, CLOSED.message)
        self._next_id += 1
        identity = self._next_id
        message: Json = {"jsonrpc": "2.0", "id": identity, "method": method}
        if params:
            message["params"] = dict(params)
        asked = self._asked[identity] = asyncio.get_running_loop().create_future()
        self._way.post(message)
        self._on_room()
        try:
            with anyio.fail_after((opts or {}).get("timeout")):
                return await asked
        except TimeoutError:
            self._cancel_asked(identity, "it took too long")
            raise MCPError(types.REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except anyio.get_cancelled_exc_class():
            self._cancel_asked(identity, "nobody waits for it any more")
            raise
        finally:
            self._asked.pop(identity, None)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the client something; once it is gone that is dropped."""
        del opts
        if self._ended.is_set():
            return
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        self._way.post(message)
        await self._room()

    def _cancel_asked(self, identity: RequestId, reason: str) -> None:
        params = {"requestId": identity, "reason": reason}
        self._way.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def _room(self) -> None:
        try:
            await self._way.wait_for_room()
        except anyio.BrokenResourceError:
            logger.debug("nobody reads any more")

    def _take(self, message: Message, line: bytes) -> None:
        match message:
            case Request():
                if message.method in AT_ONCE or (not self._waiting and self._may_begin(len(line))):
                    self._begin(message, len(line))
                elif self._has_many_waiting and self._asked:
                    self._way.post(error_of(message.id, TOO_MANY, types.INTERNAL_ERROR))
                else:
                    self._waiting[coerce_request_id(message.id)] = line
                    self._waiting_bytes += LINE_BYTES + len(line)
            case Notification():
                self._take_notification(message)
            case Response():
                if (asked := self._asked_for(message.id)) is not None:
                    asked.set_result(message.result)
            case Failure():
                if (asked := self._asked_for(message.id)) is not None:
                    asked.set_exception(_as_exception(message.error))

    def _may_begin(self, size: int) -> bool:
        """Whether one more request may be at work."""
        if not self._at_work:
            return not self._way.is_full
        most = FEW_AT_WORK if self._way.is_unread else MOST_AT_WORK
        has_place = self._begun < FEW_AT_WORK and self._at_work < most
        return has_place and self._work_bytes + size <= WORK_BYTES and not self._way.is_full

    def _begin(self, request: Request, size: int) -> None:
        incoming = _Incoming(self, request.id, progress_token_from_params(request.params))
        self._open[coerce_request_id(request.id)] = incoming
        incoming.round = self._round
        self._at_work += 1
        self._begun += 1
        self._work_bytes += size
        if self._begun >= FEW_AT_WORK and self._next_round is None:
            self._next_round = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._begin_round)
        if request.method in INLINE:
            self._is_held = True
        self._spawn(self._work(request, incoming, size))

    def _begin_round(self) -> None:
        self._next_round = None
        self._round += 1
        self._begun = 0
        self.go_on()
        self._on_room()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # Each takes itself off at its end: a callback would cost a turn of the loop.
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def _take_off(self) -> None:
        """The task that runs is at its end."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.discard(task)

    async def _work(self, request: Request, incoming: _Incoming, size: int) -> None:
        """Work on one request, and answer it."""
        try:
            answer = await self._answer(request, incoming)
            if answer is not None:
                self._way.post(answer)
        finally:
            self._take_off()
            self._at_work -= 1
            self._begun -= incoming.round == self._round
            self._work_bytes -= size
            if self._waiting:
                self.go_on()
                self._on_room()

    async def _answer(self, request: Request, incoming: _Incoming) -> Json | None:
        """The answer to a request; there is none for one that the client has cancelled."""
        answer: Json = {"jsonrpc": "2.0", "id": request.id}
        try:
            with incoming.scope:
                try:
                    answer["result"] = await self._on_request(incoming, request.method, request.params)
                except Exception as error:  # noqa: BLE001 - the boundary to the wire
                    answer["error"] = _as_error(error, request.method)
        finally:
            incoming.close()
            key = coerce_request_id(request.id)
            if self._open.get(key) is incoming:
                del self._open[key]
            if request.method in INLINE:
                self._release()
        if incoming.is_cancelled:
            return None
        if incoming.scope.cancelled_caught:
            return {"jsonrpc": "2.0", "id": request.id, "error": {"code": CLOSED.code, "message": CLOSED.message}}
        return answer

    def _release(self) -> None:
        """Go on with what waits, up to the next message that others have to wait for."""
        self._is_held = False
        while self._held and not self._is_held:
            message, line = self._held.popleft()
            self._waiting_bytes -= LINE_BYTES + len(line)
            self._take(message, line)
        if self._is_held:
            return
        self._on_room()
        if self._is_ended:
            self._ended.set()

    def _take_notification(self, message: Notification) -> None:
        params = message.params
        if message.method == "notifications/cancelled":
            identity = cancelled_request_id_from_params(params)
            key = coerce_request_id(identity) if identity is not None else None
            if key is not None and (line := self._waiting.pop(key, None)) is not None:
                self._waiting_bytes -= LINE_BYTES + len(line)
            elif key is not None and (incoming := self._open.get(key)) is not None:
                incoming.cancel()
        if run_notify_intercept(self._intercept, message.method, params):
            return
        self._spawn(self._hear(message.method, params))

    async def _hear(self, method: str, params: Mapping[str, Any] | None) -> None:
        try:
            await self._on_notify(_Incoming(self, None, None), method, params)
        except Exception:
            logger.exception("a handler of %r raised", method)
        finally:
            self._take_off()

    def _asked_for(self, identity: RequestId | None) -> asyncio.Future[Json] | None:
        """The question of ours that is answered, if it is open."""
        asked = self._asked.get(coerce_request_id(identity)) if identity is not None else None
        return None if asked is None or asked.done() else asked


def _as_exception(error: Json) -> MCPError:
    return MCPError(error["code"], error["message"], error.get("data"))


async def _nobody(*_: object) -> Any:
    """Stands where nothing is worked on yet."""


def _as_error(error: Exception, method: str) -> Json:
    """What the client is told of a request that failed. Texts of exceptions of ours stay here."""
    told = handler_exception_to_error_data(error)
    if told is None:
        logger.error("a handler of %r raised %s", method, type(error).__name__, exc_info=error)
        told = types.ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")
    return told.model_dump(mode="json", exclude_unset=True)
