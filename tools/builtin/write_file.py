"""`write_file`: writes the whole content of a new or existing file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from tools.builtin.file_tools import (
    COMMON_OUTPUT,
    CREATE_ONLY,
    FILE_ALIASES,
    FOREIGN_PARAMETERS,
    SHA256_PATTERN,
    ChangeParams,
    ChangingTool,
    display_path,
)
from tools.call.base_tool import Behaviour, ToolContext
from tools.contract.tool_parameters import foreign, object_schema

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


class WriteFileParams(ChangeParams):
    content: str = Field(description="The complete new content, taken literally.")
    expected_sha256: str | None = Field(
        default=None, pattern=SHA256_PATTERN, description="Write only if the file's SHA-256 is this."
    )
    encoding: str | None = Field(
        default=None, max_length=40, description="For example 'windows-1252'; default: the file's own, else UTF-8."
    )


class WriteFileTool(ChangingTool[WriteFileParams]):
    name = "write_file"
    title = "Write file"
    display_name = "WriteFile"
    aliases = ("WriteFileTool", "WriteFile")
    description = (
        "Write a file: create it, or overwrite (replace, save) it with the complete content. Missing folders are "
        "created; an existing file keeps its encoding, BOM and line endings. Placeholders such as '// rest of code "
        "...' are refused. To change only part of a file, use edit."
    )
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=True)
    params_model = WriteFileParams
    text_parameter = "content"
    parameter_aliases = {**FILE_ALIASES, "file_text": "content"}  # noqa: RUF012 - declared as a Mapping
    foreign_parameters = {  # noqa: RUF012 - as above
        **FOREIGN_PARAMETERS,
        **dict.fromkeys(("overwrite", "allow_overwrite", "force"), foreign("true", way=CREATE_ONLY)),
        **dict.fromkeys(
            ("mode", "flag", "flags"), foreign("w", "write", "overwrite", "rewrite", way=FOREIGN_PARAMETERS["mode"].way)
        ),
    }
    output_schema = object_schema(
        {
            **COMMON_OUTPUT,
            "changed": {"type": "boolean", "description": "False if the file already had exactly this content."},
            "lines": {"type": "integer", "description": "Lines in the file now."},
        }
    )

    def get_description(self, params: WriteFileParams, context: ToolContext) -> str:
        return f"Write {display_path(params.file_path, context.workspace)}"

    def plan(self, params: WriteFileParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.file_change import plan_write  # noqa: PLC0415 - loaded on first use

        return plan_write(
            target, text, expected_sha256=params.expected_sha256, encoding=params.encoding, is_users=is_users
        )
