"""Web search through the documented APIs of several providers. `PROVIDERS` lists their differences.

Every failure becomes a sentence for the model. Responses are not trusted: their values may have any type and length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.text.file_names import one_line
from tools.text.secrets import HIDDEN
from tools.web.address_guard import UrlError, UrlTarget, parse_url
from tools.web.search_settings import SETUP, ProviderSettings
from tools.web.untrusted_text import fence, sanitise
from tools.web.url_opener import WebRequest

if TYPE_CHECKING:
    from tools.web.http_exchange import WebResponse
    from tools.web.url_opener import UrlOpener

# Twenty results take about 10 to 100 kB. Parsing a response of the maximum size blocks the event loop for at most
# 80 ms, and parsing a genuine response for less than 1 ms.
MAX_RESPONSE_BYTES = 512 << 10
MAX_TITLE_CHARS = 200
MAX_URL_CHARS = 2_000  # after percent-encoding, which turns one Chinese character into nine characters
MAX_SNIPPET_CHARS = 1_000  # enough to decide whether to fetch the page
MAX_ANSWER_CHARS = 4_000
MAX_DATE_CHARS = 40
MAX_ENTRIES = 50  # maximum number of entries examined in the list of results
MAX_READ_CHARS = 10_000  # characters of a string that are used, counted before its white space is collapsed
MIN_SECRET_CHARS = 8  # a shorter key would also match unrelated text
MAX_SHOWN_QUERY_CHARS = 200  # characters of the query in the heading
_SENDABLE = re.compile(r"[!-~]*")
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchResult:
    title: str  # on one line; may be empty
    url: str  # the page's URL, normalised
    snippet: str  # the relevant text of the page, on one line; may be empty
    score: float | None = None  # relevance from 0 to 1, or `None` if the provider does not state it
    date: str = ""  # date of publication, in the provider's format, or empty


@dataclass(frozen=True, slots=True)
class SearchResults:
    answer: str  # the provider's own answer to the query, or empty
    results: tuple[SearchResult, ...]  # the pages, best first
    omitted_count: int = 0  # number of entries that were dropped because they have no URL that can be opened


@dataclass(frozen=True, slots=True)
class _Interface:
    title: str  # the provider's name, for display
    url: str
    # Returns the parameters of a search from the query, the limit and the settings
    build_parameters: Callable[[str, int, ProviderSettings], dict[str, Any]]
    list_path: Sequence[str]  # the path to the list of pages in a response
    # Returns True if a response without the list of pages means that nothing was found, and False if it is an error
    is_empty: Callable[[Json], bool]
    # Returns the fields of a page: title, URL, text, score and date
    page_fields: Callable[[Json], tuple[Any, Any, Any, Any, Any]]
    headers: Callable[[str], dict[str, str]] = lambda _key: {}  # returns the header that carries the API key, if any
    is_post: bool = False  # whether the parameters are sent as a JSON object
    answer: Callable[[Json], Any] = lambda _reply: None  # returns the provider's own answer


def _value_at(value: Any, *path: str | int) -> Any:
    """Return the value at a path of keys and indexes in any JSON value, or `None`."""
    for step in path:
        if isinstance(step, str):
            value = cast("Json", value).get(step) if isinstance(value, dict) else None
        else:
            value = cast("list[Any]", value)[step] if isinstance(value, list) and value else None
    return value


def _unescape_entities(value: Any) -> Any:
    """Decode the HTML entities that Brave sends in a string. Return `None` for any other value."""
    return unescape(value[:MAX_READ_CHARS]) if isinstance(value, str) else None


PROVIDERS: Mapping[str, _Interface] = {
    # https://docs.tavily.com/documentation/api-reference/endpoint/search
    "tavily": _Interface(
        title="Tavily",
        url="https://api.tavily.com/search",
        # "advanced" is the thorough mode, which Qwen Code also uses.
        build_parameters=lambda query, limit, _: {
            "query": query, "search_depth": "advanced", "max_results": limit, "include_answer": True,
        },
        headers=lambda key: {"Authorization": f"Bearer {key}"},
        is_post=True,
        list_path=("results",),
        is_empty=lambda _: False,
        page_fields=lambda page: (
            page.get("title"), page.get("url"), page.get("content"), page.get("score"), page.get("published_date"),
        ),
        answer=lambda reply: reply.get("answer"),
    ),
    # https://api-dashboard.search.brave.com/api-reference/web/search/get
    "brave": _Interface(
        title="Brave Search",
        url="https://api.search.brave.com/res/v1/web/search",
        build_parameters=lambda query, limit, _: {
            "q": query, "count": min(limit, 20), "result_filter": "web", "text_decorations": "false",
        },
        headers=lambda key: {"X-Subscription-Token": key},
        list_path=("web", "results"),
        is_empty=lambda reply: reply.get("web") is None and reply.get("type") == "search",
        page_fields=lambda page: (
            _unescape_entities(page.get("title")), page.get("url"), _unescape_entities(page.get("description")), None,
            page.get("page_age") or page.get("age"),
        ),
    ),
    # https://developers.google.com/custom-search/v1/reference/rest/v1/cse/list; the API ends on 1 January 2027.
    "google": _Interface(
        title="Google",
        url="https://www.googleapis.com/customsearch/v1",
        # Google documents the key as a parameter in the URL.
        build_parameters=lambda query, limit, settings: {
            "key": settings.api_key, "cx": settings.search_engine_id, "q": query, "num": min(limit, 10),
            "safe": "active",
        },
        list_path=("items",),
        is_empty=lambda reply: reply.get("kind") == "customsearch#search",
        page_fields=lambda page: (
            page.get("title"), page.get("link"), page.get("snippet"), None,
            _value_at(page, "pagemap", "metatags", 0, "article:published_time"),
        ),
    ),
    # https://docs.searxng.org/dev/search_api.html. SearXNG's scores are unused, because they have no upper limit.
    "searxng": _Interface(
        title="SearXNG",
        url="",
        build_parameters=lambda query, _limit, _: {"q": query, "format": "json"},
        list_path=("results",),
        is_empty=lambda _: False,
        page_fields=lambda page: (
            page.get("title"), page.get("url"), page.get("content"), None, page.get("publishedDate"),
        ),
        # In newer versions of SearXNG, an answer is an object that contains the text.
        answer=lambda reply: _value_at(reply, "answers", 0, "answer") or _value_at(reply, "answers", 0),
    ),
}  # fmt: skip


class SearchProvider:
    """A configured provider. Its key is never shown."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._interface = PROVIDERS[settings.name]
        self._settings = settings
        self.name = settings.name
        self.title = self._interface.title
        self._url = settings.url or self._interface.url
        if settings.name == "searxng":
            self._url = f"{self._url.rstrip('/').removesuffix('/search')}/search"

    @property
    def target(self) -> UrlTarget:
        """The URL of the API. Raises a `ToolError` (`web_search_failed`) if it cannot be opened."""
        try:
            return parse_url(self._url)
        except UrlError as error:
            raise self._error(
                f"cannot be used: its address cannot be opened, because {error}. The operator can correct "
                f"web.search.{self.name}.url."
            ) from None

    async def search(self, query: str, limit: int, opener: UrlOpener) -> SearchResults:
        """Search for at most `limit` pages. Raises a `ToolError` (`web_search_failed`, or an error of the opener)."""
        interface, url, key = self._interface, self.target.url, self._settings.api_key
        if not _SENDABLE.fullmatch(key):
            raise self._error(
                "cannot be used: its API key contains a space or a non-ASCII character, so it cannot be right. The "
                f"operator can set it with {SETUP[self.name]}."
            )
        parameters = interface.build_parameters(query, limit, self._settings)
        headers = {"Accept": "application/json", **interface.headers(key)}
        if interface.is_post:
            headers["Content-Type"] = "application/json"
            request = WebRequest(url, "POST", headers, json.dumps(parameters).encode(), is_trusted_endpoint=True)
        else:
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
            request = WebRequest(url, headers=headers, is_trusted_endpoint=True)
        try:
            response = await opener.open(request)
        except ToolError as error:
            if error.code is ToolErrorType.WEB_REFUSED:
                # Do not pass on the opener's message, because its URL may contain a key.
                raise self._error(
                    "cannot be used: the address with the query cannot be opened. Try a shorter query; if that fails "
                    f"too, tell the user that the operator can correct web.search.{self.name}.url."
                ) from None
            raise ToolError(error.code, f"{self.title} cannot be used. {error.message}") from None
        if response.status != 200:
            raise self._error(self._refusal(response))
        if response.truncation is not None:
            raise self._error(f"sent an incomplete response: {response.truncation}. Try again later.")
        if len(response.body) > MAX_RESPONSE_BYTES:
            raise self._error(
                f"answered with {len(response.body):,} bytes, far more than a list of results needs; the limit "
                f"is {MAX_RESPONSE_BYTES:,}. Search for something more specific, or request fewer results."
            )
        text = response.body.decode("utf-8-sig", "replace")
        if len(key) >= MIN_SECRET_CHARS:
            text = text.replace(json.dumps(key)[1:-1], HIDDEN)  # an echoed key must not reach the model
        try:
            reply: Any = json.loads(text)
        except (ValueError, RecursionError):
            is_page = response.media_type == "text/html"
            raise self._unexpected_response("it is a web page" if is_page else "it is not JSON") from None
        if not isinstance(reply, dict):
            raise self._unexpected_response("it is not an object")
        return self._results(cast("Json", reply), limit)

    def _results(self, reply: Json, limit: int) -> SearchResults:
        interface = self._interface
        entries = _value_at(reply, *interface.list_path)
        if entries is None and not interface.is_empty(reply):
            raise self._unexpected_response(f"it has no '{'.'.join(interface.list_path)}'")
        if not isinstance(entries, list | None):
            raise self._unexpected_response(f"its '{interface.list_path[-1]}' is not a list")
        pages: list[SearchResult] = []
        omitted_count = 0
        for entry in cast("list[Any]", entries or [])[:MAX_ENTRIES]:
            if len(pages) == limit:
                break
            omitted_count += 1
            if not isinstance(entry, dict):
                continue
            title, address, snippet, score, date = interface.page_fields(cast("Json", entry))
            try:
                url = parse_url(address).url if isinstance(address, str) else ""
            except UrlError:
                continue
            if not 0 < len(url) <= MAX_URL_CHARS:
                continue
            omitted_count -= 1
            is_score = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
            title, snippet = _one_line(title, MAX_TITLE_CHARS), _one_line(snippet, MAX_SNIPPET_CHARS)
            score, date = float(score) if is_score else None, _one_line(date, MAX_DATE_CHARS)
            pages.append(SearchResult(title, url, snippet, score, date))
        return SearchResults(_one_line(interface.answer(reply), MAX_ANSWER_CHARS), tuple(pages), omitted_count)

    def _refusal(self, response: WebResponse) -> str:
        status = response.status
        if status == 429:
            retry_after = response.headers.get("retry-after", "").strip()
            is_time = _SECONDS.fullmatch(retry_after) is not None
            unit = "second" if retry_after == "1" else "seconds"
            retry_time = f"in {retry_after} {unit}" if is_time else "later; its quota may be used up"
            return f"accepts no more searches for now ({status}). Try again {retry_time}."
        if status == 403 and self.name == "searxng":
            return (
                "does not answer in JSON (403). The operator of the instance can add 'json' to search.formats in its "
                "settings.yml."
            )
        url_name = f"web.search.{self.name}.url"
        has_other_url = self._settings.url is not None and url_name not in SETUP[self.name]
        return (
            f"answered with HTTP status {status} instead of results. Try fewer words, or try again later; if that "
            f"fails too, tell the user that the operator can check {f'{url_name} and ' * has_other_url}"
            f"{SETUP[self.name]}."
        )

    def _unexpected_response(self, reason: str) -> ToolError:
        return self._error(
            f"sent an unexpected response: {reason}. Another service may be at {self.target.authority}; the operator "
            f"can check web.search.{self.name}."
        )

    def _error(self, problem: str) -> ToolError:
        return ToolError(ToolErrorType.WEB_SEARCH_FAILED, f"{self.title} {problem}")


