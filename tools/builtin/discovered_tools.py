"""Discovers and registers the custom tools.

The first discovery begins at startup or, over stdio, once a client has connected. When its settings change, discovery
runs again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from tools.call.base_tool import BaseTool, Behaviour, ToolContext
from tools.contract.call_options import no_progress
from tools.contract.confirmation import ConfirmationDetails, InfoConfirmation
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError, ToolError
from tools.contract.tool_results import ToolResult
from tools.discovery.custom_tool_declarations import (
    Declarations,
    DeclaredTool,
    DiscoveryError,
    LongCheckError,
    read_declarations,
)
from tools.discovery.discovery_commands import (
    DISCOVERY_COMMAND,
    MAX_BYTES,
    CallCommand,
    DiscoverySettings,
    ProgramSite,
)
from tools.machine.threads import THREADS, run_blocking
from tools.permissions.tool_names import BETWEEN
from tools.text.file_names import one_line

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from tools.call.tool_registry import ToolRegistry

logger = logging.getLogger(__name__)
GROUP = "DiscoveredTool"  # the name that stands for all custom tools in permission rules
GEMINI_PREFIX = "discovered_tool_"  # the prefix of custom tools in Gemini CLI's permission rules
RUN_BY = "This is a custom tool. It runs through the call command that this server's operator has configured."
DESCRIBED_CHARS = 200  # characters of parameter names in the one-line description of a call
Arguments = Mapping[str, Any]


class DiscoveredTool(BaseTool[Arguments]):
    """Runs one custom tool. What the tool does is unknown, so permissions assume that it can do anything."""

    kind = ToolKind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False, open_world=True)

    def __init__(self, declaration: DeclaredTool, command: CallCommand) -> None:
        self.name = declaration.name
        self.display_name = declaration.title
        self.description = f"{declaration.description}\n\n{RUN_BY}".lstrip("\n")
        self._declaration = declaration
        self._command = command
        # In rules and calls, a name that contains the separator would be mistaken for the name of an upstream tool.
        name = declaration.declared_name
        self.aliases = (name,) if BETWEEN not in name and name != self.name else ()

    def __eq__(self, other: object) -> bool:
        """Return True if the tools have equal declarations, and equal call commands with equal limits."""
        is_same_kind = isinstance(other, DiscoveredTool)
        return is_same_kind and self._declaration == other._declaration and self._command == other._command

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """Return the tool's names, with and without Gemini CLI's prefix, and the name for custom tools as a group."""
        names = self.name, *self.aliases
        return *names, *(f"{GEMINI_PREFIX}{name}" for name in names), GROUP

    @property
    def parameter_schema(self) -> Arguments:
        return self._declaration.schema

    def validate_tool_params(self, arguments: Arguments) -> Arguments:
        """Check the arguments against the schema. If the check is slow, `execute` does it in a thread instead."""
        try:
            converted = self._declaration.check.repair(arguments)
            self._require_valid(self._declaration.check.quick_problem_of(converted))
        except LongCheckError:
            return arguments
        return converted

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        names = ", ".join(params) or "no arguments"
        return f"Run the custom tool {self._declaration.title} ({one_line(names[:DESCRIBED_CHARS])})"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        import shlex  # noqa: PLC0415 - loaded on first use

        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        command = redact(shlex.join((*self._command.argv, self._declaration.declared_name)))
        arguments = json.dumps(dict(params), indent=2, ensure_ascii=False, default=str)
        return InfoConfirmation(
            title=f"Run the custom tool {self.name}",
            prompt=f"Command: {command}\nFolder: {self._command.site.folder}\nOn its standard input: {arguments}",
        )

    async def execute(self, params: Arguments, context: ToolContext) -> ToolResult:
        from tools.discovery.custom_tool_call import run_tool  # noqa: PLC0415 - loaded on first use

        context.signal.raise_if_aborted()
        try:
            problem = self._declaration.check.quick_problem_of(params)
        except LongCheckError:
            problem = await run_blocking(context.signal, lambda: self._declaration.check.problem_of(params))
        self._require_valid(problem)
        return await run_tool(self._declaration, self._command, params, context.client.key, context.progress)

    def _require_valid(self, problem: str | None) -> None:
        if problem is not None:
            raise InvalidToolParamsError(self.name, problem)


SOURCE = "discovered tools"  # the source of custom tools in the registry
MAX_QUOTED_CHARS = 500  # characters quoted from the end of standard error when discovery fails


class DiscoveryStatus(StrEnum):
    OFF = "off"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DiscoveryState:
    status: DiscoveryStatus
    tools: tuple[str, ...] = ()  # the names of the custom tools found
    warnings: tuple[str, ...] = ()  # which declarations were skipped or changed, and why
    problem: str = ""  # why discovery failed and what to do; empty on success
    seconds: float = 0.0  # the duration of discovery


class Discovery:
    """Keeps the custom tools up to date. If a discovery fails, tools found earlier by the same commands remain.

    Custom tools cannot take the names of built-in tools. The first `tools/list` waits briefly for the first discovery.
    """

    def __init__(
        self,
        settings: DiscoverySettings,
        registry: ToolRegistry,
        site: ProgramSite,
        reserved_names: frozenset[str],
        first_list_seconds: float,
    ) -> None:
        self.finished = anyio.Event()  # set once the first discovery has finished, even if it failed
        self._settings = settings
        self._registry = registry
        self._site = site
        self._reserved_names = reserved_names
        self._first_list_seconds = first_list_seconds
        self._wait_until: float | None = None
        self._lock = anyio.Lock()
        self._current: anyio.CancelScope | None = None
        self._published_commands = settings.commands
        is_off = settings.discovery_command is None
        self.state = DiscoveryState(DiscoveryStatus.OFF if is_off else DiscoveryStatus.WAITING)
        if is_off:
            self.finished.set()
        registry.declare_source(SOURCE, self.finished.wait)

    def start(self, tasks: TaskGroup) -> None:
        """Start the first discovery. Later calls do nothing."""
        if self._wait_until is None:
            self._wait_until = anyio.current_time() + self._first_list_seconds
            tasks.start_soon(self.refresh, name="discovery of tools")

    def change(self, settings: DiscoverySettings, tasks: TaskGroup) -> None:
        """Apply changed settings, and repeat the discovery if it has already been started."""
        if settings == self._settings:
            return
        self._settings = settings
        if self._lock.locked() and self._current is not None:
            self._current.cancel()  # a discovery in progress starts over
        elif self._wait_until is not None:
            tasks.start_soon(self.refresh, name="discovery of tools")

    async def wait_for_first_list(self) -> None:
        """Wait briefly for the first discovery, so that the first list is complete if possible."""
        if self._wait_until is not None:
            with anyio.CancelScope(deadline=self._wait_until):
                await self.finished.wait()

    async def refresh(self) -> DiscoveryState:
        """Discover the tools and update the registry. Errors are reported in the returned state."""
        async with self._lock:
            while True:
                with anyio.CancelScope() as self._current:
                    settings = self._settings
                    started_at = anyio.current_time()
                    self.state = DiscoveryState(DiscoveryStatus.RUNNING, self.state.tools)
                    declarations, problem = await self._discover(settings)
                    self._publish(settings, declarations, problem, anyio.current_time() - started_at)
                    self.finished.set()
                    return self.state

    async def _discover(self, settings: DiscoverySettings) -> tuple[Declarations | None, str]:
        """Return the declarations, or `None` and the reason if discovery failed (empty if discovery is off)."""
        if settings.discovery_command is None:
            return None, ""
        if settings.call_command is None:
            return None, "tools.discoveryCommand is set, but tools.callCommand, which runs the tools, is not. Set both."
        from tools.shell.result_text import code_and_signal  # noqa: PLC0415 - loaded on first use
        from tools.shell.running_program import Ending  # noqa: PLC0415 - loaded on first use
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        command, seconds = settings.discovery_command, settings.discovery_seconds
        try:
            request = await self._site.request(DISCOVERY_COMMAND, command, seconds)
            outcome = await self._site.runner().run(replace(request, most_bytes=MAX_BYTES), no_progress)
            if outcome.ending is Ending.TIMED_OUT:
                problem = (
                    f"The discovery command took longer than {seconds:g} s and was stopped. Make it faster, or set a "
                    "longer tools.discoveryTimeout."
                )
            elif outcome.ending is Ending.OVERFLOWED or not outcome.is_whole or len(outcome.tail) > MAX_BYTES:
                problem = (
                    f"The discovery command printed more than the allowed {MAX_BYTES >> 20} MiB, so its output was "
                    "not used. Make it print only the declarations of its tools."
                )
            elif outcome.exit is None or outcome.exit.code != 0:
                code, signal = code_and_signal(outcome.exit)
                failure = f"was killed by {signal}" if signal is not None else f"failed with exit code {code}"
                problem = f"The discovery command {failure}. Run it by hand to see why."
            else:
                return await THREADS.run(partial(read_declarations, outcome.tail, self._reserved_names)), ""
        except (DiscoveryError, ToolError) as error:
            return None, str(error)
        except Exception:
            # The server and all other tools must keep working after any failure.
            logger.exception("the discovery of custom tools failed")
            return None, "The discovery failed because of an internal error. The log has details."
        if outcome.errors:
            problem += f" Its last output: {one_line(redact(outcome.errors[-MAX_QUOTED_CHARS:]))}"
        return None, problem

    def _publish(
        self, settings: DiscoverySettings, declarations: Declarations | None, problem: str, seconds: float
    ) -> None:
        if declarations is not None:
            command = CallCommand(settings.call_command or (), settings.call_seconds, settings.strict, self._site)
            tools = [DiscoveredTool(tool, command) for tool in declarations.tools.values()]
            self._registry.replace_source(SOURCE, tools)
            names, warnings = tuple(declarations.tools), tuple(declarations.warnings)
            self.state = DiscoveryState(DiscoveryStatus.DONE, names, warnings, seconds=seconds)
            logger.info("discovered the custom tools in %.1f s: %d", seconds, len(declarations.tools))
            for warning in warnings:
                logger.warning("discovery of custom tools: %s", warning)
        elif problem and settings.commands == self._published_commands:
            # Keep the tools that were found earlier, because the discovery command may soon work again.
            self.state = DiscoveryState(DiscoveryStatus.FAILED, self.state.tools, problem=problem, seconds=seconds)
        else:
            self._registry.replace_source(SOURCE, ())
            status = DiscoveryStatus.FAILED if problem else DiscoveryStatus.OFF
            self.state = DiscoveryState(status, problem=problem, seconds=seconds)
        self._published_commands = settings.commands
        if problem:
            logger.error("discovery of custom tools: %s", problem)
