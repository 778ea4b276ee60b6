"""The operator's agents: programs that receive a task and print their answer."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import Part, TextPart, ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import one_line, shown_whole_path

if TYPE_CHECKING:
    from tools.contract.limits import AbortSignal, Progress
    from tools.files.workspace import Workspace
    from tools.shell.command_runner import ProgramOutcome, ProgramRunner

DEPTH_VARIABLE = "CORETOOLS_MCP_AGENT_DEPTH"  # how deeply the agent is nested; 1 if no other agent started it
MAX_DEPTH = 1  # maximum nesting depth: an agent cannot start further agents


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    name: str
    command: str  # the program: a name to look up on `PATH` outside the workspace, or an absolute path
    description: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)  # the program's arguments; no shell parses them
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Names of this server's environment variables that the agent inherits, besides those that all commands inherit
    inherit_env: tuple[str, ...] = ()
    prompt: Literal["stdin", "argument"] = "stdin"  # how the task is passed: on standard input or as the last argument
    output: Literal["text", "json"] = "text"  # what the agent prints: text, or JSON with the answer in the last object
    timeout: int = 600_000  # time limit in milliseconds

    @property
    def display_command(self) -> str:
        """The command line for display, without anything that looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        if self.prompt == "stdin":
            return self.args
        # The program would parse a task with a leading dash as an option, so the task is prefixed with a space.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def environment(self, server_environment: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's whole environment: that of commands, plus the variables of `inherit_env` and `env`."""
        from tools.shell.command_environment import command_environment  # noqa: PLC0415 - loaded on first use

        own_variables = {name: server_environment[name] for name in self.inherit_env if name in server_environment}
        depth = str(depth_in(server_environment) + 1)
        return {**command_environment({}, server_environment), **own_variables, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """Return how deeply the agent that started a server is nested: 0 for none, `MAX_DEPTH` for an invalid value."""
    value = environment.get(DEPTH_VARIABLE) or "0"
    return int(value) if value.isascii() and value.isdigit() and len(value) == 1 else MAX_DEPTH


# Keys under which the last object may contain the answer: those of Claude Code, Qwen Code and Gemini CLI, and common
# keys
_TEXT_KEYS = ("result", "response", "content", "text")


def read_answer(output: bytes, *, is_whole: bool) -> tuple[str, bool] | None:
    """Return the answer in the last JSON object that an agent printed, and whether it is an error; `None` if none.

    Unless `is_whole` is true, `output` contains only the end of what the agent printed.
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
    return None


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


async def run_agent(
    agent: AgentCommand,
    task: str,
    runner: ProgramRunner,
    server_environment: Mapping[str, str],
    *,
    workspace: Workspace,
    client_key: str,
    progress: Progress,
    signal: AbortSignal,
) -> ToolResult:
    """Have an agent perform a task in the first workspace folder. Raises a `ToolError` if it fails to answer."""
    from tools.files.child_process import find_configured  # noqa: PLC0415 - loaded on first use
    from tools.shell.command_runner import ProgramRequest  # noqa: PLC0415 - as above
    from tools.shell.program_output import OUTPUT_CHARS, OutputSnapshot  # noqa: PLC0415
    from tools.shell.result_text import DISPLAY_CHARS, kept_output, program_facts, size  # noqa: PLC0415
    from tools.shell.running_program import Ending  # noqa: PLC0415

    environment = agent.environment(server_environment)
    search_path = environment.get("PATH", "")
    program = await run_blocking(signal, lambda: find_configured(agent.command, search_path, None, workspace.roots))
    if program is None:
        name, program_name = one_line(agent.name), one_line(os.path.basename(agent.command))
        raise ToolError(
            ToolErrorType.EXECUTION_FAILED,
            f"The agent '{name}' was not started: its program '{program_name}' does not exist or cannot be run. A name "
            "is looked up on the PATH outside the workspace; anything else must be an absolute path. Tell the user: "
            f"the operator can install the program, or set agents.{name}.command.",
        )
    request = ProgramRequest(
        argv=(program, *agent.arguments(task)),
        folder=workspace.first_root,
        environment=environment,
        client_key=client_key,
        timeout_seconds=agent.timeout / 1000,
        standard_input=task.encode("utf-8", "replace") if agent.prompt == "stdin" else b"",
    )
    outcome = await runner.run(request, progress)
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
