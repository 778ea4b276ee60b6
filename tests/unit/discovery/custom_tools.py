"""An operator's commands on a real runner, and a client that calls what they offer."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from tests.unit.execution.shell import CEILING, ENVIRONMENT, RecordingStarter, session_of
from tools.builtin.discovered_tools import Discovery, DiscoveryState
from tools.call.base_tool import BaseTool, ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.contract.limits import Limits
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import TextPart, ToolResult
from tools.discovery.discovery_commands import DiscoverySettings, ProgramSite
from tools.files.workspace import Workspace
from tools.shell.command_runner import ProgramRunner
from tools.shell.private_folders import PrivateFolders

PEER = (sys.executable, "-I", str(Path(__file__).parents[2] / "peers" / "discovery_commands.py"))
CALL = (*PEER, "call")
RESERVED = frozenset({"read_file", "replace", "Bash"})


def text_of(result: ToolResult) -> str:
    """The text for the model."""
    assert isinstance(result.llm_content, list)
    (text,) = [part for part in result.llm_content if isinstance(part, TextPart)]
    return text.text


@dataclass
class CustomTools:
    """A discovery, and one client.

    Args:
        file: What the discovery command prints.
        settings: The commands.
        registry: Where the tools are published.
        discovery: Finds them.
        context: What tools are given.
        starter: Knows all processes that were started.
        told: The progress that the client was told.
        changes: How often the registry has changed.
    """

    file: Path
    settings: DiscoverySettings
    registry: ToolRegistry
    discovery: Discovery
    context: ToolContext
    starter: RecordingStarter
    told: list[str] = field(default_factory=list[str])
    changes: list[None] = field(default_factory=list[None])

    def declare(self, *declarations: Any) -> None:
        """Let the discovery command print these from now on."""
        self.file.write_text(json.dumps(declarations))

    async def discover(self, *declarations: Any) -> DiscoveryState:
        """Declare and discover."""
        self.declare(*declarations)
        with anyio.fail_after(CEILING):
            return await self.discovery.refresh()

    async def tool(self, name: str, **schema: Any) -> BaseTool[Any]:
        """A tool that was declared with these parameters."""
        await self.discover({"name": name, "description": "A tool.", "parametersJsonSchema": schema or None})
        return next(iter(self.registry.get_all_tools()))

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        """Declare a tool, and call it as the flow does."""
        tool = await self.tool(name)
        with anyio.fail_after(CEILING):
            return await tool.execute(tool.validate_tool_params(arguments), self.context)

    async def error_of(self, name: str, **arguments: Any) -> ToolError:
        """Call a tool that fails."""
        try:
            result = await self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(result)

    def running(self) -> list[int]:
        """All processes that run of what was started."""
        return [pid for process in self.starter.started for pid in session_of(process.pid)]


@asynccontextmanager
async def custom_tools(
    root: Path, folders_in: Path, *, environment: Mapping[str, str] = ENVIRONMENT, **settings: Any
) -> AsyncGenerator[CustomTools]:
    """A discovery that has not begun; at the end nothing of it may run."""
    file = folders_in / "declarations.json"
    starter = RecordingStarter()
    folders = PrivateFolders(str(folders_in))
    runner = ProgramRunner(starter, folders)
    given = DiscoverySettings((*PEER, "list", str(file)), CALL, call_seconds=CEILING)
    wanted = replace(given, **settings)
    registry = ToolRegistry()
    site = ProgramSite(lambda: runner, environment, str(root), (str(root),))
    discovery = Discovery(wanted, registry, site, RESERVED, 1.0)
    told: list[str] = []
    changes: list[None] = []
    registry.on_change(lambda: changes.append(None))

    async def progress(done: float, total: float | None, message: str) -> None:
        told.append(message)

    context = ToolContext(Workspace([str(root)]), Limits(), ClientState("test"), progress=progress)
    tools = CustomTools(file, wanted, registry, discovery, context, starter, told, changes)
    try:
        yield tools
    finally:
        with anyio.fail_after(CEILING, shield=True):
            await folders.aclose()
            left = tools.running()
            await starter.aclose()
    assert left == []
