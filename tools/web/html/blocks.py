"""The blocks of a page: headings, lists, quotations and tables, and the frame that text goes to."""

from __future__ import annotations

from tools.web.html.frame import Frame
from tools.web.html.tags import attributes

MAX_DEPTH = 64
"""Open lists, quotations and tables; deeper ones are read as plain text."""

MAX_START_DIGITS = 6
"""Digits of the first number of a list."""

HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_APART = frozenset(("p", "figure", "section", "article", "details"))
"""Blocks with an empty line around them."""

BOUNDS: dict[str, tuple[str, ...]] = {
    "li": ("ul", "ol", "td", "table"),
    "ul": ("td", "table"),
    "ol": ("td", "table"),
    "blockquote": ("td", "table"),
    "td": ("table",),
    "th": ("table",),
    "tr": ("table",),
    "table": (),
}
"""Elements that are kept track of, and what an end tag does not reach beyond."""


class _Open:
    """An element that is open: a list, an item, a quotation, a table, a row, a cell.

    Args:
        name: The element.
        outer: The frame around it.
        number: Of the next item of a numbered list, or `None`; of a table, of the next row.
    """

    __slots__ = ("cells", "name", "number", "outer", "prefix")

    def __init__(self, name: str, outer: Frame, number: int | None) -> None:
        self.name = name
        self.outer = outer
        self.prefix = outer.prefix
        """What lines began with before it."""
        self.number = number
        self.cells: list[str] = []
        """Of a row."""


class Blocks:
    """Where text goes, and what is open around it."""

    def __init__(self) -> None:
        self.frame = Frame()
        self._open: list[_Open] = []
        self._is_heading = False

    def end(self) -> None:
        """The page ends, and all that is open with it."""
        while self._open:
            self._pop()
        self.frame.end()

    def start_heading(self, name: str, _written: str) -> None:
        """A heading begins; what is in it stays on its line."""
        self.frame.end_line(2)
        self.frame.lead = self.frame.prefix + HEADINGS[name]
        self._is_heading = True

    def end_heading(self, _name: str) -> None:
        """It ends."""
        self._is_heading = False
        self.frame.end_line(2)

    def block(self, name: str, _written: str = "") -> None:
        """A block begins or ends."""
        if self._is_heading and name == "div":
            self.frame.blank()
            return
        self._is_heading = False
        self.frame.end_line(2 if name in _APART else 1)

    def start_line(self, _name: str, _written: str) -> None:
        """A new line; in a heading or a cell there is but one."""
        if self._is_heading or self._is_within("td"):
            self.frame.blank()
        else:
            self.frame.end_line()

    def start_rule(self, _name: str, _written: str) -> None:
        """A line across the page."""
        self.frame.end_line(2)
        self.frame.write("---")
        self.frame.end_line(2)

    def _push(self, name: str, *, number: int | None = None) -> bool:
        if len(self._open) >= MAX_DEPTH:
            return False
        self._is_heading = False
        self._open.append(_Open(name, self.frame, number))
        return True

    def start_list(self, name: str, written: str) -> None:
        """A list begins."""
        # A list within an item follows its text at once.
        self.frame.end_line(1 if self._is_within("li") else 2)
        number = None
        if name == "ol":
            start = attributes(written).get("start", "1")
            number = int(start) if start.isascii() and start.isdigit() and len(start) <= MAX_START_DIGITS else 1
        self._push(name, number=number)

    def start_item(self, _name: str, _written: str) -> None:
        """An item begins; the one before it ends."""
        self.close("li")
        around = next((element for element in reversed(self._open) if element.name in ("ul", "ol")), None)
        sign = "- "
        if around is not None and around.number is not None:
            sign = f"{around.number}. "
            around.number += 1
        self.frame.end_line()
        if self._push("li"):
            self.frame.indent(sign, " " * len(sign))

    def start_definition(self, _name: str, _written: str) -> None:
        """What a term means begins."""
        self.frame.end_line()
        self.frame.lead = f"{self.frame.prefix}: "

    def start_quotation(self, _name: str, _written: str) -> None:
        """A quotation begins."""
        self.frame.end_line(2)
        if self._push("blockquote"):
            self.frame.indent("> ", "> ")

    def start_table(self, _name: str, _written: str) -> None:
        """A table begins."""
        self.frame.end_line(2)
        self._push("table", number=0)

    def start_row(self, _name: str, _written: str) -> None:
        """A row begins; the one before it ends."""
        self.close("tr")
        if self._is_within("table"):
            self._push("tr")

    def start_cell(self, name: str, written: str) -> None:
        """A cell begins; the one before it ends."""
        if not self._is_row_open():
            self.close("td")
            if not self._is_row_open():
                self.start_row(name, written)
        if self._is_row_open() and self._push("td"):
            self.frame = Frame()
        else:
            self.frame.blank()

    def _is_row_open(self) -> bool:
        return bool(self._open) and self._open[-1].name == "tr"

    def _is_within(self, name: str) -> bool:
        for element in self._open:  # noqa: SIM110 - any() takes twice as long, and pages have many cells and lines
            if element.name == name:
                return True
        return False

    def close(self, name: str) -> None:
        """End the innermost element of this name and all within it, unless what bounds it comes first."""
        name = "td" if name == "th" else name
        if self._open and self._open[-1].name == name:  # the usual case
            self._pop()
            return
        for depth in range(len(self._open), 0, -1):
            found = self._open[depth - 1].name
            if found == name:
                while len(self._open) >= depth:
                    self._pop()
                return
            if found in BOUNDS[name]:
                return

    def _pop(self) -> None:
        element = self._open.pop()
        self._is_heading = False
        inner, self.frame = self.frame, element.outer
        self.frame.prefix = element.prefix
        match element.name:
            case "td":
                inner.end()
                if self._open:
                    self._open[-1].cells.append(inner.text().strip())
            case "tr":
                self._row(element.cells)
            case "ul" | "ol":
                self.frame.end_line(1 if self._is_within("li") else 2)
            case "li":
                self.frame.lead = None
                self.frame.end_item()
            case _:
                self.frame.lead = None
                self.frame.end_line(2)

    def _row(self, cells: list[str]) -> None:
        """Data on one line; cells that hold more than a line are there for the layout, and follow each other."""
        row = " | ".join(cells)
        if len(cells) == 1 or "\n" in row:
            for cell in filter(None, cells):
                self.frame.end_line(2)
                self.frame.lines(cell)
            self.frame.end_line(2)
            return
        if not any(cells):
            return
        if row.count("|") >= len(cells):
            row = " | ".join(cell.replace("|", "\\|") for cell in cells)
        table = self._open[-1] if self._open else None
        self.frame.end_line()
        self.frame.write(f"| {row} |")
        self.frame.end_line()
        if table is not None and table.name == "table":
            if not table.number:
                self.frame.write("|" + " --- |" * len(cells))
                self.frame.end_line()
            table.number = 1
