"""What a provider of web search does, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener
    from tools.web.providers.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One page that was found.

    Args:
        title: On one line; may be empty.
        url: Where it is, in the spelling that the opener uses.
        snippet: What the page says about the query, on one line; may be empty.
        score: How well it fits, from 0 to 1, or `None` where the provider does not say so.
        published: When it was published, as the provider writes it, or empty.
    """

    title: str
    url: str
    snippet: str
    score: float | None = None
    published: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a provider found.

    Args:
        answer: The provider's own answer to the query; empty where it gives none.
        results: The pages, best first.
        left_out: Pages without an address that could be opened.
    """

    answer: str
    results: tuple[SearchResult, ...]
    left_out: int = 0


class SearchProvider(Protocol):
    """Searches the web."""

    @property
    def name(self) -> str:
        """What calls and settings call it."""
        ...

    @property
    def endpoint(self) -> Endpoint:
        """Whom it asks."""
        ...

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Ask.

        Args:
            query: What to search for.
            limit: The most pages to give.
            opener: Opens the provider's address.

        Raises:
            ToolError: `web_search_failed`, or what the opener raises: there is no answer.
        """
        ...
