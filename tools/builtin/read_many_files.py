"""`read_many_files`: reads several files into one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import Field

from tools.builtin.path_parameters import (
    MAX_PATTERNS,
    FileFilteringOptions,
    ShortPattern,
    gather_options,
    path_subjects,
    respects,
)
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.limits import SEARCH_SECONDS
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import ToolParams, coerce
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief

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
        gathered = gather_options(arguments)
        for name in ("paths", "include", "exclude"):
            if name in gathered:
                parsed = coerce(gathered[name], {"type": "array"})
                gathered[name] = [parsed] if isinstance(parsed, str) else parsed
        include = gathered.pop("include", None)
        if include is not None:
            paths = gathered.get("paths", [])
            both_lists = isinstance(paths, list) and isinstance(include, list)
            gathered["paths"] = [*cast("list[Any]", paths), *cast("list[Any]", include)] if both_lists else include
        return gathered

    def check(self, params: ReadManyFilesParams, spelled: Mapping[str, str]) -> None:
        for entry in (*params.paths, *(params.exclude or ())):
            if not entry.strip():
                raise InvalidToolParamsError(self.name, "an entry of 'paths' or 'exclude' is blank; omit it.")

    def get_description(self, params: ReadManyFilesParams, context: ToolContext) -> str:
        named = ", ".join(brief(path) for path in params.paths[:3]) + (", ..." if len(params.paths) > 3 else "")
        return f"Read files: {named}"

    def subjects(self, params: ReadManyFilesParams, context: ToolContext) -> Sequence[Subject]:
        return path_subjects(context.workspace, params.paths)

    async def execute(self, params: ReadManyFilesParams, context: ToolContext) -> ToolResult:
        from tools.files.find.folder_walk import Filters  # noqa: PLC0415
        from tools.files.find.glob_patterns import PatternRefusedError  # noqa: PLC0415 - loaded on first use
        from tools.files.read.several_files import read_several  # noqa: PLC0415

        git, agent = respects(context.workspace, params.file_filtering_options)
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
