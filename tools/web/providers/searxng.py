"""SearXNG: an instance that somebody runs, and that asks other search engines.

Its interface is described at https://docs.searxng.org/dev/search_api.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tools.web.providers.endpoint import Endpoint
from tools.web.providers.reading import MAX_ANSWER_CHARS, MAX_TITLE_CHARS, Item, address, date, items, results, text
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.providers.search_settings import ProviderSettings

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener

PATH = "/search"

_REFUSALS: Mapping[int, str] = {
    401: "the instance wants a name and a password, which are not sent. The operator can set web.search.searxng.url to "
    "one that wants none.",
    403: "the instance does not answer in JSON. Who runs it adds 'json' to search.formats in its settings.yml.",
}


class Searxng:
    """Asks an instance of SearXNG.

    Args:
        settings: With the address of the instance.
    """

    name = "searxng"

    def __init__(self, settings: ProviderSettings) -> None:
        base = (settings.url or "").rstrip("/").removesuffix(PATH)
        self.endpoint = Endpoint(self.name, "SearXNG", f"{base}{PATH}", refusals=_REFUSALS)

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Ask for the first page of results, which is as long as the instance makes it."""
        reply = await self.endpoint.get(opener, {"q": query, "format": "json"})
        found = items(self.endpoint, reply, "results")
        if found is None:
            raise self.endpoint.misunderstood("it has no 'results'")
        return results(found, limit, _page, _answer(reply.get("answers")))


def _page(item: Item) -> SearchResult:
    """A page; the score that SearXNG gives has no upper end, so it tells nothing by itself."""
    return SearchResult(
        title=text(item.get("title"), MAX_TITLE_CHARS),
        url=address(item.get("url")),
        snippet=text(item.get("content")),
        published=date(item.get("publishedDate")),
    )


def _answer(answers: Any) -> str:
    """The first answer: a text, or in newer versions an object that holds one."""
    first = cast("list[Any]", answers)[0] if isinstance(answers, list) and answers else None
    given = cast("dict[str, Any]", first).get("answer") if isinstance(first, dict) else first
    return text(given, MAX_ANSWER_CHARS)
