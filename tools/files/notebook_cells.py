"""Finds the cells in the text of a Jupyter notebook, changes a cell in place, and renders all cells as plain text.

A change parses the JSON only as far as needed, and leaves every other byte unchanged, including indentation, key order
and escapes. Notebooks of format 4 have one list of cells; notebooks of format 3 have one list per worksheet.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import Any, cast

from tools.contract.display import fenced

# Larger notebooks are not parsed, because parsing holds the GIL: for up to 50 ms at this size
MAX_NOTEBOOK_BYTES = 16_000_000
# Limit on the approximate number of values in a notebook, for the same reason. Commas and opening brackets are counted.
MAX_VALUES = 300_000
NOTEBOOK_ENDING = ".ipynb"
# Ids that are valid in the notebook format, except `cell-N`, which means a position
_VALID_ID = re.compile(r"(?!cell-\d+$)[A-Za-z0-9_-]{1,64}")
_BLANKS = re.compile(r"[ \t\n\r]*")
_ESCAPED = re.compile(r"\\u(?!00[01])[0-9a-fA-F]{4}")
MAX_DIGITS = 100  # longer whole numbers become floats


def whole_number(digits: str) -> float:
    """Parse a whole number in JSON. It may have more digits than `int` accepts."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


_value_at = json.JSONDecoder(parse_int=whole_number).raw_decode


class NotANotebookError(ValueError):
    """The content of a file is not a notebook. The message is the reason, worded as the end of a sentence."""


def mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """Return a multi-line string, which the notebook format stores as one string or a list of strings."""
    if isinstance(value, list):
        return "".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return value if isinstance(value, str) else ""


def source_of(cell: Mapping[str, Any]) -> str:
    """Return the source of a cell. In format 3, the source of a code cell has the key `input`."""
    return text_of(cell.get("source", cell.get("input")))


def names_of(cells: Sequence[Any]) -> list[str]:
    """Return the name of each cell: its id if that is valid and unique, else `cell-N`, where `N` counts from 0."""
    ids = [mapping(cell).get("id") for cell in cells]
    counts = Counter(cell_id for cell_id in ids if isinstance(cell_id, str))
    return [
        cell_id
        if isinstance(cell_id, str) and counts[cell_id] == 1 and _VALID_ID.fullmatch(cell_id)
        else f"cell-{number}"
        for number, cell_id in enumerate(ids)
    ]


@dataclass(slots=True)
class JsonPart:
    """A member of an object or an element of a list, with its exact text."""

    gap: str  # the text before this part: white space, and a comma unless this is the first part
    label: str  # for a member: the key and the colon
    key: str
    value: Any
    start: int  # the position of the value in the notebook's text
    raw: str  # the text of the value


@dataclass(slots=True)
class Parts:
    """An object or a list, split into its parts."""

    start: int
    end: int
    brackets: str
    parts: list[JsonPart]
    tail: str  # the white space before the closing bracket

    @property
    def text(self) -> str:
        inside = "".join(part.gap + part.label + part.raw for part in self.parts)
        return f"{self.brackets[0]}{inside}{self.tail}{self.brackets[1]}"

    def within(self, text: str) -> str:
        """Return `text` with the changed parts in place."""
        return text[: self.start] + self.text + text[self.end :]

    def find(self, key: str) -> JsonPart | None:
        """Return the member with this name. If there are several, return the last of them, as JSON parsers do."""
        return next((part for part in reversed(self.parts) if part.key == key), None)

    def drop(self, *parts: JsonPart) -> None:
        for part in parts:
            at = self.parts.index(part)
            del self.parts[at]
            if not at and self.parts:
                self.parts[0].gap = part.gap

    def insert(self, at: int, part: JsonPart, comma: str) -> None:
        """Insert a part, and adapt the gaps to the new order. If it is the only part, `part` keeps its gap.

        `comma` becomes the gap between the two parts if there was only one part, with no white space before it.
        """
        if self.parts:
            first = self.parts[0].gap
            later = self.parts[1].gap if len(self.parts) > 1 else f",{first}" if first else comma
            part.gap = first if at == 0 else later
            if at == 0:
                self.parts[0].gap = later
        self.parts.insert(at, part)


