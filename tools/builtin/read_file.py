"""`read_file`: one file, or a window of its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tools.builtin.path_parameters import check_spelling, path_subject, shown
from tools.call.base_tool import READS, BuiltinTool
from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.parameters import ToolParams, coerce
from tools.contract.results import ToolResult
from tools.contract.subjects import Access, Kind, Subject
from tools.contract.threads import run_blocking

if TYPE_CHECKING:
    from tools.files.read.reader import FileReader


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
        self._reader.check(params)

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
        return await run_blocking(context.signal, lambda: self._reader.read(params, context))

    @cached_property
    def _reader(self) -> FileReader:
        from tools.files.read.reader import FileReader  # noqa: PLC0415 - with the first call

        return FileReader(self.name)
