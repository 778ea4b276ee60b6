"""What the flow tells of its verdicts and of the answers: the seam to whoever keeps a record of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tools.call.consent import Remembered
from tools.contract.confirmation import Answer, Unavailable
from tools.permissions.verdict import Permission


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One verdict on one call, or what came back for its question.

    Args:
        tool: The tool's name.
        arguments: As they came.
        description: What the call does, in one line.
        client: Whose call it is.
        permission: The verdict, with its reason.
        time: Seconds since the epoch.
        answer: What came back for the question, or `None` before it is asked and where there was none.
        remembered: What the answer allowed beyond this call, or `None` where it was about this call alone.
    """

    tool: str
    arguments: Mapping[str, Any]
    description: str
    client: str
    permission: Permission
    time: float
    answer: Answer | Unavailable | None = None
    remembered: Remembered | None = None


class Audit(Protocol):
    """Keeps a record of what was decided."""

    def note(self, entry: AuditEntry) -> None:
        """Take an entry down. Never raises, and never waits."""
        ...
