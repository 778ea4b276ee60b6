"""Saves several facts at the same time, with one call of the tool for each.

python memory_saver.py WORKSPACE GLOBAL_FOLDER SCOPE NAME COUNT

For each fact, it prints one line: `saved`, `there`, or an error message.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import anyio

from tools.builtin.save_memory import MemoryTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.call_options import Limits
from tools.contract.tool_errors import ToolError
from tools.files.workspace import Workspace
from tools.memory.memory_files import MemoryFiles


async def save(tool: MemoryTool, context: ToolContext, fact: str, scope: str) -> None:
    try:
        result = await tool.execute(tool.validate_tool_params({"fact": fact, "scope": scope}), context)
    except ToolError as error:
        print(error.message, flush=True)  # noqa: T201 - read by the test
        return
    assert result.structured is not None
    print("saved" if result.structured["saved"] else "there", flush=True)  # noqa: T201 - as above


async def main(root: str, folder: str, scope: str, name: str, count: int) -> None:
    tool = MemoryTool(MemoryFiles(global_folder=folder))
    context = ToolContext(Workspace([root]), Limits(), ClientState(name))
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(save, tool, context, f"{name} remembers {number}", scope)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
