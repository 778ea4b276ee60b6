"""One session with an upstream: greeted, stamped, and with its questions and remarks brought to whoever caused them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from mcp_types import LOG_LEVEL_META_KEY, METHOD_NOT_FOUND

from server.exchange import Exchange, NotAskedError
from server.json_rpc import Json, RequestId, as_mapping
from server.upstreams.session.era import ENVELOPE_KEYS, Era, Wanted, envelope, greet, headers_of
from server.upstreams.session.flow_control import FewAtOnce, Flood
from server.upstreams.session.origin import log_of
from server.upstreams.session.questions import (
    ASKING,
    MOST_OPEN,
    NO_ANSWER,
    Asked,
    Live,
    Questions,
    is_too_large,
    labelled,
    refusal_of,
    reply,
)
from server.upstreams.session.subscription_state import Noted
from server.upstreams.wire.chain import chained
from server.upstreams.wire.peer import Conversation, Peer, Remark, UpstreamError
from server.upstreams.wire.transports import Reach


@dataclass(frozen=True, slots=True)
class QuestionWaits:
    """A question waits for a client that takes it as the result of its call."""


@dataclass(slots=True)
class Leg:
    """A call that is open in a session.

    Args:
        conversation: With the upstream.
        exchange: With the client; the latest one while the call is parked.
        is_parked: Whether the client has a question, and nobody waits for the call now.
    """

    conversation: Conversation
    exchange: Exchange
    is_parked: bool = False


logger = logging.getLogger(__name__)

LEVEL_SECONDS = 5.0
"""How long an upstream may take to note a log level."""

DOUBT_SECONDS = 2.0
"""After so long, an upstream that answers nothing may be waiting for the answer to a question of its own."""

LOG = "notifications/message"

LIST_CHANGES: Mapping[str, str] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Listener(Protocol):
    """Is told what an upstream says of its own accord."""

    def list_changed(self, kind: str) -> None:
        """One of its lists is another one now: `tools`, `prompts` or `resources`."""
        ...

    def resource_updated(self, uri: str) -> None:
        """A resource that was subscribed to has changed."""
        ...


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session is opened.

    Args:
        alias: The server's name in our configuration.
        wanted: What is spoken with it, if it can.
        announced: The capabilities of whoever is behind us.
        question_seconds: How long a question may stay open.
        is_shared: Whether several clients use it that cannot be told apart.
        standing: The client that the session belongs to, where it can be reached outside of its requests.
    """

    alias: str
    wanted: Wanted
    announced: Json
    question_seconds: float
    is_shared: bool = False
    standing: Exchange | None = None


