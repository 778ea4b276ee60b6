"""Arguments of calls as a log tells them: without what is a secret by the name before it, or by its form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tools.secrets import HIDDEN, is_secret_name, redact

_NAMES = ("name", "key", "header", "field", "parameter", "param", "variable", "option")
_VALUES = frozenset({"value", "values", "val"})
"""How an object says what it names, and what that is: `{"name": "Cookie", "value": ...}`."""

_PATH = re.compile(r"[/~.$%\\]|[A-Za-z]:[/\\]")
"""How a path begins that is a working folder."""

_ONLY_BEARER = re.compile(r"\A(\s*bearer\s+)\S+\s*\Z", re.IGNORECASE)

_PRICE_OF_A_VALUE = 8
_MAX_DEPTH = 20
_MAX_BITS = 1_000
"""Python writes no number of very many digits."""

_LEFT_OUT = "..."


def without_secrets(value: Any, name: str = "", *, room: int = 8_000) -> Any:
    """A value of JSON without what is a secret by the name before it, or by its form.

    A name stands before a value as a key, as the `name` of a `value`, as the first of two items, or as an option.

    Args:
        value: As it came.
        name: What it is called.
        room: Characters of it that are looked at; what goes beyond them is left out.
    """
    return _Shown(room).of(value, name, 0)


class _Shown:
    """One value on its way into a log.

    Args:
        room: Characters that are looked at.
    """

    def __init__(self, room: int) -> None:
        self._room = room

    def of(self, value: Any, name: str, depth: int) -> Any:
        self._room -= _PRICE_OF_A_VALUE
        if value is None or isinstance(value, bool):
            return value
        if is_secret_name(name) or (name.lower() == "pwd" and not (isinstance(value, str) and _PATH.match(value))):
            return HIDDEN
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping | list | tuple):
            if depth > _MAX_DEPTH:
                return _LEFT_OUT
            is_object = isinstance(value, Mapping)
            return (
                self._fields(cast("Mapping[Any, Any]", value), depth)
                if is_object
                else self._items(cast("Sequence[Any]", value), depth)
            )
        return _LEFT_OUT if isinstance(value, int) and value.bit_length() > _MAX_BITS else value

    def _text(self, text: str) -> str:
        seen = text[: max(self._room, 0)]
        self._room -= len(seen)
        shown = redact(_ONLY_BEARER.sub(rf"\g<1>{HIDDEN}", seen))
        # Where it is cut may be the middle of a secret, which is not recognised by its beginning.
        return shown if len(seen) == len(text) else f"{shown[: len(seen) // 2]}{_LEFT_OUT}"

    def _fields(self, fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        holds_value = not fields.keys().isdisjoint(_VALUES)
        names = [name for key in _NAMES if isinstance(name := fields.get(key), str) and is_secret_name(name)]
        named = names[0] if names else ""
        shown: dict[str, Any] = {}
        for key, value in fields.items():
            if self._room <= 0:
                break
            if holds_value and key in _NAMES:
                shown[key] = self.of(value, "", depth + 1)
            else:
                text = str(key)
                shown[self._text(text)] = self.of(value, named if key in _VALUES else text, depth + 1)
        return shown

    def _items(self, items: Sequence[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        before: Any = ""
        for at, item in enumerate(items):
            if self._room <= 0:
                break
            is_named = isinstance(before, str) and (before[:1] == "-" or (at % 2 and len(items) % 2 == 0))
            shown.append(self.of(item, before if is_named else "", depth + 1))
            before = item
        if len(shown) > 1 and all(isinstance(item, str) for item in shown):
            line = shlex.join(shown)
            if (found := redact(line)) != line:
                return [found]
        return shown
