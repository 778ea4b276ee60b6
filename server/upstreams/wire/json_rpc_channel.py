"""Raw JSON-RPC with an upstream. Its messages are relayed in order, and lose only some keys in `_meta`.

The SDK's models are not used, because they drop unknown fields. Batches (revision 2025-03-26) are supported, and a
request with a malformed response fails at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
from pydantic_core import from_json, to_json

from server.protocol.json_rpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorResponse,
    Json,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    as_mapping,
    read_message,
    read_unreadable,
)
from server.transports.json_lines import KEPT_OF_OVERSIZED, certain_id
from server.upstreams.wire.origin_meta import remove_own_keys

if TYPE_CHECKING:
    from tools.shell.process_spec import ExitStatus  # imported when the first program starts

logger = logging.getLogger(__name__)

# Maximum number and total size of queued events per request. Above these limits, new progress replaces the latest
# queued progress, and other notifications are dropped.
MAX_EVENTS, MAX_EVENT_BYTES = 1_000, 4 << 20
NEVER_CANCELLED = frozenset({"initialize", "server/discover"})  # the specification forbids cancelling them
CANCEL_SECONDS = 1.0  # how long to try to send a cancellation notification to an upstream that does not read
ABANDONED_SECONDS = 120.0  # after this long, an abandoned and unanswered request counts as done
# Maximum number of abandoned requests whose clients are remembered; further requests count as any client's
MAX_ABANDONED = 1_000


class RelayError(Exception):
    """A request to an upstream failed."""


class UpstreamError(RelayError):
    """The upstream responded to a request with an error, kept unchanged: `code`, `message` and possibly `data`."""

    def __init__(self, error: Mapping[str, Any], method: str = "") -> None:
        super().__init__()
        self.error = dict(error)
        self.method = method

    @property
    def code(self) -> int:
        code = self.error.get("code")
        return code if isinstance(code, int) else INTERNAL_ERROR


_PARAMETER = re.compile(r'(?<![\w-])([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')  # RFC 9110, 11.2


@dataclass(frozen=True, slots=True)
class Challenge:
    """A login challenge (HTTP status 401 or 403)."""

    status: int
    schemes: tuple[str, ...] = field(default=(), repr=False)  # the values of `WWW-Authenticate`, unchanged
    # What the server answered, as a clause in this server's words
    description: str = field(default="", repr=False, compare=False)

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the challenge (RFC 9110, 11.4), such as `scope`; `None` if it is missing."""
        for scheme in self.schemes:
            for match in _PARAMETER.finditer(scheme):
                if match[1].lower() == name:
                    return match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        return None

    @property
    def could_be_met(self) -> bool:
        """Whether a login could help: not after a status 403 without an authentication scheme."""
        return self.status == HTTPStatus.UNAUTHORIZED or bool(self.schemes)

    @property
    def wants_scopes(self) -> bool:
        """Whether the token is valid but lacks scopes (RFC 6750, 3.1)."""
        return self.status == HTTPStatus.FORBIDDEN and self.parameter("error") == "insufficient_scope"


class NeedsAuthenticationError(Exception):
    """The server responded with 401 or 403."""

    def __init__(self, challenge: Challenge) -> None:
        super().__init__("the server requires a login")
        self.challenge = challenge


class UnreachableError(Exception):
    """The address cannot be reached. The error's message is a clause that says why."""


def why_failed(error: BaseException) -> str:
    """Return why a request to an upstream failed, as a clause that is safe to show to everybody."""
    match error:
        case UnusableAnswerError(reason=reason):
            return f"it gave no usable answer: {reason}"
        case UpstreamError(method=method):
            from server.network.echoed_secrets import quoted  # noqa: PLC0415 - few requests fail

            message = quoted(str(error.error.get("message", "")))
            return f"it answered {method or 'a request'} with error {error.code}{message and f': {message}'}"
        case TimeoutError():
            return "it did not answer in time"
        case _:
            return "its connection ended"


class LoginError(Exception):
    """A login cannot continue. `reason` is a clause; `code` is the RFC 6749 error, if any."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Credentials(Protocol):
    """The credentials for requests to a remote server: the token of a login."""

    challenge: Challenge | None  # the server's latest challenge

    @property
    def needs_person(self) -> bool:
        """Whether a person must log in if a token cannot be renewed."""
        ...

    async def header(self) -> str | None:
        """Return the `Authorization` header, if there is one. Raises a `LoginError` if the login cannot be used now."""
        ...

    async def renew(self, old_header: str | None) -> str | None:
        """Return a header to replace a rejected one; `None` if a person must log in. May raise a `LoginError`."""
        ...


class UnusableAnswerError(RelayError):
    """A response is invalid, and no other response will arrive; `reason` is a clause in this server's words."""

    def __init__(self, reason: str, challenge: Challenge | None = None) -> None:
        super().__init__()
        self.reason = reason
        self.challenge = challenge  # the server's challenge, if it requires a login


