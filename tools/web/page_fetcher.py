"""Fetches and caches pages, and formats the requested part for the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.contract.call_options import AbortSignal, MediaHandling, Progress
from tools.contract.tool_results import TextPart, ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief, one_line, shortened_line
from tools.web.untrusted_text import fence, sanitise
from tools.web.url_opener import FairLimit, UrlOpener, WebRequest

if TYPE_CHECKING:
    from tools.web.address_guard import UrlTarget
    from tools.web.page_text import Format, Page

CACHE_SECONDS = 15 * 60.0  # long enough for a model to read a long page
CACHE_PAGES = 64
CACHE_CHARS = 32_000_000  # limit for all pages together; a character takes one to four bytes
MAX_READERS = 4  # pages converted to text concurrently; waiting calls occupy no thread
MAX_READERS_PER_CLIENT = 2
MAX_SHOWN_URL_CHARS = 200  # characters of a URL that are shown outside the marks around web text
_LINE_SHARE = 10  # if a line ends in the last tenth of a part, the part is cut after that line


@dataclass(eq=False, repr=False)
class PageCache:
    """The most recently fetched pages, limited by age, number and total characters."""

    seconds: float = CACHE_SECONDS
    max_pages: int = CACHE_PAGES
    max_chars: int = CACHE_CHARS
    clock: Callable[[], float] = time.monotonic
    # Each page with its expiry time; the oldest page comes first
    _pages: dict[Hashable, tuple[float, Page]] = field(default_factory=dict[Hashable, "tuple[float, Page]"], init=False)
    _chars: int = field(default=0, init=False)

    def get(self, key: Hashable) -> Page | None:
        while self._pages and next(iter(self._pages.values()))[0] <= self.clock():
            self._drop(next(iter(self._pages)))
        return self._pages[key][1] if key in self._pages else None

    def put(self, key: Hashable, page: Page) -> None:
        """Store a page. A page larger than the whole cache is not stored."""
        self._drop(key)
        if len(page.text) > self.max_chars:
            return
        self._pages[key] = (self.clock() + self.seconds, page)
        self._chars += len(page.text)
        while len(self._pages) > self.max_pages or self._chars > self.max_chars:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: Hashable) -> None:
        if key in self._pages:
            self._chars -= len(self._pages.pop(key)[1].text)


class PageFetcher:
    """Fetches pages for all clients. Each cached page belongs to one client."""

    def __init__(self, opener: UrlOpener, cache: PageCache | None = None) -> None:
        self.opener = opener
        self._cache = cache if cache is not None else PageCache()
        self._readers = FairLimit(MAX_READERS, MAX_READERS_PER_CLIENT)

    def cached(self, target: UrlTarget, page_format: Format, client_key: str) -> Page | None:
        """Return the page if this client has fetched it recently. An anonymous client has an empty key and no pages."""
        return self._cache.get((client_key, target.url, page_format)) if client_key else None

    async def fetch(
        self,
        target: UrlTarget,
        page_format: Format,
        *,
        client_key: str,
        media: MediaHandling,
        signal: AbortSignal,
        progress: Progress,
    ) -> Page:
        """Fetch a page, and cache it if it is text and the client can be identified.

        Raises a `ToolError` if the page cannot be opened.
        """
        request = WebRequest(target.url, headers={"Accept": page_format.accept_header}, client_key=client_key)
        response = await self.opener.open(request, progress=progress)

        def convert() -> Page:
            from tools.web.page_text import page_of  # noqa: PLC0415 - loaded on first use

            return page_of(response, page_format, media, signal)

        async with self._readers.slot(client_key):
            page = await run_blocking(signal, convert)
        if client_key and not page.media:
            self._cache.put((client_key, target.url, page_format), page)
        return page


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def format_page(
    page: Page, start: int, length: int, *, question: str, other_urls: tuple[str, ...], is_refetched: bool
) -> ToolResult:
    """Build the result for one part of a page: at most `length` characters, starting at the index `start`.

    If a line ends in the last tenth of the part, the part is cut after that line. The result repeats the caller's
    `question` and lists `other_urls`, which were in the call but not fetched. `is_refetched` is true if a later part of
    a page was requested, but the page was not in the cache.
    """
    response, total = page.response, len(page.text)
    url = shortened_line(response.url, MAX_SHOWN_URL_CHARS)
    if response.moved_to is not None:
        headline = (
            f"{url} redirects to another host ({page.status}): "
            f"{shortened_line(response.moved_to, MAX_SHOWN_URL_CHARS)}\n"
            "Nothing was fetched from there. Call web_fetch with that URL if you need it."
        )
    else:
        outcome = f"{url} returned {page.status}" if page.is_error else f"Fetched {url}"
        first = shortened_line(response.redirects[0], MAX_SHOWN_URL_CHARS) if response.redirects else ""
        via = f", redirected from {first}" if first else ""
        kind = one_line(brief(response.media_type)) or "type not stated"
        text_size = f"{_count(total, 'character')} of text from " if page.text else ""
        headline = f"{outcome}{via}: {kind}, {text_size}{_count(page.size, 'byte')}."
    lines = [headline]
    if is_refetched:
        lines.append("The page was fetched again, because it was not in the cache, so its text may have changed.")
    if response.moved_to is not None and len(response.moved_to) > MAX_SHOWN_URL_CHARS:
        lines += ["The full URL:", fence(sanitise(response.moved_to))]
    lines += page.notes
    if question:
        lines.append(f"Question: {question}")
    if other_urls:
        lines.append(f"Not fetched; call web_fetch for each: {' '.join(other_urls)}")
    if page.text and start >= total:
        lines.append(f"The text has {_count(total, 'character')}, so there is nothing at start_index={start}.")
    elif page.text:
        end = min(start + length, total)
        if end < total:
            end = page.text.rfind("\n", end - length // _LINE_SHARE, end) + 1 or end
        title = f"Title: {page.title}\n\n" if page.title and not start else ""
        lines.append(fence(title + page.text[start:end].strip("\n")))
        if start or end < total:
            onward = f" Continue with start_index={end}." if end < total else " This is the end."
            lines.append(f"Characters {start:,} to {end:,} of {total:,}.{onward}")
    facts = {
        "url": response.url,
        "status": response.status,
        "media_type": response.media_type,
        "total_chars": total,
        "start": start,
        "is_cut": response.truncation is not None,
    }
    return ToolResult(llm_content=[TextPart("\n".join(lines)), *page.media], return_display=headline, facts=facts)
