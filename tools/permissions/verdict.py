"""A verdict with its reason: what the policy answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tools.contract.permission_subjects import NO_WAIVER, Waiver


class Verdict(StrEnum):
    """In the order of their strictness."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule that would allow something from now on."""

    rule: str
    title: str  # what it covers, as a person reads it


@dataclass(frozen=True, slots=True)
class Part:
    """What is said of one part of a call, such as one simple command of a shell command."""

    source: str  # the part, as it stands in the call; empty for what concerns all of it
    verdict: Verdict
    reason: str
    grants: tuple[Grant, ...] = ()  # what would allow this part from now on; empty where no rule could
    setting: str = ""  # the setting that says so, where it is the operator's own word; else empty


@dataclass(frozen=True, slots=True)
class Permission:
    verdict: Verdict
    reason: str  # why, as a phrase. The sentence for who is asked or refused is made of it in `tools.call.consent`
    grants: tuple[Grant, ...] = ()  # what would allow such calls from now on; empty where no rule could
    setting: str = ""  # the setting that asks or denies, where it is the operator's own word; else empty
    # The question is for a person alone: an operator's rule demands it, or it is about ending plan mode.
    is_explicit: bool = False
    no_rule_allows: bool = False  # neither a rule nor a mode allows it from now on: it is asked about each time
    way_out: str = ""  # what to do instead, as a sentence, where that is particular
    parts: tuple[Part, ...] = ()  # what was said of its parts, where it was judged by parts
    waiver: Waiver = NO_WAIVER  # what of the sandbox's protection it is let off if it runs


def summed(source: str, parts: Sequence[Part]) -> Part:
    """What parts come to: the strictest verdict, with all that was said for it."""
    verdict = max((part.verdict for part in parts), key=list(Verdict).index)
    deciding = [part for part in parts if part.verdict is verdict]
    # One that no rule could allow keeps the whole from being allowed by rules.
    is_grantable = verdict is not Verdict.ALLOW and all(part.grants for part in deciding)
    grants = [grant for part in deciding for grant in part.grants] if is_grantable else []
    return Part(
        source,
        verdict,
        "; ".join(dict.fromkeys(part.reason for part in deciding)),
        tuple(dict.fromkeys(grants)),
        " and ".join(dict.fromkeys(part.setting for part in deciding if part.setting)),
    )
