"""The form that a question travels in, and what a filled-in one means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    Channel,
    Decision,
    EditConfirmation,
    Option,
    Question,
    UserQuestion,
)
from tools.contract.display import in_one_line, visible_line

TITLED_ENUM_SINCE = "2025-11-25"
"""Earlier revisions title an enum by `enumNames`, and have no field for several choices."""


def titled_enum(titles: Mapping[str, str], protocol_version: str) -> dict[str, Any]:
    """The part of a field's schema that says which values there are.

    Args:
        titles: What a person reads for each value, in order.
        protocol_version: The client's revision.
    """
    if protocol_version >= TITLED_ENUM_SINCE:
        return {"oneOf": titled_values(titles)}
    return {"enum": list(titles), "enumNames": list(titles.values())}


def titled_values(titles: Mapping[str, str]) -> list[dict[str, str]]:
    """Each value with its title."""
    return [{"const": value, "title": title} for value, title in titles.items()]


OTHER = "Other"
"""Chosen by who answers in words of their own (Qwen Code's label)."""

MAX_ANSWER_CHARS = 2_000
"""Characters of one text (ours): four of them are still a short result. Clients are told; a longer one is cut."""

CUT_MARK = f"[... cut after {MAX_ANSWER_CHARS:,} characters]"


def questionnaire_schema(questions: Sequence[UserQuestion], protocol_version: str) -> dict[str, Any]:
    """The form's schema: flat, without defaults, so that nothing is answered by itself."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, question in enumerate(questions, start=1):
        field = _field(number)
        if not question.options:
            about = f"{in_one_line(question.question)}{_example(question)}"
            properties[field] = {**_text(in_one_line(question.header), about), "minLength": 1}
        elif question.is_multiple and protocol_version < TITLED_ENUM_SINCE:
            properties |= _boxes(number, question)
        else:
            properties[field] = _choice(question, protocol_version)
        if field in properties:
            required.append(field)
        if question.options and question.takes_text:
            title = f"{in_one_line(question.header)}: {OTHER}"
            properties[f"{field}_text"] = _text(title, f"An answer in your own words. Optional.{_example(question)}")
    return {"type": "object", "properties": properties, "required": required}


def read_questionnaire(
    questions: Sequence[UserQuestion], content: Mapping[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    """What was answered, in the order of the questions; nothing for one that was left out.

    Returns:
        `None` if a field is not what it should be, or if no question was answered.
    """
    answers: list[tuple[str, ...]] = []
    for number, question in enumerate(questions, start=1):
        answer = _answer(number, question, content)
        if answer is None:
            return None
        answers.append(answer)
    return tuple(answers) if any(answers) else None


def _answer(number: int, question: UserQuestion, content: Mapping[str, Any]) -> tuple[str, ...] | None:
    field = _field(number)
    written = content.get(f"{field}_text" if question.options else field)
    if not isinstance(written, str | None):
        return None
    text = _bounded(written.strip()) if written and question.takes_text else ""
    if not question.options:
        return (text,) if text else ()
    chosen = _chosen(number, question, content)
    if chosen is None:
        return None
    if not text:
        return chosen
    return (*(label for label in chosen if label != OTHER), text)


def _chosen(number: int, question: UserQuestion, content: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels that were chosen, each once and in order; `None` if something else was."""
    field = _field(number)
    labels = {in_one_line(option.label): option.label for option in _offered(question)}
    given = content.get(field)
    picked: list[Any] = []
    if isinstance(given, list):
        picked += cast("list[Any]", given)
    elif given is not None and given != "":
        picked.append(given)
    boxes = [content.get(_box(number, box)) for box in range(1, len(question.options) + 1)]
    if not all(isinstance(box, bool | None) for box in boxes):
        return None
    picked += [in_one_line(option.label) for option, box in zip(question.options, boxes, strict=True) if box]
    if any(not isinstance(label, str) or label not in labels for label in picked):
        return None
    if len(picked) > 1 and not question.is_multiple:
        return None
    return tuple(label for shown, label in labels.items() if shown in picked)


def _field(number: int) -> str:
    return f"question_{number}"


def _box(number: int, option: int) -> str:
    return f"{_field(number)}_option_{option}"


def _text(title: str, description: str) -> dict[str, Any]:
    return {"type": "string", "title": title, "description": description, "maxLength": MAX_ANSWER_CHARS}


def _choice(question: UserQuestion, protocol_version: str) -> dict[str, Any]:
    """One field for one choice or for several."""
    about = {"title": in_one_line(question.header), "description": in_one_line(question.question)}
    titles = {in_one_line(option.label): _title(option) for option in _offered(question)}
    if question.is_multiple:
        return {"type": "array", **about, "items": {"anyOf": titled_values(titles)}, "minItems": 1}
    return {"type": "string", **about, **titled_enum(titles, protocol_version)}


def _boxes(number: int, question: UserQuestion) -> dict[str, Any]:
    """A box for each option, for clients that know no other way to choose several."""
    header = in_one_line(question.header)
    return {
        _box(number, box): {
            "type": "boolean",
            "title": f"{header}: {in_one_line(option.label)}",
            "description": in_one_line(option.description) or in_one_line(question.question),
        }
        for box, option in enumerate(question.options, start=1)
    }


def _title(option: Option) -> str:
    label = in_one_line(option.label)
    return f"{label} - {in_one_line(option.description)}" if option.description else label


def _offered(question: UserQuestion) -> tuple[Option, ...]:
    """The options, and where it is not among them the one for words of one's own."""
    has_other = any(in_one_line(option.label).casefold() == OTHER.casefold() for option in question.options)
    if has_other or not question.takes_text:
        return question.options
    return *question.options, Option(OTHER, "in your own words, in the next field")


def _example(question: UserQuestion) -> str:
    return f" For example: {in_one_line(question.placeholder)}" if question.placeholder else ""


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_ANSWER_CHARS else f"{text[:MAX_ANSWER_CHARS]} {CUT_MARK}"


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
