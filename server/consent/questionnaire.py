"""The form for questions of the model: a field for each question and one for words of one's own, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from server.consent.enums import TITLED_ENUM_SINCE, titled_enum, titled_values
from tools.contract.confirmation import Option, UserQuestion
from tools.display import in_one_line

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
