"""The cells of a Jupyter notebook in the text of its file: which is which, and how one is changed where it stands.

The JSON is taken apart as far as a change needs it and put together again, so every byte beside the change stays: the
indentation, the order of the keys, the escapes. Notebooks of format 4 have one list of cells, those of format 3 one in
each worksheet.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

# A larger notebook is not taken apart; parsing stops everything else for up to 50 ms
MAX_NOTEBOOK_BYTES = 16_000_000
# Values in a notebook, about; with more it is not taken apart either, for the same reason. A line is one value.
MAX_VALUES = 300_000
NOTEBOOK_ENDING = ".ipynb"
_VALID_ID = re.compile(r"(?!cell-\d+$)[A-Za-z0-9_-]{1,64}")  # of the format, and none that is another cell's place
_BLANKS = re.compile(r"[ \t\n\r]*")
_ESCAPED = re.compile(r"\\u(?!00[01])[0-9a-fA-F]{4}")
MOST_DIGITS = 100  # of a whole number that is taken for one


def whole_number(digits: str) -> float:
    """A whole number of JSON; one of more digits than Python reads is no fault of a notebook."""
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


_value_at = json.JSONDecoder(parse_int=whole_number).raw_decode


class NotANotebookError(ValueError):
    """A text is not a notebook; the message says why, as the end of a sentence."""


def mapping(value: Any) -> Mapping[str, Any]:
    """A value as an object, an empty one for what is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """A multi-line string as the format writes it: one string, or a list of them."""
    if isinstance(value, list):
        return "".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return value if isinstance(value, str) else ""


def source_of(cell: Mapping[str, Any]) -> str:
    """What a cell holds; code of format 3 stands under another key."""
    return text_of(cell.get("source", cell.get("input")))


def names_of(cells: Sequence[Any]) -> list[str]:
    """What each cell is called: by its id, or `cell-N`, counted from 0, where it has none of its own."""
    ids = [mapping(cell).get("id") for cell in cells]
    counts = Counter(each for each in ids if isinstance(each, str))
    return [
        each if isinstance(each, str) and counts[each] == 1 and _VALID_ID.fullmatch(each) else f"cell-{number}"
        for number, each in enumerate(ids)
    ]


@dataclass(slots=True)
class JsonPart:
    """A member of an object, or an element of a list, as it stands in the text."""

    gap: str  # what stands before it: white space, and a comma unless it is the first
    label: str  # of a member: its key and the colon
    key: str
    value: Any
    start: int  # where the value begins
    raw: str  # the value


@dataclass(slots=True)
class Parts:
    """An object or a list that was taken apart."""

    start: int
    end: int
    brackets: str
    parts: list[JsonPart]
    tail: str  # the white space before its end

    @property
    def text(self) -> str:
        inside = "".join(part.gap + part.label + part.raw for part in self.parts)
        return f"{self.brackets[0]}{inside}{self.tail}{self.brackets[1]}"

    def within(self, text: str) -> str:
        """The text that it was taken from, with what it is now."""
        return text[: self.start] + self.text + text[self.end :]

    def find(self, key: str) -> JsonPart | None:
        """The member of this name; of several the last, which readers take."""
        return next((part for part in reversed(self.parts) if part.key == key), None)

    def drop(self, *parts: JsonPart) -> None:
        for part in parts:
            at = self.parts.index(part)
            del self.parts[at]
            if not at and self.parts:
                self.parts[0].gap = part.gap

    def insert(self, at: int, part: JsonPart, comma: str) -> None:
        """Put in a part whose own gap is that of a first one; its neighbours tell how it stands between them.

        The comma is that of a line, which counts where it has one neighbour beside which nothing stands.
        """
        if self.parts:
            first = self.parts[0].gap
            later = self.parts[1].gap if len(self.parts) > 1 else f",{first}" if first else comma
            part.gap = first if at == 0 else later
            if at == 0:
                self.parts[0].gap = later
        self.parts.insert(at, part)


def taken_apart(text: str, start: int) -> Parts:
    """The object or list that begins at a place; a `ValueError` where it is not valid."""
    brackets = {"{": "{}", "[": "[]"}.get(text[start : start + 1])
    if brackets is None:
        _value_at(text, start)  # which tells where it is not JSON at all
        raise ValueError("an object or a list is expected")
    parts: list[JsonPart] = []
    at = start + 1
    while True:
        before, at = at, _after_blanks(text, at)
        if text[at : at + 1] == brackets[1]:
            return Parts(start, at + 1, brackets, parts, text[before:at])
        if parts:
            at = _after(",", text, at)
        label, key = at, ""
        if brackets == "{}":
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting a key in double quotes", text, at)
            key, at = _value_at(text, at)
            at = _after(":", text, _after_blanks(text, at))
        value, end = _value_at(text, at)
        parts.append(JsonPart(text[before:label], text[label:at], key, value, at, text[at:end]))
        at = end


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _after(mark: str, text: str, at: int) -> int:
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting '{mark}'" if mark else "Expecting nothing more", text, at)
    return _after_blanks(text, at + 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """How JSON is written in a place."""

    unit: str | None  # by which it is indented; `None` where all stands on one line
    newline: str
    outer: str  # the indentation of the line in which the place ends
    colon: str
    comma: str
    is_ascii: bool  # whether every other character is written as an escape

    def written(self, value: Any, depth: int = 0, *, in_one_line: bool = False) -> str:
        """A value as it is written so deep in the place."""
        unit = None if in_one_line else self.unit
        comma = self.comma if self.unit is None or not in_one_line else ", "
        separators = ("," if unit is not None else comma, self.colon)
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=unit, separators=separators)
        return text.replace("\n", self.newline + self.outer + (self.unit or "") * depth)


