"""Questions from upstreams: which client receives a question, and how its answer is returned.

A handshake-era upstream does not say which call caused a question. The question therefore belongs to the session, and
goes to a client with a call in progress in that session. A handshake-era client is asked while its call waits
(`LiveQuestion`). A 2026-07-28 client gets the question as the result of its call, and answers with its next request
(`UpstreamQuestion`). Some upstreams request roots outside of calls (file servers do so right after the handshake). If
the client can only be asked during calls, local programs get the workspace folders, and other upstreams no roots.

A 2026-07-28 upstream returns its questions as the result of a call: `round_of` decides which of them the client gets,
and `next_round` puts the answers into the next request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from server.clients.client_request import Exchange, NotAskedError
from server.protocol.json_rpc import Json, RequestId, as_mapping
from server.upstreams.session.list_reader import with_visible_form
from server.upstreams.session.protocol_era import EraChoice
from server.upstreams.wire.json_rpc_channel import JsonRpcChannel, Observer, PendingRequest
from server.upstreams.wire.origin_meta import OWN_KEYS, with_origin
from tools.contract.display import MAX_HOST_CHARS, true_hosts, visible, visible_line
from tools.permissions.permission_policy import Rights

logger = logging.getLogger(__name__)

MAX_TASKS = 256  # maximum number of concurrent background tasks per session


@dataclass(eq=False, slots=True)
class BoundedTasks:
    """Runs tasks in the background. Above the limit, new tasks are dropped.

    An upstream that keeps sending questions without reading the answers gets no more answers; its other messages are
    still read.
    """

    alias: str
    tasks: TaskGroup
    _count: int = 0

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self._count >= MAX_TASKS:
            logger.debug(
                "upstream %s sends more questions than can be answered", self.alias, extra={"upstream": self.alias}
            )
            return

        async def run() -> None:
            try:
                await work(*arguments)
            finally:
                self._count -= 1

        self._count += 1
        self.tasks.start_soon(run)


_HOST = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)

QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""The requests that an upstream may send to a client."""

MAX_BYTES = 256 << 10  # a larger question is refused
# Maximum number of open questions; a session refuses further questions, and a task asks its further questions later
MAX_OPEN = 64

DOUBT_SECONDS = 2.0
"""How long to wait for a client's roots before assuming that the client and the upstream are waiting for each other."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    alias: str  # the server's name in the configuration
    era_choice: EraChoice  # the preferred era
    client_capabilities: Json  # the client's capabilities
    question_seconds: float  # how long a question may stay open
    # called with a list (`tools`, `prompts` or `resources`) that may have changed, and whether the upstream announced
    # the change
    list_changed: Callable[[str, bool], None]
    resource_updated: Callable[[str], None]  # called with the URI of a changed resource
    is_shared: bool = False  # whether several clients share the session
    # the session's client, if it can be reached outside of its requests
    client: Exchange | None = None
    observer: Observer | None = None  # observes the session's requests
    folders: tuple[str, ...] = ()  # the workspace folders, if the server is a local program
    # Returns why a server is hidden from clients with these rights; empty if it is visible. May change at any time.
    why_denied: Callable[[str, Rights], str] = lambda _alias, _rights: ""

    def is_denied_to(self, client: Exchange) -> bool:
        return self.why_denied(self.alias, client.rights) != ""

    def can_ask(self, client: Exchange, method: str, params: Mapping[str, Any]) -> bool:
        return client.can_be_asked(method, params) and not self.is_denied_to(client)

    def capabilities_to_declare(self, capabilities: Json) -> Json:
        """Return a client's capabilities to declare. If it has no roots, the workspace folders serve as roots."""
        has_roots = capabilities.get("roots") is not None or not self.folders
        return capabilities if has_roots else {**capabilities, "roots": {}}


@dataclass(eq=False, slots=True)
class InFlightCall:
    """A call in progress. While the call is suspended, its client answers a question, and no request waits for it."""

    pending: PendingRequest
    exchange: Exchange
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class QuestionWaits:
    """Tells a call's handler that a question is waiting, and that the client gets it as the result of the call."""


@dataclass(eq=False, slots=True)
class UpstreamQuestion:
    """A question that the client answers with a later request."""

    key: str  # the question's key for 2026-07-28 clients
    identity: RequestId  # the id of the upstream's request
    method: str
    params: Json  # the parameters as shown to the client
    call: InFlightCall | None  # the only call that may return the question, if several clients share the session
    is_handed_out: bool = False  # whether a client has the question
    answer: asyncio.Future[Json] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False, slots=True)
