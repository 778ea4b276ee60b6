"""The work of `task`: an agent is run, and its answer is told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names_on_one_line import one_line, shown_whole_path
from tools.contract.results import FileDataPart, Part, TextPart, ToolResult
from tools.contract.threads import run_blocking
from tools.files.programs import find_configured
from tools.shell.command import OUTPUT_CHARS, Ending
from tools.shell.output import Snapshot
from tools.shell.runner import ProgramOutcome, ProgramRequest
from tools.shell.status_text import DISPLAY_CHARS, program_facts, size

if TYPE_CHECKING:
    from tools.planning.agent_command import AgentCommand
    from tools.shell.runner import ProgramRunner


_TEXT_KEYS = ("result", "response", "content", "text")
"""Where the last object holds the answer: Claude Code's key, that of Qwen Code and Gemini CLI, and the usual ones."""


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent says at last.

    Args:
        text: In its own words.
        is_error: Whether it says that it has failed.
    """

    text: str
    is_error: bool = False


def read_answer(printed: bytes, *, is_whole: bool) -> AgentAnswer | None:
    """The answer in the last object of what an agent has printed; `None` if there is none.

    Args:
        printed: The end of it, or all.
        is_whole: Whether it is all.
    """
    text = printed.decode("utf-8", "replace").strip()
    found = _parsed(text) if is_whole else None
    if found is None:
        found = _parsed(text.rpartition("\n")[2])
    if isinstance(found, list):
        messages = cast("list[Any]", found)
        found = messages[-1] if messages else None
    return _answer_of(cast("dict[str, Any]", found)) if isinstance(found, dict) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _answer_of(last: Mapping[str, Any]) -> AgentAnswer | None:
    error = last.get("error")
    if error:
        message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
        return AgentAnswer(message if isinstance(message, str) else json.dumps(error, ensure_ascii=False), True)
    text = next((text for key in _TEXT_KEYS if (text := _message_text(last.get(key)))), "")
    return AgentAnswer(text, last.get("is_error") is True) if text else None


def _message_text(value: Any) -> str:
    """A text, or the texts of blocks of content."""
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, list):
        return ""
    blocks = [cast("dict[str, Any]", block) for block in cast("list[Any]", value) if isinstance(block, dict)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts).strip()


async def run_agent(
    agent: AgentCommand, task: str, context: ToolContext, runner: ProgramRunner, inherited: Mapping[str, str]
) -> ToolResult:
    """Have an agent do a task.

    Args:
        agent: Who.
        task: In the model's words.
        context: For whom, and where.
        runner: Runs it.
        inherited: The server's own environment.

    Raises:
        ToolError: It was not started, took too long, failed, or said nothing.
    """
    environment = agent.environment(inherited)
    search_path = environment.get("PATH", "")
    program = await run_blocking(context.signal, lambda: _program_of(agent, search_path, context))
    request = ProgramRequest(
        argv=(program, *agent.arguments(task)),
        folder=context.workspace.first_root,
        environment=environment,
        client_key=context.client.key,
        timeout_seconds=agent.timeout / 1000,
        given=agent.given(task),
    )
    outcome = await runner.run(request, context.progress)
    answer = read_answer(outcome.tail, is_whole=outcome.is_whole) if agent.output == "json" else None
    if outcome.ending is Ending.TIMED_OUT or _has_failed(outcome) or (answer is not None and answer.is_error):
        raise _failure(agent, outcome, answer)
    text, is_cut = _answer_text(outcome, answer)
    if not text:
        raise _failure(agent, outcome, answer)
    shown = outcome.shown
    facts = program_facts(outcome.exit, seconds=outcome.seconds, total=shown.total, file=shown.file)
    return ToolResult(
        llm_content=_content(outcome, text, is_cut=is_cut),
        return_display=text if len(text) <= DISPLAY_CHARS else f"{text[:DISPLAY_CHARS]}\n[...]",
        facts={"agent": agent.name, **facts},
    )


def _program_of(agent: AgentCommand, search_path: str, context: ToolContext) -> str:
    """The absolute path of an agent's program.

    Raises:
        ToolError: It is not there.
    """
    program = find_configured(agent.command, search_path, None, context.workspace.roots)
    if program is None:
        name, program_name = one_line(agent.name), one_line(os.path.basename(agent.command))
        raise ToolError(
            ToolErrorType.EXECUTION_FAILED,
            f"The agent '{name}' was not started: its program '{program_name}' is not there, or cannot be "
            "run. A name is looked for on the PATH outside the workspace, everything else has to be an absolute path. "
            f"Tell the user: the operator can install it, or set agents.{name}.command.",
        )
    return program


def _has_failed(outcome: ProgramOutcome) -> bool:
    return outcome.exit is None or outcome.exit.code != 0


def _answer_text(outcome: ProgramOutcome, answer: AgentAnswer | None) -> tuple[str, bool]:
    """The answer, and whether something in its middle is left out."""
    if answer is not None:
        return Snapshot(b"", answer.text.encode("utf-8", "replace"), is_whole=True).text(OUTPUT_CHARS)
    return outcome.shown.text, outcome.shown.is_cut


def _content(outcome: ProgramOutcome, text: str, *, is_cut: bool) -> list[Part]:
    """The answer alone, unless it is too long."""
    if not is_cut:
        return [TextPart(text)]
    shown = outcome.shown
    where = f" All it printed is in {shown_whole_path(shown.file)}." if shown.file is not None else ""
    note = f"Note: the agent printed {size(shown.total)}; only the beginning and the end of its answer are shown."
    parts: list[Part] = [TextPart(f"{note}{where}\n\n{text}")]
    if shown.file is not None:
        from pathlib import Path  # noqa: PLC0415 - most answers are short

        uri = Path(shown.file).as_uri()
        parts.append(FileDataPart(uri, "output of the agent", "text/plain", shown.total - shown.missing))
    return parts


def _failure(agent: AgentCommand, outcome: ProgramOutcome, answer: AgentAnswer | None) -> ToolError:
    """What a model is told of an agent that gave no answer."""
    status = outcome.exit
    if outcome.ending is Ending.TIMED_OUT:
        how = (
            f"took longer than {agent.timeout / 1000:g} s and was ended, with all it had started. Split the task; the "
            f"operator can give it more time with agents.{agent.name}.timeout"
        )
    elif status is not None and status.signal is not None:
        how = f"was ended by {status.signal}"
    elif status is not None and status.code:
        how = f"failed with exit code {status.code}"
    elif answer is not None:
        how = "says that it has failed"
    else:
        how = "ended without an answer"
    said = (answer.text if answer is not None else "") or outcome.errors or outcome.shown.text
    last = f" Its last words:\n{said[-DISPLAY_CHARS:]}\n" if said else ""
    return ToolError(
        ToolErrorType.EXECUTION_FAILED,
        f"The agent '{one_line(agent.name)}' {one_line(how)}. What it did until then stays, so look before you try "
        f"again.{last}",
    )
