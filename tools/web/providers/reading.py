"""Reads what providers say: of any type, of any length, and perhaps not true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tools.web.providers.endpoint import Endpoint
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.target import UrlError, parse_url

MAX_TITLE_CHARS = 200
MAX_URL_CHARS = 2_000
"""As it is shown, which is nine times as long for Chinese as it is written."""

MAX_SNIPPET_CHARS = 1_000
"""Some hundred words of each page are enough to decide whether to fetch it."""

MAX_LISTED = 50
"""Entries of a list that are looked at."""

MAX_ANSWER_CHARS = 4_000
MAX_DATE_CHARS = 40

MAX_READ_CHARS = 10_000
"""Of a text; blanks shrink it, but seldom to a tenth."""

Item = Mapping[str, Any]


def text(value: Any, most: int = MAX_SNIPPET_CHARS) -> str:
    """A text on one line, cut where it is longer than `most` characters; empty where there is none."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[:MAX_READ_CHARS].split())
    return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."


def score(value: Any) -> float | None:
    """A number from 0 to 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def date(value: Any) -> str:
    """A date, as it is written."""
    return text(value, MAX_DATE_CHARS)


def items(endpoint: Endpoint, holder: Mapping[str, Any], name: str) -> list[Any] | None:
    """The list of this name, or `None` if there is none.

    Raises:
        ToolError: `web_search_failed`: what has this name is no list.
    """
    value = holder.get(name)
    if value is None or isinstance(value, list):
        return cast("list[Any] | None", value)
    raise endpoint.misunderstood(f"its '{name}' is no list")


def results(found: list[Any], limit: int, read: Callable[[Item], SearchResult], answer: str = "") -> SearchResults:
    """The pages of a list, as far as they have an address.

    Args:
        found: What the provider lists.
        limit: The most pages to give.
        read: Reads one page.
        answer: The provider's own answer.
    """
    kept: list[SearchResult] = []
    left_out = 0
    for entry in found[:MAX_LISTED]:
        if len(kept) == limit:
            break
        result = read(cast("Item", entry)) if isinstance(entry, dict) else None
        if result is not None and result.url:
            kept.append(result)
        else:
            left_out += 1
    return SearchResults(answer, tuple(kept), left_out)


def address(value: Any) -> str:
    """A URL that can be opened, in the one spelling that is used for it; empty where there is none."""
    if not isinstance(value, str):
        return ""
    try:
        url = parse_url(value).url
    except UrlError:
        return ""
    return url if len(url) <= MAX_URL_CHARS else ""
