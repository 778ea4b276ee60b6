"""What the approval mode says of a call that would otherwise need a question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tools.contract.context import ApprovalMode

if TYPE_CHECKING:
    from tools.contract.base import Behaviour
    from tools.contract.confirmation import ConfirmationDetails


class Verdict(StrEnum):
    """The three outcomes of a permission check."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Permission:
    """A verdict with its reason, as a sentence."""

    verdict: Verdict
    reason: str


def refuse_by_mode(mode: ApprovalMode, behaviour: Behaviour) -> Permission | None:
    """In plan mode nothing may change; every other mode leaves the decision to the next step."""
    if mode is ApprovalMode.PLAN and not behaviour.read_only:
        return Permission(
            Verdict.DENY,
            "Plan mode is on: only reading and searching are possible. Present your plan instead; "
            "the operator starts the server with another approval mode to let it be carried out.",
        )
    return None


def decide_by_mode(mode: ApprovalMode, details: ConfirmationDetails | None) -> Permission:
    """Decide on a call by what would have to be asked and by the approval mode."""
    if details is None:
        return Permission(Verdict.ALLOW, "the tool changes nothing that needs consent")
    if mode is ApprovalMode.YOLO:
        return Permission(Verdict.ALLOW, "approval mode yolo")
    if mode is ApprovalMode.AUTO_EDIT and details.type == "edit":
        return Permission(Verdict.ALLOW, "approval mode auto-edit")
    return Permission(Verdict.ASK, f"{details.type} needs consent in approval mode {mode}")