def parse_parts(text: str, start: int) -> Parts:
    """Parse the object or list at a position. Raises a `ValueError` if there is no valid one."""
    brackets = {"{": "{}", "[": "[]"}.get(text[start : start + 1])
    if brackets is None:
        _value_at(text, start)  # raises a precise error if this is not JSON at all
        raise ValueError("expected an object or a list")
    parts: list[JsonPart] = []
    at = start + 1
    while True:
        gap_start, at = at, _after_blanks(text, at)
        if text[at : at + 1] == brackets[1]:
            return Parts(start, at + 1, brackets, parts, text[gap_start:at])
        if parts:
            at = _after(",", text, at)
        label, key = at, ""
        if brackets == "{}":
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting a key in double quotes", text, at)
            key, at = _value_at(text, at)
            at = _after(":", text, _after_blanks(text, at))
        value, end = _value_at(text, at)
        parts.append(JsonPart(text[gap_start:label], text[label:at], key, value, at, text[at:end]))
        at = end


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _after(mark: str, text: str, at: int) -> int:
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting '{mark}'" if mark else "Expecting nothing more", text, at)
    return _after_blanks(text, at + 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """How JSON is formatted at a position in the notebook."""

    unit: str | None  # the indentation per level; `None` if everything is on one line
    newline: str
    outer: str  # the indentation of the line where the object ends
    colon: str
    comma: str
    is_ascii: bool  # whether non-ASCII characters are escaped

    def written(self, value: Any, depth: int = 0, *, in_one_line: bool = False) -> str:
        """Format a value that is nested `depth` levels deeper than this position."""
        unit = None if in_one_line else self.unit
        comma = self.comma if self.unit is None or not in_one_line else ", "
        separators = ("," if unit is not None else comma, self.colon)
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=unit, separators=separators)
        return text.replace("\n", self.newline + self.outer + (self.unit or "") * depth)


def layout_of(text: str, place: Parts) -> Layout:
    """Detect how an object is formatted, so that new parts match."""
    gap = place.parts[0].gap if place.parts else place.tail
    colons = [part.label[part.label.rindex('"') + 1 :] for part in place.parts if part.label]
    unit, outer, comma = None, "", place.parts[1].gap if len(place.parts) > 1 else ", "
    newline = next((ending for ending in ("\r\n", "\n", "\r") if ending in gap), "")
    if newline:
        outer = place.tail.rpartition(newline)[2]
        unit, comma = gap.rpartition(newline)[2].removeprefix(outer), ","
    is_ascii = text.isascii() and _ESCAPED.search(text) is not None
    return Layout(unit, newline, outer, colons[0] if colons else ": ", comma, is_ascii)


@dataclass(frozen=True, slots=True)
class CellList:
    """The parts of a list of cells, and the object that contains the list."""

    holder: Parts
    parts: Parts


@dataclass(frozen=True, slots=True)
class Notebook:
    text: str
    major: int  # major version of the format, at most 4
    has_ids: bool  # whether new cells get an id
    language: str  # language of the code cells, which format 3 stores in each of them
    lists: tuple[CellList, ...]

    @property
    def cells(self) -> list[JsonPart]:
        return [part for cell_list in self.lists for part in cell_list.parts.parts]

    @property
    def names(self) -> list[str]:
        return names_of([part.value for part in self.cells])

    def place_of(self, number: int) -> tuple[CellList, int]:
        """Return the list that contains a cell, and its position there."""
        for cell_list in self.lists:
            if number < len(cell_list.parts.parts):
                return cell_list, number
            number -= len(cell_list.parts.parts)
        raise IndexError(number)


def parse_notebook(text: str) -> Notebook:
    """Find the cells in the text of a notebook. Raises a `NotANotebookError` if there is no list of cells."""
    if not text.strip():
        raise NotANotebookError("it is empty")
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise NotANotebookError(f"it has more than {MAX_VALUES:,} values, too many to parse")
    try:
        top = parse_parts(text, _after_blanks(text, 0))
        _after("", text, _after_blanks(text, top.end))
        holders = [top]
        if top.find("cells") is None and (sheets := top.find("worksheets")) is not None:
            holders = [parse_parts(text, sheet.start) for sheet in parse_parts(text, sheets.start).parts]
        cell_members = [(holder, holder.find("cells")) for holder in holders]
        lists = [CellList(holder, parse_parts(text, part.start)) for holder, part in cell_members if part is not None]
    except json.JSONDecodeError as error:
        reason = f"it is not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})"
        raise NotANotebookError(reason) from None
    except RecursionError:
        raise NotANotebookError("it is nested too deeply to parse") from None
    except ValueError:
        raise NotANotebookError("it is JSON, but not a notebook") from None
    if not lists or any(cell_list.parts.brackets != "[]" for cell_list in lists):
        raise NotANotebookError("it is JSON without a list of cells")
    cells = [mapping(part.value) for cell_list in lists for part in cell_list.parts.parts]
    if not all(cells):
        raise NotANotebookError("one of its cells is not an object, or is empty")
    minor = top.find("nbformat_minor")
    languages = (language for cell in cells if isinstance(language := cell.get("language"), str))
    is_new = top.find("cells") is not None
    has_ids = any("id" in cell for cell in cells)
    return Notebook(
        text,
        4 if is_new else 3,
        is_new and (has_ids or (minor is not None and isinstance(minor.value, int) and minor.value >= 5)),
        next(languages, "python"),
        tuple(lists),
    )


