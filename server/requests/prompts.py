"""The prompt `at`: files in the conversation of any client, as after an `@` in Qwen Code and Gemini CLI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from server.exposure import encodable
from tools.call.context import ToolContext
from tools.call.flow import package
from tools.contract.confirmation import Question
from tools.contract.errors import ToolError
from tools.contract.results import FunctionCall, TextPart, ToolResult
from tools.contract.threads import run_blocking

AT = "at"
PATHS = "paths"
READER = "read_many_files"
"""The tool that reads what the prompt names."""

MAX_ERROR_CHARS = 2_000
"""Characters of an error; clients show it in a line or a box."""

MAX_LINE_CHARS = 16_384
"""Characters of the argument, as of a line that is completed; four times the longest path."""

AT_PROMPT: dict[str, Any] = {
    "name": AT,
    "title": "Files (@)",
    "description": "Put the content of files into the conversation, as @ does in Qwen Code and Gemini CLI.",
    "arguments": [
        {
            "name": PATHS,
            "title": "Paths",
            "description": "Files, folders or globs, separated by blanks or commas: README.md src/**/*.py. "
            'A path with blanks in quotes: "my notes.txt". An @ before a path is allowed.',
            "required": True,
        }
    ],
}

Runner = Callable[[FunctionCall], Awaitable[ToolResult | Question]]
"""Runs a call through the flow, for the client at hand."""


async def read_at(arguments: dict[str, str] | None, context: ToolContext, run: Runner) -> ToolResult | Question:
    """Read what the prompt's argument names.

    Args:
        arguments: As they came.
        context: Where URIs are looked up: one means exactly the file or folder that is there.
        run: Runs a call.

    Returns:
        A result in which at least one file was read, or a question that has to be asked first.

    Raises:
        MCPError: Nothing is named, nothing was read, or the call failed. A prompt has no way to say so in its messages
            that a person would see before the model does.
    """
    line = (arguments or {}).get(PATHS, "")
    if len(line) > MAX_LINE_CHARS:
        raise MCPError(
            code=types.INVALID_PARAMS,
            message=f"'{PATHS}' has {len(line):,} characters; {MAX_LINE_CHARS:,} are accepted. Name folders or globs.",
        )
    named = _paths(line)
    if not named:
        raise MCPError(
            code=types.INVALID_PARAMS,
            message=f"'{PATHS}' is required: files, folders or globs, separated by blanks or commas.",
        )
    await _look_up([path for path, is_of_uri in named if is_of_uri], context)
    paths = [path for path, _ in named]
    outcome = await run(FunctionCall(READER, {"paths": paths}))
    if len(paths) > 1 and isinstance(outcome, ToolResult) and not outcome.facts.get("files"):
        # Some clients take the quotes off before they send the argument: then the blanks belong to one path.
        whole = await run(FunctionCall(READER, {"paths": [line.strip().removeprefix("@")]}))
        outcome = whole if isinstance(whole, ToolResult) and whole.facts.get("files") else outcome
    if isinstance(outcome, ToolResult):
        _refuse_nothing(outcome)
    return outcome


def _paths(line: str) -> list[tuple[str, bool]]:
    """The paths that a line names, and whether a URI did."""
    from server.file_uris import UriRefusedError, path_of_uri  # noqa: PLC0415 - starting up does not need them
    from tools.files.find.path_completion import typed_paths  # noqa: PLC0415

    items = typed_paths(line)
    if items and items[-1].is_open:
        shown = encodable(items[-1].path[:80])
        raise MCPError(code=types.INVALID_PARAMS, message=f"The quote before '{shown}' is not closed; close it.")
    try:
        return [
            (path_of_uri(item.path), True) if item.path.lower().startswith("file://") else (item.path, False)
            for item in items
        ]
    except UriRefusedError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from None


async def _look_up(paths: Sequence[str], context: ToolContext) -> None:
    """Refuse what is not there; read as a name that a person typed, it could still mean other files."""
    workspace = context.workspace
    try:
        if paths:
            await run_blocking(context.signal, lambda: [workspace.locate_exactly(path) for path in paths])
    except ToolError as error:
        data = {"type": error.code.value}
        raise MCPError(code=types.INVALID_PARAMS, message=_brief(error.message), data=data) from None


def _refuse_nothing(result: ToolResult) -> None:
    """Raise where no file was read, with what the model would have been told."""
    if result.error is not None:
        data = {"type": result.error.code.value}
        raise MCPError(code=types.INVALID_PARAMS, message=_brief(result.error.message), data=data)
    if not result.facts.get("files"):
        said = "\n".join(part.text for part in package(READER, result).parts if isinstance(part, TextPart))
        raise MCPError(code=types.INVALID_PARAMS, message=_brief(said), data={"type": "nothing_read"})


def _brief(message: str) -> str:
    return encodable(message[:MAX_ERROR_CHARS])
