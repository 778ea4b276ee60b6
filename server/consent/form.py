"""The form that a question travels in, and what a filled-in one means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from server.consent.enums import titled_enum
from server.consent.questionnaire import questionnaire_schema, read_questionnaire
from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    Channel,
    Decision,
    EditConfirmation,
    Question,
)
from tools.display import visible_line

FormStyle = Literal["form", "simple"]
"""A form with fields, or a bare yes or no for clients that render no fields."""

NO_ANSWER = "coretools-mcp/no-answer"
"""Stands in the content of what came in place of an answer: a bare yes has no content that would be missing."""

MAX_REASON_CHARS = 2_000
"""What the model is told of a person's reason."""

MAX_CONTENT_CHARS = 64_000
"""A text put in place of a proposed one; offered for texts up to 16 kB, and a person may write more."""


def fits_style(question: Question, style: FormStyle) -> bool:
    """Whether a question can be asked in this way: answers to questions of the model need fields."""
    return style == "form" or not isinstance(question.details, AskUserConfirmation)


def form_schema(question: Question, style: FormStyle, protocol_version: str) -> dict[str, Any]:
    """The form's schema: flat, and with a required decision that has no default."""
    if isinstance(question.details, AskUserConfirmation):
        return questionnaire_schema(question.details.questions, protocol_version)
    if style == "simple":
        return {"type": "object", "properties": {}}
    titles = {choice.decision.value: visible_line(choice.title) for choice in question.choices}
    properties: dict[str, Any] = {
        "decision": {"type": "string", "title": "Decision", **titled_enum(titles, protocol_version)},
        "reason": {"type": "string", "title": "Reason", "description": "Told to the model if you deny. Optional."},
    }
    if _offers_other_text(question):
        # No default: a client with a single-line field would hand the text back without its line breaks.
        properties["content"] = {
            "type": "string",
            "title": "Other text",
            "description": "Written in place of the proposed text if you fill it in. Optional.",
        }
    return {"type": "object", "properties": properties, "required": ["decision"]}


def read_answer(question: Question, action: str, content: Mapping[str, Any] | None, style: FormStyle) -> Answer:
    """What a person's answer means. Accepting is consent only if every field of the form is what it should be."""
    if content is not None and NO_ANSWER in content:
        return Answer(Decision.DENY, Channel.MALFORMED)
    if action != "accept":
        return Answer(Decision.DENY, Channel.CANCELLED if action == "cancel" else Channel.DECLINED)
    if isinstance(question.details, AskUserConfirmation):
        answers = read_questionnaire(question.details.questions, content or {})
        return Answer(Decision.ONCE, answers=answers) if answers else Answer(Decision.DENY, Channel.MALFORMED)
    if style == "simple":
        return Answer(Decision.ONCE)
    fields = content or {}
    given = fields.get("decision")
    decision = next((choice.decision for choice in question.choices if choice.decision.value == given), None)
    reason, text = fields.get("reason"), fields.get("content")
    if decision is None or not isinstance(reason, str | None) or not _is_acceptable(text, question):
        return Answer(Decision.DENY, Channel.MALFORMED)
    return Answer(decision, reason=(reason or "")[:MAX_REASON_CHARS], content=text or None)


def _offers_other_text(question: Question) -> bool:
    """Whether the person may write a text in place of the proposed one."""
    return isinstance(question.details, EditConfirmation) and question.details.editable is not None


def _is_acceptable(text: Any, question: Question) -> bool:
    """Whether a text put in place of the proposed one was offered, and is of the size that is offered."""
    if text is None or text == "":
        return True
    return isinstance(text, str) and _offers_other_text(question) and len(text) <= MAX_CONTENT_CHARS
