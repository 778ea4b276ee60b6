"""Raw JSON-RPC with an upstream: what it says is passed on as it came, and in the order in which it came.

No model of the SDK stands between, since models drop what they do not know.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from pydantic_core import to_json

from server.json_rpc import Failure, Json, Message, Notification, Request, RequestId, Response, as_mapping
from server.transports.lines import INBOX_MESSAGES
from server.upstreams.wire.chain import CHAIN_KEY

PIECE_SECONDS = 0.002
"""How long a piece may be; what else is served takes some turns, and waits for a piece in each."""


class Pieces:
    """One stretch of work, from when this is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def rest(self) -> None:
        """Called after each small step: let the others have their turn if this piece was long enough."""
        if time.perf_counter() - self._began > PIECE_SECONDS:
            await anyio.lowlevel.checkpoint()
            self._began = time.perf_counter()


class Inbox:
    """What has come and is not taken yet.

    Args:
        on_room: Called when there is room again for what comes.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._messages: deque[Message] = deque()
        self._listener: Callable[[Message], None] | None = None
        self._closed = asyncio.Event()
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= INBOX_MESSAGES

    def put(self, message: Message) -> None:
        """Take in a message; whoever listens has it at once."""
        if self._listener is None:
            self._messages.append(message)
            return
        self._listener(message)
        self._on_room()

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand each message over as it comes, without a turn of the event loop between; returns at the end.

        Args:
            listener: Takes a message, and is quick.
        """
        while self._messages:
            listener(self._messages.popleft())
        self._listener = listener
        self._on_room()
        try:
            await self._closed.wait()
        finally:
            self._listener = None

    def close(self) -> None:
        """End of the stream, after what is waiting."""
        self._closed.set()


OWN_KEYS = "coretools-mcp/"
"""Our keys begin so, in `_meta` and in questions: clients may take what stands there for our word."""

_OWN_NAME = OWN_KEYS.rstrip("/")

_DATA = frozenset({"structuredContent", "input", "data", "inputSchema", "outputSchema", "requestedSchema"})
"""What holds data of tools and schemas, which may be large: it is looked through only where our name is in it."""

_LISTED = 2
"""How deep the items of an answer to a list lie in it."""


def remove_own_keys(said: Json, *, is_list: bool = False) -> None:
    """Take our keys out of every `_meta` of what an upstream has said; changed in place, since nobody else has it yet.

    Args:
        said: The result, the parameters or the error of its message.
        is_list: Whether it is an answer to a list: it and its items say through which servers like this one they came.
    """
    parts: list[Any] = [said]
    depth = 0
    while parts:
        within: list[Any] = []
        for part in parts:
            if type(part) is list:
                within += [each for each in cast("list[Any]", part) if _may_hold_keys(each)]
                continue
            fields = cast("Json", part)
            if isinstance(fields.get("_meta"), dict):
                _clean(fields, kept=CHAIN_KEY if is_list and depth <= _LISTED else "")
            for name, value in fields.items():
                if (type(value) is dict or type(value) is list) and (name not in _DATA or _names_us(value)):
                    within.append(value)
        parts, depth = within, depth + 1


def _may_hold_keys(item: Any) -> bool:
    # Most blocks have texts alone, and so no `_meta`: a result may hold very many.
    return any(map(_is_compound, cast("Json", item).values())) if type(item) is dict else type(item) is list


