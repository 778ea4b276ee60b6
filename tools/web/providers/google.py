"""Google's Custom Search: what a programmable search engine of the operator's covers.

Its interface is described at https://developers.google.com/custom-search/v1/reference/rest/v1/cse/list. Google takes
no new customers for it, and ends it for the others on 1 January 2027.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tools.web.providers.endpoint import Endpoint
from tools.web.providers.reading import MAX_TITLE_CHARS, Item, address, date, items, results, text
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.providers.search_settings import SETUP, ProviderSettings

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener

URL = "https://www.googleapis.com/customsearch/v1"

MAX_NUM = 10
"""Pages that it gives at a time."""

_KIND = "customsearch#search"
"""What every answer says that it is, also one that has found nothing and lists no items."""

_REFUSALS: Mapping[int, str] = {
    400: f"usually the API key or the search engine's id is wrong. The operator sets {SETUP['google']}.",
    403: "the API key may not use Custom Search, or its searches of today are used up. The operator can look at both "
    "in Google's console.",
    410: "Google has ended Custom Search. The operator can set up another provider.",
}


class Google:
    """Asks Google's Custom Search.

    Args:
        settings: With the key and the search engine.
    """

    name = "google"

    def __init__(self, settings: ProviderSettings) -> None:
        self.endpoint = Endpoint(self.name, "Google", settings.url or URL, settings.api_key, _REFUSALS)
        self._engine = settings.search_engine_id

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Ask for pages, without what is only for adults. The documented place of the key is the address."""
        parameters = {
            "key": self.endpoint.api_key,
            "cx": self._engine,
            "q": query,
            "num": str(min(limit, MAX_NUM)),
            "safe": "active",
        }
        reply = await self.endpoint.get(opener, parameters)
        found = items(self.endpoint, reply, "items")
        if found is None and reply.get("kind") != _KIND:
            raise self.endpoint.misunderstood(f"it is no '{_KIND}'")
        return results(found or [], limit, _page)


def _page(item: Item) -> SearchResult:
    return SearchResult(
        title=text(item.get("title"), MAX_TITLE_CHARS),
        url=address(item.get("link")),
        snippet=text(item.get("snippet")),
        published=_published(item.get("pagemap")),
    )


def _published(pagemap: Any) -> str:
    """The date in a page's own `meta` elements, which Google hands on."""
    groups = cast("dict[str, Any]", pagemap).get("metatags") if isinstance(pagemap, dict) else None
    for group in cast("list[Any]", groups) if isinstance(groups, list) else ():
        if isinstance(group, dict):
            return date(cast("dict[str, Any]", group).get("article:published_time"))
    return ""
