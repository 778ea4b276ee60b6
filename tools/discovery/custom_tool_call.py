"""Calls a custom tool: arguments go to its standard input, and its standard output becomes the result.

Text is returned unchanged. A short JSON object is also returned as structured content. A JSON object in the form of an
MCP result is passed on as the result.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tools.contract.call_options import Progress
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import Part, TextPart, ToolResult
from tools.discovery.custom_tool_declarations import DeclaredTool
from tools.discovery.discovery_commands import CALL_COMMAND, CallCommand, UnusableError, read_json, require_sendable
from tools.machine.threads import THREADS
from tools.shell.command_runner import ProgramOutcome
from tools.shell.program_output import OUTPUT_CHARS
from tools.shell.result_text import DISPLAY_CHARS, code_and_signal, kept_output, kept_part, program_facts, size
from tools.shell.running_program import Ending
from tools.text.file_names import one_line, shown_whole_path

# Placeholders for missing values (as in Qwen Code and Gemini CLI)
EMPTY, NONE = "(empty)", "(none)"
# The reason in the error message if the tool's exit code reports a failure
FAILED = "it failed; read Stdout and Stderr, then correct the arguments or tell the user"
STRUCTURED_BYTES = 8_000  # longer JSON objects are sent only as text, so that large data is not sent twice
MAX_BLOCKS = 1_000  # maximum number of content blocks in a result
_MCP_MEMBERS = frozenset({"content", "structuredContent", "isError", "_meta"})


async def run_tool(
    tool: DeclaredTool, command: CallCommand, arguments: Mapping[str, Any], client_key: str, progress: Progress
) -> ToolResult:
    """Run a tool. Its standard error is sent to the client as progress.

    Raises a `ToolError` (`discovered_tool_execution_error`) if the tool fails, takes too long or cannot start.
    """
    try:
        payload = json.dumps(dict(arguments), ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:  # JSON can represent a lone surrogate only as an escape
        payload = json.dumps(dict(arguments), default=str).encode()
    try:
        request = await command.site.request(CALL_COMMAND, (*command.argv, tool.declared_name), command.seconds)
        request = replace(request, client_key=client_key, standard_input=payload)
        outcome = await command.site.runner().run(request, progress)
    except ToolError as error:
        raise _failure(tool, None, error.message) from None
    if outcome.ending is Ending.TIMED_OUT:
        limit = f"{command.seconds:g} s (tools.callTimeout)"
        reason = f"it took longer than {limit} and was stopped, with all its processes"
    elif outcome.exit is None or outcome.exit.code != 0:
        reason = FAILED
    elif command.strict and outcome.errors:
        reason = "it wrote to standard error, which counts as a failure here (tools.strict)"
    else:
        return await THREADS.run(lambda: _result_of(outcome))
    raise _failure(tool, outcome, reason)


def _failure(tool: DeclaredTool, outcome: ProgramOutcome | None, reason: str) -> ToolError:
    """Return an error whose message ends with the five lines that Qwen Code and Gemini CLI use."""
    stdout = errors = ""
    if outcome is not None:
        output, errors = outcome.shown_output, outcome.errors
        stdout = f"(binary, {size(output.total)})" if output.is_binary else output.text
        if output.file is not None and (output.is_cut or output.is_binary):
            stdout = f"{stdout}\n(the whole output, {size(output.total)}: {shown_whole_path(output.file)})"
    code, signal = code_and_signal(outcome.exit if outcome is not None else None)
    lines = (
        f"The custom tool '{one_line(tool.declared_name)}' failed:",
        f"Stdout: {stdout or EMPTY}",
        f"Stderr: {errors or EMPTY}",
        f"Error: {reason}",
        f"Exit Code: {code if code is not None else NONE}",
        f"Signal: {signal or NONE}",
    )
    return ToolError(ToolErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, "\n".join(lines))


def _result_of(outcome: ProgramOutcome) -> ToolResult:
    """Build the result of a successful call. Blocking, because it may parse several megabytes of JSON."""
    output = outcome.shown_output
    path = shown_whole_path(output.file) if output.file is not None else ""
    parsed: dict[str, Any] | None = None
    stdout = outcome.tail.decode("utf-8-sig", "replace").strip() if outcome.is_whole and not output.is_binary else ""
    if stdout.startswith("{"):
        try:
            parsed = read_json(stdout)
            require_sendable(parsed)
        except UnusableError:
            parsed = None
    if parsed is not None:
        verbatim = _mcp_result(parsed, f"the whole output is in {path}" if path else "the rest is not kept")
        if verbatim is not None:
            return ToolResult(verbatim=verbatim)
    content: list[Part] = [TextPart(output.text)]
    if not output.total and outcome.errors:  # some tools print everything to standard error
        content = [TextPart(f"Stdout: (empty)\nStderr: {outcome.errors}")]
    elif output.is_cut or output.is_binary:
        description = "it is not text" if output.is_binary else "only its beginning and its end are shown"
        rest = "It was not kept" if output.is_binary else "The rest was not kept"
        if output.file is not None:
            hint = "" if output.is_binary else ". Read it with read_file"
            rest = f"{kept_part(output)}{hint}"
        note = f"Note: the output is {size(output.total)} long, and {description}. {rest}."
        text = TextPart("\n\n".join(filter(None, (note, output.text))))
        content = [text, *kept_output(output, "output of the tool")]
    return ToolResult(
        llm_content=content,
        return_display=output.text if len(output.text) <= DISPLAY_CHARS else f"[...]\n{output.text[-DISPLAY_CHARS:]}",
        structured=parsed if parsed is not None and len(outcome.tail) <= STRUCTURED_BYTES else None,
        facts=program_facts(outcome.exit, seconds=outcome.seconds, total=output.total, file=output.file),
    )


def _mcp_result(printed_object: Mapping[str, Any], location: str) -> dict[str, Any] | None:
    """Return a tool's JSON object as an MCP result in wire format, or `None` if it is not in that form.

    The text of all blocks together is truncated to the size of one result, and `location` says where the full text is.
    Content blocks keep only some of the members that the protocol defines; `annotations` and `_meta`, for example, are
    dropped.
    """
    content = printed_object.get("content")
    structured_content, is_error = printed_object.get("structuredContent"), printed_object.get("isError", False)
    if not isinstance(content, list) or not printed_object.keys() <= _MCP_MEMBERS:
        return None
    if not isinstance(is_error, bool) or not isinstance(structured_content, dict | None):
        return None
    entries = cast("list[Any]", content)
    if len(entries) > MAX_BLOCKS or not (entries or structured_content):
        return None
    blocks: list[dict[str, Any]] = []
    chars_left = OUTPUT_CHARS
    for entry in entries:
        block: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        kind = block.get("type")
        if kind == "resource":
            inner: Any = block.get("resource")
            block = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
            required_keys: tuple[str, ...] = ("uri", "text" if isinstance(block.get("text"), str) else "blob")
            optional_keys: tuple[str, ...] = ("mimeType",)
        elif kind == "resource_link":
            required_keys, optional_keys = ("uri", "name"), ("title", "description", "mimeType")
        elif kind in ("text", "image", "audio"):
            required_keys, optional_keys = (("text",) if kind == "text" else ("data", "mimeType")), ()
        else:
            return None
        members = {key: block[key] for key in (*required_keys, *optional_keys) if block.get(key) is not None}
        if not members.keys() >= set(required_keys) or not all(isinstance(value, str) for value in members.values()):
            return None
        for key in {"data", "blob"} & members.keys():
            try:
                binascii.a2b_base64(members[key], strict_mode=True)
            except ValueError:
                return None
        if isinstance(text := members.get("text"), str):
            if len(text) > chars_left:
                members["text"] = f"{text[:chars_left]}\n[... cut here, {location} ...]"
            chars_left = max(chars_left - len(text), 0)
        blocks.append({"type": kind, "resource": members} if kind == "resource" else {"type": kind, **members})
    result: dict[str, Any] = {"content": blocks}
    if is_error:
        result["isError"] = True
    elif structured_content is not None and len(json.dumps(structured_content)) <= OUTPUT_CHARS:
        result["structuredContent"] = structured_content
    return result
