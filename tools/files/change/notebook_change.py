"""`notebook_edit`: replaces, inserts or deletes a cell, and leaves every other byte of the file unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.diff import unified_diff
from tools.files.change.file_change import FileChange, TargetFile, encode_or_refuse, take_snapshot
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.find.path_suggestions import not_there
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
    source_of,
    taken_apart,
)
from tools.files.text_encodings import decode, encode
from tools.text.file_names import brief, shown_whole_path

EditMode = Literal["replace", "insert", "delete"]
MAX_NAMED = 20  # cells listed in an error
_DONE: Mapping[EditMode, str] = {"replace": "Replaced", "insert": "Inserted", "delete": "Deleted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookEdit(FileChange):
    title: ClassVar[str] = "Confirm Notebook Edit"
    proposal_noun: ClassVar[str] = "new source"

    done: EditMode
    cell_id: str  # the cell's name after the change; for a deleted cell, its old name
    cell_type: str
    cells: int  # number of cells after the change

    @property
    def sentence(self) -> str:
        path, diff = shown_whole_path(self.target.location.name), self.diff
        what = f"{_DONE[self.done]} the {self.cell_type} cell {self.cell_id} in {path}"
        have = "1 cell" if self.cells == 1 else f"{self.cells} cells"
        return f"{what}: +{diff.added} -{diff.removed} lines; now {have}, {self.form}."

    @property
    def details(self) -> dict[str, Any]:
        return {"cell_id": self.cell_id, "cell_type": self.cell_type, "cells": self.cells}

    def question(self, proposed: str) -> EditConfirmation:
        """Return the question of the base class, but do not let the user edit the text of a deleted cell."""
        asked = super(NotebookEdit, self).question(proposed)
        return replace(asked, editable=None) if self.done == "delete" else asked


def plan_notebook_edit(
    target: TargetFile,
    source: str,
    *,
    cell_id: str | None,
    cell_type: str | None,
    mode: EditMode,
    is_users: bool = False,
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
            f"'{location.shown}' has {size:,} bytes. Notebooks above {MAX_NOTEBOOK_BYTES:,} bytes cannot be changed. "
            "Nothing was written. Clear the notebook's outputs first, or change its JSON with edit.",
        )
    snapshot = take_snapshot(target)
    if snapshot.data is None:
        so, advice = ", so no cell of it can be changed", " To create a notebook, use write_file."
        raise not_there(target.workspace, location, target.signal, so=so, advice=advice)
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
    if mode == "insert":
        number, cell_type = number + 1, cell_type or "code"
        text, named = _inserted(notebook, number, source, cell_type, snapshot.sha256 or "")
        named, count = named or f"cell-{number}", len(names) + 1
    elif mode == "delete":
        where, at = notebook.place_of(number)
        cell_type = _type_of(where.parts.parts[at].value)
        where.parts.drop(where.parts.parts[at])
        text, named, count = where.parts.within(old.text), names[number], len(names) - 1
    else:
        present = mapping(notebook.cells[number].value)
        before, named, count = source_of(present), names[number], len(names)
        if not is_users and (line := first_omission(source, before, path=location.path)) is not None:
            raise placeholder_error(
                "notebook_edit", f"'{line}' in 'new_source'", "Give the complete source of the cell."
            )
        cell_type = cell_type or _type_of(present)
        if source == before and cell_type == _type_of(present):
            raise ToolError(
                ToolErrorType.EDIT_NO_CHANGE,
                f"The cell {named} of '{location.shown}' already has exactly this source. Nothing was written.",
            )
        text, has_cleared = _replaced(notebook, notebook.cells[number], source, cell_type)
        if has_cleared:
            notes.append("The cell's outputs were cleared, because they belong to the old source.")
    if mode != "replace" and any(name == f"cell-{at}" for at, name in enumerate(names[number:], number)):
        notes.append("Later cells without an id now have another number; read the notebook again.")
    return NotebookEdit(
        snapshot=snapshot,
        text=text,
        encoding=old.encoding,
        data=encode(text, old.encoding),
        diff=unified_diff(old.text, text),
        notes=tuple(notes),
        done=mode,
        cell_id=named,
        cell_type=cell_type,
        cells=count,
    )


def _not_a_notebook(shown: str, why: str) -> ToolError:
    return ToolError(
        ToolErrorType.NOTEBOOK_INVALID_JSON,
        f"No cell of '{shown}' can be changed: {why}. Nothing was written. Repair the file with edit, or write it with "
        "write_file.",
    )


def _number_of(shown: str, notebook: Notebook, names: list[str], cell_id: str) -> int:
    """Return the position of the cell that `cell_id` identifies: by name, id in the file, or `cell-` and a number."""
    if cell_id in names:
        return names.index(cell_id)
    same = [at for at, part in enumerate(notebook.cells) if mapping(part.value).get("id") == cell_id]
    if len(same) == 1:
        return same[0]
    digits = cell_id.removeprefix("cell-")
    if not same and digits != cell_id and digits.isdecimal() and len(digits) < 9 and int(digits) < len(names):
        return int(digits)
    known = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
    said = f"'{shown}' has no cell '{brief(cell_id)}'; its cells are: {known or 'none'}."
    if same:
        known = " or ".join(names[at] for at in same[:MAX_NAMED])
        said = f"'{shown}' has {len(same)} cells with the id '{brief(cell_id)}'. Choose one of: {known}."
    raise ToolError(
        ToolErrorType.NOTEBOOK_CELL_NOT_FOUND,
        f"{said} Nothing was written. Use read_file to see the current cells.",
    )


def _type_of(cell: Any) -> str:
    given = mapping(cell).get("cell_type")
    return brief(given) if isinstance(given, str) else "unknown"


def _lines(source: str, present: Any) -> str | list[str]:
    """Convert a source to the form of the source `present`: a string, or else a list of lines."""
    return source if isinstance(present, str) else source.splitlines(keepends=True)


def _replaced(notebook: Notebook, part: JsonPart, source: str, cell_type: str) -> tuple[str, bool]:
    """Return the notebook's text with a cell's source replaced, and whether the cell had outputs."""
    cell = taken_apart(notebook.text, part.start)
    layout, had = layout_of(notebook.text, cell), mapping(part.value)
    is_code = cell_type == "code"
    key = "input" if is_code and notebook.major < 4 else "source"
    present = cell.find("source") or cell.find("input")
    in_line = present is not None and len(present.raw) > 2 and "\n" not in present.raw and "\r" not in present.raw
    raw = layout.written(_lines(source, present.value if present else None), 1, in_one_line=in_line)
    if present is None:
        present = _put(cell, layout, key, source)
    elif present.key != key:
        present.label = f'"{key}"{layout.colon}'
        present.key = key
    present.raw = raw
    cell.drop(*(other for other in cell.parts if other.key == key and other is not present))
    changes = _type_of(had) != cell_type
    if changes:
        _put(cell, layout, "cell_type", cell_type)
    outputs, counted = cell.find("outputs"), cell.find("execution_count") or cell.find("prompt_number")
    if is_code:
        for name, value in _of_code(notebook).items() if changes else ():
            if cell.find(name) is None:
                _put(cell, layout, name, value)
        if outputs is not None and outputs.value != []:
            outputs.raw = "[]"
        if counted is not None:
            counted.raw = "null"
        strange = ["attachments", "level"] if changes else []
    else:
        strange = ["outputs", "execution_count", "prompt_number", "collapsed", "language", "level"] if changes else []
    cell.drop(*(each for each in cell.parts if each.key in strange))
    return cell.within(notebook.text), bool(had.get("outputs"))


def _put(cell: Parts, layout: Layout, key: str, value: Any) -> JsonPart:
    """Set a member of a cell, or add it after the other members."""
    raw = layout.written(value, 1)
    if (part := cell.find(key)) is None:
        part = JsonPart("", f'"{key}"{layout.colon}', key, value, 0, raw)
        cell.insert(len(cell.parts), part, layout.comma)
    part.raw = raw
    return part


def _of_code(notebook: Notebook) -> Mapping[str, Any]:
    """Return the members that code cells have in addition to those of other cells."""
    if notebook.major < 4:
        return {"collapsed": False, "language": notebook.language, "outputs": []}
    return {"execution_count": None, "outputs": []}


def _inserted(notebook: Notebook, number: int, source: str, cell_type: str, digest: str) -> tuple[str, str]:
    """Return the notebook's text with a new cell, and the cell's id, which is empty if cells have no ids.

    The id is derived from the content, so that the question and the file have the same id.
    """
    where, at = notebook.place_of(number - 1) if number else (notebook.lists[0], -1)
    cells, ids, named = where.parts.parts, {mapping(part.value).get("id") for part in notebook.cells}, ""
    while notebook.has_ids and (not named or named in ids or named.isdecimal()):
        digest = hashlib.sha256(f"{digest} {number} {source}".encode("utf-8", "surrogatepass")).hexdigest()
        named = digest[:8]
    is_code = cell_type == "code"
    present = mapping(cells[0].value).get("source") if cells else None
    key = "input" if is_code and notebook.major < 4 else "source"
    cell: dict[str, Any] = {"cell_type": cell_type, "metadata": {}, key: _lines(source, present)}
    cell |= {"id": named} if named else {}
    cell |= _of_code(notebook) if is_code else {}
    # The new cell is formatted like the first one, or like the object around an empty list.
    layout, gap, depth = layout_of(notebook.text, where.holder), "", 0
    if cells:
        layout, gap = layout_of(notebook.text, taken_apart(notebook.text, cells[0].start)), cells[0].gap
    elif layout.unit is not None:
        margin = layout.newline + layout.outer + layout.unit
        gap, depth, where.parts.tail = margin + layout.unit, 2, margin
    raw = layout.written(dict(sorted(cell.items())), depth)
    where.parts.insert(at + 1, JsonPart(gap, "", "", cell, 0, raw), layout.comma)
    return where.parts.within(notebook.text), named
