"""The flow: the one place where a call runs.

    1 receive the call      2 find the tool        3 validate the parameters
    4 settle, or go on      5 decide by details    6 confirm with a person
    7 execute               8 package for the model   9 display for a person

Steps 1 to 6 have no side effect, so a call that has to pause for an answer simply runs again from the top
with the answer in hand. Steps 8 and 9 are the caller's: `package` gives it the content for the model, and
`ToolResult.return_display` is what a person sees.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.consent import Judgement, question_of, require_consent
from tools.contract.audit import Audit, Decided, RuleKeeper
from tools.contract.base import BaseTool
from tools.contract.builtin_tool import run_blocking
from tools.contract.confirmation import (
    Answer,
    ConfirmationDetails,
    Confirmer,
    Decision,
    Pending,
    Question,
)
from tools.contract.context import ToolContext
from tools.contract.errors import ExecutionDeniedError, ToolError, ToolErrorType
from tools.contract.result import FunctionCall, FunctionResponse, Part, PartListUnion, TextPart, ToolResult
from tools.contract.subject import Subject
from tools.permissions.permission import Permission, Verdict
from tools.permissions.policy import PermissionPolicy
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flow:
    """What every call goes through.

    Args:
        registry: Where tools are found.
        policy: Decides whether a call may run, has to be asked about, or is refused.
        keeper: Saves rules for good, where there is a place for them.
        audit: Is told of every decision.
    """

    registry: ToolRegistry
    policy: PermissionPolicy
    keeper: RuleKeeper | None = None
    audit: Audit | None = None

    async def run(self, call: FunctionCall, context: ToolContext, confirmer: Confirmer) -> ToolResult | Question:
        """Run one call.

        Args:
            call: The tool's name and the arguments as they came.
            context: Whose call it is and where it may act.
            confirmer: Asks the person behind this client.

        Returns:
            The result, failed or not; or a question that must travel to the client, after which the same call
            is run again with the answer.

        Raises:
            ToolNotRegisteredError: Nobody has this name; a protocol matter, all other failures are results.
        """
        tool = self.registry.get_tool(call.name)
        try:
            return await self._run_found(tool, call.arguments, context, confirmer)
        except ToolError as error:
            logger.info("%s failed: %s", tool.name, error.code)
            return ToolResult.failed(error)
        except Exception as error:
            # The boundary where a bug becomes a sentence: the log has the traceback, the client has none of it.
            logger.exception("%s raised %s", tool.name, type(error).__name__)
            return ToolResult.failed(
                ToolError(
                    ToolErrorType.EXECUTION_FAILED,
                    f"{tool.name} failed because of an internal error; its log has the details. "
                    "Whether it had an effect is not known: look before you try again.",
                )
            )

    async def judge(self, tool: BaseTool[Any], arguments: Mapping[str, Any], context: ToolContext) -> Judgement:
        """Steps 3 to 5: what would happen to a call, and why. Changes nothing.

        Raises:
            ToolError: The call cannot succeed.
        """
        client = context.client
        params = tool.validate_tool_params(arguments)
        permission = self.policy.settle(tool, client.approval_mode)
        subjects: Sequence[Subject] = ()
        details: ConfirmationDetails | None = None
        if permission is None and self.policy.looks_closer(tool, client):
            subjects, permission = await run_blocking(context.signal, lambda: self._look(tool, params, context))
        elif permission is None:
            permission = self.policy.judge(tool, (), client, context.workspace)
        if permission is None or permission.verdict is Verdict.ASK:
            details = await tool.should_confirm_execute(params, context)
            permission = permission or self.policy.decide(tool, details, client.approval_mode)
        return Judgement(tool, params, permission, subjects, details)

    def _look(
        self, tool: BaseTool[Any], params: Any, context: ToolContext
    ) -> tuple[Sequence[Subject], Permission | None]:
        subjects = tool.subjects(params, context)
        return subjects, self.policy.judge(tool, subjects, context.client, context.workspace)

    async def _run_found(
        self, tool: BaseTool[Any], arguments: Mapping[str, Any], context: ToolContext, confirmer: Confirmer
    ) -> ToolResult | Question:
        judged = await self.judge(tool, arguments, context)
        permission = judged.permission
        description = tool.get_description(judged.params, context)
        decided = Decided(tool.name, arguments, description, context.client.key, permission, None, context.clock())
        self._note(decided)
        match permission.verdict:
            case Verdict.ALLOW:
                pass
            case Verdict.DENY:
                raise ExecutionDeniedError(permission.reason)
            case Verdict.ASK:
                question = question_of(judged, arguments, description, context, saves=self.keeper is not None)
                answer = await confirmer.ask(question)
                if isinstance(answer, Pending):
                    return question
                self._note(replace(decided, answer=answer))
                require_consent(judged, answer)
                if isinstance(answer, Answer):
                    await self._remember(question, answer, context)
                    context = replace(context, answer=answer)
                context = replace(context, confirmed=judged.details)
        await context.progress(0, None, description)
        return await tool.execute(judged.params, context)

    async def _remember(self, question: Question, answer: Answer, context: ToolContext) -> None:
        """What a person has allowed beyond this call."""
        choice = question.choice(answer.decision)
        if choice is None or not choice.rules:
            return
        if choice.decision is Decision.SAVE and self.keeper is not None:
            try:
                self.policy.allow(choice.rules, await self.keeper.keep(choice.rules))
            except ToolError as error:
                logger.warning("%s They count in this session only.", error.message)
            else:
                return
        self.policy.grant(context.client, choice.rules)

    def _note(self, decided: Decided) -> None:
        if self.audit is not None:
            self.audit.note(decided)


def package(name: str, result: ToolResult) -> FunctionResponse:
    """Step 8: the content for the model, never empty. A failed call shows its error and nothing else."""
    if result.error is not None:
        return FunctionResponse(name, (TextPart(f"{result.error.message} [{result.error.code}]"),), result.error)
    return FunctionResponse(name, tuple(_parts(result.llm_content)) or (TextPart(""),))


def _parts(content: PartListUnion) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)]
    if isinstance(content, Part):
        return [content]
    return [TextPart(item) if isinstance(item, str) else item for item in content]
