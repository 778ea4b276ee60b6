"""Questions at a terminal: confirmation before a lasting change, and the server's forms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import anyio

from server.console import CommandFailure
from server.console.terminal import question_text, read_key, read_line, show
from server.questions.form import OTHER
from tools.contract.confirmation import Decision
from tools.contract.display import visible_line


def ask(question: str, otherwise: str) -> None:
    """Ask whether to continue.

    Without a yes, the command fails with `otherwise`, a message that says what did not happen.
    """
    anyio.run(agree, question, otherwise)


async def agree(question: str, otherwise: str) -> None:
    """Ask a question like `ask`, but let other tasks run during the wait."""
    if not sys.stdin.isatty():
        raise CommandFailure(f"{otherwise}: nobody can answer here (standard input is not a terminal). Use --yes.")
    if not await says_yes(question):
        raise CommandFailure(f"{otherwise}.")


async def says_yes(question: str) -> bool:
    """Ask for a yes with a single key; Enter means no."""
    try:
        key = await read_key(f"{question} [y/N] ", "yn", default="n")
    except EOFError:
        key = ""
    sys.stderr.write(f"{key}\n")
    return key == "y"


DECISION = "decision"  # the form field for consent; the other fields are optional additions
KEYS = {Decision.ONCE.value: "y", Decision.SAVE.value: "a", Decision.DENY.value: "n"}
"""The keys for the answers that make sense here, where the session ends after a single call."""


def is_consent(schema: Mapping[str, Any]) -> bool:
    """Return whether a form asks for consent rather than for information."""
    return DECISION in schema.get("properties", {}) and Decision.ONCE.value in dict(
        _choices(schema["properties"][DECISION])
    )


async def fill_in(message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask for each field of a flat form. Return the form's content, or `None` if the user declined."""
    show("", question_text(message), stream=sys.stderr)
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    required = set(cast("Sequence[str]", schema.get("required", ())))
    try:
        if is_consent(schema):
            offered = {KEYS[value]: (value, title) for value, title in _choices(fields[DECISION]) if value in KEYS}
            show("", *(f"  {key}  {visible_line(title)}" for key, (_, title) in offered.items()), stream=sys.stderr)
            no = KEYS[Decision.DENY.value]
            shown = "/".join(key.upper() if key == no else key for key in offered)
            value, title = offered[await read_key(f"[{shown}] ", offered, default=no)]
            show(visible_line(title), stream=sys.stderr)
            return {DECISION: value}
        show("Press Ctrl-D to leave the question unanswered.", stream=sys.stderr)
        given: dict[str, Any] = {}
        for name, field in fields.items():
            # A free-text field is unnecessary if another answer to its question was chosen.
            chosen = [
                value for key, value in given.items() if field.get("title") == f"{fields[key].get('title')}: {OTHER}"
            ]
            if all(value in (None, OTHER) or (isinstance(value, list) and OTHER in value) for value in chosen):
                given[name] = await _value(field, is_required=name in required)
    except EOFError:
        sys.stderr.write("\n")
        return None
    return {name: value for name, value in given.items() if value not in (None, "", [None])}


def _choices(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the possible values, each with its title; empty for a text field."""
    items: Mapping[str, Any] = field.get("items", field)
    titled: Sequence[Mapping[str, str]] = items.get("oneOf") or items.get("anyOf") or ()
    values: Sequence[str] = items.get("enum", ())
    choices = [(each["const"], each.get("title", each["const"])) for each in titled]
    return choices or list(zip(values, items.get("enumNames", values), strict=True))


async def _value(field: Mapping[str, Any], *, is_required: bool) -> Any:
    title = visible_line(str(field.get("title", "")))
    about = visible_line(str(field.get("description", "")))
    sys.stderr.write(f"\n{title}: {about}\n" if about else "")
    if field.get("type") == "boolean":
        return await says_yes(title)
    choices = _choices(field)
    if not choices:
        return await _line(f"{title}: ", lambda line: bool(line) or not is_required)
    for number, (_, shown) in enumerate(choices, start=1):
        sys.stderr.write(f"  {number}  {visible_line(shown)}\n")
    several = field.get("type") == "array"
    which = f"{title} [1-{len(choices)}{', several separated by commas' if several else ''}]: "

    def is_accepted(line: str) -> bool:
        return _picked(line, choices, several=several) is not None or not (line or is_required)

    picked = _picked(await _line(which, is_accepted), choices, several=several) or [None]
    return picked if several else picked[0]


def _picked(line: str, choices: Sequence[tuple[str, str]], *, several: bool) -> list[str] | None:
    """Return the values that a line names, by number or by value; `None` if it contains anything else."""
    by_word = {str(number): value for number, (value, _) in enumerate(choices, start=1)}
    by_word |= {value.casefold(): value for value, _ in choices}
    words = [word.strip().casefold() for word in (line.split(",") if several else [line])]
    return [by_word[word] for word in dict.fromkeys(words)] if all(word in by_word for word in words) else None


async def _line(prompt: str, is_accepted: Callable[[str], bool]) -> str:
    """Ask until the user enters an acceptable line; raises `EOFError` at the end of input."""
    while True:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        if is_accepted(line := await read_line()):
            return line
