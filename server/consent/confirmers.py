"""A middleware for answers that are no answers: the model has to be told of them, not the protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio
import mcp_types as types
from mcp.server.context import CallNext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from server.clients import RequestContext
from server.consent.form import NO_ANSWER, FormStyle, fits_style, form_schema, read_answer
from server.consent.sealing import SealedStates
from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    Channel,
    Confirmer,
    Decision,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.display import render_question

logger = logging.getLogger(__name__)

QUESTION_KEY = "coretools-mcp/confirm"
"""Under this key the question travels in `inputRequests` and the answer in `inputResponses`."""


@dataclass(frozen=True, slots=True)
class ConfirmationOptions:
    """How this server asks.

    Args:
        when_unavailable: Who decides where nobody can be asked: the client's own dialog, or nobody.
        timeout_seconds: How long an answer counts.
        style: A form with fields, or a bare yes or no.
    """

    when_unavailable: Literal["client", "deny"]
    timeout_seconds: float
    style: FormStyle = "form"


class Confirmers:
    """Finds for each request the way to ask.

    Args:
        options: How this server asks.
    """

    def __init__(self, options: ConfirmationOptions) -> None:
        self._options = options
        self._states = SealedStates(options.timeout_seconds)

    def shows_forms(self, ctx: RequestContext) -> bool:
        """Whether the person behind a request can be asked for more than a yes or no."""
        return self._options.style == "form" and _can_be_asked(ctx.session.client_capabilities)

    def of(self, ctx: RequestContext, params: types.InputResponseRequestParams, client_key: str) -> Confirmer:
        """The way to ask the person behind one request."""
        if not _can_be_asked(ctx.session.client_capabilities):
            return _NobodyToAsk(self._options.when_unavailable)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return _AnswerOfRetry(self._options.style, self._states, params, client_key)
        return _LiveQuestion(self._options, ctx)

    def input_required(self, question: Question, client_key: str, protocol_version: str) -> dict[str, Any]:
        """The result that carries a question to a 2026-07-28 client."""
        request = {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": render_question(question),
                "requestedSchema": form_schema(question, self._options.style, protocol_version),
            },
        }
        return {
            "resultType": "input_required",
            "inputRequests": {QUESTION_KEY: request},
            "requestState": self._states.seal(question.fingerprint, client_key),
        }


_NO_FIELDS = Unavailable(client_decides=False, way_out='With confirmation.style "simple", a form has no fields.')


def _can_be_asked(capabilities: types.ClientCapabilities | None) -> bool:
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


@dataclass(frozen=True, slots=True)
class _NobodyToAsk:
    when_unavailable: Literal["client", "deny"]

    async def ask(self, question: Question) -> Unavailable:
        setting = 'confirmation.whenUnavailable to "client" (its own approval dialog then decides)'
        way_out = f"This client has announced no form elicitation. The operator can set {setting}."
        if self.when_unavailable == "client":
            way_out = "This client has announced no form elicitation, and here its own dialog does not suffice."
        # A dialog that allows a call answers no question.
        decides = self.when_unavailable == "client" and not isinstance(question.details, AskUserConfirmation)
        return Unavailable(client_decides=decides, way_out=way_out)


class AlreadyConsented:
    """The way to ask in a later round of a call: consent was given in the first one."""

    async def ask(self, question: Question) -> Answer:
        """Yes, to the same action: the state of the round is bound to it."""
        del question
        return Answer(Decision.ONCE, Channel.EARLIER)


@dataclass(frozen=True, slots=True)
class _LiveQuestion:
    options: ConfirmationOptions
    ctx: RequestContext

    async def ask(self, question: Question) -> Answer | Unavailable:
        if not fits_style(question, self.options.style):
            return _NO_FIELDS
        ctx = self.ctx
        try:
            with anyio.fail_after(self.options.timeout_seconds):
                result = await ctx.session.elicit_form(
                    render_question(question),
                    form_schema(question, self.options.style, ctx.protocol_version),
                    related_request_id=ctx.request_id,
                )
        except TimeoutError:
            return Answer(Decision.DENY, Channel.TIMED_OUT)
        except MCPError as error:
            logger.warning("the client answered a question with error %s", error.error.code)
            return Answer(Decision.DENY, Channel.DECLINED)
        except ValidationError:
            return Answer(Decision.DENY, Channel.MALFORMED)
        return read_answer(question, result.action, result.content, self.options.style)


@dataclass(frozen=True, slots=True)
class _AnswerOfRetry:
    style: FormStyle
    states: SealedStates
    params: types.InputResponseRequestParams
    client_key: str

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        if not fits_style(question, self.style):
            return _NO_FIELDS
        response = (self.params.input_responses or {}).get(QUESTION_KEY)
        if not isinstance(response, types.ElicitResult):
            return Pending()
        if not self.states.redeem(self.params.request_state, question.fingerprint, self.client_key):
            return Pending()
        return read_answer(question, response.action, response.content, self.style)


async def let_malformed_answers_pass(ctx: RequestContext, call_next: CallNext) -> Any:
    """Let an answer to our question that fits no schema reach the handler, as one that is told to be none.

    The SDK would refuse the whole request with a protocol error, which no model reads.
    """
    params = ctx.params or {}
    if "inputResponses" not in params:
        return await call_next(ctx)
    given = params["inputResponses"]
    responses = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    if QUESTION_KEY in responses and not _is_an_answer(responses[QUESTION_KEY]):
        responses[QUESTION_KEY] = {"action": "accept", "content": {NO_ANSWER: True}}
    return await call_next(replace(ctx, params={**params, "inputResponses": responses}))


def _is_an_answer(reply: Any) -> bool:
    try:
        types.ElicitResult.model_validate(reply, by_name=False)
    except ValidationError:
        return False
    return True
