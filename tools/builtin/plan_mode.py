"""Plan mode: after `enter_plan_mode`, no changes are allowed until the user approves a plan with `exit_plan_mode`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Decision, PlanConfirmation
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams, foreign
from tools.contract.tool_results import ToolResult

MAX_PLAN_CHARS = 30_000  # about as much as a question can show; the user has to read the whole plan


class EnterPlanModeTool(BuiltinTool[ToolParams]):
    """Enters plan mode. This needs no consent, because it only removes rights.

    `exit_plan_mode` ends it with the user's consent. The mode is then `default` or `auto-edit`, whatever it was before.
    """

    name = "enter_plan_mode"
    title = "Enter plan mode"
    display_name = "EnterPlanMode"
    aliases = ("EnterPlanModeTool", "EnterPlanMode")
    description = "Change nothing until the user approves a plan. For large or unclear tasks."
    kind = ToolKind.THINK
    behaviour = Behaviour(read_only=False)
    params_model = ToolParams
    foreign_parameters = {"userRequested": foreign("true", "false")}  # noqa: RUF012 - declared as a Mapping

    def get_description(self, params: ToolParams, context: ToolContext) -> str:
        return "Enter plan mode"

    async def execute(self, params: ToolParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        if context.client.is_anonymous:
            raise ToolError(
                ToolErrorType.EXECUTION_DENIED,
                "Plan mode is not available: this client sends no session ID or token, so no mode can be kept for it. "
                "Nothing changed. Write your plan in your reply, and change nothing before the user agrees.",
            )
        context.client.approval_mode = ApprovalMode.PLAN
        scratch = " Plan mode has its own /tmp." if context.workspace.scratch is not None else ""
        return ToolResult(
            llm_content=f"Plan mode is on: read and search, but change nothing.{scratch} Present your plan with "
            "exit_plan_mode, and carry it out once the user approves it.",
            structured={"approval_mode": ApprovalMode.PLAN.value},
        )


class ExitPlanModeParams(ToolParams):
    plan: str = Field(
        max_length=MAX_PLAN_CHARS,
        description="The plan as Markdown: concise and complete, with the names of the files that will change.",
    )


class ExitPlanModeTool(BuiltinTool[ExitPlanModeParams]):
    """Presents a plan. The user's decision sets the client's approval mode."""

    name = "exit_plan_mode"
    title = "Leave plan mode"
    display_name = "ExitPlanMode"
    aliases = ("ExitPlanModeTool", "ExitPlanMode")
    description = (
        "Present your finished plan to the user and leave plan mode. Use it only in plan mode, when you are ready to "
        "make changes: the user approves the plan or asks for a different one. Not for questions that need no changes."
    )
    kind = ToolKind.COMMUNICATE
    behaviour = Behaviour(read_only=False)
    params_model = ExitPlanModeParams

    def problems(self, params: ExitPlanModeParams, original_names: Mapping[str, str]) -> Iterator[str]:
        if not params.plan.strip():
            yield "'plan' is empty; give the whole plan as Markdown."

    def get_description(self, params: ExitPlanModeParams, context: ToolContext) -> str:
        return "Present a plan and leave plan mode"

    async def should_confirm_execute(self, params: ExitPlanModeParams, context: ToolContext) -> PlanConfirmation:
        """Always ask, and show the whole plan."""
        _refuse_outside(context)
        return PlanConfirmation(title="Approve the plan and leave plan mode", plan=params.plan)

    async def execute(self, params: ExitPlanModeParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        _refuse_outside(context)
        decision = context.answer.decision if context.answer is not None else Decision.ONCE
        mode = ApprovalMode.AUTO_EDIT if decision is Decision.ALWAYS else ApprovalMode.DEFAULT
        context.client.approval_mode = mode
        if context.services.forget_plan is not None:
            context.services.forget_plan(context.client.key)
        note = "The user is asked before each change that no rule or earlier answer allows."
        if mode is ApprovalMode.AUTO_EDIT:
            note = "From now on, files are edited without asking the user."
        if context.workspace.scratch is not None:
            note += " Plan mode's own /tmp is gone."
        content = f"The user approved the plan, and plan mode is off. {note} Start carrying it out."
        return ToolResult(content, params.plan, {"approved": True, "approval_mode": mode.value})


def _refuse_outside(context: ToolContext) -> None:
    """Raise an error outside plan mode, and for an anonymous client, which cannot change its mode."""
    if context.client.approval_mode is not ApprovalMode.PLAN:
        raise ToolError(ToolErrorType.EXECUTION_FAILED, "Plan mode is not on, so there is nothing to leave. Continue.")
    if context.client.is_anonymous:
        raise ToolError(
            ToolErrorType.EXECUTION_DENIED,
            "This client cannot leave plan mode: it sends no session ID or token, so no mode can be kept for it. The "
            "operator can start the server with another approval mode.",
        )
