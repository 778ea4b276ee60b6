"""The `at` prompt: adds files to the conversation of any client, like `@` in Qwen Code and Gemini CLI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from server.protocol.protocol_errors import INVALID_PARAMS, MCPError
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import Question
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import FunctionCall, TextPart, ToolResult, package
from tools.machine.threads import run_blocking

AT = "at"
PATHS = "paths"
READER = "read_many_files"  # the tool that reads the files
MAX_ERROR_CHARS = 2_000  # characters of an error, which clients show in a line or a box
MAX_LINE_CHARS = 16_384  # characters of the argument, or of a line to complete: four times the longest path

AT_PROMPT: dict[str, Any] = {
    "name": AT,
    "title": "Files (@)",
    "description": "Add the content of files to the conversation, like @ in Qwen Code and Gemini CLI.",
    "arguments": [
        {
            "name": PATHS,
            "title": "Paths",
            "description": "Files, folders or globs, separated by spaces or commas: README.md src/**/*.py. Put a "
            'path with spaces in quotes: "my notes.txt". An @ before a path is allowed.',
            "required": True,
        }
    ],
}

# Runs a call through the call flow, for the current client
Runner = Callable[[FunctionCall], Awaitable[ToolResult | Question]]


async def read_at(arguments: dict[str, str] | None, context: ToolContext, run: Runner) -> ToolResult | Question:
    """Read the files that the argument names.

    If no file was read and there is no question to ask, an error is raised, which the user sees.
    """
    from server.protocol.file_uris import UriRefusedError, path_of_uri  # noqa: PLC0415 - loaded on first use
    from tools.files.find.path_completion import typed_paths  # noqa: PLC0415

    line = (arguments or {}).get(PATHS, "")
    if len(line) > MAX_LINE_CHARS:
        raise _refusal(
            f"'{PATHS}' has {len(line):,} characters; the maximum is {MAX_LINE_CHARS:,}. Name folders or globs."
        )
    items = typed_paths(line)
    if not items:
        raise _refusal(f"'{PATHS}' is required: files, folders or globs, separated by spaces or commas.")
    if items[-1].is_open:
        raise _refusal(f"The quote before '{items[-1].path[:80]}' is not closed.")
    paths: list[str] = []
    of_uris: list[str] = []
    for item in items:
        path = item.path
        if path.lower().startswith("file://"):
            try:
                path = path_of_uri(path)
            except UriRefusedError as error:
                raise _refusal(str(error)) from None
            of_uris.append(path)
        paths.append(path)
    if of_uris:
        # A person typed these URIs, so their paths are taken literally: an approximate match could read other files.
        workspace = context.workspace
        try:
            await run_blocking(context.signal, lambda: [workspace.locate_exactly(path) for path in of_uris])
        except ToolError as error:
            raise _refusal(error.message, error.code.value) from None
    outcome = await run(FunctionCall(READER, {"paths": paths}))
    if len(paths) > 1 and isinstance(outcome, ToolResult) and not outcome.facts.get("files"):
        # Some clients remove quotes from the argument, so spaces in the argument may belong to a single path.
        whole = await run(FunctionCall(READER, {"paths": [line.strip().removeprefix("@")]}))
        outcome = whole if isinstance(whole, ToolResult) and whole.facts.get("files") else outcome
    if isinstance(outcome, Question):
        return outcome
    # If no file was read, the client shows the text that the model would have received.
    if outcome.error is not None:
        raise _refusal(outcome.error.message, outcome.error.code.value)
    if not outcome.facts.get("files"):
        text = "\n".join(part.text for part in package(READER, outcome).parts if isinstance(part, TextPart))
        raise _refusal(text, "nothing_read")
    return outcome


def _refusal(message: str, kind: str | None = None) -> MCPError:
    data = {"type": kind} if kind is not None else None
    return MCPError(INVALID_PARAMS, message[:MAX_ERROR_CHARS], data=data)
