"""The flow: the one place where a call runs.

    1 receive the call      2 find the tool        3 validate the parameters
    4 settle, or go on      5 decide by details    6 confirm with a person
    7 execute               8 package for the model   9 display for a person

Steps 1 to 6 have no side effect, so a call that has to pause for an answer simply runs again from the top
with the answer in hand. Steps 8 and 9 are the caller's: `package` gives it the content for the model, and
`ToolResult.return_display` is what a person sees.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.contract.base import BaseTool
from tools.contract.confirmation import (
    Answer,
    Channel,
    ConfirmationDetails,
    Confirmer,
    Decision,
    InfoConfirmation,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.context import ToolContext
from tools.contract.errors import ExecutionDeniedError, ToolError, ToolErrorType
from tools.contract.result import FunctionCall, FunctionResponse, Part, PartListUnion, TextPart, ToolResult
from tools.permissions.policy import PermissionPolicy, Verdict
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flow:
    """What every call goes through.

    Args:
        registry: Where tools are found.
        policy: Decides whether a call may run, has to be asked about, or is refused.
    """

    registry: ToolRegistry
    policy: PermissionPolicy

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

    async def _run_found(
        self, tool: BaseTool[Any], arguments: Mapping[str, Any], context: ToolContext, confirmer: Confirmer
    ) -> ToolResult | Question:
        params = tool.validate_tool_params(arguments)
        mode = context.client.approval_mode
        details: ConfirmationDetails | None = None
        permission = self.policy.settle(tool, mode)
        if permission is None:
            details = await tool.should_confirm_execute(params, context)
            permission = self.policy.decide(tool, details, mode)
        description = tool.get_description(params, context)
        match permission.verdict:
            case Verdict.ALLOW:
                pass
            case Verdict.DENY:
                raise ExecutionDeniedError(permission.reason)
            case Verdict.ASK:
                shown = details or _plain_details(tool, arguments)
                question = Question(description, shown, _fingerprint(tool.name, arguments, shown))
                answer = await confirmer.ask(question)
                if isinstance(answer, Pending):
                    return question
                context = replace(_consent(tool, answer, context), confirmed=details)
        await context.progress(0, None, description)
        return await tool.execute(params, context)


def _plain_details(tool: BaseTool[Any], arguments: Mapping[str, Any]) -> ConfirmationDetails:
    """What is asked where the tool itself would not ask: its name and the arguments."""
    shown = json.dumps(dict(arguments), indent=2, ensure_ascii=False, default=str)
    return InfoConfirmation(title=f"Confirm {tool.display_name}", prompt=f"{tool.name}\n{shown}")


def _consent(tool: BaseTool[Any], answer: Answer | Unavailable, context: ToolContext) -> ToolContext:
    """The context to execute in, or the refusal."""
    if isinstance(answer, Unavailable):
        if answer.client_decides and not tool.behaviour.read_only:
            # A client may run a tool published as read-only without asking, so its dialog vouches for the others only.
            return context
        raise ExecutionDeniedError(f"Nobody could be asked for consent, so nothing was done. {answer.way_out}")
    if answer.decision is Decision.DENY:
        raise ExecutionDeniedError(_refusal(answer))
    return replace(context, answer=answer)


def _refusal(answer: Answer) -> str:
    match answer.channel:
        case Channel.FORM:
            said = f" Their reason: {answer.reason}" if answer.reason else ""
            return f"The user refused this action; nothing was done. Do not try it again unchanged.{said}"
        case Channel.DECLINED:
            return (
                "The question was declined, so nothing was done. Some clients decline by themselves: perhaps nobody "
                "saw it. The operator can allow such calls with the approvalMode setting or, for an upstream "
                "server, with trust: true."
            )
        case Channel.CANCELLED:
            return "The question was dismissed without a decision, so nothing was done. Ask the user how to go on."
        case Channel.TIMED_OUT:
            return "The question was not answered in time (confirmation.timeout), so nothing was done."
        case Channel.MALFORMED:
            return "The answer carried no valid decision, which is no consent, so nothing was done."


def _fingerprint(tool: str, arguments: Mapping[str, Any], details: ConfirmationDetails) -> str:
    """Binds an answer to one action: the tool, its arguments, and the state of the world the details show."""
    canonical = json.dumps([tool, arguments, details.state], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


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
