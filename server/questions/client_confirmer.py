"""Asks the person behind a request, with a form or, if the client cannot show one, on the dashboard.

A form is sent as a request or, in the 2026-07-28 revision, as a result. A form that is sent as a result carries an
encrypted state, which the client sends back with the answer. Each state is accepted once
(`server.store.sealing`). A question for the dashboard waits there until it is answered, its time limit has passed, or
its call ends.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import anyio

from server.protocol.json_rpc import Json, MCPError, as_mapping
from server.protocol.request_table import RequestContext, elicits, input_required
from server.questions.form import NO_ANSWER, FormStyle, form_schema, read_answer
from server.settings.load import why_no_dashboard
from server.store.replica import Replica
from server.store.sealing import SealedStates
from tools.contract.call_options import Progress
from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    ConsentChannel,
    Decision,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.display import render_question
from tools.text.file_names import brief

logger = logging.getLogger(__name__)

WhenUnavailable = Literal["client", "page", "deny"]  # who decides if the client cannot ask a person
QUESTION_KEY = "coretools-mcp/confirm"  # key of the question in `inputRequests`, and of the answer in `inputResponses`
FRAMEWORKS: Mapping[str, str] = {
    "mcp": "the Python SDK without a client name: openai-agents 0.24.0, langchain-mcp-adapters 0.3.2, smolagents "
    "1.26.0",
    "fastmcp": "FastMCP 4.2.3 without a client name: pydantic-ai 2.68.0, langchain 1.5.2 (`langchain.mcp`), "
    "agno 3.1.10",
    "google-adk": "google-adk 2.13.0",
    "ai-sdk-mcp-client": "@ai-sdk/mcp 1.0.102",
    "@langchain/mcp-adapters": "@langchain/mcp-adapters 1.1.4",
    "stdio:": "@openai/agents 0.20.0, which appends the command that starts this server",
}
"""The client names that agent frameworks send, each with the versions that send it. Frameworks have no dialog: unless
the program provides a way to ask a person, nobody sees a call before it runs.
"""
MAX_WAITING = 100  # maximum number of open questions for all clients together; more than a person would answer
COMMAND = "coretools-mcp dashboard"
TOO_MANY = Unavailable(
    client_decides=False,
    way_out=f"{MAX_WAITING} questions are already waiting for an answer. The user can answer them with {COMMAND}.",
)


class AskedQuestions:
    """Counts the questions whose answer a request waits for: asked, answered, and open."""

    asked = answered = open = 0

    def __enter__(self) -> None:
        self.asked += 1
        self.open += 1

    def __exit__(self, kind: object, *_: object) -> None:
        self.open -= 1
        self.answered += kind is None


ASKED = AskedQuestions()


class ConsentPolicy:
    """How people are asked, according to the `confirmation` settings."""

    def __init__(
        self, when_unavailable: WhenUnavailable | None, timeout_seconds: float, style: FormStyle, replica: Replica
    ) -> None:
        self._when_unavailable: WhenUnavailable | None = when_unavailable  # `None` means that it depends on the client
        self.timeout_seconds = timeout_seconds
        self.style: FormStyle = style
        self.states = SealedStates("question", timeout_seconds, replica)
        self.pending = PendingQuestions(timeout_seconds)

    def decider(self, ctx: RequestContext) -> WhenUnavailable:
        """Return who decides about a call if the client cannot ask a person."""
        if self._when_unavailable is not None:
            return self._when_unavailable
        return "deny" if ctx.http_request is not None or _framework(ctx) else "client"

    def shows_forms(self, ctx: RequestContext) -> bool:
        """Return whether a request's client gets forms with fields, so that a person can answer more than yes or no."""
        return self.style == "form" and elicits(ctx.connection.capabilities, "form")

    def can_ask(self, ctx: RequestContext) -> bool:
        """Return whether this server can ask a person a question, with a form or on the dashboard."""
        return self.decider(ctx) == "page" or elicits(ctx.connection.capabilities, "form")

    def form(self, question: Question, protocol_version: str) -> Json:
        """Return the parameters of a request that asks a question."""
        return {
            "mode": "form",
            "message": render_question(question),
            "requestedSchema": form_schema(question, self.style, protocol_version),
        }

    def input_required(self, question: Question, client_key: str, protocol_version: str) -> dict[str, Any]:
        request = {"method": "elicitation/create", "params": self.form(question, protocol_version)}
        return input_required({QUESTION_KEY: request}, self.states.seal(question.fingerprint, client_key))


class AlreadyConsented:
    """Gives consent in later rounds of a call, because the user consented in an earlier round."""

    async def ask(self, question: Question) -> Answer:
        """Return consent: the state of this round proves that the user consented to the same action."""
        del question
        return Answer(Decision.ONCE, ConsentChannel.EARLIER)


def _framework(ctx: RequestContext) -> str:
    """Return a client's key in `FRAMEWORKS`; empty if the client is not known to be an agent framework."""
    name = str(ctx.connection.client_info.get("name"))
    name = "stdio:" if name.startswith("stdio: ") else name
    return name if name in FRAMEWORKS else ""


