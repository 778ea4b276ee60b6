"""What was found, as text for a model: what strangers wrote stands apart from what we say about it."""

from __future__ import annotations

from tools.contract.names import one_line
from tools.web.providers.search_provider import SearchResult, SearchResults
from tools.web.untrusted import fenced, harmless

MAX_SHOWN_QUERY = 200
"""Characters of the query that the heading repeats."""

_HINT = "These are excerpts. Read a page whole with web_fetch before you rely on what it says."


def report(query: str, title: str, found: SearchResults) -> str:
    """The text.

    Args:
        query: What was searched for.
        title: Who searched.
        found: What came of it.
    """
    asked = f'"{_shown(query)}"'
    if not found.results and not found.answer:
        return f"{title} found nothing for {asked}. Try fewer or other words.{_left_out(found.left_out)}"
    body = "\n\n".join(_blocks(found))
    heading = f"Web search results for {asked} from {title}:"
    return f"{heading}\n\n{fenced(harmless(body))}\n\n{_HINT}{_left_out(found.left_out)}"


def _shown(query: str) -> str:
    """A query on one line, cut where it is long."""
    shown = one_line(query[:MAX_SHOWN_QUERY])
    return shown if len(query) <= MAX_SHOWN_QUERY else f"{shown}..."


def _blocks(found: SearchResults) -> list[str]:
    pages = [_block(number, result) for number, result in enumerate(found.results, start=1)]
    if not found.answer:
        return pages
    return [found.answer, *(["Sources:"] if pages else []), *pages]


def _block(number: int, result: SearchResult) -> str:
    lines = [f"{number}. {result.title or '(no title)'}", result.url]
    if result.snippet:
        lines.append(result.snippet)
    facts: list[str] = []
    if result.published:
        facts.append(f"Published: {result.published}")
    if result.score is not None:
        facts.append(f"Relevance: {result.score:.0%}")
    if facts:
        lines.append(", ".join(facts))
    return "\n   ".join(lines)


def _left_out(count: int) -> str:
    """Told, since fewer results than asked for would look like all that there are."""
    return f" Left out because they have no address that can be opened: {count}." if count else ""
