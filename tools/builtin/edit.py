"""The tools that change a file: `edit`, `notebook_edit` for one cell of a notebook, and `write_file`.

`edit` leaves every other byte unchanged. `read_file` shows the ids of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tools.builtin.file_tools import (
    CREATE_ONLY,
    FILE_ALIASES,
    FOREIGN_PARAMETERS,
    SHA256_PATTERN,
    ChangeParams,
    ChangingTool,
    display_path,
)
from tools.call.base_tool import Behaviour, ToolContext
from tools.contract.tool_parameters import UNPUBLISHED, ToolParams, coerce, folded, foreign
from tools.files.notebook_cells import NOTEBOOK_ENDING
from tools.text.file_names import brief, one_line, shown_path

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


MAX_DESCRIBED_CHARS = 30  # characters of each text in a call's description (as in Qwen Code and Gemini CLI)


class EditParams(ChangeParams):
    old_string: str = Field(description="The exact text to replace, with enough context. Empty creates a new file.")
    new_string: str = Field(description="The replacement. Empty deletes the text (and whole lines' line breaks).")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")
    expected_sha256: str | None = Field(
        default=None, pattern=SHA256_PATTERN, description="Edit only if the file's SHA-256 is this."
    )
    encoding: str | None = Field(
        default=None, max_length=40, description="For non-ASCII text in a non-Unicode file: 'shift_jis'."
    )
    expected_replacements: int | None = Field(default=None, ge=1, json_schema_extra=UNPUBLISHED)


class EditTool(ChangingTool[EditParams]):
    name = "edit"
    title = "Edit file"
    display_name = "Edit"
    aliases = ("replace", "EditTool", "Edit")
    description = (
        "Edit a file: replace old_string with new_string (search and replace, sed; insert or delete lines). old_string "
        "must be unique unless replace_all is set. Copy it exactly, including white space, without line numbers. All "
        "else stays, including encoding and line endings."
    )
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = EditParams
    text_parameter = "new_string"
    parameter_aliases: Mapping[str, str] = {
        **FILE_ALIASES, "allow_multiple": "replace_all",
        "old_str": "old_string", "old_text": "old_string", "new_str": "new_string", "new_text": "new_string",
    }  # fmt: skip
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        **FOREIGN_PARAMETERS,
        "edits": foreign(way="Each call makes one replacement; call edit once for each."),
        "regex": foreign("false", way="old_string is literal text; copy the text to replace."),
    }

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept the older `expected_replacements` parameter. A count above one implies `replace_all`."""
        expected = coerce(arguments.get("expected_replacements"), {"type": "integer"})
        if isinstance(expected, int) and expected > 1:
            arguments.setdefault("replace_all", True)
        return arguments

    def get_description(self, params: EditParams, context: ToolContext) -> str:
        path = display_path(params.file_path, context.workspace)
        if not params.old_string:
            return f"Create {path}"
        if params.old_string == params.new_string:
            return f"No changes to {path}"
        from tools.files.change.diff import common_prefix  # noqa: PLC0415 - loaded on first use

        short_texts: list[str] = []
        # Begin with the first line that differs or, if it is long, shortly before the difference.
        changed_at = common_prefix(params.old_string, params.new_string)
        start = params.old_string.rfind("\n", 0, changed_at) + 1
        if changed_at - start > MAX_DESCRIBED_CHARS // 2:
            start = changed_at - MAX_DESCRIBED_CHARS // 3
        for text in (params.old_string, params.new_string):
            rest = text[start:].lstrip() if start else text
            short = rest.strip().partition("\n")[0].rstrip()[:MAX_DESCRIBED_CHARS]
            short_texts.append(one_line(("..." if start else "") + (short if short == rest else f"{short}...")))
        return f"Edit {path}: {' => '.join(short_texts)}"

    def plan(self, params: EditParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.text_edit import plan_edit  # noqa: PLC0415 - loaded on first use

        return plan_edit(
            target,
            params.old_string,
            text,
            replace_all=params.replace_all,
            expected_replacements=params.expected_replacements,
            expected_sha256=params.expected_sha256,
            encoding=params.encoding,
            is_users=is_users,
        )


class NotebookEditParams(ToolParams):
    notebook_path: str = Field(description="The .ipynb.")
    cell_id: str | None = Field(default=None, description="From read_file, or cell-N from 0. Insert adds after it.")
    new_source: str = Field(default="", description="Whole source.")
    cell_type: Literal["code", "markdown"] | None = Field(default=None, description="New type.")
    edit_mode: Literal["replace", "insert", "delete"] = Field(default="replace", description="What to do.")


class NotebookEditTool(ChangingTool[NotebookEditParams]):
    name = "notebook_edit"
    title = "Edit notebook"
    display_name = "NotebookEdit"
    aliases = ("NotebookEditTool", "NotebookEdit")
    description = "Replace, insert or delete a cell of a Jupyter notebook. Clears the outputs of changed code."
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = NotebookEditParams
    path_parameter = "notebook_path"
    text_parameter = "new_source"
    parameter_aliases: Mapping[str, str] = {
        **dict.fromkeys(("file_path", "absolute_path", "path"), "notebook_path"),
        **dict.fromkeys(("source", "content", "new_string"), "new_source"),
        "mode": "edit_mode",
    }

    def _normalised(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        normalised, original_names = super()._normalised(arguments)
        # An empty optional value normally counts as missing, but an empty `new_source` means an empty cell.
        if any(value == "" and self._spellings.get(folded(name)) == "new_source" for name, value in arguments.items()):
            original_names.setdefault("new_source", "new_source")
        return normalised, original_names

    def problems(self, params: NotebookEditParams, original_names: Mapping[str, str]) -> Iterator[str]:
        yield from super().problems(params, original_names)
        path, mode = params.notebook_path, params.edit_mode
        if not path.strip().lower().endswith(NOTEBOOK_ENDING):
            problem = f"'{shown_path(path)}' is not a notebook: its name does not end in {NOTEBOOK_ENDING}."
            yield f"{problem} Use edit for other files."
        if not params.cell_id and mode != "insert":
            yield f"'cell_id' is needed to {mode} a cell; use read_file to see the ids."
        if params.new_source and mode == "delete":
            yield "'new_source' is a cell's new content, but 'edit_mode' is delete; give one of them."
        if "new_source" not in original_names and mode != "delete":
            yield f"'new_source' is needed to {mode} a cell."

    def get_description(self, params: NotebookEditParams, context: ToolContext) -> str:
        cell = f" cell {brief(params.cell_id)}" if params.cell_id else " the first cell"
        position = " a cell after" if params.edit_mode == "insert" and params.cell_id else ""
        path = display_path(params.notebook_path, context.workspace)
        return f"{params.edit_mode.capitalize()}{position}{cell} of {path}"

    def plan(self, params: NotebookEditParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.notebook_change import plan_notebook_edit  # noqa: PLC0415 - loaded on first use

        return plan_notebook_edit(
            target, text, cell_id=params.cell_id, cell_type=params.cell_type, mode=params.edit_mode, is_users=is_users
        )


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

    def get_description(self, params: WriteFileParams, context: ToolContext) -> str:
        return f"Write {display_path(params.file_path, context.workspace)}"

    def plan(self, params: WriteFileParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.file_change import plan_write  # noqa: PLC0415 - loaded on first use

        return plan_write(
            target, text, expected_sha256=params.expected_sha256, encoding=params.encoding, is_users=is_users
        )
