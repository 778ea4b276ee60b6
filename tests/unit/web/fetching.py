"""A client that fetches pages from servers on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.peers.web_server import NameServer, WebServer
from tools.builtin.web import WebFetchTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import TextPart, ToolResult
from tools.web.page_fetcher import PageCache, PageFetcher
from tools.web.url_opener import UrlOpener, WebRules


def rules_for(*sites: WebServer, **others: Any) -> WebRules:
    """Rules under which these servers, all on 127.0.0.1, may be opened."""
    return WebRules(
        allow_private_hosts=("127.0.0.1",), allowed_ports=(80, 443, *(site.port for site in sites)), **others
    )


def opener_for(*sites: WebServer, names: NameServer | None = None, **others: Any) -> UrlOpener:
    """An opener of these servers; `site.test` is this machine."""
    return UrlOpener(rules_for(*sites, **others), names or NameServer())


def public_pages() -> PageFetcher:
    """Fetches what every server may fetch."""
    return PageFetcher(UrlOpener())


class Fetching:
    """The tool with its context."""

    def __init__(self, opener: UrlOpener, context: ToolContext, cache: PageCache | None = None) -> None:
        fetcher = PageFetcher(opener, cache)
        self.tool = WebFetchTool(lambda: fetcher)
        self.context = context

    def of(self, context: ToolContext) -> Fetching:
        """The same tool for another client."""
        other = Fetching(UrlOpener(), context)
        other.tool = self.tool
        return other

    def with_context(self, **changes: Any) -> Fetching:
        """The same tool in another context."""
        return self.of(replace(self.context, **changes))

    async def fetch(self, url: str | None = None, **arguments: Any) -> ToolResult:
        """Call the tool as the flow does."""
        given = arguments if url is None else {"url": url, **arguments}
        return await self.tool.execute(self.tool.validate_tool_params(given), self.context)

    async def text(self, url: str | None = None, **arguments: Any) -> str:
        """All text for the model."""
        return text_of(await self.fetch(url, **arguments))

    async def error(self, url: str, **arguments: Any) -> ToolError:
        """Why a call fails."""
        try:
            result = await self.fetch(url, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(text_of(result))


def text_of(result: ToolResult) -> str:
    """All text for the model."""
    assert isinstance(result.llm_content, list)
    return "\n".join(part.text for part in result.llm_content if isinstance(part, TextPart))


def content_of(text: str) -> str:
    """What stands between the marks."""
    _, _, behind = text.partition('<web_content id="')
    mark, _, content = behind.partition('">\n')
    inside, end, _ = content.partition(f'\n</web_content id="{mark}">')
    assert end, text
    return inside
