"""Builds the form for a question, and interprets a filled-in form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    ConsentChannel,
    Decision,
    EditConfirmation,
    Option,
    Question,
    UserQuestion,
)
from tools.contract.display import in_one_line, visible_line

FormStyle = Literal["form", "simple"]  # a form with fields, or a plain yes or no for clients that show no fields

TITLED_ENUM_SINCE = "2025-11-25"  # earlier revisions use `enumNames` for titles, and have no multiple choice
OTHER = "Other"  # the choice for a free-text answer (Qwen Code's label)
# Maximum characters per answer, so that even four answers are short. Forms state this limit, and longer answers are
# truncated.
MAX_ANSWER_CHARS = 2_000
CUT_MARK = f"[... cut after {MAX_ANSWER_CHARS:,} characters]"
NO_ANSWER = "coretools-mcp/no-answer"
"""Marks the content that replaces a malformed answer, because `accept` without content can be a plain yes."""
MAX_REASON_CHARS = 2_000  # maximum characters of the person's reason that the model sees
MAX_CONTENT_CHARS = 64_000  # maximum characters of a replacement text; a proposed text has at most 16 kB


def form_schema(question: Question, style: FormStyle, protocol_version: str) -> dict[str, Any]:
    """Return the schema of the form: flat, with a required decision that has no default.

    Optional fields default to an empty string, because some clients (FastMCP) otherwise fill in null, and then reject
    the null.
    """
    if isinstance(question.details, AskUserConfirmation):
        return questionnaire_schema(question.details.questions, protocol_version)
    if style == "simple":
        return {"type": "object", "properties": {}}
    titles = {choice.decision.value: visible_line(choice.title) for choice in question.choices}
    optional = {"type": "string", "default": ""}
    properties: dict[str, Any] = {
        "decision": {"type": "string", "title": "Decision", **_titled_enum(titles, protocol_version)},
        "reason": {**optional, "title": "Reason", "description": "The model sees this if you deny. Optional."},
    }
    if _offers_other_text(question):
        # The field is not prefilled, because a client with a single-line field would drop line breaks.
        properties["content"] = {
            **optional,
            "title": "Replacement text",
            "description": "If filled in, this replaces the proposed text. Optional.",
        }
    return {"type": "object", "properties": properties, "required": ["decision"]}


def read_answer(question: Question, action: str, content: Mapping[str, Any] | None, style: FormStyle) -> Answer:
    """Interpret a person's answer. Acceptance counts as consent only if every field of the form is valid."""
    if content is not None and NO_ANSWER in content:
        return Answer(Decision.DENY, ConsentChannel.MALFORMED)
    if action != "accept":
        return Answer(Decision.DENY, ConsentChannel.CANCELLED if action == "cancel" else ConsentChannel.DECLINED)
    if isinstance(question.details, AskUserConfirmation):
        answers = read_questionnaire(question.details.questions, content or {})
        return Answer(Decision.ONCE, answers=answers) if answers else Answer(Decision.DENY, ConsentChannel.MALFORMED)
    if style == "simple":
        return Answer(Decision.ONCE)
    fields = content or {}
    decision_value, reason, text = fields.get("decision"), fields.get("reason"), fields.get("content")
    decision = next((choice.decision for choice in question.choices if choice.decision.value == decision_value), None)
    # A replacement text is acceptable only if the question offered that option and the text is within the limit.
    is_acceptable = (
        text is None
        or text == ""
        or (isinstance(text, str) and _offers_other_text(question) and len(text) <= MAX_CONTENT_CHARS)
    )
    if decision is None or not isinstance(reason, str | None) or not is_acceptable:
        return Answer(Decision.DENY, ConsentChannel.MALFORMED)
    return Answer(decision, reason=(reason or "")[:MAX_REASON_CHARS], content=text or None)


def _offers_other_text(question: Question) -> bool:
    return isinstance(question.details, EditConfirmation) and question.details.editable is not None


def _titled_enum(titles: Mapping[str, str], protocol_version: str) -> dict[str, Any]:
    if protocol_version >= TITLED_ENUM_SINCE:
        return {"oneOf": [{"const": value, "title": title} for value, title in titles.items()]}
    return {"enum": list(titles), "enumNames": list(titles.values())}


