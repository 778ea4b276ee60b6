"""Test doubles for the confirmation flow: a person with one answer, and a store for the person's rules."""

from __future__ import annotations

from collections.abc import Sequence

from tools.contract.confirmation import Answer, Pending, Question, Unavailable
from tools.contract.tool_errors import ToolError


class Person:
    """A `Confirmer` that gives every question the same outcome, and records the questions."""

    def __init__(self, outcome: Answer | Pending | Unavailable) -> None:
        self.outcome = outcome
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        """Record the question, and return the outcome."""
        self.questions.append(question)
        return self.outcome


class RuleStore:
    """Saves rules in memory, or fails."""

    def __init__(self, problem: ToolError | None = None) -> None:
        self.kept: list[str] = []
        self._problem = problem

    async def save(self, rules: Sequence[str]) -> str:
        """Save the rules."""
        if self._problem is not None:
            raise self._problem
        self.kept += rules
        return "permissions.allow"
