"""Results and errors of upstreams as our clients get them: as they came, in the shape that their revision asks for."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from server.consent.sealing import SealedStates
from server.exchange import Exchange, NotAskedError
from server.json_rpc import Json, as_mapping
from server.upstreams.session.deferred_roots import question_before_call, tell_roots
from server.upstreams.session.era import our_name
from server.upstreams.session.flow_control import BusyError, Place
from server.upstreams.session.questions import answers_of_round, refusal_of, round_of
from server.upstreams.session.session import Leg, QuestionWaits, UpstreamSession
from server.upstreams.wire.chain import check_hops
from server.upstreams.wire.peer import (
    Answer,
    Conversation,
    Expired,
    Progress,
    RelayError,
    Remark,
    UnusableAnswerError,
    UpstreamError,
    outcome,
)
from tools.contract.errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

MOST_PARKED = 256
MOST_OF_ONE = MOST_PARKED // 4
"""Calls parked at once, of all clients and of one; further questions are refused."""


@dataclass(slots=True)
class ParkedCall:
    """A call that is open with its upstream while nobody waits for it.

    Args:
        owner: Whose it is, as `ClientState.key`.
        session: With the upstream.
        leg: Its place in the session.
        handed_out: The questions that the client has.
    """

    owner: str
    session: UpstreamSession
    leg: Leg
    handed_out: list[str]
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def conversation(self) -> Conversation:
        """With the upstream."""
        return self.leg.conversation

    async def cancel(self) -> None:
        """Nobody will go on with it. The upstream is told of the call first: an answer might make it go on."""
        await self.conversation.close()
        self.session.questions.refuse(self.handed_out)
        self.session.end(self.leg)


class ParkedCalls:
    """Keeps parked calls, each until its owner goes on with it or its time is over.

    Args:
        seconds: How long a call waits.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: dict[str, ParkedCall] = {}

    def has_room(self, owner: str) -> bool:
        """Whether there is room for another call of a client, perhaps in place of one of whoever has the most."""
        counts = self._counts()
        own = counts[owner]
        return own < MOST_OF_ONE and (len(self._calls) < MOST_PARKED or own + 1 < max(counts.values()))

    def park(self, call: ParkedCall) -> str:
        """Keep a call for which there is room; returns the name under which its owner finds it again."""
        if len(self._calls) >= MOST_PARKED:
            ((greediest, _),) = self._counts().most_common(1)
            self._expire(next(name for name in reversed(self._calls) if self._calls[name].owner == greediest))
        name = secrets.token_hex(12)
        self._calls[name] = call
        call.leg.is_parked = True
        call.expiry = asyncio.get_running_loop().call_later(self._seconds, self._expire, name)
        return name

    def take(self, name: str, owner: str) -> ParkedCall | None:
        """Take a call out again; `None` if there is none of this owner."""
        call = self._calls.get(name)
        if call is None or call.owner != owner:
            return None
        self._remove(name)
        return call

    def forget(self, owner: str) -> None:
        """The client is gone: its calls are cancelled."""
        for name in [name for name, call in self._calls.items() if call.owner == owner]:
            self._expire(name)

    def is_used(self, session: UpstreamSession) -> bool:
        """Whether a call of this session is parked."""
        return any(call.session is session for call in self._calls.values())

    def _counts(self) -> Counter[str]:
        return Counter(call.owner for call in self._calls.values())

    def _remove(self, name: str) -> None:
        call = self._calls.pop(name)
        if call.expiry is not None:
            call.expiry.cancel()

    def _expire(self, name: str) -> None:
        call = self._calls[name]
        self._remove(name)
        logger.info("a parked call of upstream %s was cancelled: its question has no answer", call.session.alias)
        if not call.session.lost.is_set():
            call.session.tasks.start_soon(_cancel, call)


async def _cancel(call: ParkedCall) -> None:
    with anyio.CancelScope(shield=True):
        await call.cancel()


MOST_ROUNDS = 10
"""Rounds of questions in one call that are driven for a client of the handshake era (the SDK client's number)."""

_THE_CALL = ("name", "arguments", "uri", "ref", "argument")
"""The parameters that say what is asked for."""

