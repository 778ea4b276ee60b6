"""What the model is told of a page: where it came from, what it is, the part that was asked for, and how to go on."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.call.context import ToolContext
from tools.contract.names_on_one_line import brief, one_line
from tools.contract.results import Part, TextPart, ToolResult
from tools.contract.threads import run_blocking
from tools.web.opener import Places, UrlOpener, WebRequest
from tools.web.untrusted import fenced, harmless

if TYPE_CHECKING:
    from tools.web.opener import WebResponse
    from tools.web.page import Format, Page
    from tools.web.url import Target


KEPT_SECONDS = 15 * 60.0
"""As long as a model takes to read a long page."""

KEPT_PAGES = 64
KEPT_CHARS = 32_000_000
"""Of all pages together; a character takes one to four bytes."""


class Snapshots:
    """Keeps the pages that were fetched last.

    Args:
        seconds: How long each is kept.
        pages: How many.
        chars: How long they may be together.
        clock: Seconds, never set back.
    """

    def __init__(
        self,
        seconds: float = KEPT_SECONDS,
        pages: int = KEPT_PAGES,
        chars: int = KEPT_CHARS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = pages
        self._most_chars = chars
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Page]] = OrderedDict()
        self._chars = 0

    def get(self, key: Hashable) -> Page | None:
        """A page that is still kept."""
        self._expire()
        kept = self._kept.get(key)
        return kept[1] if kept is not None else None

    def put(self, key: Hashable, page: Page) -> None:
        """Keep a page in place of an older one; one that is too long for all the room is not kept."""
        self.drop(key)
        if len(page.text) > self._most_chars:
            return
        self._kept[key] = (self._clock() + self._seconds, page)
        self._chars += len(page.text)
        while len(self._kept) > self._most or self._chars > self._most_chars:
            self.drop(next(iter(self._kept)))

    def drop(self, key: Hashable) -> None:
        """Forget a page."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._chars -= len(kept[1].text)

    def _expire(self) -> None:
        """Forget what is too old; the oldest come first, because each new one is put behind them."""
        now = self._clock()
        while self._kept:
            key, (until, _) = next(iter(self._kept.items()))
            if until > now:
                return
            self.drop(key)


MAX_READERS = 4
"""Pages that are turned into text at the same time; whoever waits for a turn holds no thread."""

MAX_READERS_OF_ONE = 2
"""Of one client's pages."""


class PageFetcher:
    """Shared by all clients; what is kept belongs to one of them each.

    Args:
        opener: Opens URLs.
        snapshots: Keeps pages.
    """

    def __init__(self, opener: UrlOpener, snapshots: Snapshots | None = None) -> None:
        self.opener = opener
        self._readers = Places(MAX_READERS, MAX_READERS_OF_ONE)
        self._snapshots = snapshots if snapshots is not None else Snapshots()

    def kept(self, target: Target, shown_as: Format, context: ToolContext) -> Page | None:
        """The page as this client fetched it last, if that is not long ago."""
        return (
            self._snapshots.get((context.client.key, target.url, shown_as)) if not context.client.is_anonymous else None
        )

    async def fetch(self, target: Target, shown_as: Format, context: ToolContext) -> Page:
        """Fetch a page.

        Raises:
            ToolError: It cannot be opened, or the call was cancelled.
        """
        request = WebRequest(target.url, headers={"Accept": shown_as.accepted}, client_key=context.client.key)
        response = await self.opener.open(request, progress=context.progress)
        async with self._readers.place(context.client.key):
            page = await run_blocking(context.signal, lambda: _read(response, shown_as, context))
        if not (context.client.is_anonymous or page.media):
            self._snapshots.put((context.client.key, target.url, shown_as), page)
        return page


def _read(response: WebResponse, shown_as: Format, context: ToolContext) -> Page:
    from tools.web.page import page_of  # noqa: PLC0415 - brings what reads pages, with the first of them

    return page_of(response, shown_as, context.media, context.signal)


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
