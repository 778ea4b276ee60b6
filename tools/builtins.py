"""The one table of built-in tools; the only module that knows them all."""

from __future__ import annotations

from typing import Any

from tools.contract.base import BaseTool
from tools.execution.list_background_jobs import ListJobsTool
from tools.execution.read_background_output import ReadOutputTool
from tools.execution.run_shell_command import ShellTool
from tools.execution.stop_background_job import StopJobTool
from tools.filesystem.edit import EditTool
from tools.filesystem.glob import GlobTool
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.list_directory import LSTool
from tools.filesystem.read_file import ReadFileTool
from tools.filesystem.read_many_files import ReadManyFilesTool
from tools.filesystem.write_file import WriteFileTool
from tools.planning.exit_plan_mode import ExitPlanModeTool


def builtin_tools() -> list[BaseTool[Any]]:
    """A fresh instance of every built-in tool, in the order of listing."""
    return [
        LSTool(),
        ReadFileTool(),
        WriteFileTool(),
        EditTool(),
        GlobTool(),
        GrepTool(),
        ReadManyFilesTool(),
        ShellTool(),
        ListJobsTool(),
        ReadOutputTool(),
        StopJobTool(),
        ExitPlanModeTool(),
    ]
