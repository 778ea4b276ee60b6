"""`task`: hands a task to another agent, which is a program that the operator has configured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tools.agents import MAX_DEPTH, AgentCommand, depth_in, run_agent
from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.confirmation import ExecConfirmation
from tools.contract.permission_subjects import AgentSubject, Subject, ToolKind
from tools.contract.tool_errors import ExecutionDeniedError
from tools.contract.tool_parameters import ToolParams, foreign, full_schema, published_schema
from tools.contract.tool_results import ToolResult
from tools.text.file_names import brief, one_line

if TYPE_CHECKING:
    from tools.shell.command_runner import ProgramRunner


MAX_PROMPT_CHARS = 24_000  # the whole prompt has to fit in a question
MAX_DESCRIPTION_CHARS = 200
PURPOSE = (
    "Hand a task to another agent and wait for its answer: self-contained work of many steps, such as searching a "
    "large codebase, a review, or a second opinion. It works in the first workspace folder, knows nothing of this "
    "conversation, and gives one answer, which the user sees only if you repeat it. Agents:"
)


class TaskParams(ToolParams):
    prompt: str = Field(
        max_length=MAX_PROMPT_CHARS,
        description="The whole task. The agent cannot see this conversation: say what to do, what it has "
        "to know, and what to answer.",
    )
    subagent_type: str = Field(default="", description="The name of the agent.")
    description: str = Field(
        default="", max_length=MAX_DESCRIPTION_CHARS, description="The task in three to five words, for the user."
    )


class TaskTool(BuiltinTool[TaskParams]):
    """Hands a task to an agent and waits for its answer. The tool is offered only if agents are configured.

    An agent needs the network and its own configuration, so it runs outside the command sandbox. Therefore every call
    needs consent, and the question shows the whole task and the command line. Each agent has a unique name.
    """

    name = "task"
    title = "Hand over task"
    display_name = "Task"
    aliases = ("agent", "TaskTool", "Task", "AgentTool", "Agent", "invoke_agent")
    kind = ToolKind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, open_world=True)
    params_model = TaskParams
    parameter_aliases: Mapping[str, str] = {"agent_name": "subagent_type"}
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        "run_in_background": foreign("false", way="Each call waits for the agent's answer.")
    }

    def __init__(
        self,
        agents: Sequence[AgentCommand],
        runner: Callable[[], ProgramRunner],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._runner = runner
        self._environment = os.environ if environment is None else environment
        descriptions = (f": {one_line(agent.description)}" if agent.description else "" for agent in agents)
        lines = (
            f"- {one_line(agent.name)}{description}" for agent, description in zip(agents, descriptions, strict=True)
        )
        self.description = "\n".join([PURPOSE, *lines])
        self._schema = published_schema(full_schema(TaskParams))
        name_schema = self._schema["properties"]["subagent_type"]
        name_schema["enum"] = list(self._agents)
        name_schema.pop("default", None)
        if len(self._agents) > 1:
            self._schema["required"] = [*self._schema["required"], "subagent_type"]

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """Return the schema with the agents' names. If there is only one agent, its name is optional."""
        return self._schema

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Fill in the name of the only agent, or match the given name regardless of case."""
        agent_name = arguments.get("subagent_type")
        if agent_name is None and len(self._agents) == 1:
            arguments["subagent_type"] = next(iter(self._agents))
        elif isinstance(agent_name, str) and agent_name not in self._agents:
            matches = [name for name in self._agents if name.casefold() == agent_name.strip().casefold()]
            arguments["subagent_type"] = matches[0] if len(matches) == 1 else agent_name
        return arguments

    def problems(self, params: TaskParams, original_names: Mapping[str, str]) -> Iterator[str]:
        if params.subagent_type not in self._agents:
            names = ", ".join(map(one_line, self._agents))
            yield f"there is no agent '{brief(params.subagent_type)}'. 'subagent_type' must be one of: {names}."
        if not params.prompt.strip() or "\0" in params.prompt:
            yield "'prompt' is empty or contains a NUL character; describe the task as text."

    def get_description(self, params: TaskParams, context: ToolContext) -> str:
        return f"Task for {one_line(params.subagent_type)}: {brief(params.description or params.prompt.strip())}"

    def subjects(self, params: TaskParams, context: ToolContext) -> Sequence[Subject]:
        return (AgentSubject(params.subagent_type),)

    async def should_confirm_execute(self, params: TaskParams, context: ToolContext) -> ExecConfirmation:
        self._refuse_nested()
        agent = self._agents[params.subagent_type]
        return ExecConfirmation(
            title=f"Hand a task to the agent {agent.name}, which runs outside the sandbox",
            command=f"{agent.display_command}\n\n{params.prompt}",
            directory=context.workspace.first_root,
            description=params.description,
            state=agent.display_command,
        )

    async def execute(self, params: TaskParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        self._refuse_nested()
        agent = self._agents[params.subagent_type]
        return await run_agent(
            agent,
            params.prompt,
            self._runner(),
            self._environment,
            workspace=context.workspace,
            client_key=context.client.key,
            progress=context.progress,
            signal=context.signal,
        )

    def _refuse_nested(self) -> None:
        if depth_in(self._environment) >= MAX_DEPTH:
            raise ExecutionDeniedError(
                "An agent started this server, and agents cannot hand tasks to other agents, so nothing was done. Do "
                "the task yourself."
            )
