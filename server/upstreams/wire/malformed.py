"""What an upstream sends that is not one valid message: several in an array, or a broken answer to a request of ours.

The revision 2025-03-26 allows servers to send an array of messages. A request whose answer is broken fails at once.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, cast

from pydantic_core import from_json, to_json

from server.json_rpc import Failure, Message, read_message, read_unreadable
from server.transports.lines import KEPT_OF_OVERSIZED, certain_id
from server.upstreams.wire.peer import unusable

MESSAGE_BYTES = 64 << 20  # a longer message of an upstream is not taken; a call whose answer it is fails
MOST_TOGETHER = 1_000  # messages of one array that are taken

_NOT_A_MESSAGE = "what it sent is not a valid JSON-RPC message"

_ANSWER = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|-?\d+)\s*,\s*){0,2}"(?:result|error)"\s*:')
"""The beginning of an answer. What begins otherwise does not count as one: what is in it could look like anything."""


def messages_in(text: str, line: bytes) -> tuple[list[Message], bool]:
    """The messages of a text that begins with a brace or a bracket, and whether it is valid.

    Where it is not, an error takes the place of the answer that it was.
    """
    messages: list[Message] = []
    parts: Any = []
    if text.lstrip()[:1] == "[":
        with suppress(ValueError):
            parts = from_json(text, allow_inf_nan=False)
    for part in cast("list[Any]", parts)[:MOST_TOGETHER]:
        written = to_json(part, inf_nan_mode="null") if isinstance(part, dict) else b""
        try:
            messages.append(read_message(written))
        except ValueError:
            if written and (failure := _failure_for(written)) is not None:
                messages.append(failure)
    if messages:
        return messages, True
    try:
        return [read_message(text)], True
    except ValueError:
        failure = _failure_for(line)
        return [] if failure is None else [failure], False


def _failure_for(line: bytes) -> Failure | None:
    try:
        parsed = read_unreadable(line)
    except ValueError:
        return failure_for_ends(line[:KEPT_OF_OVERSIZED] + b"\n" + line[-KEPT_OF_OVERSIZED:], _NOT_A_MESSAGE)
    if parsed is None or not parsed.is_answer or parsed.identity is None:
        return None
    identity = parsed.identity
    if isinstance(identity, float):
        return unusable(int(identity), _NOT_A_MESSAGE) if identity.is_integer() else None
    return unusable(identity, _NOT_A_MESSAGE)


def failure_for_ends(ends: bytes, why: str = f"what it sent is larger than {MESSAGE_BYTES} bytes") -> Failure | None:
    """The error in place of an answer of which only the ends were taken; `None` for any other message."""
    head, _, tail = ends.partition(b"\n")
    identity = certain_id(head, tail) if _ANSWER.match(ends) else None
    return None if identity is None else unusable(identity, why)
