"""`DiscoveredTool`: a custom tool of the operator's, carried out by the call command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tools.call.base_tool import BaseTool, Behaviour
from tools.call.context import ToolContext
from tools.contract.confirmation import ConfirmationDetails, InfoConfirmation
from tools.contract.errors import InvalidToolParamsError
from tools.contract.names_on_one_line import one_line
from tools.contract.results import ToolResult
from tools.contract.subjects import Kind
from tools.contract.threads import run_blocking
from tools.discovery.commands import CallCommand
from tools.discovery.declarations import DeclaredTool

if TYPE_CHECKING:
    from tools.discovery.argument_check import ArgumentCheck


GROUP = "DiscoveredTool"
"""How rules call all custom tools."""

GEMINI_PREFIX = "discovered_tool_"
"""What Gemini CLI puts before the name of a custom tool, so its rules have it."""

RUN_BY = "This is a custom tool: it is run by the call command that the operator of this server has configured."

DESCRIBED_CHARS = 200
"""Characters of the parameters' names in the line that describes a call."""

Arguments = Mapping[str, Any]


class DiscoveredTool(BaseTool[Arguments]):
    """Runs one custom tool. What it does is not known, so it may do anything.

    Args:
        declared: What is known of it.
        command: Carries it out.
    """

    kind = Kind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False, open_world=True)

    def __init__(self, declared: DeclaredTool, command: CallCommand) -> None:
        self.name = declared.name
        self.display_name = declared.title
        self.description = f"{declared.description}\n\n{RUN_BY}".lstrip("\n")
        self._declared = declared
        self._command = command

    def __eq__(self, other: object) -> bool:
        """Equal when a client would see and get the same."""
        return isinstance(other, DiscoveredTool) and (self._declared, self._command) == (
            other._declared,
            other._command,
        )

    def __hash__(self) -> int:
        """By name; schemas are not hashable."""
        return hash(self.name)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """Its name, alone and as Gemini CLI writes it, and the name of all custom tools."""
        return self.name, f"{GEMINI_PREFIX}{self.name}", GROUP

    @property
    def parameter_schema(self) -> Arguments:
        """As declared, in the words of JSON Schema."""
        return self._declared.schema

    def validate_tool_params(self, arguments: Arguments) -> Arguments:
        """Hold the arguments against the schema. What takes long is checked in `execute` only, in a thread."""
        from tools.discovery.argument_check import LongCheckError  # noqa: PLC0415 - loaded since the discovery

        try:
            read = self._check.gently_read(arguments)
            self._require_fitting(self._check.quick_problem_of(read))
        except LongCheckError:
            return arguments
        return read

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        """Its name, and the names of the arguments."""
        del context
        names = ", ".join(params) or "no arguments"
        return f"Run the custom tool {self._declared.title} ({one_line(names[:DESCRIBED_CHARS])})"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        """The command, the tool and all arguments."""
        import shlex  # noqa: PLC0415 - with the first question

        from tools.contract.secrets import redact  # noqa: PLC0415 - as above

        del context
        command = redact(shlex.join((*self._command.argv, self._declared.called)))
        arguments = json.dumps(dict(params), indent=2, ensure_ascii=False, default=str)
        return InfoConfirmation(
            title=f"Run the custom tool {self.name}",
            prompt=f"Command: {command}\nFolder: {self._command.site.folder}\nOn its standard input: {arguments}",
        )

    async def execute(self, params: Arguments, context: ToolContext) -> ToolResult:
        """Give the call command the name and the arguments, and tell what it prints."""
        from tools.discovery.argument_check import LongCheckError  # noqa: PLC0415 - loaded since the discovery
        from tools.discovery.call import run_tool  # noqa: PLC0415 - with the first call

        context.signal.raise_if_aborted()
        try:
            problem = self._check.quick_problem_of(params)
        except LongCheckError:
            problem = await run_blocking(context.signal, lambda: self._check.problem_of(params))
        self._require_fitting(problem)
        return await run_tool(self._declared, self._command, params, context)

    @property
    def _check(self) -> ArgumentCheck:
        return self._declared.check

    def _require_fitting(self, problem: str | None) -> None:
        if problem is not None:
            raise InvalidToolParamsError(self.name, problem)
