"""Brave Search: an index of its own.

Its interface is described at https://api-dashboard.search.brave.com/api-reference/web/search/get.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import unescape
from typing import TYPE_CHECKING, Any, cast

from tools.web.providers.endpoint import Endpoint
from tools.web.providers.reading import MAX_READ_CHARS, MAX_TITLE_CHARS, Item, address, date, items, results, text
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.providers.search_settings import SETUP, ProviderSettings

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener

URL = "https://api.search.brave.com/res/v1/web/search"

MAX_COUNT = 20
"""Pages that it gives at a time."""

_REFUSALS: Mapping[int, str] = {
    422: "either the query has more than 400 characters or 50 words, so search with fewer, or the API key is not one "
    f"of Brave's; the operator sets it with {SETUP['brave']}.",
}


class Brave:
    """Asks Brave Search.

    Args:
        settings: With the key.
    """

    name = "brave"

    def __init__(self, settings: ProviderSettings) -> None:
        self.endpoint = Endpoint(self.name, "Brave Search", settings.url or URL, settings.api_key, _REFUSALS)

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Ask for web pages only, without marks in their texts."""
        parameters = {
            "q": query,
            "count": str(min(limit, MAX_COUNT)),
            "result_filter": "web",
            "text_decorations": "false",
        }
        reply = await self.endpoint.get(opener, parameters, X_Subscription_Token=self.endpoint.api_key)
        return results(self._found(reply), limit, _page)

    def _found(self, reply: Mapping[str, Any]) -> list[Any]:
        """The pages; an answer to a query that finds nothing has no `web`."""
        web = reply.get("web")
        if web is None and reply.get("type") == "search":
            return []
        if not isinstance(web, dict):
            raise self.endpoint.misunderstood("it has no 'web'")
        return items(self.endpoint, cast("dict[str, Any]", web), "results") or []


def _page(item: Item) -> SearchResult:
    return SearchResult(
        title=text(_plain(item.get("title")), MAX_TITLE_CHARS),
        url=address(item.get("url")),
        snippet=text(_plain(item.get("description"))),
        published=date(item.get("page_age")) or date(item.get("age")),
    )


def _plain(value: Any) -> Any:
    """A text without the entities of HTML that Brave writes in it."""
    return unescape(value[:MAX_READ_CHARS]) if isinstance(value, str) else None
