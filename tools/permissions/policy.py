"""May this call run? The one place that decides, each time with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tools.contract.base import BaseTool, Kind
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.context import ApprovalMode


class Verdict(StrEnum):
    """The three outcomes of a permission check."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Permission:
    """A verdict with its reason, as a sentence for the one who is refused."""

    verdict: Verdict
    reason: str


class PermissionPolicy:
    """Decides by the client's approval mode.

    A call is judged twice: before anything is looked at, so that a refusal reveals nothing and what is allowed anyway
    costs no preview, and once more with the details of what would be asked.
    """

    def settle(self, tool: BaseTool[Any], mode: ApprovalMode) -> Permission | None:
        """A verdict that needs no details, or `None`."""
        if mode is ApprovalMode.PLAN and not tool.behaviour.read_only:
            return Permission(
                Verdict.DENY,
                "Plan mode is on: only reading and searching are possible. Present your plan instead; "
                "the operator starts the server with another approval mode to let it be carried out.",
            )
        if mode is ApprovalMode.YOLO:
            return Permission(Verdict.ALLOW, "approval mode yolo")
        if mode is ApprovalMode.AUTO_EDIT and tool.kind is Kind.EDIT:
            return Permission(Verdict.ALLOW, "approval mode auto-edit")
        return None

    def decide(self, tool: BaseTool[Any], details: ConfirmationDetails | None, mode: ApprovalMode) -> Permission:
        """The decision on a call whose question, if it has one, is known."""
        if details is None:
            return Permission(Verdict.ALLOW, f"{tool.name} changes nothing that needs consent")
        return Permission(Verdict.ASK, f"{details.type} needs consent in approval mode {mode}")