class LiveQuestion:
    """A question that a client answers while its call waits."""

    method: str
    calls: list[InFlightCall]  # the calls that may have caused the question; empty if it was asked outside of calls
    is_void: bool = False  # whether all of these calls are over, so an answer is no longer valid
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_settled: anyio.Event = field(default_factory=anyio.Event)


class SessionQuestions:
    """A session's calls in progress, and the questions that they cause."""

    def __init__(self, options: SessionOptions, channel: JsonRpcChannel, background: BoundedTasks) -> None:
        self.calls: list[InFlightCall] = []  # the calls in progress
        self._options = options
        self._log = logging.LoggerAdapter(logger, {"upstream": options.alias})
        self._channel = channel
        self._background = background
        self._open_questions: dict[str, UpstreamQuestion] = {}
        self._live_questions: dict[RequestId, LiveQuestion] = {}

    def begin(self, call: InFlightCall) -> None:
        self.calls.append(call)
        if self._open_questions:
            self.remind(call)

    def end(self, call: InFlightCall) -> None:
        """End a call, and refuse questions that no other call can answer."""
        if call not in self.calls:
            return
        self.calls.remove(call)
        for live in self._live_questions.values():
            if call in live.calls:
                live.calls.remove(call)
                if not live.calls:
                    live.is_void = True
                    live.scope.cancel()
        if self._open_questions:
            # Refuse this call's questions. If this was the last call, refuse all questions.
            self.refuse(
                key for key, question in self._open_questions.items() if question.call is call or not self.calls
            )
            for remaining_call in self.calls:
                if not remaining_call.is_suspended:
                    self.remind(remaining_call)

    def remind(self, call: InFlightCall) -> None:
        """If a question is waiting for this call, queue a `QuestionWaits` event behind the call's other messages."""
        if self._questions_for(call):
            call.pending.put(QuestionWaits())

    def suspects(self) -> list[InFlightCall]:
        """Return the calls that may have caused a message from the upstream.

        In a shared session, this is the call in progress, if it is the only one and no other client has recently
        abandoned a call; otherwise none.
        """
        if not self._options.is_shared:
            return self.calls
        if len(self.calls) != 1 or self._channel.may_be_abandoned_by_others(self.calls[0].exchange.client_key):
            return []
        return self.calls

    def receive(self, identity: RequestId, method: str, params: Json) -> None:
        options = self._options
        if identity in self._live_questions:
            return
        if len(self._live_questions) >= MAX_OPEN or is_too_large(params):
            self._log.info(
                "a question from upstream %s was refused: it is too large, or too many are open", options.alias
            )
            self._background.start(self._reply, identity, refusal_of(method))
            return
        labelled_params = labelled(options.alias, method, params)
        calls = self.suspects()
        askable_calls = [call for call in calls if options.can_ask(call.exchange, method, params)]
        client = next((call.exchange for call in askable_calls if not call.exchange.is_modern), None)
        if client is None and not calls and options.client is not None:
            client = options.client if options.can_ask(options.client, method, params) else None
        if client is not None:
            self._live_questions[identity] = LiveQuestion(method, list(calls))
            self._background.tasks.start_soon(self._relay_live_question, identity, method, labelled_params, client)
            return
        if not askable_calls:
            has_roots = options.client_capabilities.get("roots") is not None
            is_declared = method != "roots/list" or has_roots or bool(options.folders)
            refusal = refusal_of(method, options.folders) if is_declared else NO_ANSWER
            self._background.start(self._reply, identity, refusal)
            return
        if len(self._open_questions) >= MAX_OPEN:
            self._background.start(self._reply, identity, refusal_of(method))
            return
        key = f"{method.partition('/')[0]}-{secrets.token_hex(6)}"
        only_call = askable_calls[0] if options.is_shared else None
        question = self._open_questions[key] = UpstreamQuestion(key, identity, method, labelled_params, only_call)
        self._background.tasks.start_soon(self._await_answer, question)
        if (waiting_call := next((call for call in askable_calls if not call.is_suspended), None)) is not None:
            waiting_call.pending.put(QuestionWaits())

    def withdraw(self, identity: Any) -> None:
        for question in tuple(self._open_questions.values()):
            if question.identity == identity:
                question.answer.cancel()
                del self._open_questions[question.key]
        live = self._live_questions.get(identity) if isinstance(identity, str | int) else None
        if live is not None:
            live.scope.cancel()

    def hand_out(self, call: InFlightCall) -> list[UpstreamQuestion]:
        """Return the questions that this call may show, and mark them so that no other call shows them meanwhile.

        The caller must settle them, or resume the call.
        """
        questions = self._questions_for(call)
        for question in questions:
            question.is_handed_out = True
        return questions

    def resume(self, call: InFlightCall, exchange: Exchange, keys: Iterable[str]) -> None:
        """Continue a suspended call with its client's next request, which may answer the handed-out questions."""
        call.exchange, call.is_suspended = exchange, False
        self.answer(exchange.input_responses)
        for question in self._unanswered(keys):
            question.is_handed_out = False
        self.remind(call)

    async def wait_for_roots(self) -> bool:
        """Wait briefly while a client is being asked for its roots. Returns whether a client was being asked."""
        roots_questions = [live for live in self._live_questions.values() if live.method == "roots/list"]
        with anyio.move_on_after(DOUBT_SECONDS):
            for live in roots_questions:
                await live.is_settled.wait()
        return bool(roots_questions)

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Accept answers, each under the key of its question; unknown keys are ignored."""
        for question in self._unanswered(responses):
            if isinstance(response := responses[question.key], dict):
                question.answer.set_result(as_mapping(response))

    def refuse(self, keys: Iterable[str]) -> None:
        for question in self._unanswered(keys):
            question.answer.set_result(refusal_of(question.method))

    def _unanswered(self, keys: Iterable[str]) -> Sequence[UpstreamQuestion]:
        questions = (self._open_questions.get(key) for key in tuple(keys))
        return [question for question in questions if question is not None and not question.answer.done()]

    def _questions_for(self, call: InFlightCall) -> list[UpstreamQuestion]:
        return [
            question
            for question in self._open_questions.values()
            if not (question.is_handed_out or question.answer.done())
            and question.call in (None, call)
            and self._options.can_ask(call.exchange, question.method, question.params)
        ]

    async def _await_answer(self, question: UpstreamQuestion) -> None:
        """Wait for the answer to a question and relay it. On timeout, the question is refused.

        While a client has the question, the question stays open for as long as the call stays suspended. If that call
        is cancelled, the upstream is notified of the cancellation before it gets the refusal.
        """
        try:
            while True:
                try:
                    async with asyncio.timeout(self._options.question_seconds):
                        response = await asyncio.shield(question.answer)
                    break
                except TimeoutError:
                    if not question.is_handed_out:
                        response = refusal_of(question.method)
                        break
            self._open_questions.pop(question.key, None)
            await self._reply(question.identity, response)
        except asyncio.CancelledError:
            if not question.answer.cancelled():
                raise
        finally:
            # The question is no longer open, even if the answer cannot be delivered.
            self._open_questions.pop(question.key, None)

    async def _relay_live_question(
        self, identity: RequestId, method: str, labelled_params: Json, client: Exchange
    ) -> None:
        """Ask a client during its call, and relay the answer. The calls' timeouts are paused in the meantime."""
        live = self._live_questions[identity]
        response = refusal_of(method)
        with ExitStack() as paused_clocks:
            for call in live.calls:
                paused_clocks.enter_context(call.pending.paused_clock())
            with live.scope:
                try:
                    response = await self._ask_client(live, labelled_params, client)
                except NotAskedError:
                    self._log.info("a question from upstream %s got no answer", self._options.alias)
        try:
            if live.is_void and method == "roots/list" and (owner := self._options.client) is not None:
                # The roots belong to the session's client, no matter which call caused the request.
                with suppress(NotAskedError):
                    response = await owner.ask(method, labelled_params, DOUBT_SECONDS)
            elif live.is_void:
                response = refusal_of(method)
            if live.is_void or not live.scope.cancelled_caught:
                await self._reply(identity, response)
        finally:
            live.is_settled.set()
            del self._live_questions[identity]

    async def _ask_client(self, live: LiveQuestion, labelled_params: Json, client: Exchange) -> Json:
        """Ask a client. If its call ends before the answer, ask in another call that may have caused the question."""
        while True:
            try:
                return await client.ask(live.method, labelled_params, self._options.question_seconds)
            except NotAskedError:
                exchanges = [call.exchange for call in live.calls]
                askable = (
                    exchange
                    for exchange in exchanges
                    if not exchange.is_modern and self._options.can_ask(exchange, live.method, labelled_params)
                )
                next_client = next(askable, None)
                if next_client is None or client in exchanges:
                    raise
                client = next_client

    async def _reply(self, identity: RequestId, response: Json) -> None:
        """Respond to an upstream's question. A refusal that cannot be expressed as a result becomes an error."""
        if response is NO_ANSWER:
            await self._channel.refuse(identity, "The client does not accept such requests.")
            return
        await self._channel.answer(identity, response)


