"""`read_file` reads one file, or a range of its lines, and `read_many_files` reads several files into one result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pydantic import Field

from tools.builtin.file_tools import (
    MAX_PATTERNS,
    FileFilteringOptions,
    PathReader,
    ShortPattern,
    display_path,
    file_path_problems,
    gather_options,
    ignore_flags,
    path_subjects,
)
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.call_options import SEARCH_SECONDS
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import OTHER_NAME, ToolParams, coerce
from tools.contract.tool_results import ToolResult
from tools.files.path_opener import from_memory
from tools.machine.threads import run_blocking
from tools.text.file_names import brief, sendable_name

_INTEGER = {"type": "integer"}
# How the display text names a converted file, keyed by its kind
_SHOWN_AS = {"notebook": "notebook", "svg": "SVG as text", "pdf": "PDF as text"}


class ReadFileParams(ToolParams):
    absolute_path: str = Field(
        description="Absolute. Give a relative path as file_path.", json_schema_extra={OTHER_NAME: "file_path"}
    )
    offset: int = Field(default=0, description="First line, from 0; -20 means the last 20 lines.")
    limit: int | None = Field(default=None, ge=1, description="2000 lines by default.")
    pages: str | None = Field(
        default=None,
        max_length=40,
        description="Pages of a PDF: '3', '10-15' or '8-'. offset and limit then count their lines.",
    )
    chars: str | None = Field(default=None, max_length=40, description="Characters of the line at offset: '2000-4000'.")


class ReadFileTool(PathReader[ReadFileParams]):
    name = "read_file"
    title = "Read file"
    display_name = "ReadFile"
    aliases = ("ReadFileTool", "ReadFile")
    description = (
        "Read a file (view, open, cat, head, tail): text unchanged, without line numbers; notebooks, SVG and PDF as "
        "text; images, audio and video as media. If it is too long, a header says which lines are shown and the next "
        "offset."
    )
    kind = ToolKind.READ
    path_parameter = "absolute_path"
    params_model = ReadFileParams
    parameter_aliases: Mapping[str, str] = {"file_path": "absolute_path", "path": "absolute_path"}

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert `start_line` and `end_line` (from 1, inclusive) to `offset` and `limit`, and page numbers to text."""
        page = coerce(arguments.get("pages"), _INTEGER)
        if isinstance(page, int) and not isinstance(page, bool) and page:
            arguments["pages"] = str(page)
        if "start_line" not in arguments and "end_line" not in arguments:
            return arguments
        start, end = (coerce(arguments.pop(name, None), _INTEGER) for name in ("start_line", "end_line"))
        for name, value in (("start_line", start), ("end_line", end)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                problem = f"'{name}' must be a whole number of at least 1, got {value!r:.80}."
                raise InvalidToolParamsError(self.name, problem)
        first = start or 1
        if end is not None and end < first:
            raise InvalidToolParamsError(self.name, f"'start_line' {first} is after 'end_line' {end}.")
        line_window = {"offset": first - 1} if end is None else {"offset": first - 1, "limit": end - first + 1}
        for name, value in line_window.items():
            if coerce(arguments.setdefault(name, value), _INTEGER) != value:
                problem = "'start_line'/'end_line' and 'offset'/'limit' select different lines; give only one pair."
                raise InvalidToolParamsError(self.name, problem)
        return arguments

    def problems(self, params: ReadFileParams, original_names: Mapping[str, str]) -> Iterator[str]:
        yield from file_path_problems(params.absolute_path, original_names.get("absolute_path", "absolute_path"))
        problem = ""
        try:
            if params.pages is not None:
                from tools.files.read.pdf import Pages  # noqa: PLC0415 - loaded on first use

                problem = f"'pages' must look like '3', '10-15' or '8-', counted from 1; got {params.pages!r}."
                Pages.parse(params.pages)
            if params.chars is not None:
                from tools.files.read.line_window import CharRange  # noqa: PLC0415 - loaded on first use

                problem = f"'chars' must look like '2000-4000' or '2000-', counted from 0; got {params.chars!r}."
                CharRange.parse(params.chars)
        except ValueError:
            yield problem

    def get_description(self, params: ReadFileParams, context: ToolContext) -> str:
        lines = ""
        if params.chars is not None:
            lines = f" (characters {params.chars} of the line at offset {params.offset})"
        elif params.offset < 0:
            lines = f" (last {-params.offset} lines)"
        elif params.limit is not None:
            last = params.offset + params.limit
            lines = f" (lines {params.offset + 1}-{last})" if params.offset else f" (first {params.limit} lines)"
        elif params.offset:
            lines = f" (from line {params.offset + 1})"
        return f"Read {display_path(params.absolute_path, context.workspace)}{lines}"

    async def execute(self, params: ReadFileParams, context: ToolContext) -> ToolResult:
        """Read the file, in a thread if this may block, and record what the model has seen."""
        from tools.files.read.file_reader import read_path  # noqa: PLC0415
        from tools.files.read.line_window import CharRange  # noqa: PLC0415 - loaded on first use

        work = partial(
            read_path,
            context.workspace,
            params.absolute_path,
            offset=params.offset,
            limit=params.limit,
            pages=params.pages or "",
            chars=CharRange.parse(params.chars) if params.chars is not None else None,
            limits=context.limits,
            media=context.media,
            signal=context.signal,
            reads=context.reads,
        )
        # Try to read the file on the event loop. If this would block, give up and read it in a thread.
        reading, location = from_memory(work) or await run_blocking(context.signal, work)
        kind = reading.kind
        facts: dict[str, Any] = {"path": sendable_name(location.name), "kind": kind.value, "sha256": reading.sha256}
        if reading.is_text:
            facts |= {
                "start": reading.start,
                "end": reading.end,
                "total": reading.total,
                "encoding": reading.encoding,
                "encoding_is_guess": reading.is_guess or None,
                "eol": reading.eol,
                "truncated": reading.truncated or reading.shortened,
                "next_offset": reading.next_offset,
                "next_char": reading.next_char,
                "pages": reading.pages,
            }
        display = ""  # a text file that is returned in full needs no display text
        if not reading.is_text:
            action = "Skipped binary" if kind == "binary" else f"Read {kind.value}"
            display = f"{action} file: {location.brief}"
        elif kind in _SHOWN_AS:
            display = f"Read {_SHOWN_AS[kind]}: {location.brief}"
        elif reading.truncated or reading.shortened or reading.start not in {0, 1}:
            lines = f"{reading.start}-{reading.end}" if reading.start > 0 else f"{reading.start} to {reading.end}"
            total = f" of {reading.total}" if reading.total is not None else ""
            notes = " (truncated)" if reading.truncated else ""
            notes += " (some lines shortened)" if reading.shortened else ""
            display = f"Read lines {lines}{total} from {location.brief}{notes}"
        facts = {key: fact for key, fact in facts.items() if fact is not None}
        return ToolResult(list(reading.parts), display, facts=facts)


MAX_PATHS = 1_000  # maximum number of paths and globs per call


class ReadManyFilesParams(ToolParams):
    paths: list[ShortPattern] = Field(
        min_length=1,
        max_length=MAX_PATHS,
        description="Files, folders (with their contents) and globs: ['README.md', 'src/**/*.py'].",
    )
    exclude: list[ShortPattern] | None = Field(
        default=None, max_length=MAX_PATTERNS, description="More globs to exclude."
    )
    useDefaultExcludes: bool = Field(  # noqa: N815 - the name on the wire
        default=True, description="Exclude node_modules, .git, dist, build, binary files, .env and the like."
    )
    file_filtering_options: FileFilteringOptions | None = Field(
        default=None, description="False also reads what .gitignore, .qwenignore and the like hide."
    )


class ReadManyFilesTool(BuiltinTool[ReadManyFilesParams]):
    seconds = SEARCH_SECONDS  # time limit for finding the files; reading them has the same time limit

    name = "read_many_files"
    title = "Read several files"
    display_name = "ReadManyFiles"
    aliases = ("ReadManyFilesTool", "ReadManyFiles")
    description = (
        "Read several files at once (like cat), by path, folder or glob. Each starts with a line '--- path ---'. Media "
        "and PDF files only if named or matched by extension. For one file use read_file."
    )
    kind = ToolKind.READ
    behaviour = READS
    params_model = ReadManyFilesParams

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Merge `include` into `paths`, accept a single string in place of a list, and collect the filter options."""
        normalised = gather_options(arguments)
        for name in ("paths", "include", "exclude"):
            if name in normalised:
                parsed = coerce(normalised[name], {"type": "array"})
                normalised[name] = [parsed] if isinstance(parsed, str) else parsed
        include = normalised.pop("include", None)
        if include is not None:
            paths = normalised.get("paths", [])
            both_lists = isinstance(paths, list) and isinstance(include, list)
            normalised["paths"] = [*cast("list[Any]", paths), *cast("list[Any]", include)] if both_lists else include
        return normalised

    def problems(self, params: ReadManyFilesParams, original_names: Mapping[str, str]) -> Iterator[str]:
        if not all(map(str.strip, (*params.paths, *(params.exclude or ())))):
            yield "an entry of 'paths' or 'exclude' is blank; omit it."

    def get_description(self, params: ReadManyFilesParams, context: ToolContext) -> str:
        path_list = ", ".join(brief(path) for path in params.paths[:3]) + (", ..." if len(params.paths) > 3 else "")
        return f"Read files: {path_list}"

    def subjects(self, params: ReadManyFilesParams, context: ToolContext) -> Sequence[Subject]:
        return path_subjects(context.workspace, params.paths)

    async def execute(self, params: ReadManyFilesParams, context: ToolContext) -> ToolResult:
        from tools.files.find.folder_walk import Filters  # noqa: PLC0415
        from tools.files.find.glob_search import PatternRefusedError  # noqa: PLC0415 - loaded on first use
        from tools.files.read.several_files import read_several  # noqa: PLC0415

        git, agent = ignore_flags(context.workspace, params.file_filtering_options)
        try:
            return await run_blocking(
                context.signal,
                lambda: read_several(
                    context.workspace,
                    params.paths,
                    exclude=params.exclude or (),
                    use_default_excludes=params.useDefaultExcludes,
                    filters=Filters(git=git, agent=agent),
                    limits=context.limits,
                    media=context.media,
                    signal=context.signal,
                    reads=context.reads,
                    seconds=self.seconds,
                ),
            )
        except PatternRefusedError as error:
            raise InvalidToolParamsError(self.name, f"{error}.") from None
