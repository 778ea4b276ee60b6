"""How a page is shown, and what a server is asked for to that end."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The values of the parameter `format`."""

    AUTO = "auto"
    MARKDOWN = "markdown"
    HTML = "html"
    TEXT = "text"

    @property
    def accepted(self) -> str:
        """The header `Accept`; some servers have their pages in Markdown already."""
        return _ACCEPTED.get(
            self, "text/markdown,text/html;q=0.9,application/xhtml+xml;q=0.9,text/plain;q=0.8,*/*;q=0.5"
        )


_ACCEPTED = {
    Format.HTML: "text/html,application/xhtml+xml;q=0.9,*/*;q=0.5",
    Format.TEXT: "text/plain,text/html;q=0.9,*/*;q=0.5",
}
