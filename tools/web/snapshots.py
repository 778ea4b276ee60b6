"""Pages as they were fetched, for a while: whoever pages through one sees one and the same text."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.web.page import Page

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
