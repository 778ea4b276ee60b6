"""Raw JSON-RPC with an upstream: what it says is passed on as it came, and in the order in which it came.

No model of the SDK stands between, since models drop what they do not know. What is not one valid message is read too:
the revision 2025-03-26 allows an array of messages, and a request whose answer is broken fails at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
from pydantic_core import from_json, to_json

from server.protocol.json_rpc import (
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
from server.protocol.protocol_errors import INTERNAL_ERROR
from server.transports.json_lines import KEPT_OF_OVERSIZED, certain_id
from server.upstreams.wire.own_meta import remove_own_keys

if TYPE_CHECKING:
    from tools.shell.process_spec import ExitStatus  # loaded with the first program

logger = logging.getLogger(__name__)

MOST_EVENTS = 1_000
MOST_EVENT_BYTES = 4 << 20
"""Events of one request that wait to be relayed. Of more, the newest progress replaces the one before, and
other notifications are dropped."""

NEVER_CANCELLED = frozenset({"initialize", "server/discover"})  # the specification forbids to cancel them

CANCEL_SECONDS = 1.0
"""How long an upstream that reads nothing may hold up the word that a request is not waited for any more."""

ABANDONED_SECONDS = 120.0  # after so long an abandoned request that was never answered counts as done

MOST_ABANDONED = 1_000
"""Abandoned requests that are known by their ids; of more the clients are known, as many again, until their time is
over."""


class RelayError(Exception):
    """A request to an upstream failed."""


class UpstreamError(RelayError):
    """The upstream answered a request with an error, kept as it came: `code`, `message` and perhaps `data`."""

    def __init__(self, error: Mapping[str, Any], method: str = "") -> None:
        super().__init__()
        self.error = dict(error)
        self.method = method

    @property
    def code(self) -> int:
        code = self.error.get("code")
        return code if isinstance(code, int) else INTERNAL_ERROR


_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')  # RFC 9110, 11.2


@dataclass(frozen=True, slots=True)
class Challenge:
    """How a server says that it wants a login (HTTP status 401 or 403): for anyone who logs in, and shown to nobody."""

    status: int
    schemes: tuple[str, ...] = field(default=(), repr=False)  # the values of `WWW-Authenticate`, as they came
    told: str = field(default="", repr=False, compare=False)  # the whole answer, as a clause of this server

    def parameter(self, name: str) -> str | None:
        """A parameter of the challenge (RFC 9110, 11.4), such as `scope`; `None` where it is not named."""
        for scheme in self.schemes:
            for found in _PARAMETER.finditer(scheme):
                if found[1].lower() == name:
                    return found[3] if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])
        return None

    @property
    def could_be_met(self) -> bool:
        """Whether a login could help: a server that forbids all without saying how to get in wants something else."""
        return self.status == HTTPStatus.UNAUTHORIZED or bool(self.schemes)

    @property
    def wants_scopes(self) -> bool:
        """Whether the token is a good one that lacks scopes (RFC 6750, 3.1)."""
        return self.status == HTTPStatus.FORBIDDEN and self.parameter("error") == "insufficient_scope"


class NeedsAuthenticationError(Exception):
    """The server answered 401 or 403."""

    def __init__(self, challenge: Challenge) -> None:
        super().__init__("the server lets nobody in")
        self.challenge = challenge


class UnreachableError(Exception):
    """There is nobody at the address, or no way to it; `why` is a clause of a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def why_failed(error: BaseException) -> str:
    """Why a request to an upstream failed, as a clause that can be shown to everybody."""
    match error:
        case UnusableAnswerError(why=why):
            return f"it gave no usable answer: {why}"
        case UpstreamError(method=method):
            from server.network.quotation import quoted  # noqa: PLC0415 - few fail

            reason = quoted(str(error.error.get("message", "")))
            return f"it answered {method or 'a request'} with error {error.code}{reason and f': {reason}'}"
        case TimeoutError():
            return "it did not answer in time"
        case _:
            return "its connection ended"