@dataclass(slots=True)
class UpstreamSession:
    """An open session. Made by `open_session`."""

    options: SessionOptions
    era: Era
    peer: Peer
    questions: Questions
    lost: anyio.Event
    tasks: TaskGroup
    few: FewAtOnce
    legs: list[Leg] = field(default_factory=list[Leg])
    watched: Noted = field(init=False)
    at_end: Callable[[], None] | None = None
    """Called when it has gone."""
    wants_roots: bool = False
    """Whether the upstream has asked for the roots outside of calls, where the client can be asked in calls alone."""
    flood: Flood = field(init=False)
    """Of log messages."""
    _others: Flood = field(init=False)
    _asking: dict[RequestId, Live] = field(default_factory=dict[RequestId, Live])

    def __post_init__(self) -> None:
        """Count what it says from the beginning."""
        self.watched = Noted(self.alias, self.request, self.tasks, self.lost)
        self.flood, self._others = (Flood(self.alias, self._tell_left_out) for _ in range(2))

    @property
    def alias(self) -> str:
        """The server's name in our configuration."""
        return self.options.alias

    async def start(
        self, method: str, params: Json, exchange: Exchange | None = None, headers: Mapping[str, str] | None = None
    ) -> Conversation:
        """Send a request.

        Args:
            method: What is asked for.
            params: The upstream's own, with `_meta` of the client's where it has one.
            exchange: The client's request that makes us ask.
            headers: More HTTP headers.

        Raises:
            ConnectionLostError: There is no connection any more.
        """
        given = as_mapping(params.get("_meta"))
        meta = {name: given[name] for name in given if name not in ENVELOPE_KEYS}
        if exchange is not None:
            meta["progressToken"] = 0
            meta |= chained(exchange.meta)
        if self.era.is_modern:
            announced = exchange.capabilities if exchange is not None else self.options.announced
            meta |= envelope(self.era.version, announced)
            if exchange is not None and (level := exchange.log_level) is not None:
                meta[LOG_LEVEL_META_KEY] = level
        stamped = {**params, "_meta": meta}
        if not meta:
            del stamped["_meta"]
        if self.peer.takes_headers:
            headers = {**headers_of(self.era, method, params), **(headers or {})}
        return await self.peer.start(method, stamped, headers)

    async def request(self, method: str, params: Json, seconds: float | None = None) -> Json:
        """Ask for something of our own and wait for the result.

        Raises:
            TimeoutError: It took too long.
            UpstreamError: The answer is an error.
            ConnectionLostError: There is no connection any more.
        """
        with anyio.fail_after(seconds):
            async with await self.start(method, params) as conversation:
                return await conversation.result()

    async def set_level(self, level: str) -> None:
        """Tell an upstream of the handshake era which log messages its client wants; another one hears it in each call.

        Raises:
            ConnectionLostError: There is no connection any more.
        """
        if self.era.is_modern or not self.era.announces("logging"):
            return
        try:
            await self.request("logging/setLevel", {"level": level}, LEVEL_SECONDS)
        except (UpstreamError, TimeoutError):
            logger.info("upstream %s did not take a log level", self.alias)

    def begin(self, conversation: Conversation, exchange: Exchange) -> Leg:
        """A call is open from now on, and may be asked about."""
        leg = Leg(conversation, exchange)
        self.legs.append(leg)
        return leg

    def end(self, leg: Leg) -> None:
        """A call is over; questions that nobody else can answer are not left open."""
        if leg not in self.legs:
            return
        self.legs.remove(leg)
        if self.options.is_shared and not leg.conversation.is_answered:
            self.peer.given_up.note(leg.conversation.identity, leg.exchange.client_key)
        for live in self._asking.values():
            live.end(leg)
        self.questions.end(leg, is_last=not self.legs)
        for other in self.legs:
            if not other.is_parked:
                self.remind(other)

    def remind(self, leg: Leg) -> None:
        """Tell a call of a question that waits for it, after all else that it has still to pass on."""
        if self.questions.waits_for(leg, leg.exchange.can_be_asked):
            leg.conversation.tell(QuestionWaits())

    def on_request(self, identity: RequestId, method: str, params: Json) -> None:
        """The upstream asks for something."""
        if method in ASKING:
            self._take_question(identity, method, params)
        elif method == "ping":
            self.few.start(self.peer.answer, identity, dict[str, Any]())
        else:
            self.few.start(self.peer.refuse, identity, METHOD_NOT_FOUND, "Method not found")

    def _take_question(self, identity: RequestId, method: str, params: Json) -> None:
        if identity in self._asking:
            return
        if len(self._asking) >= MOST_OPEN or is_too_large(params):
            logger.info("a question of upstream %s was refused, since it is too large or one of too many", self.alias)
            self.few.start(reply, self.peer, identity, refusal_of(method))
            return
        shown = labelled(self.alias, method, params)
        legs = self._legs_in_question()
        able = [leg for leg in legs if leg.exchange.can_be_asked(method, params)]
        live = next((leg for leg in able if not leg.exchange.is_modern), None)
        if live is not None:
            waiting = [leg.conversation for leg in legs]
            self._begin_to_ask(identity, method, shown, Live(live.exchange, waiting, list[object](legs)))
        elif able:
            self._keep_question(identity, method, shown, able)
        elif not legs and (standing := self.options.standing) is not None and standing.can_be_asked(method, params):
            self._begin_to_ask(identity, method, shown, Live(standing, [], []))
        elif method == "roots/list" and not legs and self.is_asked_in_calls_alone:
            self._keep_early(identity, method, shown)
        else:
            announced = method != "roots/list" or self.options.announced.get("roots") is not None
            self.few.start(reply, self.peer, identity, refusal_of(method) if announced else NO_ANSWER)

    @property
    def is_asked_in_calls_alone(self) -> bool:
        """Whether it is the session of one client, which tells its roots, but only when it calls."""
        options = self.options
        return options.standing is None and not options.is_shared and options.announced.get("roots") is not None

    def _keep_early(self, identity: RequestId, method: str, shown: Json) -> None:
        """Keep a question for the next call."""
        asked = self.questions.add(identity, method, shown, is_early=True)
        if asked is None:
            self.few.start(reply, self.peer, identity, refusal_of(method))
            return
        self.wants_roots = True
        self.tasks.start_soon(self.questions.settle, asked)
        asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._doubt, asked)

    def _doubt(self, asked: Asked) -> None:
        """What waits for its answer may be what we wait for: our lists are needed before there is a call."""
        if self.peer.open_requests > len(self.legs):
            self.questions.refuse([asked.key])

    def _legs_in_question(self) -> list[Leg]:
        """The calls of which one has made the upstream say something.

        Which one cannot be told. So there is none where calls of several people are open, or were given up lately.
        """
        if not self.options.is_shared:
            return self.legs
        if len(self.legs) != 1 or self.peer.given_up.may_be_of_others(self.legs[0].exchange.client_key):
            return []
        return self.legs

    def _keep_question(self, identity: RequestId, method: str, shown: Json, able: list[Leg]) -> None:
        asked = self.questions.add(identity, method, shown, able[0] if self.options.is_shared else None)
        if asked is None:
            self.few.start(reply, self.peer, identity, refusal_of(method))
            return
        self.tasks.start_soon(self.questions.settle, asked)
        waiting = next((leg for leg in able if not leg.is_parked), None)
        if waiting is not None:
            waiting.conversation.tell(QuestionWaits())

    def _begin_to_ask(self, identity: RequestId, method: str, shown: Json, live: Live) -> None:
        self._asking[identity] = live
        self.tasks.start_soon(self._ask, identity, method, shown, live)

    async def _ask(self, identity: RequestId, method: str, shown: Json, live: Live) -> None:
        """Ask a client that waits for its call, and pass the answer on."""
        response = refusal_of(method)
        for conversation in live.conversations:
            conversation.ask(is_open=True)
        with live.scope:
            try:
                response = await live.exchange.ask(method, shown, self.options.question_seconds)
            except NotAskedError:
                logger.info("a question of upstream %s was not answered", self.alias)
            finally:
                for conversation in live.conversations:
                    conversation.ask(is_open=False)
        try:
            if live.is_void:
                await reply(self.peer, identity, refusal_of(method))
            elif not live.scope.cancelled_caught:
                await reply(self.peer, identity, response)
        finally:
            del self._asking[identity]

    def take_notification(self, method: str, params: Json, listener: Listener) -> None:
        """The upstream says something that belongs to no request of ours alone."""
        if (kind := LIST_CHANGES.get(method)) is not None:
            listener.list_changed(kind)
        elif method == "notifications/resources/updated":
            listener.resource_updated(str(params.get("uri", "")))
        elif method == "notifications/cancelled":
            self._take_back(params.get("requestId"))
        elif (self.flood if method == LOG else self._others).admits():
            self._pass_on(method, log_of(self.alias, params) if method == LOG else params)

    def _tell_left_out(self, told: Json) -> None:
        if not self.lost.is_set():
            self._pass_on(LOG, told)

    def _pass_on(self, method: str, params: Json) -> None:
        if (leg := next((leg for leg in self._legs_in_question() if not leg.is_parked), None)) is not None:
            leg.conversation.tell(Remark(method, params))
        elif (standing := self.options.standing) is not None and method != "notifications/initialized":
            self.few.start(standing.notify, method, params)

    def _take_back(self, identity: Any) -> None:
        """The upstream does not want to know an answer any more."""
        self.questions.cancel(identity)
        live = self._asking.get(identity) if isinstance(identity, str | int) else None
        if live is not None:
            live.scope.cancel()


