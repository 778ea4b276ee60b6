"""One call of a custom tool: its arguments on standard input, its result from standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names_on_one_line import one_line, shown_whole_path
from tools.contract.results import ToolResult
from tools.contract.threads import THREADS
from tools.discovery.commands import CALL_COMMAND, CallCommand
from tools.discovery.declarations import DeclaredTool
from tools.discovery.tool_output import result_of
from tools.shell.command import Ending
from tools.shell.runner import ProgramOutcome
from tools.shell.status_text import code_and_signal, size

EMPTY, NONE = "(empty)", "(none)"
"""What a label is followed by where there is nothing (Qwen Code's and Gemini CLI's words)."""

FAILED = "it failed; read Stdout and Stderr, then mend the arguments or tell the user"
"""What is said of a tool that tells its failure itself."""


async def run_tool(
    declared: DeclaredTool, command: CallCommand, arguments: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    """Run a tool.

    Args:
        declared: Which.
        command: Carries it out.
        arguments: Written to its standard input as JSON.
        context: For whom.

    Raises:
        ToolError: It failed, took too long or was not started (`discovered_tool_execution_error`).
    """
    site, given = command.site, _as_json(arguments)
    try:
        request = await site.request(CALL_COMMAND, (*command.argv, declared.called), command.seconds)
        request = replace(request, client_key=context.client.key, given=given)
        outcome = await site.runner().run(request, context.progress)
    except ToolError as error:
        raise _failure(declared, None, error.message) from None
    status = outcome.exit
    if outcome.ending is Ending.TIMED_OUT:
        said = f"it took longer than {command.seconds:g} s (tools.callTimeout) and was ended, with all it started"
        raise _failure(declared, outcome, said)
    if status is None or status.code != 0:
        raise _failure(declared, outcome, FAILED)
    if command.strict and outcome.errors:
        raise _failure(declared, outcome, "it wrote to standard error, which counts as a failure here (tools.strict)")
    return await THREADS.run(lambda: result_of(outcome))


def _as_json(arguments: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can stand for
        return json.dumps(dict(arguments), default=str).encode()


def _failure(declared: DeclaredTool, outcome: ProgramOutcome | None, why: str) -> ToolError:
    """The five lines by which Qwen Code and Gemini CLI tell of a failure."""
    code, signal = code_and_signal(outcome.exit if outcome is not None else None)
    printed, errors = _printed(outcome)
    lines = (
        f"The custom tool '{one_line(declared.called)}' failed:",
        f"Stdout: {printed or EMPTY}",
        f"Stderr: {errors or EMPTY}",
        f"Error: {why}",
        f"Exit Code: {code if code is not None else NONE}",
        f"Signal: {signal or NONE}",
    )
    return ToolError(ToolErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, "\n".join(lines))


def _printed(outcome: ProgramOutcome | None) -> tuple[str, str]:
    if outcome is None:
        return "", ""
    shown = outcome.shown
    text = f"(binary, {size(shown.total)})" if shown.is_binary else shown.text
    if shown.file is not None and (shown.is_cut or shown.is_binary):
        text = f"{text}\n(all {size(shown.total)} of it: {shown_whole_path(shown.file)})"
    return text, outcome.errors
