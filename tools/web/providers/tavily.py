"""Tavily: searches for programs, and answers by itself.

Its interface is described at https://docs.tavily.com/documentation/api-reference/endpoint/search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools.web.providers.endpoint import Endpoint
from tools.web.providers.reading import (
    MAX_ANSWER_CHARS,
    MAX_TITLE_CHARS,
    Item,
    address,
    date,
    items,
    results,
    score,
    text,
)
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.providers.search_settings import ProviderSettings

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener

URL = "https://api.tavily.com/search"

_PLAN = "the limit of the plan is reached. The operator can raise it at Tavily."

_REFUSALS: Mapping[int, str] = {
    400: "the query may be too long. Search with fewer words.",
    432: _PLAN,
    433: _PLAN,
}


class Tavily:
    """Asks Tavily.

    Args:
        settings: With the key.
    """

    name = "tavily"

    def __init__(self, settings: ProviderSettings) -> None:
        self.endpoint = Endpoint(self.name, "Tavily", settings.url or URL, settings.api_key, _REFUSALS)

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Ask for pages and an answer, thoroughly (Qwen Code's choice)."""
        body = {"query": query, "search_depth": "advanced", "max_results": limit, "include_answer": True}
        reply = await self.endpoint.post(opener, body, Authorization=f"Bearer {self.endpoint.api_key}")
        found = items(self.endpoint, reply, "results")
        if found is None:
            raise self.endpoint.misunderstood("it has no 'results'")
        return results(found, limit, _page, text(reply.get("answer"), MAX_ANSWER_CHARS))


def _page(item: Item) -> SearchResult:
    return SearchResult(
        title=text(item.get("title"), MAX_TITLE_CHARS),
        url=address(item.get("url")),
        snippet=text(item.get("content")),
        score=score(item.get("score")),
        published=date(item.get("published_date")),
    )
