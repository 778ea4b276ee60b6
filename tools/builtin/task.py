"""`task`: hands a task to another agent, which is a program that the operator has configured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from tools.agent_programs import MAX_DEPTH, AgentCommand, depth_in
from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.confirmation import ExecConfirmation
from tools.contract.permission_subjects import AgentSubject, Subject, ToolKind
from tools.contract.tool_errors import ExecutionDeniedError, ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams, foreign, full_schema, published_schema
from tools.contract.tool_results import Part, TextPart, ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief, one_line, shown_whole_path

if TYPE_CHECKING:
    from tools.shell.command_runner import ProgramOutcome, ProgramRunner


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

    An agent needs the network and its own configuration, so it runs outside the command sandbox. Therefore a call needs
    consent unless a rule or the mode allows it, and the question shows the whole task and the command line. Each agent
    has a unique name.
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
        from tools.files.child_process import find_configured  # noqa: PLC0415 - loaded on first use
        from tools.shell.command_runner import ProgramRequest  # noqa: PLC0415 - as above
        from tools.shell.program_output import OUTPUT_CHARS, OutputSnapshot  # noqa: PLC0415
        from tools.shell.result_text import DISPLAY_CHARS, kept_output, program_facts, size  # noqa: PLC0415
        from tools.shell.running_program import Ending  # noqa: PLC0415

        context.signal.raise_if_aborted()
        self._refuse_nested()
        agent, runner = self._agents[params.subagent_type], self._runner()
        environment, roots = agent.environment(self._environment), context.workspace.roots
        search_path = environment.get("PATH", "")
        program = await run_blocking(context.signal, lambda: find_configured(agent.command, search_path, None, roots))
        if program is None:
            name, program_name = one_line(agent.name), one_line(os.path.basename(agent.command))
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The agent '{name}' was not started: its program '{program_name}' does not exist or cannot be run. A "
                "program name is looked up on the PATH, except in the workspace; a path must be absolute. Tell the "
                f"user: the operator can install the program, or set agents.{name}.command.",
            )
        request = ProgramRequest(
            argv=(program, *agent.arguments(params.prompt)),
            folder=context.workspace.first_root,
            environment=environment,
            client_key=context.client.key,
            timeout_seconds=agent.timeout / 1000,
            standard_input=params.prompt.encode("utf-8", "replace") if agent.prompt == "stdin" else b"",
        )
        outcome = await runner.run(request, context.progress)
        output = outcome.shown_output
        answer = read_answer(outcome.tail, is_whole=outcome.is_whole) if agent.output == "json" else None
        has_failed = outcome.ending is Ending.TIMED_OUT or outcome.exit is None or outcome.exit.code != 0
        if answer is None:
            text, is_cut = output.text, output.is_cut
        else:
            answer_text, is_error = answer
            text, is_cut = OutputSnapshot(b"", answer_text.encode("utf-8", "replace"), is_whole=True).text(OUTPUT_CHARS)
            has_failed = has_failed or is_error
        if has_failed or not text:
            raise _failure(agent, outcome, answer)
        content: list[Part] = [TextPart(text)]
        if is_cut:
            file_note = f" Its whole output is in {shown_whole_path(output.file)}." if output.file is not None else ""
            note = f"Note: the agent printed {size(output.total)}. Only the beginning and end of its answer are shown."
            content = [TextPart(f"{note}{file_note}\n\n{text}"), *kept_output(output, "output of the agent")]
        facts = program_facts(outcome.exit, seconds=outcome.seconds, total=output.total, file=output.file)
        display = text if len(text) <= DISPLAY_CHARS else f"{text[:DISPLAY_CHARS]}\n[...]"
        return ToolResult(llm_content=content, return_display=display, facts={"agent": agent.name, **facts})

    def _refuse_nested(self) -> None:
        if depth_in(self._environment) >= MAX_DEPTH:
            raise ExecutionDeniedError(
                "An agent started this server, and agents cannot hand tasks to other agents, so nothing was done. Do "
                "the task yourself."
            )


# Keys that may contain the answer in the last JSON object: those of Claude Code, Qwen Code and Gemini CLI, and other
# common ones
_TEXT_KEYS = ("result", "response", "content", "text")


def read_answer(output: bytes, *, is_whole: bool) -> tuple[str, bool] | None:
    """Return the answer in the last JSON object that an agent printed, and whether the agent reports a failure.

    `None` means that there is neither an answer nor a failure. Unless `is_whole` is true, `output` contains only the
    end of what the agent printed.
    """
    text = output.decode("utf-8", "replace").strip()
    last: Any = None
    for candidate in ([text] if is_whole else []) + [text.rpartition("\n")[2]]:
        try:
            last = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if last is not None:
            break
    if isinstance(last, list):
        last = cast("list[Any]", last)[-1] if last else None
    if not isinstance(last, dict):
        return None
    fields = cast("dict[str, Any]", last)
    error = fields.get("error")
    if error:
        message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
        return message if isinstance(message, str) else json.dumps(error, ensure_ascii=False), True
    for key in _TEXT_KEYS:
        value: Any = fields.get(key)
        if isinstance(value, list):  # content blocks
            blocks = [cast("dict[str, Any]", block) for block in cast("list[Any]", value) if isinstance(block, dict)]
            value = "\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))
        if isinstance(value, str) and value.strip():
            return value.strip(), fields.get("is_error") is True
    return ("", True) if fields.get("is_error") is True else None


def _failure(agent: AgentCommand, outcome: ProgramOutcome, answer: tuple[str, bool] | None) -> ToolError:
    from tools.shell.result_text import DISPLAY_CHARS  # noqa: PLC0415 - already loaded
    from tools.shell.running_program import Ending  # noqa: PLC0415 - already loaded

    status = outcome.exit
    if outcome.ending is Ending.TIMED_OUT:
        failure = (
            f"took longer than {agent.timeout / 1000:g} s and was stopped with all its processes. Split the task; "
            f"the operator can give the agent more time with agents.{agent.name}.timeout"
        )
    elif status is not None and status.signal is not None:
        failure = f"was killed by {status.signal}"
    elif status is not None and status.code:
        failure = f"failed with exit code {status.code}"
    elif answer is not None:
        failure = "reported a failure"
    else:
        failure = "exited without an answer"
    output = (answer[0] if answer is not None else "") or outcome.errors or outcome.shown_output.text
    output_note = f" Its last output:\n{output[-DISPLAY_CHARS:]}\n" if output else ""
    return ToolError(
        ToolErrorType.EXECUTION_FAILED,
        f"The agent '{one_line(agent.name)}' {one_line(failure)}. Its changes so far remain, so check them before you "
        f"try again.{output_note}",
    )
