"""What the model is told of a page: where it came from, what it is, the part that was asked for, and how to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.contract.names import brief, one_line
from tools.contract.result import Part, TextPart, ToolResult
from tools.web.untrusted import fenced, harmless

if TYPE_CHECKING:
    from tools.web.page import Page

MAX_SHOWN_URL = 200
"""Characters of a URL outside of the marks."""

_LINE_SHARE = 10
"""A part ends with a line if one ends in its last tenth."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Which part of a page is shown.

    Args:
        start: Its first character, from 0.
        length: Characters at most.
    """

    start: int
    length: int

    def end_in(self, text: str) -> int:
        """Where it ends: with a line if one ends near its end, else with a character."""
        end = self.start + self.length
        if end >= len(text):
            return len(text)
        line = text.rfind("\n", end - self.length // _LINE_SHARE, end)
        return line + 1 if line >= 0 else end


def report(page: Page, portion: Portion, *, about: str, others: tuple[str, ...], is_anew: bool) -> ToolResult:
    """The result for a page.

    Args:
        page: What was fetched.
        portion: Which part of it is wanted.
        about: What the caller said it wants to know.
        others: URLs that were named as well and were not fetched.
        is_anew: Whether a later part was asked for, and the page had to be fetched again for it.
    """
    response = page.response
    lines = [_headline(page)]
    if is_anew:
        lines.append("It was fetched anew, since its earlier state is no longer kept; it may have changed.")
    if response.moved_to is not None and len(response.moved_to) > MAX_SHOWN_URL:
        lines += ["The whole of that URL:", fenced(harmless(response.moved_to))]
    lines += page.notes
    if about:
        lines.append(f"Asked about it: {about}")
    if others:
        lines.append(f"Not fetched, call web_fetch for each: {' '.join(others)}")
    parts: list[Part] = []
    if page.text:
        end = portion.end_in(page.text)
        lines += _text_lines(page, portion, end)
    parts.append(TextPart("\n".join(lines)))
    parts += page.media
    facts = {
        "url": response.url,
        "status": response.status,
        "media_type": response.media_type,
        "total_chars": len(page.text),
        "start": portion.start,
        "is_cut": response.is_cut,
    }
    return ToolResult(llm_content=parts, return_display=_headline(page), facts=facts)


def _headline(page: Page) -> str:
    response = page.response
    url = _cut(response.url)
    if response.moved_to is not None:
        return (
            f"{url} redirects to another host ({page.status}): {_cut(response.moved_to)}\n"
            "Nothing was fetched from there. Call web_fetch with that URL if it is what you want."
        )
    said = f"{url} answered {page.status}" if page.is_error else f"Fetched {url}"
    via = f", redirected from {_cut(response.redirects[0])}" if response.redirects else ""
    kind = one_line(brief(response.media_type)) or "of no stated type"
    length = f"{len(page.text):,} characters of text from " if page.text else ""
    return f"{said}{via}: {kind}, {length}{page.size:,} bytes."


def _cut(url: str) -> str:
    """The beginning of a URL: where a redirect leads is the server's word, and could be a long one."""
    line = one_line(url)
    return line if len(line) <= MAX_SHOWN_URL else f"{line[:MAX_SHOWN_URL]}..."


def _text_lines(page: Page, portion: Portion, end: int) -> list[str]:
    total, start = len(page.text), portion.start
    if start >= total:
        return [f"It has {total:,} characters, so there is nothing at start_index={start}; the last part ends there."]
    shown = page.text[start:end].strip("\n")
    title = f"Title: {page.title}\n\n" if page.title and not start else ""
    lines = [fenced(title + shown)]
    if start or end < total:
        onward = f" Continue with start_index={end}." if end < total else " This is its end."
        lines.append(f"Characters {start:,} to {end:,} of {total:,}.{onward}")
    return lines