def _is_compound(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def _names_us(data: Any) -> bool:
    """Whether our name is in it, in whatever case: a search in JSON costs a fraction of a look at each part."""
    try:
        return _OWN_NAME.encode() in to_json(data, inf_nan_mode="null").lower()
    except ValueError:
        return True


def _is_ours(key: str) -> bool:
    folded = key.lower()
    return folded.startswith(OWN_KEYS) or folded == _OWN_NAME


def _clean(fields: Json, kept: str) -> None:
    meta: Json = fields["_meta"]
    ours = [key for key in meta if _is_ours(key) and key != kept]
    for key in ours:
        del meta[key]
    # An empty one that was so may be a schema.
    if ours and not meta:
        del fields["_meta"]


logger = logging.getLogger(__name__)

MOST_EVENTS = 1_000
MOST_EVENT_BYTES = 4 << 20
"""Events of one request that wait for whoever relays them. Of more, the newest progress replaces the one before, and
remarks are dropped."""

NEVER_CANCELLED = frozenset({"initialize", "server/discover"})
"""The specification forbids to cancel them."""


@dataclass(slots=True)
class Progress:
    """Progress of a request, as it came."""

    params: Json
    size: int = 0
    """Its bytes, where it has to wait behind others."""


@dataclass(slots=True)
class Remark:
    """Another notification that came while a request was at work."""

    method: str
    params: Json
    size: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a request: its result, or why there is none."""

    result: Json | None
    problem: Exception | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """Nothing was said in the time that was given."""


def outcome(answer: Answer) -> Json:
    """The result of a request.

    Raises:
        UpstreamError: The answer is an error.
        UnusableAnswerError: It is none.
        ConnectionLostError: There will be none.
    """
    if answer.problem is not None:
        raise answer.problem
    return answer.result if answer.result is not None else {}


class Partner(Protocol):
    """With whom the conversation is."""

    def watch(self, seconds: float) -> float:
        """Look after this time whether a conversation has expired; the time that is then."""
        ...

    def forget(self, identity: RequestId) -> None:
        """Take no more of a request."""
        ...

    async def notify_briefly(self, method: str, params: Json) -> None:
        """Send a notification if that is possible at once, also while being cancelled."""
        ...


class Conversation:
    """One request to an upstream, until it is answered or given up. Left by `with`, it is cancelled if still open.

    Args:
        partner: Where it was sent.
        identity: Its id there.
        method: What was asked for.
    """

    def __init__(self, partner: Partner, identity: RequestId, method: str) -> None:
        self.identity = identity
        self.is_answered = False
        self.at_end: Callable[[], None] | None = None
        """Called when the upstream has answered, or is not waited for any more; perhaps twice."""
        self._partner = partner
        self.method = method
        self._events: deque[Any] = deque()
        self._waiting_bytes = 0
        self._newest: Progress | None = None
        """The last progress that waits."""
        self._dropped = 0
        self._waiter: asyncio.Future[None] | None = None
        self.deadline: float | None = None
        """When it counts as expired, in the loop's time."""
        self._patience: float | None = None
        self._questions = 0
        """How many people are asked because of it."""

    def expect(self, seconds: float | None, first: float | None = None) -> None:
        """Tell `Expired` after this time without a word; `None` for never.

        Args:
            seconds: The time.
            first: Another one for the first word.
        """
        self._patience = seconds
        self._wait(seconds if first is None else first)

    def renew(self) -> None:
        """It has said something, whether or not that is passed on yet."""
        if self.deadline is not None:
            self._wait(self._patience)

    def ask(self, *, is_open: bool) -> None:
        """A person is being asked from now on, or no longer: a person's time is not the upstream's."""
        self._questions += 1 if is_open else -1
        self._wait(self._patience)

    def _wait(self, seconds: float | None) -> None:
        self.deadline = None if seconds is None or self._questions else self._partner.watch(seconds)

    def tell(self, event: Any) -> None:
        """Take in an event; whoever waits for one is woken."""
        if isinstance(event, Answer):
            self.is_answered = True
            if self.at_end is not None:
                self.at_end()
        elif self._events and not self._has_place(event):
            if type(event) is Progress:
                self.renew()
            return
        if type(event) is Progress:
            self._newest = event
            self.renew()
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_place(self, event: Any) -> bool:
        """Whether an event has to be added to those that wait."""
        if not isinstance(event, Progress | Remark):
            return event not in self._events  # once is enough
        event.size = len(to_json(event.params, inf_nan_mode="null"))
        if len(self._events) < MOST_EVENTS and self._waiting_bytes + event.size <= MOST_EVENT_BYTES:
            self._waiting_bytes += event.size
            return True
        if isinstance(event, Remark):
            self._dropped += 1
            return False
        if self._newest is None:
            self._waiting_bytes += event.size
            return True
        self._waiting_bytes += event.size - self._newest.size
        self._newest.params, self._newest.size = event.params, event.size
        return False

    async def next(self) -> Any:
        """The next event; after the answer there is none."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if type(event) is Progress or type(event) is Remark:
            self._waiting_bytes -= event.size
            if event is self._newest:
                self._newest = None
        return event

    async def result(self) -> Json:
        """The result, passing over everything else.

        Raises:
            UpstreamError: The answer is an error.
            ConnectionLostError: There will be none.
        """
        while True:
            event = await self.next()
            if isinstance(event, Answer):
                return outcome(event)

    async def close(self) -> None:
        """Wait for no answer any more; the upstream is told, if it has not answered."""
        self._partner.forget(self.identity)
        if self._dropped:
            logger.info("%d remarks of a call were dropped, since its client reads too slowly", self._dropped)
            self._dropped = 0
        if not self.is_answered and self.method not in NEVER_CANCELLED:
            params = {"requestId": self.identity, "reason": "The caller does not wait for it any more."}
            await self._partner.notify_briefly("notifications/cancelled", params)
        if self.at_end is not None:
            self.at_end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


FORGOTTEN_AFTER = 120.0
"""Seconds after which a call that was never answered counts as done (ours)."""

MOST_OF_ONE = 100
"""Calls of one client that are remembered; of more, the oldest count as open until their time is over (ours)."""

MOST_OWNERS = 1_000
"""Clients that are told apart; those of more count as one that is nobody's (ours)."""

Identity = int | str


class GivenUpCalls:
    """The calls of one session that its clients do not wait for any more."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[Identity, float]] = {}
        self._owners: dict[Identity, str] = {}
        self._not_counted: dict[str, float] = {}
        """Until when there may be calls of a client that are not remembered one by one."""

    def note(self, identity: Identity, client_key: str) -> None:
        """A call is given up.

        Args:
            identity: The id of the request to the upstream.
            client_key: Whose call it was; empty for a client that cannot be told from others.
        """
        self._forget_old()
        owner = client_key if client_key in self._calls or len(self._calls) < MOST_OWNERS else ""
        calls = self._calls.setdefault(owner, {})
        calls[identity] = time.monotonic() + FORGOTTEN_AFTER
        self._owners[identity] = owner
        if len(calls) > MOST_OF_ONE:
            oldest = next(iter(calls))
            self._not_counted[owner] = calls.pop(oldest)
            self._owners.pop(oldest, None)

    def answered(self, identity: Identity) -> None:
        """The upstream has answered it after all."""
        owner = self._owners.pop(identity, None)
        if owner is not None:
            del self._calls[owner][identity]

    def may_be_of_others(self, client_key: str) -> bool:
        """Whether there is one of somebody else than this client."""
        self._forget_old()
        open_owners = {owner for owner, calls in self._calls.items() if calls} | self._not_counted.keys()
        return any(not client_key or owner != client_key for owner in open_owners)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for owner, calls in tuple(self._calls.items()):
            while calls and next(iter(calls.values())) <= now:
                self._owners.pop(identity := next(iter(calls)), None)
                del calls[identity]
            if not calls:
                del self._calls[owner]
        self._not_counted = {owner: until for owner, until in self._not_counted.items() if until > now}


CANCEL_SECONDS = 1.0
"""How long an upstream that reads nothing may hold up the word that a request is not waited for any more."""


class RelayError(Exception):
    """A request to an upstream failed."""


class UpstreamError(RelayError):
    """The upstream answered with an error.

    Args:
        error: As it came: `code`, `message` and perhaps `data`.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__()
        self.error = dict(error)

    @property
    def code(self) -> int:
        """The JSON-RPC code."""
        code = self.error.get("code")
        return code if isinstance(code, int) else types.INTERNAL_ERROR


class UnusableAnswerError(RelayError):
    """What came in place of an answer is none, so there will be none.

    Args:
        why: What is wrong with it, in words of ours.
    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


_UNUSABLE = f"coretools-mcp/unusable-{secrets.token_hex(8)}"
"""Nobody else can say this of an error."""


def unusable(identity: RequestId, why: str) -> Failure:
    """What a transport gives in place of an answer that it could not take.

    Args:
        identity: The request.
        why: What is wrong, in words of ours.
    """
    return Failure(identity, {"code": types.INTERNAL_ERROR, "message": why, "data": {_UNUSABLE: True}})


class ConnectionLostError(RelayError):
    """The connection has ended, so there will be no answer."""


def _problem(error: Json) -> UpstreamError | UnusableAnswerError:
    if _UNUSABLE in as_mapping(error.get("data")):
        return UnusableAnswerError(error["message"])
    return UpstreamError(error)


class Reading(Protocol):
    """Where messages come from."""

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand over each message until the connection ends.

        Args:
            listener: Takes a message, and is quick.
        """
        ...


class Writing(Protocol):
    """Where messages go."""

    @property
    def has_room(self) -> bool:
        """Whether a message is taken at once."""
        ...

    @property
    def takes_headers(self) -> bool:
        """Whether messages may have HTTP headers."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message; waits while there is no room.

        Args:
            message: What is said.
            headers: HTTP headers for it, where the transport has such.

        Raises:
            anyio.BrokenResourceError: Nobody reads any more.
            anyio.ClosedResourceError: Nobody writes any more.
        """
        ...


class Peer:
    """Sends to an upstream, and sorts what comes from it.

    Args:
        writing: Where messages go.
        on_request: Told of requests of the upstream; answers them by `answer` and `refuse`.
        on_notification: Told of notifications that are not progress of an open request.
    """

    def __init__(
        self,
        writing: Writing,
        on_request: Callable[[RequestId, str, Json], None],
        on_notification: Callable[[str, Json], None],
    ) -> None:
        self._writing = writing
        self._on_request = on_request
        self._on_notification = on_notification
        self._next_id = 0
        self._open: dict[RequestId, Conversation] = {}
        self.given_up = GivenUpCalls()
        self._is_lost = False
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.TimerHandle | None = None

    async def read(self, reading: Reading) -> None:
        """Take in what comes until the connection ends; then every open request ends too."""
        try:
            await reading.listen(self._receive)
        finally:
            self.end()

    def _receive(self, message: Message) -> None:
        try:
            self._take(message)
        except Exception:
            # What comes next in the same piece of its output must not be lost with it.
            logger.exception("a message of an upstream could not be taken because of an internal error")

    def end(self) -> None:
        """The connection is gone."""
        self._is_lost = True
        for conversation in tuple(self._open.values()):
            conversation.tell(Answer(None, ConnectionLostError()))
        self._open.clear()
        if self._look is not None:
            self._look.cancel()

    @property
    def has_room(self) -> bool:
        """Whether a message is taken at once."""
        return self._writing.has_room

    @property
    def takes_headers(self) -> bool:
        """Whether messages may have HTTP headers."""
        return self._writing.takes_headers

    @property
    def open_requests(self) -> int:
        """How many requests of ours are not answered."""
        return len(self._open)

    def watch(self, seconds: float) -> float:
        """Look after this time whether a conversation has expired; the time that is then.

        There is one timer for all: most calls are answered long before one of their own would fire.
        """
        deadline = self._loop.time() + seconds
        if self._look is None or deadline < self._look.when():
            self._look_at(deadline)
        return deadline

    def _look_at(self, when: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_at(when, self._tell_expired)

    def _tell_expired(self) -> None:
        self._look, now = None, self._loop.time()
        for conversation in tuple(self._open.values()):
            if conversation.deadline is not None and conversation.deadline <= now:
                conversation.deadline = None
                conversation.tell(Expired())
        coming = [talk.deadline for talk in self._open.values() if talk.deadline is not None]
        if coming:
            self._look_at(min(coming))

    async def start(self, method: str, params: Json, headers: Mapping[str, str] | None = None) -> Conversation:
        """Send a request.

        Args:
            method: What is asked for.
            params: Sent as they are, but for a progress token, which becomes the request's id.
            headers: HTTP headers, where the transport has such.

        Raises:
            ConnectionLostError: There is no connection.
        """
        self._next_id += 1
        identity = self._next_id
        meta = params.get("_meta")
        if isinstance(meta, dict) and "progressToken" in meta:
            meta["progressToken"] = identity
        conversation = self._open[identity] = Conversation(self, identity, method)
        try:
            await self._send(Request(identity, method, params), headers)
        except BaseException:
            await conversation.close()
            raise
        return conversation

    async def request(self, method: str, params: Json, headers: Mapping[str, str] | None = None) -> Json:
        """Send a request and wait for its result.

        Raises:
            UpstreamError: The answer is an error.
            ConnectionLostError: There is no connection any more.
        """
        async with await self.start(method, params, headers) as conversation:
            return await conversation.result()

    async def notify(self, method: str, params: Json | None = None, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification.

        Raises:
            ConnectionLostError: There is no connection.
        """
        await self._send(Notification(method, params), headers)

    async def notify_briefly(self, method: str, params: Json) -> None:
        """Send a notification if that is possible at once, also while being cancelled."""
        if self._is_lost:
            return
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            try:
                await self.notify(method, params)
            except ConnectionLostError:
                return

    async def answer(self, identity: RequestId, result: Json) -> None:
        """Answer a request of the upstream."""
        await self._send_quietly(Response(identity, result))

    async def refuse(self, identity: RequestId, code: int, message: str) -> None:
        """Answer a request of the upstream with an error."""
        await self._send_quietly(Failure(identity, {"code": code, "message": message}))

    def forget(self, identity: RequestId) -> None:
        """Take no more of a request."""
        self._open.pop(identity, None)

    async def _send_quietly(self, message: Message) -> None:
        try:
            await self._send(message, None)
        except ConnectionLostError:
            logger.debug("an answer to an upstream came after the end of its connection")

    async def _send(self, message: Message, headers: Mapping[str, str] | None) -> None:
        if self._is_lost:
            raise ConnectionLostError
        try:
            await self._writing.send(message, headers)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionLostError from None

    def _take(self, message: Message) -> None:
        match message:
            case Response():
                self._finish(message.id, Answer(message.result))
            case Failure():
                remove_own_keys(message.error)
                self._finish(message.id, Answer(None, _problem(message.error)))
            case Request(identity, method, params):
                remove_own_keys(params := params or {})
                self._on_request(identity, method, params)
            case Notification(method, params):
                remove_own_keys(params := params or {})
                self._take_notification(method, params)

    def _take_notification(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            conversation = self._of(params.get("progressToken"))
            if conversation is not None:
                conversation.tell(Progress(params))
            return
        self._on_notification(method, params)

    def _finish(self, identity: Any, answer: Answer) -> None:
        conversation = self._of(identity)
        if conversation is None:
            self.given_up.answered(_number(identity))
            logger.debug("an upstream answered what nobody asked")
            return
        self.forget(conversation.identity)
        if answer.result is not None:
            remove_own_keys(answer.result, is_list=conversation.method.endswith("/list"))
        conversation.tell(answer)

    def _of(self, identity: Any) -> Conversation | None:
        """The open request of an id; some servers give a number back as a text."""
        return self._open.get(_number(identity))


def _number(identity: Any) -> int:
    """The id of a request of ours, which all are above zero; zero for what is none."""
    if isinstance(identity, str) and identity.isascii() and identity.isdigit() and len(identity) < 19:
        return int(identity)
    return identity if isinstance(identity, int) and not isinstance(identity, bool) else 0
