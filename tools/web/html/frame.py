"""Text that grows: line breaks, blanks and marks are written when something follows that is seen."""

from __future__ import annotations

MAX_PREFIX_CHARS = 24
"""What stands before each line of nested lists and quotations grows no further."""

MAX_MARKS = 16
"""Marks that are open at the same time."""


class Mark:
    """A run of text that is marked, such as a link.

    Args:
        name: What it is; one of a name is open at a time.
        opening: What stands before it.
        closing: What stands behind it.
    """

    __slots__ = ("closing", "line", "name", "opening", "place")

    def __init__(self, name: str, opening: str, closing: str) -> None:
        self.name = name
        self.opening = opening
        self.closing = closing
        self.place: int | None = None
        """Where the opening goes, once something is seen behind it."""
        self.line = 0
        """The line that this is on."""


class Frame:
    """The text of a page, or of one cell of a table."""

    __slots__ = ("_blank", "_breaks", "_lines", "_unplaced", "lead", "marks", "parts", "prefix")

    def __init__(self) -> None:
        self.prefix = ""
        """What each line begins with."""
        self.lead: str | None = None
        """What the next line begins with instead, such as the sign of a list."""
        self.parts: list[str] = []
        self.marks: list[Mark] = []
        self._unplaced: list[Mark] = []
        self._breaks = 0
        self._blank = False
        self._lines = 0

    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def write(self, text: str) -> None:
        """Add what is seen."""
        parts = self.parts
        if self._breaks or self.lead is not None or not parts:
            self._break()
        elif self._blank:
            parts.append(" ")
        self._blank = False
        if self._unplaced:
            for mark in self._unplaced:
                mark.place, mark.line = len(parts), self._lines
                parts.append("")
            self._unplaced.clear()
        parts.append(text)

    def _break(self) -> None:
        if self.parts:
            between = f"\n{self.prefix.rstrip()}" if self._breaks > 1 else ""
            self.parts.append(f"{between}\n")
        self._lines += 1
        self.parts.append(self.prefix if self.lead is None else self.lead)
        self._breaks, self.lead = 0, None

    def flow(self, text: str) -> None:
        """Add text in which white space counts once."""
        words = text.split()
        if not words:
            self._blank = True
            return
        is_apart = self._blank or text[0].isspace()
        if self._breaks or self._unplaced or self.lead is not None or not self.parts:
            self._blank = is_apart
            self.write(" ".join(words))
        else:
            self.parts.append(f" {' '.join(words)}" if is_apart else " ".join(words))
        self._blank = text[-1].isspace()

    def lines(self, text: str) -> None:
        """Add lines that stay as they are."""
        self.write(text.replace("\n", f"\n{self.prefix}") if self.prefix else text)
        self._lines += 1

    def blank(self) -> None:
        """Something separates what follows."""
        self._blank = True

    def end_line(self, breaks: int = 1) -> None:
        """What follows begins on a new line; after two breaks an empty one stands between."""
        self._breaks = max(self._breaks, breaks)
        self._blank = False

    def end_item(self) -> None:
        """What follows begins on the next line, whatever stood at the end of the item."""
        self._breaks = 1
        self._blank = False

    def indent(self, lead: str, prefix: str) -> None:
        """What follows begins with another sign, and its other lines with as many blanks."""
        self.end_line()
        outer = self.prefix
        self.lead = outer + lead
        if len(outer) < MAX_PREFIX_CHARS:
            self.prefix = outer + prefix

    def open(self, mark: Mark) -> None:
        """What follows is marked, if anything does."""
        if len(self.marks) < MAX_MARKS and not self._is_open(mark.name):
            self.marks.append(mark)
            self._unplaced.append(mark)

    def _is_open(self, name: str) -> bool:
        for mark in self.marks:  # noqa: SIM110 - twice as quick as any() with a generator, and called for each link
            if mark.name == name:
                return True
        return False

    def close(self, name: str) -> None:
        """The run of this name ends, and those that began within it."""
        if not self._is_open(name):
            return
        while True:
            mark = self.marks.pop()
            if mark.place is None:
                self._unplaced.remove(mark)
            elif mark.line == self._lines:
                self.parts[mark.place] = mark.opening
                self.parts.append(mark.closing)
            elif mark.name == "a":
                # A link around several lines: its target stands behind them.
                self.parts.append(f" {mark.closing[1:]}")
            if mark.name == name:
                return

    def end(self) -> None:
        """Nothing follows, so all marks end."""
        if self.marks:
            self.close(self.marks[0].name)