@dataclass(frozen=True, slots=True)
class ClientConfirmer:
    """Asks the person behind one request."""

    consent: ConsentPolicy
    ctx: RequestContext
    client_key: str

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        consent, ctx, style = self.consent, self.ctx, self.consent.style
        if isinstance(question.details, AskUserConfirmation) and not consent.shows_forms(ctx):
            # Only a form with fields can answer the model's questions. The tool says what to do instead.
            return Unavailable(client_decides=False, way_out="")
        if not elicits(ctx.connection.capabilities, "form"):
            decider = consent.decider(ctx)
            if decider == "page":
                with ctx.outbound.person_is_asked():
                    sender = ctx.connection.client_name, self.client_key
                    return await consent.pending.ask(question, *sender, ctx.report_progress)
            if decider == "client":
                way_out = (
                    "This client does not declare form elicitation, and its own dialog cannot answer the question."
                )
                return Unavailable(client_decides=True, way_out=way_out)
            reason = ""
            if name := _framework(ctx):
                reason = (
                    f", and it calls itself '{name}', as programs built with agent frameworks do (a client with its "
                    "own dialog should use another name)"
                )
            ways = ['"page" (the user then answers on the dashboard)'] if why_no_dashboard() is None else []
            if not question.must_be_shown:
                ways.append('"client" (the client\'s own approval dialog then decides)')
            advice = "Use a client that does."
            if ways:
                advice = f"The operator can set confirmation.whenUnavailable to {' or '.join(ways)}."
            way_out = f"This client does not declare form elicitation{reason}. {advice}"
            return Unavailable(client_decides=False, way_out=way_out)
        if ctx.connection.is_modern:
            # The question is the result of this request; the answer arrives with the next request.
            params = as_mapping(ctx.params)
            reply, state = as_mapping(params.get("inputResponses")).get(QUESTION_KEY), params.get("requestState")
            if reply is None or not isinstance(state, str):
                return Pending()
            if await consent.states.open(state, question.fingerprint, self.client_key) is None:
                return Pending()
            action, content = _read_reply(reply)
            return read_answer(question, action, content, style)
        try:
            with anyio.fail_after(consent.timeout_seconds), ASKED:
                form = consent.form(question, ctx.connection.protocol_version)
                action, content = _read_reply(await ctx.outbound.request("elicitation/create", form))
        except TimeoutError:
            return Answer(Decision.DENY, ConsentChannel.TIMED_OUT)
        except MCPError as error:
            logger.warning("the client answered a question with error %s", error.code)
            return Answer(Decision.DENY, ConsentChannel.FAILED, reason=brief(f"{error.code}: {error.message}"))
        except ValueError:
            return Answer(Decision.DENY, ConsentChannel.MALFORMED)
        return read_answer(question, action, content, style)


def _read_reply(reply: Any) -> tuple[str, Json | None]:
    """Return the action and content of an answer to a form, or raise `ValueError` if the answer is malformed."""
    fields = as_mapping(reply)
    action, content = fields.get("action"), fields.get("content")
    if action not in ("accept", "decline", "cancel") or not isinstance(content, dict | None):
        raise ValueError("this is not an answer to a form")
    for value in as_mapping(content).values():
        is_list_of_texts = isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))
        if not is_list_of_texts and not isinstance(value, str | int | float | None):
            raise ValueError("a form field must be a string, a number, a boolean or a list of strings")
    return action, cast("Json | None", content)


def with_marked_answer(ctx: RequestContext) -> RequestContext:
    """Mark a malformed answer to this server's question, so that the request reaches its handler.

    Otherwise the schema check would refuse the whole request with a protocol error, which models do not see.
    """
    params = as_mapping(ctx.params)
    responses = dict(as_mapping(params.get("inputResponses")))
    if QUESTION_KEY in responses:
        try:
            _read_reply(responses[QUESTION_KEY])
        except ValueError:
            responses[QUESTION_KEY] = {"action": "accept", "content": {NO_ANSWER: True}}
    return replace(ctx, params={**params, "inputResponses": responses})


@dataclass(eq=False, slots=True)
class PendingQuestion:
    """A question for the dashboard, until it is answered, its time limit has passed, or its call ends."""

    question: Question
    client: str  # the client's name and version
    client_key: str  # the same as `ClientState.key`
    scope: anyio.CancelScope  # the scope of the wait, whose deadline is the time limit for the answer
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    asked_at: float = field(default_factory=time.time)  # seconds since the epoch
    answer: Answer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)

    @property
    def seconds_left(self) -> float:
        return self.scope.deadline - anyio.current_time()


class PendingQuestions:
    """All waiting questions, oldest first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[str, PendingQuestion] = {}
        self.on_change: Callable[[], None] = lambda: None  # called when a question is added or removed

    async def ask(self, question: Question, client: str, client_key: str, progress: Progress) -> Answer | Unavailable:
        """Tell the client how to answer the question, then wait for the answer. A timeout counts as a denial."""
        if len(self._waiting) >= MAX_WAITING:
            return TOO_MANY
        pending = PendingQuestion(question, client, client_key, anyio.move_on_after(self._seconds))
        self._waiting[pending.id] = pending
        self.on_change()
        try:
            with pending.scope, ASKED:
                await progress(0, None, f"Run {COMMAND} in a terminal to answer a question")
                await pending.answered.wait()
        finally:
            del self._waiting[pending.id]
            self.on_change()
        return pending.answer or Answer(Decision.DENY, ConsentChannel.NOBODY_CAME)

    def all(self) -> list[PendingQuestion]:
        return list(self._waiting.values())

    def find(self, id: str) -> PendingQuestion | None:  # noqa: A002 - the usual name
        pending = self._waiting.get(id)
        return pending if pending is not None and pending.answer is None else None

    def give(self, pending: PendingQuestion, answer: Answer) -> None:
        """Answer a question that `find` has returned. A question must be answered only once."""
        pending.answer = answer
        pending.answered.set()

    def wait_longer(self, pending: PendingQuestion) -> None:
        pending.scope.deadline = anyio.current_time() + self._seconds
        self.on_change()