@asynccontextmanager
async def open_session(reach: Reach, options: SessionOptions, listener: Listener) -> AsyncGenerator[UpstreamSession]:
    """Open a session, for as long as the `with` lasts. To be left by the task that entered it.

    Args:
        reach: Opens the streams.
        options: How it is opened.
        listener: Is told what the upstream says of its own accord.

    Raises:
        UpstreamError: The upstream refuses.
        IncompatibleError: It speaks no revision that we do.
        ConnectionLostError: It has gone.
    """
    lost = anyio.Event()
    opened: list[UpstreamSession] = []

    def on_doubt() -> None:
        # A request that fails alone proves nothing about the others.
        if opened and opened[0].peer.open_requests <= 1:
            lost.set()

    async with reach(on_doubt) as (reading, writing):

        def on_request(identity: RequestId, method: str, params: Json) -> None:
            if opened:
                opened[0].on_request(identity, method, params)
            else:
                few.start(peer.refuse, identity, METHOD_NOT_FOUND, "Not before the session is initialized.")

        def on_notification(method: str, params: Json) -> None:
            if opened:
                opened[0].take_notification(method, params, listener)

        async def read() -> None:
            try:
                await peer.read(reading)
            finally:
                lost.set()

        async with anyio.create_task_group() as tasks:
            peer = Peer(writing, on_request, on_notification)
            few = FewAtOnce(options.alias, tasks)
            tasks.start_soon(read)
            try:
                era = await greet(peer, options.wanted, options.announced, chained({}))
                questions = Questions(peer, options.question_seconds)
                session = UpstreamSession(options, era, peer, questions, lost, tasks, few)
                opened.append(session)
                if options.standing is not None and (level := options.standing.chosen_level) is not None:
                    await session.set_level(level)
                yield session
            finally:
                tasks.cancel_scope.cancel()
                lost.set()
                if opened and (call := opened[0].at_end) is not None:
                    call()
