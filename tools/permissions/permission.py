"""A verdict with its reason: what the policy answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The three outcomes of a permission check."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)


@dataclass(frozen=True, slots=True)
class Part:
    """What is said of one part of a call, such as one simple command of a shell command.

    Args:
        source: The part, as it stands in the call; empty for what concerns all of it.
        verdict: The outcome.
        reason: Why, as a phrase.
        grants: Rules that would allow this part from now on; empty where none could.
        is_explicit: An operator's own rule demands the question.
    """

    source: str
    verdict: Verdict
    reason: str
    grants: tuple[str, ...] = ()
    is_explicit: bool = False


@dataclass(frozen=True, slots=True)
class Permission:
    """The verdict on a call.

    Args:
        verdict: The outcome.
        reason: Why; for the one who is refused, or asked.
        grants: Rules that would allow such calls from now on; empty where none could.
        is_explicit: An operator's own rule demands the question, so no other answer than a person's will do.
        is_final: No rule could allow it from now on.
        parts: What was said of its parts, where it was judged by parts.
    """

    verdict: Verdict
    reason: str
    grants: tuple[str, ...] = ()
    is_explicit: bool = False
    is_final: bool = False
    parts: tuple[Part, ...] = ()


def strictest(parts: Sequence[Part]) -> Part:
    """The part with the strictest verdict, the first of them."""
    return max(parts, key=lambda part: _STRICTNESS.index(part.verdict))
