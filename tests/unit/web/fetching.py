"""Helpers that fetch pages from test servers on this machine."""

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


def rules_for(*sites: WebServer, **options: Any) -> WebRules:
    """Return rules that allow these servers, which are all on 127.0.0.1."""
    return WebRules(
        allow_private_hosts=("127.0.0.1",), allowed_ports=(80, 443, *(site.port for site in sites)), **options
    )


def opener_for(*sites: WebServer, names: NameServer | None = None, **options: Any) -> UrlOpener:
    """Return an opener for these servers. By default, `site.test` is this machine."""
    return UrlOpener(rules_for(*sites, **options), names or NameServer())


def public_pages() -> PageFetcher:
    """Return a fetcher with the default rules, which allow only public addresses."""
    return PageFetcher(UrlOpener())


class Fetching:
    """The tool `web_fetch` with the context of one client."""

    def __init__(self, opener: UrlOpener, context: ToolContext, cache: PageCache | None = None) -> None:
        fetcher = PageFetcher(opener, cache)
        self.tool = WebFetchTool(lambda: fetcher)
        self.context = context

    def of(self, context: ToolContext) -> Fetching:
        """Return the same tool with another context."""
        copy = Fetching(UrlOpener(), context)
        copy.tool = self.tool
        return copy

    def with_context(self, **changes: Any) -> Fetching:
        """Return the same tool with changed fields of the context."""
        return self.of(replace(self.context, **changes))

    async def fetch(self, url: str | None = None, **arguments: Any) -> ToolResult:
        """Validate the arguments and execute the tool."""
        params = arguments if url is None else {"url": url, **arguments}
        return await self.tool.execute(self.tool.validate_tool_params(params), self.context)

    async def text(self, url: str | None = None, **arguments: Any) -> str:
        """Fetch a URL, and return all text for the model."""
        return text_of(await self.fetch(url, **arguments))

    async def error(self, url: str, **arguments: Any) -> ToolError:
        """Fetch a URL that cannot be fetched, and return the error."""
        try:
            result = await self.fetch(url, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(text_of(result))


def text_of(result: ToolResult) -> str:
    """Return all text for the model."""
    assert isinstance(result.llm_content, list)
    return "\n".join(part.text for part in result.llm_content if isinstance(part, TextPart))


def content_of(text: str) -> str:
    """Return the text inside the fence around a page's content."""
    _, _, rest_of_text = text.partition('<web_content id="')
    mark, _, content = rest_of_text.partition('">\n')
    content_text, end, _ = content.partition(f'\n</web_content id="{mark}">')
    assert end, text
    return content_text