class LoginError(Exception):
    """A login cannot go on. `why` is a clause of a sentence; `code` is the error of RFC 6749, where there is one."""

    def __init__(self, why: str, code: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.code = code


class Credentials(Protocol):
    """What a remote server is shown in each request: the token of a login."""

    challenge: Challenge | None  # what the server said last when it wanted a login, or more of one

    @property
    def needs_person(self) -> bool:
        """Whether a person has to log in where a token cannot be renewed."""
        ...

    async def header(self) -> str | None:
        """The `Authorization` of a request, if there is one; a `LoginError` where it cannot be used now."""
        ...

    async def renew(self, used: str | None) -> str | None:
        """Another one in place of one that was refused, if there is one; a `LoginError` where it cannot be had now."""
        ...


class UnusableAnswerError(RelayError):
    """What came in place of an answer cannot be used, for a reason in words of this server, and no other will come."""

    def __init__(self, why: str, challenge: Challenge | None = None) -> None:
        super().__init__()
        self.why = why
        self.challenge = challenge  # where the server wants a login


class SessionUnknownError(UnusableAnswerError):
    """The server does not know the session any more, so what was asked for was not done."""


class ConnectionLostError(RelayError):
    """The connection has ended, so there will be no answer."""


_UNUSABLE = f"coretools-mcp/unusable-{secrets.token_hex(8)}"  # nobody else can say this of an error


def unusable(
    identity: RequestId, why: str, challenge: Challenge | None = None, *, is_unknown_session: bool = False
) -> ErrorResponse:
    """What a transport gives in place of an answer that it could not take, with the reason in words of this server."""
    said = is_unknown_session if challenge is None else [challenge.status, challenge.told, *challenge.schemes]
    return ErrorResponse(identity, {"code": INTERNAL_ERROR, "message": why, "data": {_UNUSABLE: said}})


def _unusable_answer(error: Mapping[str, Any]) -> UnusableAnswerError:
    why, said = error["message"], error["data"][_UNUSABLE]
    if isinstance(said, bool):
        return SessionUnknownError(why) if said else UnusableAnswerError(why)
    return UnusableAnswerError(why, Challenge(said[0], tuple(said[2:]), said[1]))


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How the program of an upstream ended, where it is one."""

    exit: ExitStatus | None  # `None` where it was ended by us
    last_lines: tuple[str, ...]  # what it wrote last, beside messages


class MessageReader(Protocol):
    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand over each message until the connection ends. The listener is quick."""
        ...


class MessageWriter(Protocol):
    @property
    def has_room(self) -> bool:
        """Whether a message is taken at once."""
        ...

    @property
    def takes_headers(self) -> bool: ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message; waits while there is no room. An error of anyio says that an end is closed."""
        ...


class Inbox:
    """Messages that have come and are not taken yet. `on_empty` is called when those that waited have been taken."""

    def __init__(self, on_empty: Callable[[], None] = lambda: None) -> None:
        self.cleaned: Callable[[Message], Message] = lambda message: message  # as each is taken in
        self.count = 0  # how many wait
        self.size = 0  # the bytes of those that wait
        self._messages: deque[Message] = deque()
        self._listener: Callable[[Message], None] | None = None
        self._closed = asyncio.Event()
        self._on_empty = on_empty

    def put(self, message: Message, size: int = 0) -> None:
        """Take in a message; its listeners have it at once."""
        message = self.cleaned(message)
        if self._listener is not None:
            self._listener(message)
            return
        self._messages.append(message)
        self.count += 1
        self.size += size

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand each message over as it comes, without a turn of the event loop between; returns at the end."""
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
    """Another notification that came while a request was open."""

    method: str
    params: Json
    size: int = 0


@dataclass(frozen=True, slots=True)
class RpcAnswer:
    """The end of a request: its result, or why there is none."""

    result: Json
    problem: RelayError | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """Nothing was said in the time that was given."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """One request to an upstream, until it is answered or abandoned; `aclose` cancels it if it is still open."""

    channel: JsonRpcChannel
    identity: int
    method: str
    client_key: str | None = None
    """Whose it is, where one that is abandoned has to be known: empty for one who cannot be told apart."""
    is_answered: bool = False
    on_answer: Callable[[RpcAnswer | None], None] | None = None  # called once, with `None` where no answer came
    at_end: Callable[[], None] | None = None
    """Called when the upstream has answered, or is not waited for any more; perhaps twice."""
    deadline: float | None = None  # when it counts as expired, in the loop's time
    _events: deque[Any] = field(default_factory=deque[Any])
    _waiting_bytes: int = 0
    _newest: Progress | None = None  # the last progress that waits
    _dropped: int = 0
    _waiter: asyncio.Future[None] | None = None
    _patience: float | None = None
    _questions: int = 0  # how many people are asked because of it

    def expect(self, seconds: float | None, first: float | None = None) -> None:
        """Give `Expired` after this time without a word, or after another one for the first word; `None` for never."""
        self._patience = seconds
        wait = seconds if first is None else first
        self.deadline = None if wait is None or self._questions else self.channel.watch(wait)

    def pause_clock(self, *, is_asking: bool) -> None:
        """A person is being asked from now on, or no longer: a person's time is not the upstream's."""
        self._questions += 1 if is_asking else -1
        self.expect(self._patience)

    def put(self, event: Any) -> None:
        is_progress = type(event) is Progress
        if is_progress and self.deadline is not None:
            self.expect(self._patience)  # it has said something, whether or not that is passed on yet
        if isinstance(event, RpcAnswer):
            self.is_answered = True
            self._observed(event)
            if self.at_end is not None:
                self.at_end()
        elif self._events:
            if is_progress or isinstance(event, Notice):
                event.size = len(to_json(event.params, inf_nan_mode="null"))
                if len(self._events) >= MOST_EVENTS or self._waiting_bytes + event.size > MOST_EVENT_BYTES:
                    if not is_progress:
                        self._dropped += 1
                        return
                    if (newest := self._newest) is not None:
                        self._waiting_bytes += event.size - newest.size
                        newest.params, newest.size = event.params, event.size
                        return
                self._waiting_bytes += event.size
            elif event in self._events:
                return  # once is enough
        if is_progress:
            self._newest = event
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Any:
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if type(event) is Progress or type(event) is Notice:
            self._waiting_bytes -= event.size
            if event is self._newest:
                self._newest = None
        return event

    async def result(self) -> Json:
        """The result, passing over everything else; raises a `RelayError` where there is none."""
        while True:
            event = await self.next()
            if isinstance(event, RpcAnswer):
                if event.problem is not None:
                    raise event.problem
                return event.result

    def _observed(self, answer: RpcAnswer | None) -> None:
        if self.on_answer is not None:
            on_answer, self.on_answer = self.on_answer, None
            on_answer(answer)

    async def aclose(self) -> None:
        """Wait for no answer any more; the upstream is told, if it has not answered."""
        if self._dropped:
            logger.info("%d notifications of a call were dropped, since its client reads too slowly", self._dropped)
            self._dropped = 0
        if not self.is_answered:
            self._observed(None)
            self.channel.abandon(self)
            if self.method not in NEVER_CANCELLED:
                params = {"requestId": self.identity, "reason": "The caller has stopped waiting."}
                await self.channel.notify_briefly("notifications/cancelled", params)
        if self.at_end is not None:
            self.at_end()


class Observer(Protocol):
    """Hears of the requests to an upstream."""

    def begin(self, method: str, params: Json) -> tuple[Json, Callable[[RpcAnswer | None], None]]:
        """A request goes out: its parameters as they are to be, and whom to tell its answer, `None` where none came."""
        ...

    def begin_session(self, version: str) -> Callable[[], None]:
        """The session is open, in a version of the protocol; what is returned is called at its end."""
        ...


class JsonRpcChannel:
    """Sends to an upstream, and sorts what comes from it.

    `on_request` gets requests of the upstream, which are answered by `answer` and `refuse`, and `on_notification`
    of notifications that are not progress of an open request. `on_refusal` is told that the server lets nobody in, once
    what waited for the only open request has been; and, by `None`, that it does not know the session any more.
    """

    def __init__(
        self,
        writer: MessageWriter,
        on_request: Callable[[RequestId, str, Json], None],
        on_notification: Callable[[str, Json], None],
        on_refusal: Callable[[Challenge | None], None] = lambda _: None,
        observer: Observer | None = None,
    ) -> None:
        self.writer = writer
        self._observer = observer
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_refusal = on_refusal
        self._next_id = 0
        self._pending: dict[int, PendingRequest] = {}  # the requests whose answers are waited for
        self._abandoned: dict[int, tuple[str, float]] = {}
        """Whose those are that are not, where that has to be known, the oldest first, and until when they count."""
        self._uncounted: dict[str, float] = {}
        """Until when there may be more of them of a client; of one that nobody is where these are too many."""
        self._is_lost = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, reader: MessageReader) -> None:
        """Take in what comes until the connection ends; then every open request ends too."""
        try:
            await reader.listen(self.take)
        finally:
            self._is_lost = True
            for pending in tuple(self._pending.values()):
                pending.put(RpcAnswer({}, ConnectionLostError()))
            self._pending.clear()
            if self._timer is not None:
                self._timer.cancel()

    def take(self, message: Message) -> None:
        try:
            match message:
                case Response(identity, said) | ErrorResponse(identity, said):
                    number = identity if type(identity) is int else own_number(identity)
                    pending = self._pending.pop(number, None)
                    if pending is None:
                        self._abandoned.pop(number, None)
                        logger.debug("an upstream answered what nobody waits for")
                        return
                    is_result = isinstance(message, Response)
                    remove_own_keys(said, is_list=is_result and pending.method.endswith("/list"))
                    if is_result:
                        pending.put(RpcAnswer(said))
                    elif _UNUSABLE in as_mapping(said.get("data")):
                        unusable_answer = _unusable_answer(said)
                        pending.put(RpcAnswer({}, unusable_answer))
                        challenge = unusable_answer.challenge
                        is_shut = challenge is not None and challenge.status == HTTPStatus.UNAUTHORIZED
                        is_unknown = isinstance(unusable_answer, SessionUnknownError)
                        if is_unknown or (is_shut and not self._pending):
                            self._on_refusal(challenge)
                    else:
                        pending.put(RpcAnswer({}, UpstreamError(said, pending.method)))
                case Request(identity, method, params):
                    remove_own_keys(params := params or {})
                    self._on_request(identity, method, params)
                case Notification(method, params):
                    remove_own_keys(params := params or {})
                    if method != "notifications/progress":
                        self._on_notification(method, params)
                        return
                    pending = self._pending.get(own_number(params.get("progressToken")))
                    if pending is not None:
                        pending.put(Progress(params))
        except Exception:
            # What comes next in the same piece of its output must not be lost with it.
            logger.exception("a message of an upstream could not be taken because of an internal error")

    @property
    def open_requests(self) -> int:
        return len(self._pending)

    def watch(self, seconds: float) -> float:
        """Look after this time whether a request has expired, by one timer for all; the time that is then."""
        deadline = self._loop.time() + seconds
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._tell_expired)
        return deadline

    def _tell_expired(self) -> None:
        self._timer, now = None, self._loop.time()
        for pending in tuple(self._pending.values()):
            if pending.deadline is not None and pending.deadline <= now:
                pending.deadline = None
                pending.put(Expired())
        coming = [pending.deadline for pending in self._pending.values() if pending.deadline is not None]
        if coming:
            self._timer = self._loop.call_at(min(coming), self._tell_expired)

    async def start(
        self, method: str, params: Json, headers: Mapping[str, str] | None = None, client_key: str | None = None
    ) -> PendingRequest:
        """Send a request as it is, but for a progress token, which becomes its id; an abandoned one is its client's."""
        self._next_id += 1
        identity = self._next_id
        on_answer = None
        if self._observer is not None:
            params, on_answer = self._observer.begin(method, params)
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
        """Send a request and wait for its result; raises a `RelayError` where there is none."""
        async with aclosing(await self.start(method, params, headers)) as pending:
            return await pending.result()

    def abandon(self, pending: PendingRequest) -> None:
        """Nobody waits for the answer any more; until there is one, or for some time, the upstream may work on it."""
        if self._pending.pop(pending.identity, None) is None or pending.client_key is None:
            return
        self._forget_abandoned()
        until = self._loop.time() + ABANDONED_SECONDS
        if len(self._abandoned) < MOST_ABANDONED:
            self._abandoned[pending.identity] = pending.client_key, until
        else:
            self._uncounted[pending.client_key if len(self._uncounted) < MOST_ABANDONED else ""] = until

    def has_abandoned_beside(self, client_key: str) -> bool:
        """Whether there is an abandoned request of somebody else than this client."""
        self._forget_abandoned()
        clients = {client for client, _ in self._abandoned.values()} | self._uncounted.keys()
        return any(not client_key or client != client_key for client in clients)

    def _forget_abandoned(self) -> None:
        now = self._loop.time()
        while self._abandoned and next(iter(self._abandoned.values()))[1] <= now:
            del self._abandoned[next(iter(self._abandoned))]
        self._uncounted = {client: until for client, until in self._uncounted.items() if until > now}

    async def notify(self, method: str, params: Json | None = None, headers: Mapping[str, str] | None = None) -> None:
        await self._send(Notification(method, params), headers)

    async def notify_briefly(self, method: str, params: Json) -> None:
        """Send a notification if that is possible at once, also while being cancelled."""
        if self._is_lost:
            return
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            await self._send_quietly(Notification(method, params))

    async def answer(self, identity: RequestId, result: Json) -> None:
        await self._send_quietly(Response(identity, result))

    async def refuse(self, identity: RequestId, code: int, message: str) -> None:
        await self._send_quietly(ErrorResponse(identity, {"code": code, "message": message}))

    async def _send_quietly(self, message: Message) -> None:
        try:
            await self._send(message, None)
        except ConnectionLostError:
            logger.debug("a message to an upstream came after the end of its connection")

    async def _send(self, message: Message, headers: Mapping[str, str] | None) -> None:
        if self._is_lost:
            raise ConnectionLostError
        try:
            await self.writer.send(message, headers)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionLostError from None


def own_number(identity: Any) -> int:
    """The id of a request of this server, all above zero; zero for anything else. Some servers send it as a text."""
    if isinstance(identity, str) and identity.isascii() and identity.isdigit() and len(identity) < 19:
        return int(identity)
    return identity if isinstance(identity, int) and not isinstance(identity, bool) else 0


MESSAGE_BYTES = 64 << 20  # a longer message of an upstream is not taken; a call whose answer it is fails
MOST_TOGETHER = 1_000  # messages of one array that are taken

_NOT_A_MESSAGE = "what it sent is not a valid JSON-RPC message"

_ANSWER = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|-?\d+)\s*,\s*){0,2}"(?:result|error)"\s*:')
"""The beginning of an answer. What begins otherwise does not count as one: what is in it could look like anything."""