def questionnaire_schema(questions: Sequence[UserQuestion], protocol_version: str) -> dict[str, Any]:
    """Return the form for the model's questions: flat, without defaults that would answer a question."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, question in enumerate(questions, start=1):
        field = f"question_{number}"
        header, question_text = in_one_line(question.header), in_one_line(question.question)
        example = f" For example: {in_one_line(question.placeholder)}" if question.placeholder else ""
        text = {"type": "string", "maxLength": MAX_ANSWER_CHARS}
        if question.options and question.takes_text:
            description = f"An answer in your own words. Optional.{example}"
            text_field = {**text, "title": f"{header}: {OTHER}", "description": description, "default": ""}
            own_words = {f"{field}_text": text_field}
        else:
            own_words = {}
        if question.is_multiple and question.options and protocol_version < TITLED_ENUM_SINCE:
            # Clients without multiple choice get one checkbox per option.
            for box, option in enumerate(question.options, start=1):
                properties[f"{field}_option_{box}"] = {
                    "type": "boolean",
                    "title": f"{header}: {in_one_line(option.label)}",
                    "description": in_one_line(option.description) or question_text,
                    "default": False,
                }
            properties |= own_words
            continue
        required.append(field)
        titles = {
            in_one_line(option.label): in_one_line(option.label)
            + (f" - {in_one_line(option.description)}" if option.description else "")
            for option in _offered(question)
        }
        if not question.options:
            properties[field] = {**text, "title": header, "description": f"{question_text}{example}", "minLength": 1}
        elif question.is_multiple:
            items = {"anyOf": [{"const": value, "title": title} for value, title in titles.items()]}
            properties[field] = {
                "type": "array",
                "title": header,
                "description": question_text,
                "items": items,
                "minItems": 1,
            }
        else:
            choice = _titled_enum(titles, protocol_version)
            properties[field] = {"type": "string", "title": header, "description": question_text, **choice}
        properties |= own_words
    return {"type": "object", "properties": properties, "required": required}


def read_questionnaire(
    questions: Sequence[UserQuestion], content: Mapping[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    """Return the answers in the order of the questions; `None` if no question was answered, or a field is invalid."""
    answers: list[tuple[str, ...]] = []
    for number, question in enumerate(questions, start=1):
        field = f"question_{number}"
        raw_text = content.get(f"{field}_text" if question.options else field)
        if not isinstance(raw_text, str | None):
            return None
        text = raw_text.strip() if raw_text and question.takes_text else ""
        if len(text) > MAX_ANSWER_CHARS:
            text = f"{text[:MAX_ANSWER_CHARS]} {CUT_MARK}"
        if not question.options:
            answers.append((text,) if text else ())
            continue
        labels = {in_one_line(option.label): option.label for option in _offered(question)}
        selection = content.get(field)
        selected_labels: list[Any] = []
        if isinstance(selection, list):
            selected_labels += cast("list[Any]", selection)
        elif selection is not None and selection != "":
            selected_labels.append(selection)
        boxes = [content.get(f"{field}_option_{box}") for box in range(1, len(question.options) + 1)]
        if not all(isinstance(box, bool | None) for box in boxes):
            return None
        selected_labels += [
            in_one_line(option.label) for option, box in zip(question.options, boxes, strict=True) if box
        ]
        if any(not isinstance(label, str) or label not in labels for label in selected_labels):
            return None
        if len(selected_labels) > 1 and not question.is_multiple:
            return None
        # Remove duplicates, and use the order of the options in the question.
        ordered_labels = tuple(label for display_label, label in labels.items() if display_label in selected_labels)
        answers.append((*(label for label in ordered_labels if label != OTHER), text) if text else ordered_labels)
    return tuple(answers) if any(answers) else None


def _offered(question: UserQuestion) -> tuple[Option, ...]:
    """Return the options, plus one for a free-text answer if the question allows that and has no such option."""
    has_other = any(in_one_line(option.label).casefold() == OTHER.casefold() for option in question.options)
    if has_other or not question.takes_text:
        return question.options
    return *question.options, Option(OTHER, "in your own words, in the next field")
