"""`read_file`: one file, or a window of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.ledger import SeenFile
from tools.contract.parameters import ToolParams, coerce
from tools.contract.result import Part, TextPart, ToolResult
from tools.filesystem.ignore import agent_ignore_file
from tools.filesystem.media import FileKind
from tools.filesystem.paths import check_spelling, shown
from tools.filesystem.reading.content import Reading, read
from tools.filesystem.workspace import Location

_ALIASES = {"file_path": "absolute_path", "path": "absolute_path"}
_INTEGER = {"type": "integer"}


class ReadFileParams(ToolParams):
    """What to read."""

    absolute_path: str = Field(
        description="Absolute path of the file. A path relative to the workspace is accepted as 'file_path'."
    )
    offset: int = Field(
        default=0,
        description="First line to show, counted from 0. Negative counts from the end: -20 shows the last 20 lines.",
    )
    limit: int | None = Field(
        default=None, ge=1, description="How many lines to show; by default up to 2000. Very long results are cut."
    )
    pages: SkipJsonSchema[str | None] = None


class ReadFileTool(BuiltinTool[ReadFileParams]):
    """Shows a file to the model."""

    name = "read_file"
    display_name = "ReadFile"
    aliases = ("ReadFileTool", "ReadFile")
    description = (
        "Read a file and show its content: view or open source code, text, logs, configuration, SVG and Jupyter "
        "notebooks as text; images, audio, video and PDF as media. Text comes exactly as it is in the file, without "
        "line numbers. When a file is too long for one result, a header says which lines are shown and the offset "
        "that continues. Use offset and limit to page through large files or to see the tail (negative offset)."
    )
    kind = Kind.READ
    behaviour = READS
    params_model = ReadFileParams
    parameter_aliases = _ALIASES

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Turn `start_line` and `end_line` (from 1, inclusive) into `offset` and `limit`."""
        start, end = (coerce(arguments.pop(name, None), _INTEGER) for name in ("start_line", "end_line"))
        if start is None and end is None:
            return arguments
        for name, value in (("start_line", start), ("end_line", end)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidToolParamsError(
                    self.name, f"'{name}' must be a whole number from 1 on, got {value!r:.80}."
                )
        first = start or 1
        if end is not None and end < first:
            raise InvalidToolParamsError(self.name, f"'start_line' {first} lies after 'end_line' {end}.")
        meant = {"offset": first - 1} if end is None else {"offset": first - 1, "limit": end - first + 1}
        for name, value in meant.items():
            if coerce(arguments.setdefault(name, value), _INTEGER) != value:
                raise InvalidToolParamsError(
                    self.name, "'start_line'/'end_line' and 'offset'/'limit' name different lines; give one of them."
                )
        return arguments

    def check(self, params: ReadFileParams, spelled: Mapping[str, str]) -> None:
        """The path keeps what its spelling promises."""
        check_spelling(self.name, params.absolute_path, spelled.get("absolute_path", "absolute_path"))

    def get_description(self, params: ReadFileParams, context: ToolContext) -> str:
        """For example `Read src/app.py (lines 11-20)`."""
        lines = ""
        if params.offset < 0:
            lines = f" (last {-params.offset} lines)"
        elif params.limit is not None:
            last = params.offset + params.limit
            lines = f" (lines {params.offset + 1}-{last})" if params.offset else f" (first {params.limit} lines)"
        elif params.offset:
            lines = f" (from line {params.offset + 1})"
        return f"Read {shown(params.absolute_path, context.workspace)}{lines}"

    async def execute(self, params: ReadFileParams, context: ToolContext) -> ToolResult:
        """Read in one thread hop, and remember what was seen."""
        return await run_blocking(context.signal, lambda: _read(params, context))


def _read(params: ReadFileParams, context: ToolContext) -> ToolResult:
    location = context.workspace.locate(params.absolute_path)
    hidden_by = agent_ignore_file(context.workspace, location)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{params.absolute_path}' is hidden from agents by {hidden_by}, so it is not read. "
            "If it is needed, ask the user to change that file.",
        )
    with context.workspace.open_file(location) as opened:
        reading = read(
            opened,
            location,
            offset=params.offset,
            limit=params.limit,
            limits=context.limits,
            media=context.media,
            signal=context.signal,
        )
        identity = opened.identity
    if context.client.reads is not None:
        context.client.reads.record(location.path, SeenFile(identity, reading.sha256))
    parts: list[Part] = list(reading.parts)
    if reading.kind is FileKind.PDF and (params.pages or "").strip():
        parts.append(TextPart("Single pages cannot be picked here: 'pages' was ignored, this is the whole document."))
    return ToolResult(llm_content=parts, return_display=_display(reading, location), facts=_facts(reading, location))


def _facts(reading: Reading, location: Location) -> dict[str, Any]:
    known: dict[str, Any] = {"path": location.path, "kind": reading.kind.value, "sha256": reading.sha256}
    if reading.kind.is_text:
        known |= {
            "start": reading.start,
            "end": reading.end,
            "total": reading.total,
            "encoding": reading.encoding,
            "eol": reading.eol,
            "truncated": reading.truncated or reading.shortened,
            "next_offset": reading.next_offset,
        }
    return {name: value for name, value in known.items() if value is not None}


def _display(reading: Reading, location: Location) -> str:
    """One line for a person; nothing for a text that is shown whole."""
    name = location.relative
    if reading.kind is FileKind.BINARY:
        return f"Skipped binary file: {name}"
    if not reading.kind.is_text:
        return f"Read {reading.kind.value} file: {name}"
    if reading.kind is FileKind.NOTEBOOK:
        return f"Read notebook: {name}"
    if reading.kind is FileKind.SVG:
        return f"Read SVG as text: {name}"
    if not reading.truncated and reading.start in {0, 1} and not reading.shortened:
        return ""
    total = f" of {reading.total}" if reading.total is not None else ""
    lines = f"{reading.start}-{reading.end}" if reading.start > 0 else f"{reading.start} to {reading.end}"
    notes = (" (truncated)" if reading.truncated else "") + (" (some lines shortened)" if reading.shortened else "")
    return f"Read lines {lines}{total} from {name}{notes}"
