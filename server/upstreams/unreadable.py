"""What an upstream sent that is no message: which request of ours it was meant to answer, so that it fails at once."""

from __future__ import annotations

import re

from server.json_rpc import Failure, read_unreadable
from server.transports.lines import KEPT_OF_OVERSIZED, refusal_of_oversized
from server.upstreams.peer import unusable

MESSAGE_BYTES = 64 << 20
"""A longer message of an upstream is not taken; a call whose answer it is fails."""

NO_MESSAGE = "what it sent is no valid JSON-RPC message"

TOO_LARGE = f"what it sent is larger than {MESSAGE_BYTES} bytes"

_ANSWER = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|-?\d+)\s*,\s*){0,2}"(?:result|error)"\s*:')
"""The beginning of an answer. One that begins otherwise is none for us: what is in it could look like anything."""


def answered_by(line: bytes) -> Failure | None:
    """The error in place of an answer that is no message; `None` where it was meant as something else.

    Args:
        line: Begins with a brace or a bracket.
    """
    parsed = read_unreadable(line)
    if parsed is None:  # no JSON, or nested too deeply
        return answered_by_ends(line[:KEPT_OF_OVERSIZED] + b"\n" + line[-KEPT_OF_OVERSIZED:], NO_MESSAGE)
    if not parsed.is_answer or isinstance(parsed.identity, float):
        return None
    return unusable(parsed.identity, NO_MESSAGE)


def answered_by_ends(ends: bytes, why: str) -> Failure | None:
    """The same of a line of which only the ends are there.

    Args:
        ends: Its beginning and its end, with a line feed between.
        why: What is wrong with it.
    """
    refusal = refusal_of_oversized(ends, MESSAGE_BYTES) if _ANSWER.match(ends) else None
    return None if refusal is None else unusable(refusal["id"], why)
