"""`enter_plan_mode`: allows no changes until a person approves a plan."""

from __future__ import annotations

from tools.call.base_tool import Behaviour, BuiltinTool
from tools.call.tool_context import ToolContext
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams, foreign, object_schema
from tools.contract.tool_results import ToolResult


class EnterPlanModeTool(BuiltinTool[ToolParams]):
    """Enters plan mode. This needs no consent, because it only removes rights.

    `exit_plan_mode` asks a person to restore them.
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
    output_schema = object_schema({"approval_mode": {"type": "string", "description": "The mode from now on: plan."}})

    def get_description(self, params: ToolParams, context: ToolContext) -> str:
        return "Enter plan mode"

    async def execute(self, params: ToolParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        if context.client.is_anonymous:
            raise ToolError(
                ToolErrorType.EXECUTION_DENIED,
                "Plan mode is not available: this client sends no session or token, so no mode can be kept for it. "
                "Nothing changed. Write your plan in your reply, and change nothing before the user agrees.",
            )
        context.client.approval_mode = ApprovalMode.PLAN
        scratch = " Plan mode has its own /tmp." if context.workspace.scratch is not None else ""
        return ToolResult(
            llm_content=f"Plan mode is on: read and search, but change nothing.{scratch} Present your plan with "
            "exit_plan_mode, and carry it out once the user approves it.",
            structured={"approval_mode": ApprovalMode.PLAN.value},
        )
