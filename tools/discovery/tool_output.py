"""What a custom tool has printed, as its result: text as it stands, JSON also as such, MCP content as content."""

from __future__ import annotations

from typing import Any, cast

from tools.contract.names import shown_whole_path
from tools.contract.result import FileDataPart, Part, TextPart, ToolResult
from tools.discovery.json_text import UnreadableError, read_json, require_sendable
from tools.discovery.mcp_content import mcp_result
from tools.execution.command import Shown
from tools.execution.program_runner import ProgramOutcome
from tools.execution.report_text import DISPLAY_CHARS, program_facts, size

STRUCTURED_CHARS = 8_000
"""A longer JSON object is sent as text only: never is much sent twice."""


def result_of(outcome: ProgramOutcome) -> ToolResult:
    """The result of a tool that has succeeded. Blocking: it may read some megabytes of JSON."""
    shown = outcome.shown
    parsed = _object_in(outcome)
    if parsed is not None:
        verbatim = mcp_result(parsed, _whereabouts(shown))
        if verbatim is not None:
            return ToolResult(verbatim=verbatim)
    text = shown.text
    return ToolResult(
        llm_content=_content(outcome),
        return_display=text if len(text) <= DISPLAY_CHARS else f"[...]\n{text[-DISPLAY_CHARS:]}",
        structured=parsed if parsed is not None and len(outcome.tail) <= STRUCTURED_CHARS else None,
        facts=program_facts(outcome.exit, seconds=outcome.seconds, total=shown.total, file=shown.file),
    )


def _object_in(outcome: ProgramOutcome) -> dict[str, Any] | None:
    """The JSON object that was printed, if it was one and nothing else."""
    if not outcome.is_whole or outcome.shown.is_binary:
        return None
    text = outcome.tail.decode("utf-8-sig", "replace").strip()
    if not text.startswith("{"):
        return None
    try:
        value = cast("dict[str, Any]", read_json(text))
        require_sendable(value)
    except UnreadableError:
        return None
    return value


def _content(outcome: ProgramOutcome) -> list[Part]:
    shown = outcome.shown
    if not shown.total and outcome.errors:
        # Some tools tell everything on standard error.
        return [TextPart(f"Stdout: (empty)\nStderr: {outcome.errors}")]
    if not shown.is_cut and not shown.is_binary:
        return [TextPart(shown.text)]
    parts: list[Part] = [TextPart("\n\n".join(filter(None, (_note(shown), shown.text))))]
    if shown.file is not None:
        from pathlib import Path  # noqa: PLC0415 - most outputs are short

        kind = "application/octet-stream" if shown.is_binary else "text/plain"
        parts.append(FileDataPart(Path(shown.file).as_uri(), "output of the tool", kind, shown.total - shown.missing))
    return parts


def _whereabouts(shown: Shown) -> str:
    return f"all that the tool printed is in {_path(shown)}" if shown.file is not None else "the rest is not kept"


def _path(shown: Shown) -> str:
    return shown_whole_path(shown.file or "")


def _note(shown: Shown) -> str:
    what = "it is no text" if shown.is_binary else "only its beginning and its end are shown"
    if shown.file is None:
        return f"Note: the output has {size(shown.total)}; {what}. The rest is not kept."
    lacking = f" (without the last {size(shown.missing)}, which are not kept)" if shown.missing else ""
    how = "" if shown.is_binary else "; read_file shows it by lines"
    return f"Note: the output has {size(shown.total)}; {what}. All of it{lacking} is in {_path(shown)}{how}."
