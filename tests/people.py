"""Those whom a flow asks in tests: a person with one answer, and a place for what the person wants kept."""

from __future__ import annotations

from collections.abc import Sequence

from tools.contract.confirmation import Answer, Pending, Question, Unavailable
from tools.contract.tool_errors import ToolError


class Person:
    """Gives one outcome to every question, and keeps the questions: a `Confirmer`."""

    def __init__(self, outcome: Answer | Pending | Unavailable) -> None:
        self.outcome = outcome
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        """Answer."""
        self.questions.append(question)
        return self.outcome


class Keeper:
    """A place for rules, or one where nothing can be saved."""

    def __init__(self, problem: ToolError | None = None) -> None:
        self.kept: list[str] = []
        self._problem = problem

    async def save(self, rules: Sequence[str]) -> str:
        """Keep them."""
        if self._problem is not None:
            raise self._problem
        self.kept += rules
        return "permissions.allow"
