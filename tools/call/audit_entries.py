"""The entries of the audit log and the redaction of secrets in logged arguments."""

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

# Keys (in upper or lower case) for the name and for the value in an object such as `{"name": "Cookie", "value": ...}`
_NAMES = frozenset({"name", "key", "header", "field", "parameter", "param", "variable", "option", "id"})
_VALUES = frozenset({"value", "values", "val"})
_PROGRAMS = frozenset({"command", "program", "executable", "cmd"})
_ONLY_BEARER = re.compile(r"\A(\s*bearer\s+)\S+\s*\Z", re.IGNORECASE)
_SCHEMES = frozenset({"bearer", "basic", "digest", "negotiate"})
_PRICE_OF_A_VALUE = 8  # number of characters that each value counts as, in addition to its text
_MAX_DEPTH = 20  # maximum depth of nested objects and arrays
_MAX_BITS = 1_000  # Python refuses to print integers with thousands of digits
_LONGEST_PART = 20  # maximum number of characters of a key or program name that are compared
_LEFT_OUT = "..."


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One decision about a call, or the answer to its question."""

    tool: str
    arguments: Mapping[str, Any]  # as the client sent them
    description: str  # one line that says what the call does
    client: str  # the client that made the call
    permission: Permission  # the decision and its reason
    time: float  # seconds since the epoch
    # The answer to the question; `None` before the question and for calls without a question
    answer: Answer | Unavailable | None = None
    # The rules that the answer adds; `None` if the answer applies only to this call
    lasting: LastingAnswer | None = None


class Audit(Protocol):
    """Keeps a record of decisions."""

    def note(self, entry: AuditEntry) -> None:
        """Record an entry. Never raises and never blocks."""
        ...


def without_secrets(value: Any, name: str = "", *, max_chars: int = 8_000) -> Any:
    """Return a JSON value in which secrets are hidden. A secret is recognised by its name or its form.

    The name can be a key, the `name` next to a `value`, the first item of a pair, or an option on a command line. At
    most `max_chars` characters of the value are examined; the rest is dropped.
    """
    return _Redaction(max_chars).reduced(value, name, 0)


def argument_names(fields: Mapping[Any, Any]) -> dict[Any, str]:
    """Map the keys of an object such as `{"name": "Cookie", "value": ...}` to the names of their values.

    A value gets the name from another field of the object only if the name and the value indicate a secret. All other
    names are empty.
    """
    parts = {key: part for key in fields if (part := str(key)[:_LONGEST_PART].strip().lower()) in _NAMES | _VALUES}
    if _VALUES.isdisjoint(parts.values()):
        return {}
    names = [str(fields[key]) for key, part in parts.items() if part in _NAMES][:_MAX_DEPTH]
    return {
        key: next((name for name in names if part in _VALUES and holds_secret(name, fields[key])), "")
        for key, part in parts.items()
    }


class _Redaction:
    """Redacts one value."""

    def __init__(self, max_chars: int) -> None:
        self._chars_left = max_chars
        self._program = ""  # the program named by the enclosing object; decides what its one-letter options mean

    def reduced(self, value: Any, name: str, depth: int) -> Any:
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
        # The cut may be inside a secret, which is then not recognised. Therefore, only half of the text is kept.
        return shown if len(seen) == len(text) else f"{shown[: len(seen) // 2]}{_LEFT_OUT}"

    def _fields(self, fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        names = argument_names(fields)
        named = (str(value) for key, value in fields.items() if str(key).lower() in _PROGRAMS)
        self._program = next(named, "")[:_LONGEST_PART]
        shown: dict[str, Any] = {}
        for key, value in fields.items():
            if self._chars_left <= 0:
                break
            shown[self._text(str(key))] = self.reduced(value, names.get(key, str(key)), depth + 1)
        return shown

    def _items(self, items: Sequence[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        before: Any = ""
        for at, item in enumerate(items):
            if self._chars_left <= 0:
                break
            if isinstance(item, str) and item.lower() in _SCHEMES:
                shown.append(self.reduced(item, "", depth + 1))  # the secret comes next, still named by `before`
                continue
            is_named = isinstance(before, str) and (
                before[:1] == "-" or before[-1:] == ":" or (at % 2 and len(items) % 2 == 0)
            )
            shown.append(self.reduced(item, before.rstrip(":") if is_named else "", depth + 1))
            before = item
        if shown and all(isinstance(item, str) for item in shown):
            shown.insert(0, self._program)
            # An unmatched quote means that the command line was split at its spaces.
            is_torn = any(item.count(quote) % 2 for item in shown for quote in "\"'")
            line = " ".join(shown) if is_torn else shlex.join(shown)
            found, program = redact(line), shown.pop(0)
            if found != line:
                return [found.removeprefix(program if is_torn else shlex.quote(program)).lstrip()]
        return shown
