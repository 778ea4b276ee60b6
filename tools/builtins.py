"""The one table of built-in tools; the only module that knows them all."""

from __future__ import annotations

from typing import Any

from tools.contract.base import BaseTool
from tools.filesystem.edit import EditTool
from tools.filesystem.glob import GlobTool
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.list_directory import LSTool
from tools.filesystem.read_file import ReadFileTool
from tools.filesystem.read_many_files import ReadManyFilesTool
from tools.filesystem.write_file import WriteFileTool


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
    ]
