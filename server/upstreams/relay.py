"""One request of a client, brought to an upstream and back, whichever revision either of them speaks.

| client | upstream | its questions |
| --- | --- | --- |
| handshake | handshake | are sent on to the client while its call waits |
| handshake | 2026-07-28 | the rounds are driven here, and the client is asked in between |
| 2026-07-28 | 2026-07-28 | are passed through, with the upstream's state sealed in ours |
| 2026-07-28 | handshake | the call is parked, and goes on when the client calls again with the answers |
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from server.consent.sealing import SealedStates
from server.exchange import Exchange, NotAskedError
from server.json_rpc import Json
from server.upstreams.chain import check_hops
from server.upstreams.conversation import Answer, Conversation, Expired, Progress, Remark, outcome
from server.upstreams.early_roots import question_before_call, tell_roots
from server.upstreams.leg import Leg, QuestionWaits
from server.upstreams.parked import ParkedCall, ParkedCalls
from server.upstreams.peer import RelayError
from server.upstreams.places import Place
from server.upstreams.questions import answers_of_round, refusal_of, round_of
from server.upstreams.session import UpstreamSession

logger = logging.getLogger(__name__)

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