class SessionUnknownError(UnusableAnswerError):
    """The server no longer knows the session, so the request was not executed."""


class ConnectionLostError(RelayError):
    """The connection is closed, so there will be no response."""


# Marks errors that this process creates. It is random: a word could also be the value of a header, and would then be
# hidden as a secret.
_UNUSABLE = secrets.token_hex(16)


def unusable(
    identity: RequestId, reason: str, challenge: Challenge | None = None, *, is_unknown_session: bool = False
) -> ErrorResponse:
    """Return the error that a transport creates for an invalid response, with a reason in this server's words."""
    details = is_unknown_session if challenge is None else [challenge.status, challenge.description, *challenge.schemes]
    return ErrorResponse(identity, {"code": INTERNAL_ERROR, "message": reason, "data": {_UNUSABLE: details}})


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    exit: ExitStatus | None  # `None` if this server stopped the program
    last_lines: tuple[str, ...]  # the last lines of the program's output that were not messages


class MessageReader(Protocol):
    """Receives messages from an upstream: an `Inbox`, or an `_SdkReader` for stdio on Windows."""

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Pass each message to `listener`, which must return quickly, until the connection ends."""
        ...


class MessageWriter(Protocol):
    """Sends messages: a `StdinWriter`, `StreamableWriter` or `SseWriter`, or an `_SdkWriter` for stdio on Windows."""

    takes_headers: bool

    @property
    def has_room(self) -> bool:
        """Whether `send` is sure to accept a request without waiting."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message; waits while there is no room. Raises an anyio error if either end is closed."""
        ...


