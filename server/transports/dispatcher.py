"""JSON-RPC on a wire of our own, as the SDK's server wants it: a task for each request, and nothing between.

The SDK's dispatcher stands on streams, with a hop of the event loop for each message in each direction; for a small
call that is most of the time. What a request may do, and what its answer is, stays the SDK's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
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

from server.json_rpc import Failure, Json, Message, Notification, Request, RequestId, Response

logger = logging.getLogger(__name__)

ENDING_SECONDS = 5.0
"""How long requests that are cancelled at the end may take to clean up (the SDK's number)."""

INLINE = frozenset({"initialize"})
"""The messages after such a request wait until it is answered: some clients do not wait for that."""

BOTH_WAYS = TransportContext(kind="stdio", can_send_request=True)
ONE_WAY = TransportContext(kind="stdio", can_send_request=False)

CLOSED = types.ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")


class Way(Protocol):
    """Where messages go."""

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

    __slots__ = ("_cancel_requested", "_dispatcher", "_is_closed", "is_cancelled", "request_id", "scope", "token")

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

    Args:
        way: Where messages go.
        on_room: Called when messages that waited have been taken.
    """

    def __init__(self, way: Way, on_room: Callable[[], None]) -> None:
        self.may_ask = True
        """Whether requests may be sent to the client in this revision."""
        self._way = way
        self._on_room = on_room
        self._waiting: deque[Message] = deque()
        self._is_held = True
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
    def waiting(self) -> int:
        """Messages that wait for their turn."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no request is at work, so that what is sent now is all that will be for a while."""
        return not self._open

    def receive(self, message: Message) -> None:
        """Take in a message."""
        if self._is_held:
            self._waiting.append(message)
        else:
            self._take(message)

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

    def _take(self, message: Message) -> None:
        match message:
            case Request():
                self._begin(message)
            case Notification():
                self._take_notification(message)
            case Response():
                if (asked := self._asked_for(message.id)) is not None:
                    asked.set_result(message.result)
            case Failure():
                if (asked := self._asked_for(message.id)) is not None:
                    asked.set_exception(_as_exception(message.error))

    def _begin(self, request: Request) -> None:
        incoming = _Incoming(self, request.id, progress_token_from_params(request.params))
        self._open[coerce_request_id(request.id)] = incoming
        if request.method in INLINE:
            self._is_held = True
        self._spawn(self._work(request, incoming))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # Each takes itself off at its end: a callback would cost a turn of the loop.
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def _take_off(self) -> None:
        """The task that runs is at its end."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.discard(task)

    async def _work(self, request: Request, incoming: _Incoming) -> None:
        """Work on one request, and answer it."""
        try:
            answer = await self._answer(request, incoming)
            if answer is not None:
                self._way.post(answer)
                await self._room()
        finally:
            self._take_off()

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
        while self._waiting and not self._is_held:
            self._take(self._waiting.popleft())
        if self._is_held:
            return
        self._on_room()
        if self._is_ended:
            self._ended.set()

    def _take_notification(self, message: Notification) -> None:
        params = message.params
        if message.method == "notifications/cancelled":
            identity = cancelled_request_id_from_params(params)
            incoming = self._open.get(coerce_request_id(identity)) if identity is not None else None
            if incoming is not None:
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
