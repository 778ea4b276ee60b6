"""The permission policy's decision on a call, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tools.contract.command_views import CommandView


class Verdict(StrEnum):
    """What happens to a call, in order of increasing strictness."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Grant:
    """An allow rule to offer to the user, for a call and similar calls."""

    rule: str
    title: str  # what the rule covers, worded for people


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """The decision on one part of a call, such as one simple command of a shell command."""

    source: str  # the part, as written in the call; empty for the call as a whole
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Permission:
    verdict: Verdict
    reason: str  # the reason as a clause; `tools.call.consent` turns it into a sentence
    grants: tuple[Grant, ...] = ()  # rules that would allow such calls; empty if no rule would
    setting: str = ""  # the operator's setting that requires consent or denies the call, if any
    # Whether only a person may answer, because an operator's rule demands it or the call ends plan mode.
    is_explicit: bool = False
    no_rule_allows: bool = False  # whether no rule or mode can allow the call, so every such call needs consent
    # Whether the call may write this server's own settings, trust record, lock file, audit log or stored data. Consent
    # in a client's own dialog does not allow such a call
    is_guarded: bool = False
    way_out: str = ""  # what to do instead, as a sentence, if there is specific advice
    parts: tuple[VerdictPart, ...] = ()  # the decisions on the parts of the call, if they were judged separately
    view: CommandView | None = None  # for a command: its view if any necessary consent is given
    dialog_view: CommandView | None = None  # for a command: its view if consent comes from the client's own dialog
    offers_sandboxed: bool = False  # whether to offer an answer that allows every command that stays in the sandbox


PLAN_MODE = Permission(
    Verdict.DENY,
    "plan mode is on, so only reading and searching are possible",
    way_out="Present your plan with exit_plan_mode. If that tool is missing, the operator can start the server with "
    "another approval mode.",
)
