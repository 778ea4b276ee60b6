"""A verdict with its reason: what the policy answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tools.contract.command_views import CommandView


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
class VerdictPart:
    """What is said of one part of a call, such as one simple command of a shell command."""

    source: str  # the part, as it stands in the call; empty for what concerns all of it
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Permission:
    verdict: Verdict
    reason: str  # why, as a phrase. The sentence for who is asked or refused is made of it in `tools.call.consent`
    grants: tuple[Grant, ...] = ()  # what would allow such calls from now on; empty where no rule could
    setting: str = ""  # the setting that asks or denies, where it is the operator's own word; else empty
    # The question is for a person alone: an operator's rule demands it, or it is about ending plan mode.
    is_explicit: bool = False
    no_rule_allows: bool = False  # neither a rule nor a mode allows it from now on: it is asked about each time
    is_guarded: bool = False  # it writes this server's own settings: no dialog of a client stands for a person's yes
    way_out: str = ""  # what to do instead, as a sentence, where that is particular
    parts: tuple[VerdictPart, ...] = ()  # what was said of its parts, where it was judged by parts
    view: CommandView | None = None  # of a command: the view in which it runs, after a yes where it is asked
    dialog_view: CommandView | None = None  # the same where the client's own dialog stands for a person's yes
    offers_sandboxed: bool = False  # whether a person may allow any command that stays in the sandbox instead


PLAN_MODE = Permission(
    Verdict.DENY,
    "plan mode is on, and only reading and searching are possible",
    way_out="Present your plan with exit_plan_mode; where that is not offered, the operator starts the server with "
    "another approval mode.",
)
