"""Helpers that save facts as a call does, without a server."""

from __future__ import annotations

from typing import Any

from tools.builtin.save_memory import MemoryTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.tool_results import ToolResult
from tools.memory.memory_files import MemoryFiles


async def confirmation_for(
    context: ToolContext, files: MemoryFiles | None = None, **arguments: Any
) -> ConfirmationDetails | None:
    """Return the question that a call would ask, or `None` if it would not ask."""
    tool = MemoryTool(files)
    return await tool.should_confirm_execute(tool.validate_tool_params(arguments), context)


async def save(context: ToolContext, files: MemoryFiles | None = None, **arguments: Any) -> ToolResult:
    tool = MemoryTool(files)
    return await tool.execute(tool.validate_tool_params(arguments), context)


def structured(result: ToolResult) -> dict[str, Any]:
    """Return the structured result."""
    assert result.structured is not None
    return dict(result.structured)