def cell_finder(data: bytes) -> Callable[[int, int | None], str]:
    """Return a function that names the cell at a line of the file and a byte of that line, both counted from 1.

    If the byte is `None`, the function uses the first non-blank character of the line. Outside cells, the name is
    empty.
    """
    try:
        text = data.decode("utf-8-sig")
        notebook = parse_notebook(text)
    except (UnicodeDecodeError, NotANotebookError):
        return lambda _line, _byte: ""
    lines, cells, names = text.split("\n"), notebook.cells, notebook.names
    begins = list(accumulate((len(line) + 1 for line in lines), initial=0))

    def find(line: int, byte: int | None) -> str:
        if line > len(lines):
            return ""  # the file has changed since the search
        content = lines[line - 1]
        place = begins[line - 1] + len(content) - len(content.lstrip())
        if byte:
            place = begins[line - 1] + len(content.encode()[: byte - 1].decode(errors="ignore"))
        number = bisect_right(cells, place, key=lambda part: part.start) - 1
        return names[number] if number >= 0 and place < cells[number].start + len(cells[number].raw) else ""

    return find


MAX_OUTPUT_CHARS = 10_000  # maximum number of characters of one cell's outputs (as in Qwen Code)
MAX_NOTEBOOK_CHARS = 100_000  # maximum number of characters of a whole notebook (as in Qwen Code)
# Maximum number of characters of one output that are reduced to what a terminal would show
CLEANED_CHARS = 40 * MAX_OUTPUT_CHARS
_NOT_MIME = re.compile(r"[^A-Za-z0-9.+/-]")


def render(data: bytes) -> str | None:
    """Render a notebook as text: a header with the language and the number of cells, then the cells.

    Omissions are marked. Cells have the same names as in `notebook_edit`. Returns `None` if the content is not a
    notebook, or has too many values.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        return None
    try:
        parsed: Any = json.loads(data, parse_int=whole_number)
    except (ValueError, RecursionError):
        return None
    notebook = mapping(parsed)
    sheets = _list(notebook.get("worksheets"))
    holders = [notebook] if "cells" in notebook or sheets is None else list(map(mapping, sheets))
    lists = [cells for holder in holders if (cells := _list(holder.get("cells"))) is not None]
    if not lists:
        return None
    cells = list(chain.from_iterable(lists))
    metadata = mapping(notebook.get("metadata"))
    raw_name = mapping(metadata.get("language_info")).get("name") or mapping(metadata.get("kernelspec")).get("language")
    language = _NOT_MIME.sub("", raw_name)[:40] if isinstance(raw_name, str) and raw_name else "language unknown"
    header = f"Jupyter notebook: {language}, {len(cells)} {'cell' if len(cells) == 1 else 'cells'}\n"
    texts, room = [header], MAX_NOTEBOOK_CHARS - len(header)
    for number, (value, name) in enumerate(zip(cells, names_of(cells), strict=True), start=1):
        cell = mapping(value)
        kind = _NOT_MIME.sub("", text_of(cell.get("cell_type")))[:40] or "unknown"
        details = [kind, f"id {name}"]
        if isinstance(execution := cell.get("execution_count", cell.get("prompt_number")), int):
            details.append(f"execution {execution}")
        info = {"code": language if language.isalnum() else "", "markdown": "markdown"}.get(kind, "")
        text = f"\n--- Cell {number}: {', '.join(details)} ---\n{_block(source_of(cell), info)}"
        if outputs := _outputs(_list(cell.get("outputs")) or []):
            text += f"Output:\n{_block(outputs, '')}"
        if len(text) > room:
            texts.append(f"\n[cut here: {len(cells) - number + 1} of {len(cells)} cells not shown]\n")
            break
        texts.append(text)
        room -= len(text)
    return "".join(texts)


def _outputs(outputs: Sequence[Any]) -> str:
    from tools.text.terminal_text import terminal_text  # noqa: PLC0415 - not needed at startup

    result, left_out = "", 0
    # A stream comes in pieces, and a later piece may overwrite an earlier one.
    pieces = groupby(map(mapping, outputs), lambda output: output.get("output_type") == "stream" and output.get("name"))
    merged_outputs = [
        [{"text": "".join(text_of(output.get("text")) for output in group)}] if stream else list(group)
        for stream, group in pieces
    ]
    for output in chain.from_iterable(merged_outputs):
        text = text_of(output.get("text"))
        if output.get("output_type") in ("error", "pyerr"):
            frames = _list(output.get("traceback")) or []
            text = "\n".join(frame for frame in frames if isinstance(frame, str))
            text = text or f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
        data = mapping(output.get("data"))
        text += text_of(data.get("text/plain"))
        text += "".join(f"\n[{_NOT_MIME.sub('', mime)[:80]} not shown]" for mime in data if mime[:5] != "text/")
        left_out += max(0, len(text) - CLEANED_CHARS)
        text = terminal_text(text[:CLEANED_CHARS])
        result += text if not text or text.endswith("\n") else f"{text}\n"
    left_out += max(0, len(result) - MAX_OUTPUT_CHARS)
    if left_out:
        more = f"{left_out:,} more character{'s' * (left_out != 1)}"
        return f"{result[:MAX_OUTPUT_CHARS]}\n[output cut here: {more}]\n"
    return result


def _block(text: str, language: str) -> str:
    return f"{fenced(text.removesuffix(chr(10)), language)}\n"


def _list(value: Any) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None
