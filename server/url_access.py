"""What opens URLs for all clients: made from the settings when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from server.settings.tool_models import WebSettings

if TYPE_CHECKING:
    from tools.web.fetcher import PageFetcher
    from tools.web.opener import UrlOpener


class UrlAccess:
    """The one opener of URLs and what stands on it.

    Args:
        settings: What may be opened.
    """

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings

    def fetcher(self) -> PageFetcher:
        """What fetches pages, and remembers them for a while."""
        return self._fetcher

    def opener(self) -> UrlOpener:
        """What opens URLs."""
        return self._fetcher.opener

    @cached_property
    def _fetcher(self) -> PageFetcher:
        from tools.web.fetcher import PageFetcher  # noqa: PLC0415 - with the first page
        from tools.web.opener import UrlOpener  # noqa: PLC0415 - as above

        return PageFetcher(UrlOpener(self._settings.for_tools()))
