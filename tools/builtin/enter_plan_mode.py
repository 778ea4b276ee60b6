"""`enter_plan_mode`: from now on nothing is changed, until a person approves a plan."""

from __future__ import annotations

from tools.call.base_tool import Behaviour, BuiltinTool
from tools.call.tool_context import ToolContext
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams, foreign, object_schema
from tools.contract.tool_results import ToolResult


class EnterPlanModeParams(ToolParams):
    """Nothing has to be said."""


class EnterPlanModeTool(BuiltinTool[EnterPlanModeParams]):
    """Takes rights away from its client, so nobody is asked; `exit_plan_mode` asks a person to give them back."""

    name = "enter_plan_mode"
    title = "Enter plan mode"
    display_name = "EnterPlanMode"
    aliases = ("EnterPlanModeTool", "EnterPlanMode")
    description = "Change nothing from now on until the user approves a plan: for large or unclear tasks."
    kind = ToolKind.THINK
    behaviour = Behaviour(read_only=False)
    params_model = EnterPlanModeParams
    foreign_parameters = {"userRequested": foreign("true", "false")}  # noqa: RUF012 - declared as a Mapping
    output_schema = object_schema({"approval_mode": {"type": "string", "description": "The mode from now on: plan."}})

    def get_description(self, params: EnterPlanModeParams, context: ToolContext) -> str:
        return "Enter plan mode"

    async def execute(self, params: EnterPlanModeParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        if context.client.is_anonymous:
            raise ToolError(
                ToolErrorType.EXECUTION_DENIED,
                "Plan mode cannot be entered: this client sends no session or token, so no mode can be kept for it. "
                "Nothing has changed: write your plan as an answer, and change nothing before the user agrees.",
            )
        context.client.approval_mode = ApprovalMode.PLAN
        scratch = " /tmp is another one in plan mode." if context.workspace.scratch is not None else ""
        return ToolResult(
            llm_content=f"Plan mode is on: read and search, and change nothing.{scratch} Present your plan with "
            "exit_plan_mode; once the user approves it, carry it out.",
            structured={"approval_mode": ApprovalMode.PLAN.value},
        )