_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose result may be a question (2026-07-28)."""

STATE_MARK = "relay."
"""States of rounds with an upstream begin so, which tells them from those of our own questions."""


class StaleStateError(Exception):
    """The state that the client sent cannot be gone on with."""


class NoAnswerError(RelayError):
    """The upstream sent neither a result nor progress in time; the call was cancelled."""


class TooManyRoundsError(RelayError):
    """The upstream asks on and on."""


class ParkedCallGoneError(RelayError):
    """The call that the client wants to go on with is not there any more."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an upstream is asked for a client.

    Args:
        method: The method.
        params: Its parameters, in the upstream's own names.
        patience: Seconds without progress after which it is cancelled.
        headers: HTTP headers that the parameters ask for.
        place: Its place at the upstream, where these are counted.
        waited: Seconds that it has waited for the place, which are part of its time.
        target: Tells what it goes to from what was there under the same name before.
    """

    method: str
    params: Json
    patience: float
    headers: Mapping[str, str] | None = None
    place: Place | None = None
    waited: float = 0.0
    target: str = ""


class Relay:
    """Brings requests to upstreams.

    Args:
        question_seconds: How long a question may stay open, and a call may be parked.
    """

    def __init__(self, question_seconds: float) -> None:
        self._seconds = question_seconds
        self._states = SealedStates(question_seconds)
        self.parked = ParkedCalls(question_seconds)

    def resumed(self, method: str, exchange: Exchange) -> Exchange:
        """The exchange as one that goes on with an earlier round, if its state says so.

        Raises:
            StaleStateError: The state is forged, late, used already, or belongs to something else.
        """
        state = exchange.params.get("requestState")
        if not isinstance(state, str) or not exchange.is_modern or not state.startswith(STATE_MARK):
            return exchange
        sealed = state.removeprefix(STATE_MARK)
        carried = self._states.open(sealed, _digest(method, exchange.params), exchange.client_key)
        if carried is None:
            raise StaleStateError
        return replace(exchange, carried=carried, is_resumed=True)

    async def bring(self, session: UpstreamSession, request: Request, exchange: Exchange) -> Json:
        """Bring a request to its upstream, and give back the result, or one that carries questions.

        Raises:
            UpstreamError: The answer is an error.
            ConnectionLostError: There is no connection any more.
            NoAnswerError: There was no answer in time.
            TooManyRoundsError: The upstream asks on and on.
            ParkedCallGoneError: The call that goes on is not there any more.
            StaleStateError: What the earlier round was with is not what there is now.
            TimeoutError: The upstream did not take in time what it has to know before the call.
            ToolError: The request goes in a ring.
        """
        check_hops(exchange.meta, session.alias)
        if exchange.is_resumed and exchange.carried["target"] != request.target:
            await self._give_up(exchange)
            raise StaleStateError
        if session.era.is_modern:
            return await self._in_rounds(session, request, exchange)
        if (name := exchange.carried.get("parked")) is not None:
            return await self._go_on(str(name), request, exchange)
        if session.wants_roots:
            with anyio.fail_after(request.patience):
                asked = await self._asked_before(session, request, exchange)
            if asked is not None:
                return asked
        conversation = await _begun(session, request, request.params, exchange)
        return await self._until_answer(session, conversation, request, exchange)

    async def _asked_before(self, session: UpstreamSession, request: Request, exchange: Exchange) -> Json | None:
        """Give a question that the upstream has asked outside of calls to the client; or take the answer."""
        if not exchange.is_modern or request.method not in _MAY_ASK:
            return None
        if (key := exchange.carried.get("early")) is not None:
            await tell_roots(session, exchange.input_responses.get(key))
            return None
        asked = await question_before_call(session, exchange)
        if asked is None:
            return None
        return {
            "resultType": "input_required",
            "inputRequests": {asked.key: asked.as_input_request()},
            "requestState": self._seal(request, exchange, {"early": asked.key}),
        }

    async def _give_up(self, exchange: Exchange) -> None:
        """Nobody will go on with the call that is parked, if there is one: the upstream is told."""
        name = exchange.carried.get("parked")
        call = self.parked.take(str(name), exchange.client_key) if name is not None else None
        if call is not None:
            await call.cancel()

    async def _in_rounds(self, session: UpstreamSession, request: Request, exchange: Exchange) -> Json:
        """Ask an upstream that returns its questions."""
        params = request.params
        if exchange.is_resumed or exchange.input_responses:
            params = _next_round(params, answers_of_round(exchange.carried, exchange.input_responses), exchange.carried)
        for _ in range(MOST_ROUNDS):
            conversation = await _begun(session, request, params, exchange)
            result = await self._until_answer(session, conversation, request, exchange)
            if result.get("resultType") != "input_required":
                return result
            found = round_of(session.alias, result.get("inputRequests"), exchange.can_be_asked)
            kept = {"state": result["requestState"]} if "requestState" in result else {}
            if exchange.is_modern and (found.asked or not found.refused):
                state = self._seal(request, exchange, {**kept, **found.carried()})
                return {**result, "inputRequests": found.asked, "requestState": state}
            answers = {key: await self._answer(question, exchange) for key, question in found.asked.items()}
            params = _next_round(request.params, answers_of_round(found.carried(), answers), kept)
            request = replace(request, waited=0.0)
        raise TooManyRoundsError

    async def _answer(self, question: Json, exchange: Exchange) -> Json:
        """Ask a client of the handshake era what an upstream wants to know."""
        method = str(question["method"])
        try:
            return await exchange.ask(method, question["params"], self._seconds)
        except NotAskedError:
            return refusal_of(method)

    async def _until_answer(
        self, session: UpstreamSession, conversation: Conversation, request: Request, exchange: Exchange
    ) -> Json:
        leg = session.begin(conversation, exchange)
        try:
            result = await self._hold(session, leg, request, exchange)
            if session.flood.left_out:
                await exchange.log(session.flood.account())
            return result
        finally:
            if not leg.is_parked:
                session.end(leg)

    async def _go_on(self, name: str, request: Request, exchange: Exchange) -> Json:
        """Go on with a parked call."""
        call = self.parked.take(name, exchange.client_key)
        if call is None:
            raise ParkedCallGoneError
        session, leg = call.session, call.leg
        leg.exchange, leg.is_parked = exchange, False
        session.questions.answer(exchange.input_responses)
        session.questions.give_back(call.handed_out)
        try:
            return await self._hold(session, leg, request, exchange)
        finally:
            if not leg.is_parked:
                session.end(leg)

    async def _hold(self, session: UpstreamSession, leg: Leg, request: Request, exchange: Exchange) -> Json:
        """Pass on what the upstream says until it answers, or until the call is parked with a question."""
        conversation = leg.conversation
        conversation.expect(request.patience, request.patience - request.waited)
        session.remind(leg)
        try:
            while True:
                match await conversation.next():
                    case Answer() as answer:
                        return outcome(answer)
                    case Expired():
                        # The answer may have come in time, to a client that reads slowly.
                        if not conversation.is_answered:
                            raise NoAnswerError
                    case QuestionWaits():
                        if (parked := self._park(session, leg, request)) is not None:
                            return parked
                    case event:
                        await _pass_on(event, exchange)
        finally:
            conversation.expect(None)
            if not leg.is_parked:
                await conversation.close()

    def _park(self, session: UpstreamSession, leg: Leg, request: Request) -> Json | None:
        """Give the questions that wait to the client, if there are any; the call waits for the answers."""
        exchange = leg.exchange
        if not exchange.is_modern:
            return None
        asked = session.questions.hand_out(leg, exchange.can_be_asked)
        keys = [question.key for question in asked]
        if not self.parked.has_room(exchange.client_key):
            session.questions.refuse(keys)
            return None
        if not asked:
            return None
        name = self.parked.park(ParkedCall(exchange.client_key, session, leg, keys))
        if request.place is not None and not leg.conversation.is_answered:
            request.place.is_kept = True
            leg.conversation.at_end = request.place.leave
        return {
            "resultType": "input_required",
            "inputRequests": {question.key: question.as_input_request() for question in asked},
            "requestState": self._seal(request, exchange, {"parked": name}),
        }

    def _seal(self, request: Request, exchange: Exchange, carried: Json) -> str:
        carried = {**carried, "target": request.target}
        return STATE_MARK + self._states.seal(_digest(request.method, exchange.params), exchange.client_key, carried)


async def _pass_on(event: Any, exchange: Exchange) -> None:
    """Let the client know what its upstream says in the middle of a call."""
    match event:
        case Progress(params):
            await exchange.progress(params)
        case Remark("notifications/message", params):
            await exchange.log(params)
        case Remark(method, params):
            await exchange.notify(method, params)
        case _:
            return


async def _begun(session: UpstreamSession, request: Request, params: Json, exchange: Exchange) -> Conversation:
    """Send a request. One that the upstream does not take in its time is one without an answer.

    Raises:
        NoAnswerError: It was not taken.
        ConnectionLostError: There is no connection any more.
    """
    if session.peer.has_room:
        return await session.start(request.method, params, exchange, request.headers)
    with anyio.move_on_after(request.patience):
        return await session.start(request.method, params, exchange, request.headers)
    raise NoAnswerError


def _next_round(params: Json, answers: Mapping[str, Any], carried: Mapping[str, Any]) -> Json:
    state = {"requestState": carried["state"]} if "state" in carried else {}
    given = {"inputResponses": dict(answers)} if answers else {}
    return {**params, **given, **state}


def _digest(method: str, params: Mapping[str, Any]) -> str:
    """What a request asks for, in a form that tells apart what differs."""
    asked = {name: params[name] for name in _THE_CALL if name in params}
    text = json.dumps([method, asked], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


LISTS: Json = {"ttlMs": 0, "cacheScope": "private"}
"""Lists may change at any time, and depend on what the operator configured."""

_CACHEABLE = frozenset({"resources/read"})

_OF_2026 = frozenset({"resultType", "ttlMs", "cacheScope"})
"""What results of the handshake era do not have."""


def finished(method: str, result: Json, version: str) -> Json:
    """A result in the shape of the client's revision; nothing of it is lost.

    Args:
        method: What was asked for.
        result: As the upstream gave it.
        version: The client's revision.
    """
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    if not (is_modern or "_meta" in result or _OF_2026 & result.keys()):
        return result
    meta = {key: value for key, value in as_mapping(result.get("_meta")).items() if key != SERVER_INFO_META_KEY}
    if not is_modern:
        kept = {key: value for key, value in result.items() if key not in _OF_2026 and key != "_meta"}
        return {**kept, "_meta": meta} if meta else kept
    meta[SERVER_INFO_META_KEY] = our_name()
    base: Json = {"resultType": "complete"}
    if method in _CACHEABLE and result.get("resultType", "complete") == "complete":
        base |= LISTS
    return {**base, **result, "_meta": meta}


def is_result_of_call(result: Json) -> bool:
    """Whether clients can read the result of a tool: they take none without content, whatever else is in it."""
    if result.get("resultType", "complete") != "complete":
        return True
    content = result.get("content")
    is_readable = isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[Any]", content))
    return is_readable and isinstance(result.get("isError", False), bool) and isinstance(result.get("_meta", {}), dict)


def to_protocol_error(error: RelayError | ToolError | TimeoutError, alias: str) -> MCPError:
    """What a client is told of a request that failed; an upstream's own error is passed on whole.

    Args:
        error: Why it failed.
        alias: The upstream.
    """
    if isinstance(error, UpstreamError):
        return as_protocol_error(error.error)
    told = told_to_models(error, alias, "the request")
    return MCPError(types.INTERNAL_ERROR, told.message, {"type": told.code.value})


def as_protocol_error(error: Json) -> MCPError:
    """An error of an upstream, as the SDK sends it: with its code, its message and its data."""
    code, message = error.get("code"), error.get("message")
    code = code if isinstance(code, int) else types.INTERNAL_ERROR
    return MCPError(code, message if isinstance(message, str) else "", error.get("data"))


def told_to_models(error: RelayError | ToolError | TimeoutError, alias: str, what: str) -> ToolError:
    """What a model is told of a call that failed.

    Args:
        error: Why it failed.
        alias: The upstream.
        what: What was asked for.
    """
    unknown = "Whether it had an effect is not known."
    match error:
        case ToolError():
            return error
        case UpstreamError():
            said = f"The server {alias} answered with error {error.code}: {error.error.get('message', '')}"
            return ToolError(ToolErrorType.MCP_TOOL_ERROR, said)
        case NoAnswerError() | TimeoutError():
            told = (
                f"The server {alias} sent neither a result nor progress for {what} in its time "
                f"(mcpServers.{alias}.timeout); it was cancelled. {unknown}"
            )
        case BusyError(most=most):
            told = (
                f"The server {alias} is busy: as many calls as may run in it at once ({most}, set by "
                f"mcpServers.{alias}.maxConcurrent) were at work, and none of them ended in the time of {what} "
                f"(mcpServers.{alias}.timeout). It was not sent, so it had no effect; try it later."
            )
        case UnusableAnswerError(why=why):
            told = f"The server {alias} gave no usable answer to {what}: {why}. {unknown}"
        case TooManyRoundsError():
            told = f"The server {alias} asked on and on before {what} was done, so it was given up. {unknown}"
        case ParkedCallGoneError():
            told = (
                f"The server {alias} waited for an answer before {what} was done, and waits no longer: the answer came "
                f"too late, or the server was started anew. {unknown} Call again if that is safe."
            )
        case _:
            told = f"The connection to the server {alias} was lost during {what}. {unknown} It comes back by itself."
    return ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, told)
