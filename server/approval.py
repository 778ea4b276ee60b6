"""Consent by elicitation, in both protocol eras.

In the handshake era a question is a live `elicitation/create` and its answer is awaited. In the 2026-07-28 era
the question is returned as `input_required`, and the client calls again with the answer and a sealed state that
binds it to exactly this action, this client and a time limit, once.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio
import mcp_types as types
from mcp.server.context import CallNext
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from server.clients import RequestContext
from tools.contract.confirmation import Answer, Channel, Confirmer, Decision, Pending, Question, Unavailable
from tools.display import render_question, visible_line

logger = logging.getLogger(__name__)

QUESTION_KEY = "confirm"
"""Under this key the question travels in `inputRequests` and the answer in `inputResponses`."""

MAX_REASON_CHARS = 2_000
"""What the model is told of a person's reason."""

MAX_CONTENT_CHARS = 64_000
"""A text put in place of a proposed one; offered for texts up to 16 kB, and a person may write more."""

TITLED_ENUM_SINCE = "2025-11-25"
"""Earlier revisions title an enum by `enumNames`."""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """How this server asks.

    Args:
        when_unavailable: Who decides where nobody can be asked.
        timeout_seconds: How long an answer counts.
        style: A form with fields, or a bare yes or no for clients that render no fields.
    """

    when_unavailable: Literal["client", "deny"]
    timeout_seconds: float
    style: Literal["form", "simple"] = "form"


async def read_any_answer(ctx: RequestContext, call_next: CallNext) -> Any:
    """Let an answer to our question that fits no schema reach the handler, as an acceptance without a decision.

    The SDK would refuse the whole request with a protocol error, which no model reads.
    """
    params = ctx.params or {}
    if "inputResponses" not in params:
        return await call_next(ctx)
    given = params["inputResponses"]
    responses = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    if QUESTION_KEY in responses and not _is_an_answer(responses[QUESTION_KEY]):
        responses[QUESTION_KEY] = {"action": "accept"}
    return await call_next(replace(ctx, params={**params, "inputResponses": responses}))


def _is_an_answer(reply: Any) -> bool:
    try:
        types.ElicitResult.model_validate(reply, by_name=False)
    except ValidationError:
        return False
    return True


class Approval:
    """Seals questions, and remembers which answers were used."""

    def __init__(self, policy: ApprovalPolicy, clock: Callable[[], float] = time.time) -> None:
        self.policy = policy
        self._clock = clock
        self._codec = AESGCMRequestStateCodec([os.urandom(32)])
        self._spent: dict[str, float] = {}

    def confirmer(self, ctx: RequestContext, params: types.InputResponseRequestParams, client_key: str) -> Confirmer:
        """The way to ask the person behind one request."""
        if not _can_be_asked(ctx.session.client_capabilities):
            return _NobodyToAsk(self.policy.when_unavailable)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return _AnswerOfRetry(self, params, client_key)
        return _LiveQuestion(self.policy, ctx)

    def input_required(self, question: Question, client_key: str, protocol_version: str) -> dict[str, Any]:
        """The result that carries a question to a 2026-07-28 client."""
        claims = {
            "fingerprint": question.fingerprint,
            "client": client_key,
            "nonce": os.urandom(12).hex(),
            "expires": self._clock() + self.policy.timeout_seconds,
        }
        request = {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": render_question(question),
                "requestedSchema": form(question, self.policy.style, protocol_version),
            },
        }
        return {
            "resultType": "input_required",
            "inputRequests": {QUESTION_KEY: request},
            "requestState": self._codec.seal(json.dumps(claims).encode()),
        }

    def redeem(self, state: str | None, fingerprint: str, client_key: str) -> bool:
        """Use up a sealed state. False if it is forged, replayed, late, or belongs to something else."""
        if state is None:
            return False
        try:
            claims: Mapping[str, Any] = json.loads(self._codec.unseal(state))
        except (InvalidRequestState, ValueError):
            logger.warning("an answer came with a state that this server did not seal")
            return False
        now = self._clock()
        self._spent = {nonce: expires for nonce, expires in self._spent.items() if expires > now}
        if claims["expires"] <= now or claims["nonce"] in self._spent:
            return False
        if claims["fingerprint"] != fingerprint or claims["client"] != client_key:
            return False
        self._spent[claims["nonce"]] = claims["expires"]
        return True


