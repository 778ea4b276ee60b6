"""What a person is asked at a terminal: a yes before something lasting is done, and a form of the server by fields."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from server.console import Failure
from tools.contract.display import visible, visible_line
from tools.contract.threads import THREADS


def ask(question: str, otherwise: str) -> None:
    """Ask whether to go on; without a yes the command fails, with what then has not happened (`otherwise`)."""
    if not sys.stdin.isatty():
        raise Failure(f"{otherwise}: nobody can answer here (standard input is not a terminal). Give --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(f"{otherwise}.")


DECISION = "decision"  # the field by which a person consents or refuses; the form's other fields are beside it
DENY = "deny"
REASON = "reason"


async def fill_in(message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask for each field of a flat form; its content, or `None` where the person has left it."""
    sys.stderr.write(f"\n{visible(message)}\n")
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    required = set(cast("Sequence[str]", schema.get("required", ())))
    try:
        if DECISION in fields:
            # Another text in place of the proposed one does not fit in a line, so it is not asked for.
            decision = await _value(fields[DECISION], is_required=True)
            asks_why = decision == DENY and REASON in fields
            reason = await _value(fields[REASON], is_required=False) if asks_why else ""
            return {DECISION: decision, **({REASON: reason} if reason else {})}
        sys.stderr.write("Ctrl-D leaves it unanswered.\n")
        given = {name: await _value(field, is_required=name in required) for name, field in fields.items()}
    except EOFError:
        return None
    return {name: value for name, value in given.items() if value not in (None, "", [None])}


async def _value(field: Mapping[str, Any], *, is_required: bool) -> Any:
    title = visible_line(str(field.get("title", "")))
    about = visible_line(str(field.get("description", "")))
    sys.stderr.write(f"\n{title}: {about}\n" if about else "")
    if field.get("type") == "boolean":
        said = await _line(f"{title} [y/N] ", lambda line: line.lower() in ("", "y", "yes", "n", "no"))
        return said.lower() in ("y", "yes")
    # The values that may be chosen, each with what a person reads; none where a text is asked for.
    items: Mapping[str, Any] = field.get("items", field)
    titled: Sequence[Mapping[str, str]] = items.get("oneOf") or items.get("anyOf") or ()
    values: Sequence[str] = items.get("enum", ())
    choices = [(each["const"], each.get("title", each["const"])) for each in titled]
    choices = choices or list(zip(values, items.get("enumNames", values), strict=True))
    if not choices:
        return await _line(f"{title}: ", lambda line: bool(line) or not is_required)
    for number, (_, shown) in enumerate(choices, start=1):
        sys.stderr.write(f"  {number}  {visible_line(shown)}\n")
    several = field.get("type") == "array"
    which = f"{title} [1-{len(choices)}{', several with commas' if several else ''}]: "

    def is_accepted(line: str) -> bool:
        return _picked(line, choices, several=several) is not None or not (line or is_required)

    picked = _picked(await _line(which, is_accepted), choices, several=several) or [None]
    return picked if several else picked[0]


def _picked(line: str, choices: Sequence[tuple[str, str]], *, several: bool) -> list[str] | None:
    """What was chosen, by number or by value; `None` if it is not among what is offered."""
    by_word = {str(number): value for number, (value, _) in enumerate(choices, start=1)}
    by_word |= {value.casefold(): value for value, _ in choices}
    words = [word.strip().casefold() for word in (line.split(",") if several else [line])]
    return [by_word[word] for word in dict.fromkeys(words)] if all(word in by_word for word in words) else None


async def _line(prompt: str, is_accepted: Callable[[str], bool]) -> str:
    """An acceptable line of the person's; the question is put again until there is one, or `EOFError`."""
    while True:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = await THREADS.run(sys.stdin.readline)
        if not line:
            raise EOFError
        if is_accepted(line.strip()):
            return line.strip()
