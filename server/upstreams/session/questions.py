"""Questions of an upstream of the handshake era: who is asked, and how its answer finds the way back.

Such an upstream does not say which call made it ask. So a question belongs to the session, and goes to a client whose
call is open there. A client of the handshake era is asked while its call waits; one of 2026-07-28 gets the question as
the result of its call, and answers with the next one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp_types import METHOD_NOT_FOUND
from pydantic_core import to_json

from server.exchange import Exchange
from server.json_rpc import Json, RequestId, as_mapping
from server.upstreams.session.origin import with_origin
from server.upstreams.session.visible_texts import with_visible_form
from server.upstreams.wire.peer import OWN_KEYS, Conversation, Peer
from tools.contract.display import true_hosts, visible

CanBeAsked = Callable[[str, Mapping[str, Any]], bool]
"""Whether a client takes a question of this method with these parameters."""

ASKING = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""What an upstream may ask of a client."""

MOST_BYTES = 256 << 10
"""A larger question is refused (ours)."""

MOST_OPEN = 64
"""Questions of one session that may be open; more are refused."""


@dataclass(slots=True)
class Asked:
    """A question that waits for its answer.

    Args:
        key: Its name towards a client of the 2026-07-28 revision.
        identity: The id of the upstream's request.
        method: What is asked.
        params: As they are shown to the client.
        leg: The only call that may show it, where calls of others may be open beside that.
        is_handed_out: Whether some client has it.
        is_early: Whether it was asked outside of calls, and waits for the next one.
    """

    key: str
    identity: RequestId
    method: str
    params: Json
    leg: object | None = None
    is_handed_out: bool = False
    is_early: bool = False
    is_told: anyio.Event = field(repr=False, default_factory=anyio.Event)
    """Set when the upstream has the answer."""
    answered: asyncio.Future[Json] = field(
        repr=False, default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def as_input_request(self) -> Json:
        """The question as `inputRequests` carries it."""
        params = {name: value for name, value in self.params.items() if name != "elicitationId"}
        return {"method": self.method, "params": params}


@dataclass(slots=True)
class Live:
    """A question that a client has, and answers while its call waits.

    Args:
        exchange: With the client.
        conversations: Of the calls that wait, where there are any: their time stands still.
        legs: The calls of which one may have made the upstream ask; none where it asks of its own accord.
        is_void: Whether these are all over, so that no answer counts any more.
        scope: Of who asks.
    """

    exchange: Exchange
    conversations: list[Conversation]
    legs: list[object]
    is_void: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def end(self, leg: object) -> None:
        """A call is over; the client is told if the question can be of no other."""
        if leg in self.legs:
            self.legs.remove(leg)
            if not self.legs:
                self.is_void = True
                self.scope.cancel()


@dataclass(slots=True)
class Questions:
    """The open questions of one session with an upstream.

    Args:
        peer: The session's connection.
        seconds: How long one may stay open.
    """

    peer: Peer
    seconds: float
    _open: dict[str, Asked] = field(default_factory=dict[str, Asked])

    def add(
        self, identity: RequestId, method: str, params: Json, leg: object | None = None, *, is_early: bool = False
    ) -> Asked | None:
        """Take in a question; `None` if there are too many already.

        Args:
            identity: The id of the upstream's request.
            method: What is asked.
            params: As they are shown to the client.
            leg: The only call that may show it, if there is just one.
            is_early: Whether it was asked outside of calls.
        """
        if len(self._open) >= MOST_OPEN:
            return None
        asked = Asked(
            f"{method.partition('/')[0]}-{secrets.token_hex(6)}", identity, method, params, leg, is_early=is_early
        )
        self._open[asked.key] = asked
        return asked

    def waits_for(self, leg: object, can_be_asked: CanBeAsked) -> bool:
        """Whether there is a question that no client has yet and that this call may show."""
        return bool(self._waiting(leg, can_be_asked))

    def hand_out(self, leg: object, can_be_asked: CanBeAsked) -> list[Asked]:
        """The questions that no client has yet and that this call may show; whoever takes them answers for them."""
        waiting = self._waiting(leg, can_be_asked)
        for asked in waiting:
            asked.is_handed_out = True
        return waiting

    def _waiting(self, leg: object, can_be_asked: CanBeAsked) -> list[Asked]:
        return [
            asked
            for asked in self._open.values()
            if not (asked.is_early or asked.is_handed_out or asked.answered.done())
            and asked.leg in (None, leg)
            and can_be_asked(asked.method, asked.params)
        ]

    def early(self) -> list[Asked]:
        """The questions that were asked outside of calls and have no answer yet."""
        return [asked for asked in self._open.values() if asked.is_early and not asked.answered.done()]

    def end(self, leg: object, *, is_last: bool) -> None:
        """A call is over: what only it could show is refused, and everything in calls if it was the last one."""
        over = [key for key, asked in self._open.items() if asked.leg is leg or (is_last and not asked.is_early)]
        self.refuse(over)

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers by the names of their questions; others are passed over."""
        for key, response in responses.items():
            asked = self._open.get(key)
            if asked is not None and isinstance(response, dict) and not asked.answered.done():
                asked.answered.set_result(as_mapping(response))

    def give_back(self, keys: Iterable[str]) -> None:
        """Those of these questions that are still open may be handed out again."""
        for key in keys:
            asked = self._open.get(key)
            if asked is not None and not asked.answered.done():
                asked.is_handed_out = False

    def refuse(self, keys: Iterable[str]) -> None:
        """Nobody will answer these any more: the upstream is told so."""
        for key in keys:
            asked = self._open.get(key)
            if asked is not None and not asked.answered.done():
                asked.answered.set_result(refusal_of(asked.method))

    def cancel(self, identity: Any) -> None:
        """The upstream does not want to know any more."""
        for asked in tuple(self._open.values()):
            if asked.identity == identity:
                asked.answered.cancel()
                asked.is_told.set()
                del self._open[asked.key]

    async def settle(self, asked: Asked) -> None:
        """Settle a question; nobody waits for longer than this lasts, also where it cannot be told."""
        try:
            await self._tell(asked)
        finally:
            asked.is_told.set()

    async def _tell(self, asked: Asked) -> None:
        """Wait for the answer of a question, and pass it on; after its time the question counts as cancelled.

        One that a client has waits as long as its parked call, whose end is told to the upstream before the question's.
        """
        try:
            while True:
                try:
                    async with asyncio.timeout(self.seconds):
                        response = await asyncio.shield(asked.answered)
                    break
                except TimeoutError:
                    if not asked.is_handed_out:
                        response = refusal_of(asked.method)
                        break
        except asyncio.CancelledError:
            if asked.answered.cancelled():
                return
            raise
        finally:
            self._open.pop(asked.key, None)
        await reply(self.peer, asked.identity, response)


async def reply(peer: Peer, identity: RequestId, response: Json) -> None:
    """Answer an upstream's question; a refusal that has no form of its own is an error."""
    if response is NO_ANSWER:
        await peer.refuse(identity, METHOD_NOT_FOUND, "The client takes no such requests.")
        return
    await peer.answer(identity, response)


NO_ANSWER: Json = {}
"""Stands for a refusal where the protocol has none but an error."""


def refusal_of(method: str) -> Json:
    """What is answered where nobody can be asked."""
    match method:
        case "elicitation/create":
            return {"action": "cancel"}
        case "roots/list":
            return {"roots": []}
        case _:
            return NO_ANSWER


def is_too_large(params: Mapping[str, Any]) -> bool:
    """Whether a question is more than any person reads; to make all of it visible would hold everybody up."""
    return len(to_json(params, inf_nan_mode="null")) > MOST_BYTES


def labelled(alias: str, method: str, params: Mapping[str, Any]) -> Json:
    """A question with the name of the server that asks, so that none can pass for us or for another one.

    Args:
        alias: The server's name in our configuration.
        method: What is asked.
        params: As the upstream gave them.
    """
    shown = with_origin(params, alias)
    if method == "elicitation/create":
        message = visible(str(params.get("message", "")))
        hosts = true_hosts(f"{params.get('url', '')} {message}")
        shown["message"] = "\n".join([f"[{alias}] {message}", *hosts])
        if "requestedSchema" in params:
            shown["requestedSchema"] = with_visible_form(params["requestedSchema"])
    return shown


@dataclass(frozen=True, slots=True)
class Round:
    """The questions of one result of a 2026-07-28 upstream.

    Args:
        asked: Those that the client is asked, labelled, by the keys under which it gets them.
        refused: Answers to the others, by the upstream's keys.
        keys: The upstream's keys of those that the client gets under another one.
    """

    asked: Json
    refused: Json
    keys: dict[str, str]

    def carried(self) -> Json:
        """What has to come back with the answers."""
        return {"refused": self.refused, "keys": self.keys}


def round_of(alias: str, requests: Any, can_be_asked: CanBeAsked) -> Round:
    """Sort what a 2026-07-28 upstream wants to know.

    Args:
        alias: The server's name in our configuration.
        requests: `inputRequests` as they came.
        can_be_asked: Whether the client takes a question.
    """
    given = as_mapping(requests)
    found = Round({}, {}, {})
    for key, request in given.items():
        asked = as_mapping(request)
        method, params = str(asked.get("method")), as_mapping(asked.get("params"))
        if not can_be_asked(method, params) or is_too_large(params):
            found.refused[key] = refusal_of(method)
            continue
        shown = key
        while shown.startswith(OWN_KEYS) or (shown != key and shown in given):
            shown = f"of:{alias}/{shown}"
        if shown != key:
            found.keys[shown] = key
        found.asked[shown] = {**asked, "params": labelled(alias, method, params)}
    return found


def answers_of_round(carried: Mapping[str, Any], responses: Mapping[str, Any]) -> Json:
    """The answers as the upstream gets them.

    Args:
        carried: What came back with them.
        responses: The client's, by the keys under which it got the questions.
    """
    keys = as_mapping(carried.get("keys"))
    given = {keys.get(key, key): response for key, response in responses.items()}
    return {**given, **as_mapping(carried.get("refused"))}
