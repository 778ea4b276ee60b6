"""JSON that a program printed: read only where that is quick, and looked at before it is sent on."""

from __future__ import annotations

import json
import math
from typing import Any, cast

MAX_VALUES = 100_000  # values in one text; reading more would hold up everything else for longer than 50 milliseconds
MAX_DEPTH = 50  # arrays and objects inside of each other; not every reader takes more


class UnreadableError(ValueError):
    """A text is not taken as JSON; the message says why, as the end of a sentence."""


def read_json(text: str) -> Any:
    """The value that a text stands for, or an `UnreadableError`. Whether it can be sent on is not looked at."""
    # Each value but the first follows one of these. Those in strings count too, which does no harm.
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
        raise UnreadableError("it has a number with thousands of digits") from None


def require_sendable(value: Any) -> None:
    """Raise an `UnreadableError` for what JSON cannot hold although Python reads it, or what is nested deeply."""
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
                raise UnreadableError("it has NaN" if math.isnan(each) else "it has a number that is too large")
            elif isinstance(each, str):
                try:
                    each.encode()
                except UnicodeEncodeError:
                    raise UnreadableError("it has half of a surrogate pair, which is not text") from None
        if not below:
            return
        level = below
    raise UnreadableError(f"it is nested more than {MAX_DEPTH} deep")
