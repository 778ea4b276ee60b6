"""Raw JSON-RPC with an upstream: what it says is passed on as it came, and in the order in which it came.

No model of the SDK stands between, since models drop what they do not know.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import anyio
import mcp_types as types

from server.json_rpc import Failure, Json, Message, Notification, Request, RequestId, Response, as_mapping
from server.upstreams.conversation import Answer, Conversation, Expired, Progress
from server.upstreams.given_up import GivenUpCalls
from server.upstreams.own_keys import remove_own_keys

logger = logging.getLogger(__name__)

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
