"""JSON from a program's output. It is parsed only if parsing is quick, and it is checked before it is passed on."""

from __future__ import annotations

import json
import math
from typing import Any, cast

# Maximum number of values in one JSON text; parsing more would hold the interpreter's lock for over 50 ms
MAX_VALUES = 100_000
MAX_DEPTH = 50  # maximum depth of nested arrays and objects; many parsers accept no deeper nesting


class UnreadableError(ValueError):
    """The text is not accepted as JSON. The message is the reason, phrased for the end of a sentence."""


def read_json(text: str) -> Any:
    """Parse `text`, or raise an `UnreadableError`. Does not check whether the value can be passed on."""
    # Each item or member follows one of these characters. They are also counted inside strings, so the count may be
    # too high, but never too low.
    if text.count(",") + text.count("[") + text.count("{") >= MAX_VALUES:
        raise UnreadableError(f"it has more than {MAX_VALUES:,} values")

    def refuse(constant: str) -> Any:
        raise UnreadableError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError("it contains a number with thousands of digits") from None


def require_sendable(value: Any) -> None:
    """Raise an `UnreadableError` for deep nesting and for values that Python accepts but JSON cannot contain."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                members = cast("dict[str, Any]", each)
                below += members
                below += members.values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
            elif isinstance(each, float) and not math.isfinite(each):
                raise UnreadableError(
                    "it contains NaN" if math.isnan(each) else "it contains a number that is too large"
                )
            elif isinstance(each, str):
                try:
                    each.encode()
                except UnicodeEncodeError:
                    raise UnreadableError("it contains a lone surrogate, which is not text") from None
        if not below:
            return
        level = below
    raise UnreadableError(f"it is nested more than {MAX_DEPTH} levels deep")
