"""Fetches pages for tools: opens the URL, reads what came, and keeps it for whoever pages through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.contract.blocking import run_blocking
from tools.contract.context import ToolContext
from tools.web.opener import UrlOpener, WebRequest
from tools.web.places import Places
from tools.web.snapshots import Snapshots

if TYPE_CHECKING:
    from tools.web.formats import Format
    from tools.web.opener import WebResponse
    from tools.web.page import Page
    from tools.web.target import Target

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
