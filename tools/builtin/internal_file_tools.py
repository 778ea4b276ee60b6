"""Internal tools that clients do not see: files as MCP resources, and path completion.

Their calls go through the same runner as all other calls. Resources follow the rules for `read_file`, and completions
those for `list_directory`. Unlike `read_file`, a resource always returns media and other binary files as bytes, because
the client requested exactly this file.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import Field

from tools.builtin.file_tools import PathReader, display_path
from tools.call.base_tool import ToolContext
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import InlineDataPart, ToolResult
from tools.files.find.path_suggestions import entries_that_start_with, files_containing
from tools.files.ignore_files import refuse_hidden
from tools.files.read.file_reader import read, read_beginning
from tools.files.read.line_window import LineRequest
from tools.files.read.media_files import TEXT_KINDS, FileKind
from tools.files.workspace import explain
from tools.machine.threads import run_blocking
from tools.text.file_names import sendable_name

# Limit for a binary file. In base64 this is 13 MB, the limit for media in `read_many_files`.
MAX_BLOB_BYTES = 10_000_000
# The MIME types, keyed by file extension, of text that clients display specially. All other text is `text/plain`. A
# notebook is shown as its cells.
_TEXT_TYPES = {
    **dict.fromkeys((".md", ".markdown", ".ipynb"), "text/markdown"),
    **dict.fromkeys((".html", ".htm"), "text/html"),
    **dict.fromkeys((".js", ".mjs"), "text/javascript"),
    **dict.fromkeys((".yaml", ".yml"), "application/yaml"),
    **{f".{kind}": f"application/{kind}" for kind in ("json", "xml", "toml")},
    **{f".{kind}": f"text/{kind}" for kind in ("css", "csv")},
    ".tsv": "text/tab-separated-values",
    ".py": "text/x-python",
}


class FileResourceParams(ToolParams):
    absolute_path: str = Field(description="The absolute path of the file.")


class FileResourceTool(PathReader[FileResourceParams]):
    """Reads one file for a client. If the file is text, `facts` in the result includes its MIME type."""

    name = "read_file"
    display_name = "ReadFileResource"
    description = "The content of one file, as a resource."
    kind = ToolKind.READ
    path_parameter = "absolute_path"
    params_model = FileResourceParams

    def get_description(self, params: FileResourceParams, context: ToolContext) -> str:
        return f"Read {display_path(params.absolute_path, context.workspace)}"

    async def execute(self, params: FileResourceParams, context: ToolContext) -> ToolResult:
        """Read the file in a thread. An edit still requires `read_file`, because the model might not see a resource."""

        def read_file() -> ToolResult:
            workspace, limits = context.workspace, context.limits
            location = workspace.locate_exactly(params.absolute_path)
            refuse_hidden(workspace, location, "read")
            facts: dict[str, Any] = {"path": sendable_name(location.name)}
            with workspace.open_file(location) as file:
                (file_type, head), size = read_beginning(file, location), file.info.st_size
                if file_type.kind not in TEXT_KINDS:
                    if size > MAX_BLOB_BYTES:
                        raise ToolError(
                            ToolErrorType.FILE_TOO_LARGE,
                            f"'{location.shown}' is {size:,} bytes long and is not text. Such a resource may be at "
                            f"most {MAX_BLOB_BYTES:,} bytes long. Open the file by its path.",
                        )
                    try:
                        part = InlineDataPart(file_type.mime_type, file.whole(context.signal), "")
                    except OSError as error:
                        raise explain(error, location.shown) from None
                    return ToolResult(llm_content=part, facts=facts | {"kind": file_type.kind.value})
                line_range = LineRequest(0, limits.read_lines, limits, context.signal)
                reading = read(file, location, file_type, head, line_range, context.media)
            mime_type = file_type.mime_type
            if file_type.kind is not FileKind.SVG:
                mime_type = _TEXT_TYPES.get(os.path.splitext(location.path)[1].lower(), "text/plain")
            facts |= {
                "kind": reading.kind.value,
                "mime_type": mime_type,
                "truncated": reading.truncated or reading.shortened,
                "total": reading.total,
                "next_offset": reading.next_offset,
            }
            facts = {name: fact for name, fact in facts.items() if fact is not None}
            return ToolResult(list(reading.parts), facts=facts)

        return await run_blocking(context.signal, read_file)


MAX_VALUES = 100  # the protocol's limit on completion values


class CompletePathParams(ToolParams):
    path: str = Field(description="The folder.")
    start: str = Field(description="The start of a name in the folder; if `below` is true, any part of a name.")
    below: bool = Field(default=False, description="Also look in subfolders.")


class CompletePathTool(PathReader[CompletePathParams]):
    """Completes a path. `facts` in the result has `names`, `total` and `partial`."""

    name = "list_directory"
    display_name = "CompletePath"
    description = "Completions of a partly typed path."
    kind = ToolKind.SEARCH
    params_model = CompletePathParams

    def get_description(self, params: CompletePathParams, context: ToolContext) -> str:
        return f"Complete a path in {display_path(params.path, context.workspace)}"

    async def execute(self, params: CompletePathParams, context: ToolContext) -> ToolResult:
        def complete() -> ToolResult:
            folder = context.workspace.locate(params.path)
            find = files_containing if params.below else entries_that_start_with
            completions = find(context.workspace, folder, params.start, MAX_VALUES, context.signal)
            total, is_partial = completions.total, completions.partial
            return ToolResult(facts={"names": completions.names, "total": total, "partial": is_partial})

        return await run_blocking(context.signal, complete)