def messages_in(text: str, line: bytes) -> tuple[list[Message], bool]:
    """The messages of a text that begins with a brace or a bracket, and whether it is valid.

    Where it is not, an error takes the place of the answer that it was.
    """
    messages: list[Message] = []
    parts: Any = []
    if text.lstrip()[:1] == "[":
        with suppress(ValueError):
            parts = from_json(text, allow_inf_nan=False)
    for part in cast("list[Any]", parts)[:MOST_TOGETHER]:
        written = to_json(part, inf_nan_mode="null") if isinstance(part, dict) else b""
        try:
            messages.append(read_message(written))
        except ValueError:
            if written and (failure := _failure_for(written)) is not None:
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
    if parsed is None or not parsed.is_answer or parsed.identity is None:
        return None
    identity = parsed.identity
    if isinstance(identity, float):
        return unusable(int(identity), _NOT_A_MESSAGE) if identity.is_integer() else None
    return unusable(identity, _NOT_A_MESSAGE)


def failure_for_ends(
    ends: bytes, why: str = f"what it sent is larger than {MESSAGE_BYTES} bytes"
) -> ErrorResponse | None:
    """The error in place of an answer of which only the ends were taken; `None` for any other message."""
    head, _, tail = ends.partition(b"\n")
    identity = certain_id(head, tail) if _ANSWER.match(ends) else None
    return None if identity is None else unusable(identity, why)