def format_results(query: str, title: str, search_results: SearchResults) -> str:
    """Format the results for a model. Text from the web is kept separate from this server's text."""
    shown_query = one_line(query[:MAX_SHOWN_QUERY_CHARS]) + ("..." if len(query) > MAX_SHOWN_QUERY_CHARS else "")
    omission_note = ""  # without this note, the list would look complete
    if search_results.omitted_count:
        omission_note = f" Results omitted, because their addresses cannot be opened: {search_results.omitted_count}."
    if not search_results.results and not search_results.answer:
        return f'{title} found nothing for "{shown_query}". Try fewer or other words.{omission_note}'
    blocks = [search_results.answer] if search_results.answer else []
    if search_results.answer and search_results.results:
        blocks.append("Sources:")
    for number, result in enumerate(search_results.results, start=1):
        facts = [f"Published: {result.date}"] if result.date else []
        facts += [f"Relevance: {result.score:.0%}"] if result.score is not None else []
        lines = [f"{number}. {result.title or '(no title)'}", result.url, result.snippet, ", ".join(facts)]
        blocks.append("\n   ".join(filter(None, lines)))
    body = fence(sanitise("\n\n".join(blocks)))
    hint = "These are excerpts. Read the whole page with web_fetch before you rely on it."
    return f'Web search results for "{shown_query}" from {title}:\n\n{body}\n\n{hint}{omission_note}'


def _one_line(value: Any, max_chars: int) -> str:
    """Return a string on one line, truncated if it is too long; empty if `value` is not a string."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[:MAX_READ_CHARS].split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 3].rstrip()}..."
