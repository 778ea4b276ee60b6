"""`notebook_edit`: changes one cell of a Jupyter notebook. `read_file` shows the cell ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tools.builtin.changing_tool import COMMON_OUTPUT, ChangingTool
from tools.builtin.path_parameters import shown
from tools.call.base_tool import Behaviour, ToolContext
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import ToolParams, folded, object_schema
from tools.files.notebook_cells import NOTEBOOK_ENDING
from tools.text.file_names import brief, shown_path

if TYPE_CHECKING:
    from tools.files.change.file_change import FileChange, TargetFile


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
    output_schema = object_schema(
        {
            **COMMON_OUTPUT,
            "cell_id": {"type": "string", "description": "The id of the cell, even if it was deleted."},
            "cell_type": {"type": "string"},
            "cells": {"type": "integer", "description": "Cells in the notebook now."},
        }
    )

    def _settled(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        settled, spelled = super()._settled(arguments)
        # An empty optional value normally counts as missing, but an empty `new_source` means an empty cell.
        if any(value == "" and self._spellings.get(folded(name)) == "new_source" for name, value in arguments.items()):
            spelled.setdefault("new_source", "new_source")
        return settled, spelled

    def check(self, params: NotebookEditParams, spelled: Mapping[str, str]) -> None:
        super().check(params, spelled)
        if not params.notebook_path.strip().lower().endswith(NOTEBOOK_ENDING):
            raise InvalidToolParamsError(
                self.name,
                f"'{shown_path(params.notebook_path)}' is not a notebook: its name does not end in {NOTEBOOK_ENDING}. "
                "Use edit for other files.",
            )
        if not params.cell_id and params.edit_mode != "insert":
            raise InvalidToolParamsError(
                self.name, f"'cell_id' is needed to {params.edit_mode} a cell; use read_file to see the ids."
            )
        if params.new_source and params.edit_mode == "delete":
            raise InvalidToolParamsError(
                self.name, "'new_source' is a cell's new content, but 'edit_mode' is delete; give one of them."
            )
        if "new_source" not in spelled and params.edit_mode != "delete":
            raise InvalidToolParamsError(self.name, f"'new_source' is needed to {params.edit_mode} a cell.")

    def get_description(self, params: NotebookEditParams, context: ToolContext) -> str:
        where = f" cell {brief(params.cell_id)}" if params.cell_id else " the first cell"
        behind = " a cell after" if params.edit_mode == "insert" and params.cell_id else ""
        path = shown(params.notebook_path, context.workspace)
        return f"{params.edit_mode.capitalize()}{behind}{where} of {path}"

    def plan(self, params: NotebookEditParams, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        from tools.files.change.notebook_change import plan_notebook_edit  # noqa: PLC0415 - loaded on first use

        return plan_notebook_edit(
            target, text, cell_id=params.cell_id, cell_type=params.cell_type, mode=params.edit_mode, is_users=is_users
        )