class Inbox:
    """Queues received messages until `listen` is called, which calls `on_empty` once the queue is empty."""

    def __init__(
        self, transform: Callable[[Message], Message] | None = None, on_empty: Callable[[], None] = lambda: None
    ) -> None:
        self._transform = transform  # transforms each message on arrival
        self.count = 0  # number of queued messages
        self.size = 0  # size of the queued messages in bytes
        self._messages: deque[Message] = deque()
        self._listener: Callable[[Message], None] | None = None  # `JsonRpcChannel.receive`, once `open_session` reads
        self._closed = asyncio.Event()
        self._on_empty = on_empty

    def put(self, message: Message, size: int = 0) -> None:
        if self._transform is not None:
            message = self._transform(message)
        if self._listener is not None:
            self._listener(message)
            return
        self._messages.append(message)
        self.count += 1
        self.size += size

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Pass each message to `listener` as it arrives, in the same iteration of the event loop, until `close`."""
        while self._messages:
            listener(self._messages.popleft())
        self.count = self.size = 0
        self._listener = listener
        self._on_empty()
        try:
            await self._closed.wait()
        finally:
            self._listener = None

    def close(self) -> None:
        self._closed.set()


@dataclass(slots=True)
class Progress:
    params: Json
    size: int = 0


@dataclass(slots=True)
class Notice:
    """A notification, other than progress, that arrived while a request was open."""

    method: str
    params: Json
    size: int = 0


@dataclass(frozen=True, slots=True)
class RpcAnswer:
    """The outcome of a request: its result, or the error."""

    result: Json
    problem: RelayError | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """Neither a response nor progress arrived within the time limit."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """One request to an upstream, until it is answered or abandoned; `aclose` cancels the request if it is open."""

    channel: JsonRpcChannel
    identity: int
    method: str
    # The client to remember if the request is abandoned: empty if unidentified, `None` if it need not be remembered
    client_key: str | None = None
    is_answered: bool = False
    on_answer: Callable[[RpcAnswer | None], None] | None = None  # called once, with `None` if there was no response
    at_end: Callable[[], None] | None = None
    """Called when the response arrives or the connection is lost, and when the caller stops waiting; possibly twice."""
    deadline: float | None = None  # when the request expires, by the loop's clock
    _events: deque[Any] = field(default_factory=deque[Any])
    _queued_bytes: int = 0
    _last_progress: Progress | None = None  # the latest queued progress message
    _dropped_count: int = 0
    _waiter: asyncio.Future[None] | None = None
    _patience: float | None = None
    _questions: int = 0  # the number of open questions that the request may have caused

    def expect(self, seconds: float | None, first: float | None = None) -> None:
        """Report `Expired` after `seconds` without progress (`None`: never). The first wait is `first`, if given."""
        self._patience = seconds
        wait = seconds if first is None else first
        self.deadline = None if wait is None or self._questions else self.channel.watch(wait)

    @contextmanager
    def paused_clock(self) -> Generator[None]:
        """Pause the clock while a person answers a question, because the upstream does not cause that delay."""
        self._questions += 1
        self.expect(self._patience)
        try:
            yield
        finally:
            self._questions -= 1
            self.expect(self._patience)

    def put(self, event: Any) -> None:
        is_progress = type(event) is Progress
        if is_progress and self.deadline is not None:
            self.expect(self._patience)  # progress restarts the clock, even if it is not relayed yet
        if isinstance(event, RpcAnswer):
            self.is_answered = True
            self._observe(event)
            if self.at_end is not None:
                self.at_end()
        elif self._events:
            if is_progress or isinstance(event, Notice):
                event.size = len(to_json(event.params, inf_nan_mode="null"))
                if len(self._events) >= MAX_EVENTS or self._queued_bytes + event.size > MAX_EVENT_BYTES:
                    if not is_progress:
                        self._dropped_count += 1
                        return
                    if (newest := self._last_progress) is not None:
                        self._queued_bytes += event.size - newest.size
                        newest.params, newest.size = event.params, event.size
                        return
                self._queued_bytes += event.size
            elif event in self._events:
                return  # an equal event is already queued
        if is_progress:
            self._last_progress = event
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _observe(self, answer: RpcAnswer | None) -> None:
        """Call `on_answer`, but only once. Even if the observer fails, a response must reach its caller."""
        on_answer, self.on_answer = self.on_answer, None
        try:
            if on_answer is not None:
                on_answer(answer)
        except Exception:
            logger.exception("the response to %s was not measured", self.method)

    async def next(self) -> Any:
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if type(event) is Progress or type(event) is Notice:
            self._queued_bytes -= event.size
            if event is self._last_progress:
                self._last_progress = None
        return event

    async def result(self) -> Json:
        """Return the result, and ignore all other events. Raises a `RelayError` if there is none."""
        while True:
            event = await self.next()
            if isinstance(event, RpcAnswer):
                if event.problem is not None:
                    raise event.problem
                return event.result

    async def aclose(self) -> None:
        """Stop waiting for the response. If the upstream has not responded, it is notified of the cancellation."""
        if self._dropped_count:
            message = "notifications dropped during a call, because its client reads too slowly: %d"
            logger.info(message, self._dropped_count)
            self._dropped_count = 0
        if not self.is_answered:
            self._observe(None)
            await self.channel.abandon(self)
        if self.at_end is not None:
            self.at_end()


class Observer(Protocol):
    def begin(self, method: str, params: Json) -> tuple[Json, Callable[[RpcAnswer | None], None]]:
        """Return the parameters to send, and a callback for the response, or for `None` if there was none."""
        ...

    def begin_session(self, version: str) -> Callable[[], None]:
        """Record that a session with this protocol version is open; return a callback for the end of the session."""
        ...


@dataclass(eq=False, repr=False, slots=True)
class JsonRpcChannel:
    """Sends messages to an upstream, and dispatches the messages from it.

    `on_request` is called with each of the upstream's requests, to which `answer` or `refuse` later responds. In a
    session, this callback is `UpstreamSession._on_request`, which passes questions to `SessionQuestions.receive`.
    `on_notification` is called with each notification other than progress. `on_refusal` is called with the challenge if
    the server requires a login and no other request is open, and with `None` if the server no longer knows the session.
    """

    writer: MessageWriter
    on_request: Callable[[RequestId, str, Json], None]
    on_notification: Callable[[str, Json], None]
    on_refusal: Callable[[Challenge | None], None] = lambda _: None
    observer: Observer | None = None
    _next_id: int = field(default=0, init=False)
    _pending: dict[int, PendingRequest] = field(default_factory=dict[int, PendingRequest], init=False)
    """The requests whose callers are still waiting for a response."""
    # Maps the ids of up to `MAX_ABANDONED` abandoned requests to their client, and to the time until which they count
    # as unfinished; oldest first.
    _abandoned: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]], init=False)
    # The time until which abandoned requests that do not fit into `_abandoned` count as unfinished
    _others_expire_at: float = field(default=float("-inf"), init=False)
    _is_lost: bool = field(default=False, init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    async def read(self, reader: MessageReader) -> None:
        """Receive messages until the connection ends; every open request then fails."""
        try:
            await reader.listen(self.receive)
        finally:
            self._is_lost = True
            for pending in tuple(self._pending.values()):
                pending.put(RpcAnswer({}, ConnectionLostError()))
            self._pending.clear()
            if self._timer is not None:
                self._timer.cancel()

    def receive(self, message: Message) -> None:
        try:
            match message:
                case Response(identity, content) | ErrorResponse(identity, content):
                    number = identity if type(identity) is int else own_number(identity)
                    pending = self._pending.pop(number, None)
                    if pending is None:
                        self._abandoned.pop(number, None)
                        logger.debug("an upstream answered a request that nobody is waiting for")
                        return
                    is_result = isinstance(message, Response)
                    remove_own_keys(content, is_list=is_result and pending.method.endswith("/list"))
                    if is_result:
                        pending.put(RpcAnswer(content))
                    elif _UNUSABLE in as_mapping(content.get("data")):
                        reason, details = content["message"], content["data"][_UNUSABLE]
                        is_unknown, has_challenge = details is True, not isinstance(details, bool)
                        challenge = Challenge(details[0], tuple(details[2:]), details[1]) if has_challenge else None
                        error = SessionUnknownError(reason) if is_unknown else UnusableAnswerError(reason, challenge)
                        pending.put(RpcAnswer({}, error))
                        is_unauthorized = challenge is not None and challenge.status == HTTPStatus.UNAUTHORIZED
                        if is_unknown or (is_unauthorized and not self._pending):
                            self.on_refusal(challenge)
                    else:
                        pending.put(RpcAnswer({}, UpstreamError(content, pending.method)))
                case Request(identity, method, params):
                    remove_own_keys(params := params or {})
                    self.on_request(identity, method, params)
                case Notification(method, params):
                    remove_own_keys(params := params or {})
                    if method != "notifications/progress":
                        self.on_notification(method, params)
                        return
                    pending = self._pending.get(own_number(params.get("progressToken")))
                    if pending is not None:
                        pending.put(Progress(params))
        except Exception:
            # Later messages in the same chunk must not be lost.
            logger.exception("a message from an upstream could not be handled because of an internal error")

    @property
    def open_requests(self) -> int:
        return len(self._pending)

    def watch(self, seconds: float) -> float:
        """Schedule a check for expired requests, with one timer for all. Returns the deadline."""
        deadline = self._loop.time() + seconds
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._report_expired)
        return deadline

    def _report_expired(self) -> None:
        self._timer, now = None, self._loop.time()
        for pending in tuple(self._pending.values()):
            if pending.deadline is not None and pending.deadline <= now:
                pending.deadline = None
                pending.put(Expired())
        deadlines = [pending.deadline for pending in self._pending.values() if pending.deadline is not None]
        if deadlines:
            self._timer = self._loop.call_at(min(deadlines), self._report_expired)

    async def start(
        self, method: str, params: Json, headers: Mapping[str, str] | None = None, client_key: str | None = None
    ) -> PendingRequest:
        """Send a request; its id replaces a progress token. If it is abandoned, its `client_key` is remembered."""
        self._next_id += 1
        identity = self._next_id
        on_answer = None
        if self.observer is not None:
            params, on_answer = self.observer.begin(method, params)
        meta = params.get("_meta")
        if isinstance(meta, dict) and "progressToken" in meta:
            meta["progressToken"] = identity
        pending = self._pending[identity] = PendingRequest(self, identity, method, on_answer=on_answer)
        try:
            await self._send(Request(identity, method, params), headers)
        except BaseException:
            await pending.aclose()
            raise
        pending.client_key = client_key
        return pending

    async def request(self, method: str, params: Json, headers: Mapping[str, str] | None = None) -> Json:
        """Send a request and wait for its result. Raises a `RelayError` if there is none."""
        async with aclosing(await self.start(method, params, headers)) as pending:
            return await pending.result()

    async def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for the response, although the upstream may still be working on the request for some time.

        Also tries for `CANCEL_SECONDS` to notify the upstream of the cancellation, even if the calling task is being
        cancelled. If the connection is lost, or the specification forbids the cancellation, no notification is sent.
        """
        if self._pending.pop(pending.identity, None) is not None and pending.client_key is not None:
            self._forget_abandoned()
            expires_at = self._loop.time() + ABANDONED_SECONDS
            if len(self._abandoned) < MAX_ABANDONED:
                self._abandoned[pending.identity] = pending.client_key, expires_at
            else:
                self._others_expire_at = expires_at
        if pending.method not in NEVER_CANCELLED and not self._is_lost:
            params = {"requestId": pending.identity, "reason": "The caller has stopped waiting."}
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await self._send_quietly(Notification("notifications/cancelled", params))

    def may_be_abandoned_by_others(self, client_key: str) -> bool:
        """Return whether a client other than `client_key` may have an abandoned request."""
        self._forget_abandoned()
        is_of_other = any(not client_key or client != client_key for client, _ in self._abandoned.values())
        return is_of_other or self._loop.time() < self._others_expire_at

    def _forget_abandoned(self) -> None:
        now = self._loop.time()
        while self._abandoned and next(iter(self._abandoned.values()))[1] <= now:
            del self._abandoned[next(iter(self._abandoned))]

    async def notify(self, method: str, params: Json | None = None, headers: Mapping[str, str] | None = None) -> None:
        await self._send(Notification(method, params), headers)

    async def answer(self, identity: RequestId, result: Json) -> None:
        await self._send_quietly(Response(identity, result))

    async def refuse(self, identity: RequestId, message: str) -> None:
        await self._send_quietly(ErrorResponse(identity, {"code": METHOD_NOT_FOUND, "message": message}))

    async def _send_quietly(self, message: Message) -> None:
        try:
            await self._send(message, None)
        except ConnectionLostError:
            logger.debug("a message to an upstream was not sent, because its connection had ended")

    async def _send(self, message: Message, headers: Mapping[str, str] | None) -> None:
        if self._is_lost:
            raise ConnectionLostError
        try:
            await self.writer.send(message, headers)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionLostError from None


