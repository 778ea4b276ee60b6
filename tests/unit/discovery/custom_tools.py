"""An operator's discovery and call commands on a real runner, and a client that calls the discovered tools."""

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
from tools.contract.call_options import Limits
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
    """Return the text for the model."""
    assert isinstance(result.llm_content, list)
    (text,) = [part for part in result.llm_content if isinstance(part, TextPart)]
    return text.text


@dataclass
class CustomTools:
    """The discovery of custom tools, and one client that calls them.

    Args:
        file: The discovery command prints this file.
        settings: The discovery and call commands.
        registry: Where the tools are published.
        discovery: Finds the tools.
        context: The context of each tool call.
        starter: Starts and records all processes.
        progress_messages: The progress messages that the client received.
        changes: One item for each change of the registry.
    """

    file: Path
    settings: DiscoverySettings
    registry: ToolRegistry
    discovery: Discovery
    context: ToolContext
    starter: RecordingStarter
    progress_messages: list[str] = field(default_factory=list[str])
    changes: list[None] = field(default_factory=list[None])

    def declare(self, *declarations: Any) -> None:
        """Make the discovery command print these declarations from now on."""
        self.file.write_text(json.dumps(declarations))

    async def discover(self, *declarations: Any) -> DiscoveryState:
        """Declare and discover."""
        self.declare(*declarations)
        with anyio.fail_after(CEILING):
            return await self.discovery.refresh()

    async def tool(self, name: str, **schema: Any) -> BaseTool[Any]:
        """Declare a tool with these parameters, and return it."""
        await self.discover({"name": name, "description": "A tool.", "parametersJsonSchema": schema or None})
        return next(iter(self.registry.get_all_tools()))

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        """Declare a tool, and call it as the call flow does."""
        tool = await self.tool(name)
        with anyio.fail_after(CEILING):
            return await tool.execute(tool.validate_tool_params(arguments), self.context)

    async def error_of(self, name: str, **arguments: Any) -> ToolError:
        """Call a tool that fails, and return its error."""
        try:
            result = await self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(result)

    def running(self) -> list[int]:
        """Return all running processes in the sessions of the started commands."""
        return [pid for process in self.starter.processes for pid in session_of(process.pid)]


@asynccontextmanager
async def custom_tools(
    root: Path, folders_parent: Path, *, environment: Mapping[str, str] = ENVIRONMENT, **settings: Any
) -> AsyncGenerator[CustomTools]:
    """Yield custom tools that are not discovered yet. At the end, none of their processes may be running."""
    file = folders_parent / "declarations.json"
    starter = RecordingStarter()
    folders = PrivateFolders(str(folders_parent))
    runner = ProgramRunner(starter, folders)
    defaults = DiscoverySettings((*PEER, "list", str(file)), CALL, call_seconds=CEILING)
    discovery_settings = replace(defaults, **settings)
    registry = ToolRegistry()
    site = ProgramSite(lambda: runner, environment, str(root), (str(root),))
    discovery = Discovery(discovery_settings, registry, site, RESERVED, 1.0)
    messages: list[str] = []
    changes: list[None] = []
    registry.on_change(lambda: changes.append(None))

    async def progress(byte_count: float, total: float | None, message: str) -> None:
        messages.append(message)

    context = ToolContext(Workspace([str(root)]), Limits(), ClientState("test"), progress=progress)
    tools = CustomTools(file, discovery_settings, registry, discovery, context, starter, messages, changes)
    try:
        yield tools
    finally:
        with anyio.fail_after(CEILING, shield=True):
            await folders.aclose()
            leftovers = tools.running()
            await starter.aclose()
    assert leftovers == []
