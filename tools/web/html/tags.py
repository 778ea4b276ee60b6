"""HTML as a stream of tags and texts, in time linear in its length whatever it holds. Standard library only.

It follows the tokenizer of the HTML standard as far as text depends on it: comments and tags that never end reach to
the end of the page, the content of scripts is no markup. There is no tree, so there is no depth that could cost
anything. No pattern here gives back what it has taken (`++`, `*+`), so none can run away.
"""

from __future__ import annotations

import re
from html import unescape

TYPE_CHECKING = False
"""Type checkers take it for true; importing `typing` for it would take longer than a small page."""
_NEXT = re.compile(
    r"""([^<]*+)(?:<(/?)([a-zA-Z][^\s/>]*+)((?:[^>"'=]++|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?+|["'])*+)(?:>|\Z)|(<)|\Z)"""
)
"""A text, and the tag behind it or a `<` that begins none."""
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+(?:"([^"]*+)"?+|'([^']*+)'?+|([^\s"'>][^\s>]*+)))?+""")
_COMMENT_END = re.compile(r"--!?>")

TITLE = "title"
_NO_MARKUP = frozenset(("script", "style", "textarea", "iframe", "noembed", "noframes", "xmp", TITLE))
"""Elements whose content is no markup, and is not shown, but for the title."""


if TYPE_CHECKING:
    from typing import Protocol

    class Reader(Protocol):
        """Is told what a page holds, in order; names are in lower case."""

        def text(self, text: str) -> None:
            """A text, its character references replaced; a long one may come in pieces."""
            ...

        def start(self, name: str, written: str) -> None:
            """An element begins; `attributes` reads what is written behind its name."""
            ...

        def end(self, name: str) -> None:
            """An element ends."""
            ...

        def named(self, title: str) -> None:
            """The page has a title."""
            ...


def read(source: str, reader: Reader) -> None:
    """Tell a reader all that a page holds."""
    position: int | None = 0
    while position is not None:
        position = _read(source, position, reader)


def _read(source: str, position: int, reader: Reader) -> int | None:
    """Tell of tags and texts up to something else; returns where the page goes on behind that."""
    add, start, end = reader.text, reader.start, reader.end
    for found in _NEXT.finditer(source, position):
        text, slash, name, written, other = found.groups()
        if text:
            add(decoded(text) if "&" in text else text)
        if name is not None:
            name = name.lower()
            if slash:
                end(name)
            elif name not in _NO_MARKUP:
                start(name, written)
            else:
                content, position = _content(source, found.end(), name)
                if name == TITLE:
                    reader.named(decoded(content))
                return position
        elif other:
            position = found.end()
            if source.startswith(("!", "?", "/"), position):
                return _after_declaration(source, position - 1)
            add(other)
    return None


def attributes(written: str) -> dict[str, str]:
    """Attributes by their names in lower case; the first of each name counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(written):
        value = double or single or bare
        found.setdefault(name.lower(), decoded(value) if "&" in value else value)
    return found


def decoded(text: str) -> str:
    """A text with its character references replaced."""
    if "&" not in text:
        return text
    try:
        return unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


def _after_declaration(source: str, position: int) -> int:
    """Where a comment, a document type or an instruction ends; what never ends reaches to the end of the page."""
    if not source.startswith("<!--", position):
        return (source.find(">", position) + 1) or len(source)
    if source.startswith((">", "->"), position + 4):
        return source.index(">", position) + 1
    end = _COMMENT_END.search(source, position + 4)
    return end.end() if end else len(source)


def _content(source: str, position: int, name: str) -> tuple[str, int]:
    """Content that is no markup, and where the page goes on after its end tag."""
    end = re.compile(rf"</{name}(?=[\s/>])[^>]*+(?:>|\Z)", re.IGNORECASE).search(source, position)
    return (source[position : end.start()], end.end()) if end else (source[position:], len(source))