@dataclass(frozen=True, slots=True)
class _NobodyToAsk:
    when_unavailable: Literal["client", "deny"]

    async def ask(self, question: Question) -> Unavailable:
        mode = {"edit": " or approvalMode to auto-edit", "mcp": " or trust the server"}.get(question.details.type, "")
        setting = 'confirmation.whenUnavailable to "client" (its own approval dialog then decides)'
        way_out = f"This client has announced no form elicitation. The operator can set {setting}{mode}."
        if self.when_unavailable == "client":
            way_out = "This client has announced no form elicitation, and here its own dialog does not suffice."
        return Unavailable(client_decides=self.when_unavailable == "client", way_out=way_out)


@dataclass(frozen=True, slots=True)
class _LiveQuestion:
    policy: ApprovalPolicy
    ctx: RequestContext

    async def ask(self, question: Question) -> Answer:
        ctx = self.ctx
        try:
            with anyio.fail_after(self.policy.timeout_seconds):
                result = await ctx.session.elicit_form(
                    render_question(question),
                    form(question, self.policy.style, ctx.protocol_version),
                    related_request_id=ctx.request_id,
                )
        except TimeoutError:
            return Answer(Decision.DENY, Channel.TIMED_OUT)
        except MCPError as error:
            logger.warning("the client answered a question with error %s", error.error.code)
            return Answer(Decision.DENY, Channel.DECLINED)
        except ValidationError:
            return Answer(Decision.DENY, Channel.MALFORMED)
        return read_answer(question, result.action, result.content, self.policy.style)


@dataclass(frozen=True, slots=True)
class _AnswerOfRetry:
    approval: Approval
    params: types.InputResponseRequestParams
    client_key: str

    async def ask(self, question: Question) -> Answer | Pending:
        response = (self.params.input_responses or {}).get(QUESTION_KEY)
        if not isinstance(response, types.ElicitResult):
            return Pending()
        if not self.approval.redeem(self.params.request_state, question.fingerprint, self.client_key):
            return Pending()
        return read_answer(question, response.action, response.content, self.approval.policy.style)


def _can_be_asked(capabilities: types.ClientCapabilities | None) -> bool:
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def read_answer(
    question: Question, action: str, content: Mapping[str, Any] | None, style: Literal["form", "simple"]
) -> Answer:
    """What a person's answer means. Accepting is consent only if every field of the form is what it should be."""
    if action != "accept":
        return Answer(Decision.DENY, Channel.CANCELLED if action == "cancel" else Channel.DECLINED)
    if style == "simple":
        return Answer(Decision.ONCE)
    fields = content or {}
    given = fields.get("decision")
    decision = next((choice.decision for choice in question.choices if choice.decision.value == given), None)
    if decision is None:
        return Answer(Decision.DENY, Channel.MALFORMED)
    reason, text = fields.get("reason"), fields.get("content")
    if not isinstance(reason, str | None) or not _is_acceptable(text, question):
        return Answer(Decision.DENY, Channel.MALFORMED)
    return Answer(decision, reason=(reason or "")[:MAX_REASON_CHARS], content=text or None)


def _is_acceptable(text: Any, question: Question) -> bool:
    """Whether a text put in place of the proposed one was offered, and is of the size that is offered."""
    if text is None or text == "":
        return True
    if not isinstance(text, str) or question.details.type != "edit" or question.details.editable is None:
        return False
    return len(text) <= MAX_CONTENT_CHARS


def form(question: Question, style: Literal["form", "simple"], protocol_version: str) -> dict[str, Any]:
    """The form's schema: flat, and with a required decision that has no default."""
    if style == "simple":
        return {"type": "object", "properties": {}}
    values = [choice.decision.value for choice in question.choices]
    titles = [visible_line(choice.title) for choice in question.choices]
    decision: dict[str, Any] = {"type": "string", "title": "Decision"}
    if protocol_version >= TITLED_ENUM_SINCE:
        decision["oneOf"] = [{"const": value, "title": title} for value, title in zip(values, titles, strict=True)]
    else:
        decision["enum"] = values
        decision["enumNames"] = titles
    properties: dict[str, Any] = {
        "decision": decision,
        "reason": {"type": "string", "title": "Reason", "description": "Told to the model if you deny. Optional."},
    }
    if question.details.type == "edit" and question.details.editable is not None:
        # No default: a client with a single-line field would hand the text back without its line breaks.
        properties["content"] = {
            "type": "string",
            "title": "Other text",
            "description": "Written in place of the proposed text if you fill it in. Optional.",
        }
    return {"type": "object", "properties": properties, "required": ["decision"]}
