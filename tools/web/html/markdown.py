"""From tags to Markdown: headings, lists, tables, code and links; what nobody reads is left out."""

from __future__ import annotations

import re

from tools.web.html.blocks import BOUNDS, HEADINGS, Blocks
from tools.web.html.elements import BLOCKS, ENDED_BY_THEMSELVES, MARKS, NOISE, is_hidden, may_be_hidden
from tools.web.html.frame import Mark
from tools.web.html.links import Links
from tools.web.html.tags import attributes, read

TYPE_CHECKING = False
"""Type checkers take it for true; importing `typing` for it would take longer than a small page."""
if TYPE_CHECKING:
    from collections.abc import Callable

LINK_BUDGET = 4
"""All targets together may have so many times the characters of the page."""

FREE_LINK_CHARS = 20_000

_LANGUAGE = re.compile(r"(?:^|\s)(?:lang|language|highlight-source)-([\w+#.-]{1,30})")
_BACKTICKS = re.compile("`{3,}")


class Markdown:
    """Writes one page.

    Args:
        links: Makes targets absolute; without it there are no links and no marks.
        leaves_out: Whether what nobody reads is left out: navigation, controls, what is hidden.
    """

    def __init__(self, links: Links | None, *, leaves_out: bool) -> None:
        self.title = ""
        self._links = links
        self._leaves_out = leaves_out
        self._blocks = blocks = Blocks()
        self._code: list[str] | None = None
        self._language = ""
        self._left_out: str | None = None
        self._left_out_depth = 0
        noise = dict.fromkeys(NOISE, self._leave_out) if leaves_out else {}
        self._starts: dict[str, Callable[[str, str], None]] = {
            **dict.fromkeys(BLOCKS, blocks.block),
            **dict.fromkeys(HEADINGS, blocks.start_heading),
            **dict.fromkeys(("ul", "ol"), blocks.start_list),
            **dict.fromkeys(("td", "th"), blocks.start_cell),
            "blockquote": blocks.start_quotation,
            "br": blocks.start_line,
            "dd": blocks.start_definition,
            "hr": blocks.start_rule,
            "img": self._start_image,
            "li": blocks.start_item,
            "pre": self._start_code,
            "table": blocks.start_table,
            "tr": blocks.start_row,
            **noise,
        }
        if links is not None:
            marking = dict.fromkeys(MARKS, self._start_mark)
            self._starts |= {**marking, "a": self._start_link, "base": self._start_base}
        self._ends: dict[str, Callable[[str], None]] = {
            **dict.fromkeys(BLOCKS, blocks.block),
            **dict.fromkeys(MARKS, self._end_mark),
            **dict.fromkeys(HEADINGS, blocks.end_heading),
            **dict.fromkeys(BOUNDS, blocks.close),
            "a": self._end_link,
        }

    @property
    def is_lost(self) -> bool:
        """Whether something that is left out never ended, so that the rest of the page went with it."""
        return self._left_out is not None

    def whole(self) -> str:
        """The whole page; nothing can be added after this."""
        self._end_code()
        self._blocks.end()
        return self._blocks.frame.text().strip("\n")

    def named(self, title: str) -> None:
        """The first title is the page's; others are those of pictures."""
        self.title = self.title or " ".join(title.split())

    def text(self, text: str) -> None:
        """Add a text."""
        if self._left_out is not None:
            return
        if self._code is None:
            self._blocks.frame.flow(text)
        else:
            self._code.append(text)

    def start(self, name: str, written: str) -> None:
        """An element begins."""
        if self._left_out is not None and self._stays_left_out(name, 1):
            return
        if self._code is not None:
            self._start_in_code(name, written)
            return
        if written and self._leaves_out and may_be_hidden(written) and is_hidden(name, written):
            self._leave_out(name, written)
            return
        start = self._starts.get(name)
        if start is not None:
            start(name, written)

    def end(self, name: str) -> None:
        """An element ends."""
        if self._left_out is not None:
            self._stays_left_out(name, -1)
        elif self._code is not None:
            if name == "pre":
                self._end_code()
        else:
            end = self._ends.get(name)
            if end is not None:
                end(name)

    def _leave_out(self, name: str, _written: str) -> None:
        self._left_out, self._left_out_depth = name, 1

    def _stays_left_out(self, name: str, change: int) -> bool:
        if name != self._left_out:
            return True
        if change > 0 and name in ENDED_BY_THEMSELVES:
            self._left_out = None
            return False
        self._left_out_depth += change
        if not self._left_out_depth:
            self._left_out = None
        return True

    def _start_mark(self, name: str, _written: str) -> None:
        sign = MARKS[name]
        self._blocks.frame.open(Mark(sign, sign, sign))

    def _end_mark(self, name: str) -> None:
        self._blocks.frame.close(MARKS[name])

    def _end_link(self, name: str) -> None:
        self._blocks.frame.close(name)

    def _start_link(self, _name: str, written: str) -> None:
        self._blocks.frame.close("a")
        target = self._target(attributes(written).get("href", ""))
        if target:
            self._blocks.frame.open(Mark("a", "[", f"]({target})"))

    def _start_image(self, _name: str, written: str) -> None:
        given = attributes(written)
        said = " ".join(given.get("alt", "").split())
        if said:
            self._blocks.frame.write(f"![{said}]({self._target(given.get('src', ''))})")

    def _start_base(self, _name: str, written: str) -> None:
        if self._links is not None:
            self._links.base(attributes(written).get("href", ""))

    def _target(self, written: str) -> str:
        return self._links.target(written) if self._links is not None else ""

    def _start_code(self, _name: str, written: str) -> None:
        self._blocks.frame.end_line(2)
        self._code, self._language = [], _language(written)

    def _start_in_code(self, name: str, written: str) -> None:
        assert self._code is not None  # noqa: S101 - whoever calls has looked
        if name == "br":
            self._code.append("\n")
        elif name == "code":
            self._language = self._language or _language(written)

    def _end_code(self) -> None:
        if self._code is None:
            return
        code, self._code = "".join(self._code).strip("\r\n"), None
        if code.strip():
            fence = "`" * (max(map(len, _BACKTICKS.findall(code)), default=2) + 1)
            self._blocks.frame.lines(f"{fence}{self._language}\n{code}\n{fence}")
            self._blocks.frame.end_line(2)


def _language(written: str) -> str:
    found = _LANGUAGE.search(attributes(written).get("class", ""))
    return found[1] if found else ""


def to_text(source: str, base: str | None) -> tuple[str, str]:
    """The title of a page and its text.

    Args:
        source: The page.
        base: Its URL, where its links begin; without it there are no links, and no marks for bold and the like.
    """
    page = _written(source, base, leaves_out=True)
    text = page.whole()
    if page.is_lost or not text:
        # Better with all its navigation than without its text.
        page = _written(source, base, leaves_out=False)
        text = page.whole()
    return page.title, text


def _written(source: str, base: str | None, *, leaves_out: bool) -> Markdown:
    links = Links(base, LINK_BUDGET * len(source) + FREE_LINK_CHARS) if base else None
    page = Markdown(links, leaves_out=leaves_out)
    read(source, page)
    return page
