"""`notebook_edit`: replaces, inserts or deletes a cell, and leaves every other byte of the file unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.diff import unified_diff
from tools.files.change.file_change import PROPOSED, FileChange, TargetFile, encode_or_refuse, take_snapshot
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.find.path_suggestions import missing_path_error
from tools.files.notebook_cells import (
    MAX_NOTEBOOK_BYTES,
    JsonPart,
    Layout,
    NotANotebookError,
    Notebook,
    Parts,
    layout_of,
    mapping,
    parse_notebook,
    parse_parts,
    source_of,
)
from tools.files.text_encodings import decode, encode
from tools.text.file_names import brief, shown_whole_path

EditMode = Literal["replace", "insert", "delete"]
MAX_NAMED = 20  # maximum number of cells listed in an error
_DONE: Mapping[EditMode, str] = {"replace": "Replaced", "insert": "Inserted", "delete": "Deleted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookEdit(FileChange):
    title: ClassVar[str] = "Confirm Notebook Edit"
    proposal_noun: ClassVar[str] = "new source"

    edit_mode: EditMode
    cell_id: str  # the cell's name after the change; for a deleted cell, its old name
    cell_type: str
    cells: int  # number of cells after the change
    source_diff: str = ""  # the change to the cell's source, if the notebook is one line, whose diff would bury it

    @property
    def sentence(self) -> str:
        path, diff = shown_whole_path(self.target.location.name), self.diff
        action = f"{_DONE[self.edit_mode]} the {self.cell_type} cell {self.cell_id} in {path}"
        cell_count = "1 cell" if self.cells == 1 else f"{self.cells} cells"
        return f"{action}: {diff.counts} lines; now {cell_count}, {self.content_summary}."

    @property
    def result_fields(self) -> dict[str, Any]:
        return {"cell_id": self.cell_id, "cell_type": self.cell_type, "cells": self.cells}

    def confirmation(self, proposal: str) -> EditConfirmation:
        """Return the question of the base class, but do not let the user edit the text of a deleted cell."""
        confirmation = super(NotebookEdit, self).confirmation(proposal)
        confirmation = replace(confirmation, file_diff=self.source_diff + confirmation.file_diff)
        return replace(confirmation, editable=None) if self.edit_mode == "delete" else confirmation


def plan_notebook_edit(
    target: TargetFile, source: str, *, cell_id: str | None, cell_type: str | None, mode: EditMode, is_users: bool
) -> NotebookEdit:
    """Plan a change to one cell. Writes nothing. `is_users` is as in `plan_edit`.

    A new cell is inserted after the cell `cell_id`, or at the beginning if `cell_id` is empty. The outputs of a changed
    code cell are cleared.
    """
    location = target.location
    size = target.workspace.size_of(location)
    if size is not None and size > MAX_NOTEBOOK_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"'{location.shown}' is {size:,} bytes long. Notebooks above {MAX_NOTEBOOK_BYTES:,} bytes cannot be "
            "changed. Nothing was written. Clear the notebook's outputs first, or change its JSON with edit.",
        )
    snapshot = take_snapshot(target)
    if snapshot.data is None:
        consequence, advice = ", so no cell of it can be changed", " To create a notebook, use write_file."
        raise missing_path_error(target.workspace, location, target.signal, consequence=consequence, advice=advice)
    snapshot.refuse_part_of_hidden()
    snapshot.check_fresh()
    old = decode(snapshot.data)
    if old is None or not old.encoding.is_known:
        raise _not_a_notebook(location.shown, "it is not text in UTF-8")
    try:
        notebook = parse_notebook(old.text)
    except NotANotebookError as error:
        raise _not_a_notebook(location.shown, str(error)) from None
    target.signal.raise_if_aborted()
    # Check the source itself, because JSON escapes would hide invalid characters.
    encode_or_refuse(source, old.encoding, "new_source")
    names, notes = notebook.names, list[str]()
    number = _number_of(location.shown, notebook, names, cell_id) if cell_id else -1
    old_source = source_of(mapping(notebook.cells[number].value)) if mode != "insert" else ""
    if mode == "insert":
        number, cell_type = number + 1, cell_type or "code"
        text, cell_name = _insert_cell(notebook, number, source, cell_type, snapshot.sha256 or "")
        cell_name, count = cell_name or f"cell-{number}", len(names) + 1
    elif mode == "delete":
        cell_list, at = notebook.place_of(number)
        cell_type = _type_of(cell_list.parts.parts[at].value)
        cell_list.parts.drop(cell_list.parts.parts[at])
        text, cell_name, count = cell_list.parts.within(old.text), names[number], len(names) - 1
    else:
        cell = mapping(notebook.cells[number].value)
        cell_name, count = names[number], len(names)
        if not is_users and (line := first_omission(source, old_source, path=location.path)) is not None:
            advice = "Give the complete source of the cell."
            raise placeholder_error("notebook_edit", f"'{line}' in 'new_source'", advice)
        cell_type = cell_type or _type_of(cell)
        if source == old_source and cell_type == _type_of(cell):
            raise ToolError(
                ToolErrorType.EDIT_NO_CHANGE,
                f"The cell {cell_name} of '{location.shown}' already has exactly this source. Nothing was written.",
            )
        text, has_cleared = _replace_source(notebook, notebook.cells[number], source, cell_type)
        if has_cleared:
            notes.append("The cell's outputs were cleared, because they belong to the old source.")
    if mode != "replace" and any(names[at] == f"cell-{at}" for at in range(number + (mode == "delete"), len(names))):
        notes.append("Later cells without an id are now numbered differently; read the notebook again.")
    is_one_line = "\n" not in old.text.strip()
    source_diff = unified_diff(old_source, source).text(f"source of {cell_name}", PROPOSED) if is_one_line else ""
    return NotebookEdit(
        snapshot=snapshot,
        text=text,
        encoding=old.encoding,
        data=encode(text, old.encoding),
        diff=unified_diff(old.text, text),
        notes=tuple(notes),
        edit_mode=mode,
        cell_id=cell_name,
        cell_type=cell_type,
        cells=count,
        source_diff=source_diff,
    )


def _not_a_notebook(path: str, reason: str) -> ToolError:
    return ToolError(
        ToolErrorType.NOTEBOOK_INVALID_JSON,
        f"No cell of '{path}' can be changed: {reason}. Nothing was written. Repair the file with edit, or write it "
        "with write_file.",
    )


def _number_of(path: str, notebook: Notebook, names: list[str], cell_id: str) -> int:
    """Return the position of a cell, given its name, its id in the file, or `cell-` and a number."""
    if cell_id in names:
        return names.index(cell_id)
    matches = [at for at, part in enumerate(notebook.cells) if mapping(part.value).get("id") == cell_id]
    if len(matches) == 1:
        return matches[0]
    digits = cell_id.removeprefix("cell-")
    if not matches and digits != cell_id and digits.isdecimal() and len(digits) < 9 and int(digits) < len(names):
        return int(digits)
    choices = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
    message = f"'{path}' has no cell '{brief(cell_id)}'; its cells are: {choices or 'none'}."
    if matches:
        choices = " or ".join(names[at] for at in matches[:MAX_NAMED])
        message = f"'{path}' has {len(matches)} cells with the id '{brief(cell_id)}'. Choose one of: {choices}."
    raise ToolError(
        ToolErrorType.NOTEBOOK_CELL_NOT_FOUND,
        f"{message} Nothing was written. Use read_file to see the current cells.",
    )


def _type_of(cell: Any) -> str:
    cell_type = mapping(cell).get("cell_type")
    return brief(cell_type) if isinstance(cell_type, str) else "unknown"


def _lines(source: str, old_source: Any) -> str | list[str]:
    """Return `source` in the form of `old_source`: as a string if `old_source` is one, else as a list of lines."""
    return source if isinstance(old_source, str) else source.splitlines(keepends=True)


def _replace_source(notebook: Notebook, part: JsonPart, source: str, cell_type: str) -> tuple[str, bool]:
    """Return the notebook's text with a cell's source and type replaced, and whether outputs were cleared."""
    cell = parse_parts(notebook.text, part.start)
    layout, old_cell = layout_of(notebook.text, cell), mapping(part.value)
    is_code = cell_type == "code"
    key = "input" if is_code and notebook.major < 4 else "source"
    old_source = cell.find("source") or cell.find("input")
    old_raw = old_source.raw if old_source is not None else ""
    in_line = len(old_raw) > 2 and "\n" not in old_raw and "\r" not in old_raw
    raw = layout.written(_lines(source, old_source.value if old_source else None), 1, in_one_line=in_line)
    if old_source is None:
        old_source = _set_member(cell, layout, key, source)
    elif old_source.key != key:
        old_source.label = f'"{key}"{layout.colon}'
        old_source.key = key
    old_source.raw = raw
    cell.drop(*(member for member in cell.parts if member.key == key and member is not old_source))
    changes_type = _type_of(old_cell) != cell_type
    if changes_type:
        _set_member(cell, layout, "cell_type", cell_type)
    outputs, execution_count = cell.find("outputs"), cell.find("execution_count") or cell.find("prompt_number")
    if is_code:
        for name, value in _code_members(notebook).items() if changes_type else ():
            if cell.find(name) is None:
                _set_member(cell, layout, name, value)
        if outputs is not None and outputs.value != []:
            outputs.raw = "[]"
        if execution_count is not None:
            execution_count.raw = "null"
    if changes_type:
        of_code = ("outputs", "execution_count", "prompt_number", "collapsed", "language")
        dropped_keys = ("level", "attachments") if is_code else ("level", *of_code)
        cell.drop(*(member for member in cell.parts if member.key in dropped_keys))
    return cell.within(notebook.text), (is_code or changes_type) and bool(old_cell.get("outputs"))


def _set_member(cell: Parts, layout: Layout, key: str, value: Any) -> JsonPart:
    raw = layout.written(value, 1)
    if (part := cell.find(key)) is None:
        part = JsonPart("", f'"{key}"{layout.colon}', key, value, 0, raw)
        cell.insert(len(cell.parts), part, layout.comma)
    part.raw = raw
    return part


def _code_members(notebook: Notebook) -> Mapping[str, Any]:
    """Return the members that code cells have in addition to those of other cells."""
    if notebook.major < 4:
        return {"collapsed": False, "language": notebook.language, "outputs": []}
    return {"execution_count": None, "outputs": []}


def _insert_cell(notebook: Notebook, number: int, source: str, cell_type: str, digest: str) -> tuple[str, str]:
    """Return the notebook's text with a new cell, and the cell's id, which is empty if cells have no ids.

    The id is derived from the content, so that the cell has the same id in the question and in the file.
    """
    cell_list, at = notebook.place_of(number - 1) if number else (notebook.lists[0], -1)
    cells, ids, cell_id = cell_list.parts.parts, {mapping(part.value).get("id") for part in notebook.cells}, ""
    while notebook.has_ids and (not cell_id or cell_id in ids or cell_id.isdecimal()):
        digest = hashlib.sha256(f"{digest} {number} {source}".encode("utf-8", "surrogatepass")).hexdigest()
        cell_id = digest[:8]
    is_code = cell_type == "code"
    present = mapping(cells[0].value).get("source") if cells else None
    key = "input" if is_code and notebook.major < 4 else "source"
    cell: dict[str, Any] = {"cell_type": cell_type, "metadata": {}, key: _lines(source, present)}
    cell |= {"id": cell_id} if cell_id else {}
    cell |= _code_members(notebook) if is_code else {}
    # The new cell is formatted like the first cell, or, if there are no cells, like the object that contains the list.
    layout, gap, depth = layout_of(notebook.text, cell_list.holder), "", 0
    if cells:
        layout, gap = layout_of(notebook.text, parse_parts(notebook.text, cells[0].start)), cells[0].gap
    elif layout.unit is not None:
        margin = layout.newline + layout.outer + layout.unit
        gap, depth, cell_list.parts.tail = margin + layout.unit, 2, margin
    raw = layout.written(dict(sorted(cell.items())), depth)
    cell_list.parts.insert(at + 1, JsonPart(gap, "", "", cell, 0, raw), layout.comma)
    return cell_list.parts.within(notebook.text), cell_id
