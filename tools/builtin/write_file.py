"""`write_file`: the whole content of one file, new or replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from tools.builtin.file_changes import COMMON_OUTPUT, SHA256_PATTERN, ChangeParams, ChangingTool
from tools.builtin.path_parameters import FILE_ALIASES, shown
from tools.call.base_tool import Behaviour
from tools.call.context import ToolContext
from tools.contract.parameters import object_schema

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


class WriteFileParams(ChangeParams):
    content: str = Field(description="The complete new content of the file, byte for byte as it shall be written.")
    expected_sha256: str | None = Field(
        default=None,
        pattern=SHA256_PATTERN,
        description="Write only if the file's present content has this SHA-256 digest.",
    )
    encoding: str | None = Field(
        default=None,
        max_length=40,
        description="Encoding to write in, such as 'windows-1252'; by default that of the present file where it is "
        "certain, else UTF-8.",
    )


class WriteFileTool(ChangingTool[WriteFileParams]):
    name = "write_file"
    display_name = "WriteFile"
    aliases = ("WriteFileTool", "WriteFile")
    description = (
        "Write a file: create a new file or overwrite (replace, save) an existing one with the complete content "
        "given. Missing folders are created. An existing file keeps its encoding, byte order mark and line endings. "
        "To change only a part of a file use edit. The content is written literally: no escapes are interpreted, and "
        "placeholders such as '// rest of code ...' are refused."
    )
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=True)
    params_model = WriteFileParams
    text_parameter = "content"
    parameter_aliases = FILE_ALIASES
    output_schema = object_schema(
        {
            **COMMON_OUTPUT,
            "changed": {"type": "boolean", "description": "False if the file held exactly this content already."},
            "lines": {"type": "integer", "description": "Lines in the file now."},
        }
    )

    def get_description(self, params: WriteFileParams, context: ToolContext) -> str:
        return f"Write {shown(params.file_path, context.workspace)}"

    def plan(self, params: WriteFileParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.whole_file import plan_write  # noqa: PLC0415 - with the first call

        return plan_write(
            target, text, expected_sha256=params.expected_sha256, encoding=params.encoding, is_users=is_users
        )