def layout_of(text: str, place: Parts) -> Layout:
    """How an object is written, to write more of its kind."""
    gap = place.parts[0].gap if place.parts else place.tail
    colons = [part.label[part.label.rindex('"') + 1 :] for part in place.parts if part.label]
    unit, outer, comma = None, "", place.parts[1].gap if len(place.parts) > 1 else ", "
    newline = next((each for each in ("\r\n", "\n", "\r") if each in gap), "")
    if newline:
        outer = place.tail.rpartition(newline)[2]
        unit, comma = gap.rpartition(newline)[2].removeprefix(outer), ","
    is_ascii = text.isascii() and _ESCAPED.search(text) is not None
    return Layout(unit, newline, outer, colons[0] if colons else ": ", comma, is_ascii)


@dataclass(frozen=True, slots=True)
class CellList:
    """One of the lists of cells: what it stands in, and its parts."""

    holder: Parts
    parts: Parts


@dataclass(frozen=True, slots=True)
class Notebook:
    text: str
    major: int  # of the format, 4 or less
    has_ids: bool  # whether new cells get an id
    language: str  # of cells of code, which those of format 3 name
    lists: tuple[CellList, ...]

    @property
    def cells(self) -> list[JsonPart]:
        return [part for each in self.lists for part in each.parts.parts]

    @property
    def names(self) -> list[str]:
        return names_of([part.value for part in self.cells])

    def place_of(self, number: int) -> tuple[CellList, int]:
        """The list that a cell stands in, and where in it."""
        for each in self.lists:
            if number < len(each.parts.parts):
                return each, number
            number -= len(each.parts.parts)
        raise IndexError(number)


def parse_notebook(text: str) -> Notebook:
    """Find the cells in the text of a notebook.

    Raises:
        NotANotebookError: It is not JSON, or none with cells.
    """
    if not text.strip():
        raise NotANotebookError("it is empty")
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise NotANotebookError(f"it holds more than {MAX_VALUES:,} values, too many to take it apart")
    try:
        top = taken_apart(text, _after_blanks(text, 0))
        _after("", text, _after_blanks(text, top.end))
        holders = [top]
        if top.find("cells") is None and (sheets := top.find("worksheets")) is not None:
            holders = [taken_apart(text, sheet.start) for sheet in taken_apart(text, sheets.start).parts]
        found = [(holder, holder.find("cells")) for holder in holders]
        lists = [CellList(holder, taken_apart(text, part.start)) for holder, part in found if part is not None]
    except json.JSONDecodeError as error:
        said = f"it is not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})"
        raise NotANotebookError(said) from None
    except RecursionError:
        raise NotANotebookError("it is nested too deeply to take it apart") from None
    except ValueError:
        raise NotANotebookError("it is JSON, but not of the form of a notebook") from None
    if not lists or any(each.parts.brackets != "[]" for each in lists):
        raise NotANotebookError("it is JSON without a list of cells")
    facts = {part.key: part.value for part in top.parts}
    cells = [mapping(part.value) for each in lists for part in each.parts.parts]
    if not all(cells):
        raise NotANotebookError("one of its cells is not an object, or is empty")
    minor = facts.get("nbformat_minor")
    languages = (language for cell in cells if isinstance(language := cell.get("language"), str))
    is_new = top.find("cells") is not None
    has_ids = any("id" in cell for cell in cells)
    return Notebook(
        text,
        4 if is_new else 3,
        is_new and (has_ids or (isinstance(minor, int) and minor >= 5)),
        next(languages, "python"),
        tuple(lists),
    )


def cell_finder(data: bytes) -> Callable[[int, int | None], str]:
    """Tells in which cell of a file a place lies, by its line and byte of the line, both from 1.

    Without a byte it is the first of the line that is not blank. The answer is empty where there is no cell.
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
            return ""  # the file was another one when it was searched
        content = lines[line - 1]
        place = begins[line - 1] + len(content) - len(content.lstrip())
        if byte:
            place = begins[line - 1] + len(content.encode()[: byte - 1].decode(errors="ignore"))
        number = bisect_right(cells, place, key=lambda part: part.start) - 1
        return names[number] if number >= 0 and place < cells[number].start + len(cells[number].raw) else ""

    return find


def cells_of(notebook: Mapping[str, Any]) -> list[Any] | None:
    """The cells of a notebook that is parsed already; `None` where it has no list of them."""
    sheets: Any = notebook.get("worksheets")
    holders = [notebook]
    if "cells" not in notebook and isinstance(sheets, list):
        holders = [mapping(sheet) for sheet in cast("list[Any]", sheets)]
    lists = [cast("list[Any]", cells) for holder in holders if isinstance(cells := holder.get("cells"), list)]
    return [cell for cells in lists for cell in cells] if lists else None