NO_ANSWER: Json = {}  # marks a refusal that the protocol can only express as an error


def refusal_of(method: str, folders: Iterable[str] = ()) -> Json:
    """Return the answer to an upstream if nobody can be asked. For `roots/list`, it contains `folders` as roots."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    if method != "roots/list":
        return NO_ANSWER
    roots = [{"uri": Path(folder).as_uri(), "name": visible_line(os.path.basename(folder))} for folder in folders]
    return {"roots": roots}


def is_too_large(params: Mapping[str, Any]) -> bool:
    """Return whether a question is too large for a person to read, or to relay without blocking this server."""
    return len(to_json(params, inf_nan_mode="null")) > MAX_BYTES


def labelled(alias: str, method: str, params: Mapping[str, Any]) -> Json:
    """Add the upstream's name to a question, so that nobody takes it for one from this server or another upstream."""
    labelled_params = with_origin(params, alias)
    if method == "elicitation/create":
        message = visible(str(params.get("message", "")))
        url = str(params.get("url", ""))
        hosts = true_hosts(f"{url} {message}")
        # If `true_hosts` has no warning, no user name precedes the host, and the host's letters are unambiguous.
        if params.get("mode") == "url" and not true_hosts(url) and (match := _HOST.match(url)) is not None:
            hosts.insert(0, f"The link leads to the host {visible_line(match[1][:MAX_HOST_CHARS])}.")
        labelled_params["message"] = "\n".join([f"[{alias}] {message}", *hosts])
        if "requestedSchema" in params:
            labelled_params["requestedSchema"] = with_visible_form(params["requestedSchema"])
    return labelled_params


