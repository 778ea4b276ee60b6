"""`read_file`: one file, or a window of its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.ledger import SeenFile
from tools.contract.names import sendable_name
from tools.contract.parameters import ToolParams, coerce
from tools.contract.result import Part, TextPart, ToolResult
from tools.contract.subject import Access, Subject
from tools.filesystem.ignore import refuse_hidden
from tools.filesystem.paths import check_spelling, path_subject, shown
from tools.filesystem.reading.content import read
from tools.filesystem.reading.media import FileKind
from tools.filesystem.reading.outcome import Reading
from tools.filesystem.reading.pdf import ALL_PAGES, Pages
from tools.filesystem.workspace import Location

_ALIASES = {"file_path": "absolute_path", "path": "absolute_path"}
_INTEGER = {"type": "integer"}


_AS_TEXT = {
    FileKind.NOTEBOOK: "Read notebook",
    FileKind.SVG: "Read SVG as text",
    FileKind.PDF: "Read PDF as text",
}
"""What a person is told of a file that is shown as another text than it holds."""


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
    pages: str | None = Field(
        default=None,
        max_length=40,
        description="Only these pages of a PDF, from 1: '3', '10-15' or '8-'. Offset and limit then count their lines.",
    )


class ReadFileTool(BuiltinTool[ReadFileParams]):
    """Shows a file to the model."""

    name = "read_file"
    display_name = "ReadFile"
    aliases = ("ReadFileTool", "ReadFile")
    description = (
        "Read a file and show its content: view or open source code, text, logs, configuration, SVG and Jupyter "
        "notebooks as text, PDF as the text of its pages where that can be read; images, audio and video as media. "
        "Text comes exactly as it is in the file, without line numbers. When a file is too long for one result, a "
        "header says which lines are shown and the offset that continues. Use offset and limit to page through large "
        "files or to see the tail (negative offset)."
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
        """The path keeps what its spelling promises, and the pages are a run of pages."""
        check_spelling(self.name, params.absolute_path, spelled.get("absolute_path", "absolute_path"))
        try:
            _pages(params)
        except ValueError:
            raise InvalidToolParamsError(
                self.name, f"'pages' must be like '3', '10-15' or '8-', counted from 1; got {params.pages!r}."
            ) from None

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

    def subjects(self, params: ReadFileParams, context: ToolContext) -> Sequence[Subject]:
        """The file."""
        return (path_subject(context.workspace, params.absolute_path, Access.READ),)

    async def execute(self, params: ReadFileParams, context: ToolContext) -> ToolResult:
        """Read in one thread hop, and remember what was seen."""
        return await run_blocking(context.signal, lambda: _read(params, context))


def _read(params: ReadFileParams, context: ToolContext) -> ToolResult:
    location = context.workspace.locate(params.absolute_path)
    refuse_hidden(context.workspace, location, "read")
    with context.workspace.open_file(location) as opened:
        reading = read(
            opened,
            location,
            offset=params.offset,
            limit=params.limit,
            limits=context.limits,
            media=context.media,
            signal=context.signal,
            pages=_pages(params),
        )
        identity = opened.identity
    if context.client.reads is not None:
        context.client.reads.record(location.path, SeenFile(identity, reading.sha256))
    parts: list[Part] = list(reading.parts)
    if reading.kind is FileKind.PDF and not reading.is_text and (params.pages or "").strip():
        parts.append(
            TextPart("Without its text no pages can be picked: 'pages' was ignored, this is the whole document.")
        )
    return ToolResult(llm_content=parts, return_display=_display(reading, location), facts=_facts(reading, location))


def _pages(params: ReadFileParams) -> Pages:
    """The pages that are asked for; a blank text asks for all (as in Qwen Code).

    Raises:
        ValueError: It is no run of pages.
    """
    wanted = (params.pages or "").strip()
    return Pages.parse(wanted) if wanted else ALL_PAGES


def _facts(reading: Reading, location: Location) -> dict[str, Any]:
    known: dict[str, Any] = {"path": sendable_name(location.path), "kind": reading.kind.value, "sha256": reading.sha256}
    if reading.is_text:
        known |= {
            "start": reading.start,
            "end": reading.end,
            "total": reading.total,
            "encoding": reading.encoding,
            "encoding_is_guess": reading.is_guess or None,
            "eol": reading.eol,
            "truncated": reading.truncated or reading.shortened,
            "next_offset": reading.next_offset,
            "pages": reading.pages,
        }
    return {name: value for name, value in known.items() if value is not None}


def _display(reading: Reading, location: Location) -> str:
    """One line for a person; nothing for a text that is shown whole."""
    name = location.relative
    if reading.kind is FileKind.BINARY:
        return f"Skipped binary file: {name}"
    if not reading.is_text:
        return f"Read {reading.kind.value} file: {name}"
    if reading.kind in _AS_TEXT:
        return f"{_AS_TEXT[reading.kind]}: {name}"
    if not reading.truncated and reading.start in {0, 1} and not reading.shortened:
        return ""
    total = f" of {reading.total}" if reading.total is not None else ""
    lines = f"{reading.start}-{reading.end}" if reading.start > 0 else f"{reading.start} to {reading.end}"
    notes = (" (truncated)" if reading.truncated else "") + (" (some lines shortened)" if reading.shortened else "")
    return f"Read lines {lines}{total} from {name}{notes}"
