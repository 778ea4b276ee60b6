"""What the flow tells of its decisions, and where it has rules saved: seams that the server fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tools.contract.confirmation import Answer, Unavailable
    from tools.permissions.permission import Permission


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision on one call.

    Args:
        tool: The tool's name.
        arguments: As they came.
        description: What the call does, in one line.
        client: Whose call it is.
        permission: The verdict, with its reason.
        answer: What came back for the question, or `None` before it is asked and where there was none.
        time: Seconds since the epoch.
    """

    tool: str
    arguments: Mapping[str, Any]
    description: str
    client: str
    permission: Permission
    answer: Answer | Unavailable | None
    time: float


class Audit(Protocol):
    """Keeps a record of decisions."""

    def note(self, decided: Decided) -> None:
        """Take a decision down. Never raises, and never waits."""
        ...


class RuleKeeper(Protocol):
    """Saves rules that a person has allowed for good."""

    async def keep(self, rules: Sequence[str]) -> str:
        """Save rules that allow.

        Returns:
            Where they stand now, for reasons.

        Raises:
            ToolError: They cannot be saved; nothing was.
        """
        ...