def own_number(identity: Any) -> int:
    """Return an id as a number, even if it is a string of digits; zero for others. This server's ids are positive."""
    if isinstance(identity, str) and identity.isascii() and identity.isdigit() and len(identity) < 19:
        return int(identity)
    return identity if isinstance(identity, int) and not isinstance(identity, bool) else 0


MESSAGE_BYTES = 64 << 20  # a longer message is rejected, and the request that it answers fails
MAX_TOGETHER = 1_000  # maximum number of messages in a batch, or in the events of an error response

_NOT_A_MESSAGE = "its message is not valid JSON-RPC"

_ANSWER = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|-?\d+)\s*,\s*){0,2}"(?:result|error)"\s*:')
"""The start of a response. Only the start of a message is matched, because the rest of a message may contain any text.
"""


def messages_in(text: str, line: bytes) -> tuple[list[Message], bool]:
    """Return the messages in `text`, and whether `text` is a message or a batch. An invalid response becomes an error.

    `line` is the text before it was decoded.
    """
    messages: list[Message] = []
    parts: Any = []
    if text.lstrip()[:1] == "[":
        with suppress(ValueError):
            parts = from_json(text, allow_inf_nan=False)
    for part in cast("list[Any]", parts)[:MAX_TOGETHER]:
        encoded = to_json(part, inf_nan_mode="null") if isinstance(part, dict) else b""
        try:
            messages.append(read_message(encoded))
        except ValueError:
            if encoded and (failure := _failure_for(encoded)) is not None:
                messages.append(failure)
    if messages:
        return messages, True
    try:
        return [read_message(text)], True
    except ValueError:
        failure = _failure_for(line)
        return [] if failure is None else [failure], False


def _failure_for(line: bytes) -> ErrorResponse | None:
    try:
        parsed = read_unreadable(line)
    except ValueError:
        return failure_for_ends(line[:KEPT_OF_OVERSIZED] + b"\n" + line[-KEPT_OF_OVERSIZED:], _NOT_A_MESSAGE)
    if parsed is None or not (parsed.is_answer or parsed.is_empty_answer) or parsed.identity is None:
        return None
    identity = parsed.identity
    if isinstance(identity, float):
        return unusable(int(identity), _NOT_A_MESSAGE) if identity.is_integer() else None
    return unusable(identity, _NOT_A_MESSAGE)


def failure_for_ends(
    ends: bytes, reason: str = f"its message is larger than {MESSAGE_BYTES} bytes"
) -> ErrorResponse | None:
    """Return the error for a response of which only the beginning and the end were kept; `None` for other messages."""
    head, _, tail = ends.partition(b"\n")
    identity = certain_id(head, tail) if _ANSWER.match(ends) else None
    return None if identity is None else unusable(identity, reason)
