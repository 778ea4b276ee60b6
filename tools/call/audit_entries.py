"""The audit: what the flow tells of its verdicts and of the answers, and arguments of calls as a log may show them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tools.call.consent import LastingAnswer
from tools.contract.confirmation import Answer, Unavailable
from tools.permissions.verdict import Permission
from tools.text.secrets import HIDDEN, holds_secret, redact

# How an object says what it names, and what that is, in whatever case: `{"name": "Cookie", "value": ...}`
_NAMES = frozenset({"name", "key", "header", "field", "parameter", "param", "variable", "option", "id"})
_VALUES = frozenset({"value", "values", "val"})
_PROGRAMS = frozenset({"command", "program", "executable", "cmd"})
_ONLY_BEARER = re.compile(r"\A(\s*bearer\s+)\S+\s*\Z", re.IGNORECASE)
_SCHEMES = frozenset({"bearer", "basic", "digest", "negotiate"})
_PRICE_OF_A_VALUE = 8  # characters that every value counts as, however short
_MAX_DEPTH = 20
_MAX_BITS = 1_000  # Python writes no number of very many digits
_LONGEST_PART = 20
_LEFT_OUT = "..."


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One verdict on one call, or what came back for its question."""

    tool: str
    arguments: Mapping[str, Any]  # as they came
    description: str  # what the call does, in one line
    client: str  # whose call it is
    permission: Permission  # the verdict, with its reason
    time: float  # seconds since the epoch
    # What came back for the question, or `None` before it is asked and where there was none
    answer: Answer | Unavailable | None = None
    # What the answer allowed beyond this call, or `None` where it was about this call alone
    lasting: LastingAnswer | None = None


class Audit(Protocol):
    """Keeps a record of what was decided."""

    def note(self, entry: AuditEntry) -> None:
        """Take an entry down. Never raises, and never waits."""
        ...


def without_secrets(value: Any, name: str = "", *, max_chars: int = 8_000) -> Any:
    """A value of JSON without what is a secret by the name before it, or by its form.

    A name stands before a value as a key, as the `name` of a `value`, as the first of two items, or as an option. At
    most `max_chars` characters of the value are looked at; what goes beyond them is left out.
    """
    return _Redaction(max_chars).of(value, name, 0)


def argument_names(fields: Mapping[Any, Any]) -> dict[Any, str]:
    """What values of an object are called that are not called by their keys, by key."""
    parts = {key: part for key in fields if (part := str(key)[:_LONGEST_PART].strip().lower()) in _NAMES | _VALUES}
    if _VALUES.isdisjoint(parts.values()):
        return {}
    names = [str(fields[key]) for key, part in parts.items() if part in _NAMES][:_MAX_DEPTH]
    return {
        key: next((name for name in names if part in _VALUES and holds_secret(name, fields[key])), "")
        for key, part in parts.items()
    }


class _Redaction:
    """One value on its way into a log."""

    def __init__(self, max_chars: int) -> None:
        self._chars_left = max_chars
        self._program = ""  # that the object around names: a letter means a password to some

    def of(self, value: Any, name: str, depth: int) -> Any:
        self._chars_left -= _PRICE_OF_A_VALUE
        if value is None or isinstance(value, bool):
            return value
        if holds_secret(name, value):
            return HIDDEN
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping | list | tuple):
            if depth > _MAX_DEPTH:
                return _LEFT_OUT
            if isinstance(value, Mapping):
                return self._fields(cast("Mapping[Any, Any]", value), depth)
            return self._items(cast("Sequence[Any]", value), depth)
        return _LEFT_OUT if isinstance(value, int) and value.bit_length() > _MAX_BITS else value

    def _text(self, text: str) -> str:
        seen = text[: max(self._chars_left, 0)]
        self._chars_left -= len(seen)
        shown = redact(_ONLY_BEARER.sub(rf"\g<1>{HIDDEN}", seen))
        # Where it is cut may be the middle of a secret, which is not recognised by its beginning.
        return shown if len(seen) == len(text) else f"{shown[: len(seen) // 2]}{_LEFT_OUT}"

    def _fields(self, fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        names = argument_names(fields)
        named = (str(value) for key, value in fields.items() if str(key).lower() in _PROGRAMS)
        self._program = next(named, "")[:_LONGEST_PART]
        shown: dict[str, Any] = {}
        for key, value in fields.items():
            if self._chars_left <= 0:
                break
            shown[self._text(str(key))] = self.of(value, names.get(key, str(key)), depth + 1)
        return shown

    def _items(self, items: Sequence[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        before: Any = ""
        for at, item in enumerate(items):
            if self._chars_left <= 0:
                break
            if isinstance(item, str) and item.lower() in _SCHEMES:
                shown.append(self.of(item, "", depth + 1))  # what it says of a header stands behind it
                continue
            is_named = isinstance(before, str) and (
                before[:1] == "-" or before[-1:] == ":" or (at % 2 and len(items) % 2 == 0)
            )
            shown.append(self.of(item, before.rstrip(":") if is_named else "", depth + 1))
            before = item
        if shown and all(isinstance(item, str) for item in shown):
            shown.insert(0, self._program)
            # A quote without its other half tells of a line that was taken apart at its blanks.
            is_torn = any(item.count(quote) % 2 for item in shown for quote in "\"'")
            line = " ".join(shown) if is_torn else shlex.join(shown)
            found, program = redact(line), shown.pop(0)
            if found != line:
                return [found.removeprefix(program if is_torn else shlex.quote(program)).lstrip()]
        return shown