def input_requests(questions: Iterable[UpstreamQuestion]) -> Json:
    """Convert questions to `inputRequests` for a 2026-07-28 client, which does not know `elicitationId`."""
    return {question.key: {"method": question.method, "params": _without_id(question.params)} for question in questions}


def _without_id(params: Json) -> Json:
    return {name: value for name, value in params.items() if name != "elicitationId"}


def round_of(options: SessionOptions, requests: Any, exchange: Exchange) -> tuple[Json, dict[str, Json]]:
    """Split the `inputRequests` of a 2026-07-28 upstream into questions for the client, and refused questions.

    Returns the labelled questions, keyed as the client will see them, and the state that `next_round` needs. In the
    state, `refused` maps the upstream's key of each refused question to the answer for the upstream (the session's
    folders for roots), and `keys` maps each key that was changed for the client to the upstream's key.
    """
    requests_by_key = as_mapping(requests)
    questions: Json = {}
    refusals: Json = {}
    keys: Json = {}
    for key, request in requests_by_key.items():
        question = as_mapping(request)
        method, params = str(question.get("method")), as_mapping(question.get("params"))
        if not options.can_ask(exchange, method, params) or is_too_large(params):
            refusals[key] = refusal_of(method, options.folders)
            continue
        published_key = key
        while published_key.startswith(OWN_KEYS) or (published_key != key and published_key in requests_by_key):
            published_key = f"of:{options.alias}/{published_key}"
        if published_key != key:
            keys[published_key] = key
        questions[published_key] = {**question, "params": labelled(options.alias, method, _without_id(params))}
    return questions, {"refused": refusals, "keys": keys}


def next_round(params: Json, round_state: Mapping[str, Any], responses: Mapping[str, Any]) -> Json:
    """Return the parameters for a request's next round, given the state from `round_of` and the client's answers."""
    keys = as_mapping(round_state.get("keys"))
    answers = {keys.get(key, key): response for key, response in responses.items()}
    answers |= as_mapping(round_state.get("refused"))
    answer_params = {"inputResponses": answers} if answers else {}
    state_params = {"requestState": round_state["state"]} if "state" in round_state else {}
    return {**params, **answer_params, **state_params}
