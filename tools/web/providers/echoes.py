"""Hides a key in what a provider answers, in whatever spelling it comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.entities import html5
from typing import Any, cast

from tools.secrets import HIDDEN

MIN_SECRET_CHARS = 8
"""A shorter key would also be found where it is none."""


def without_key(reply: Any, key: str) -> Any:
    """An answer with the key hidden in all its texts and names: plain, percent-encoded, or escaped for JSON or HTML.

    Args:
        reply: As it was parsed from JSON; it is changed.
        key: What must not be told.
    """
    if len(key) < MIN_SECRET_CHARS:
        return reply
    found = re.compile("".join(map(_spellings, key)))
    whole = [reply]
    waiting: list[Any] = [whole]
    # No recursion: how deep it goes is the provider's choice.
    while waiting:
        holder: Any = waiting.pop()
        places: Iterable[tuple[Any, Any]]
        places = enumerate(cast("list[Any]", holder)) if isinstance(holder, list) else _renamed(holder, found)
        for place, value in list(places):
            if isinstance(value, str):
                holder[place] = found.sub(HIDDEN, value)
            elif isinstance(value, list | dict):
                waiting.append(value)
    return whole[0]


def _renamed(fields: dict[str, Any], found: re.Pattern[str]) -> Iterable[tuple[str, Any]]:
    """The fields of an object, with the key hidden in their names."""
    if any(found.search(name) for name in fields):
        renamed = {found.sub(HIDDEN, name): value for name, value in fields.items()}
        fields.clear()
        fields.update(renamed)
    return fields.items()


def _spellings(character: str) -> str:
    """A pattern of the ways to write a character, also if it was percent-encoded several times."""
    code = ord(character)
    digits = f"(?i:{code:02x})"
    names = "|".join(name.removesuffix(";") for name, meant in html5.items() if meant == character) or "#"
    ways = (
        rf"\\?{re.escape(character)}",
        rf"\\u00{digits}",
        f"%(?:25){{0,3}}{digits}",
        f"&(?:#0{{0,4}}{code}|#[xX]0{{0,4}}{digits}|{names});?",
    )
    return f"(?:{'|'.join(ways)})"
