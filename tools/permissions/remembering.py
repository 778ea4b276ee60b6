"""What a person allows beyond one call: kept for the session, or saved for good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tools.contract.confirmation import Choice, Decision
from tools.contract.context import ClientState
from tools.contract.errors import ToolError
from tools.contract.names import one_line
from tools.permissions.policy import PermissionPolicy

logger = logging.getLogger(__name__)


class Scope(StrEnum):
    """How far an answer counts."""

    CALL = "call"
    SESSION = "session"
    SAVED = "saved"


class RuleKeeper(Protocol):
    """Saves rules that a person has allowed for good."""

    async def keep(self, rules: Sequence[str]) -> str:
        """Save rules that allow.

        Returns:
            Where they stand now, for reasons.

        Raises:
            ToolError: They cannot be saved; nothing was. The sentences say why, and what helps.
        """
        ...


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of an answer that allows more than its call.

    Args:
        rules: The rules that it allows.
        scope: How far they count.
        note: Told beside the call's result, where they count less far than the person wanted; else empty.
    """

    rules: tuple[str, ...]
    scope: Scope
    note: str = ""


async def remember(
    choice: Choice, client: ClientState, policy: PermissionPolicy, keeper: RuleKeeper | None
) -> Remembered:
    """Let an answer count from now on. What cannot be saved counts for the session, if the client has one.

    Args:
        choice: What the person chose, with its rules.
        client: Who was asked.
        policy: Goes by saved rules from now on.
        keeper: Saves rules, where there is a place for them.
    """
    note = ""
    scope = Scope.SESSION if client.grants is not None else Scope.CALL
    if choice.decision is Decision.SAVE and keeper is not None:
        try:
            policy.allow(choice.rules, await keeper.keep(choice.rules))
        except ToolError as error:
            logger.warning("%s The answer counts for the %s only.", error.message, scope)
            note = f"Allowed for this {scope} only: {', '.join(map(one_line, choice.rules))}. {error.message}"
        else:
            return Remembered(choice.rules, Scope.SAVED)
    if client.grants is not None:
        client.grants.extend(choice.rules)
    return Remembered(choice.rules, scope, note)
