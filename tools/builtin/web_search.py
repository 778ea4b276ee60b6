"""`web_search`: searches the web with a provider that the operator has set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.confirmation import InfoConfirmation
from tools.contract.permission_subjects import HostSubject, Subject, ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult
from tools.text.file_names import brief
from tools.web.search_settings import SETUP, SearchSettings

if TYPE_CHECKING:
    from tools.web.search_providers import SearchProvider
    from tools.web.url_opener import UrlOpener


MAX_QUERY_CHARS = 400  # the limit of Tavily and Brave
DEFAULT_LIMIT = 5  # default number of results of a search, as in Qwen Code
MAX_LIMIT = 20  # the maximum number of results per request at Tavily and Brave
*_FIRST, _LAST = SETUP


class WebSearchParams(ToolParams):
    query: str = Field(
        max_length=MAX_QUERY_CHARS, description="A few words or a short question, with a year if recency matters."
    )
    provider: str | None = Field(
        default=None, description=f"{', '.join(_FIRST)} or {_LAST}, if set up; omit it for the default."
    )
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Number of results, at most 20.")


class WebSearchTool(BuiltinTool[WebSearchParams]):
    """Searches the web. When the operator's settings change, a new tool object is created."""

    name = "web_search"
    title = "Search the web"
    display_name = "WebSearch"
    aliases = ("google_web_search", "GoogleSearch", "WebSearchTool", "WebSearch")
    description = (
        "Search the web (google, internet): titles, addresses and excerpts of pages, with a short answer if the "
        "provider gives one. For recent information, documentation, versions, error messages, and facts to check. Read "
        "a page with web_fetch, and name your sources to the user."
    )
    kind = ToolKind.SEARCH
    # The query leaves this machine, so a client must ask first although nothing is changed.
    behaviour = Behaviour(read_only=False, idempotent=True, open_world=True)
    params_model = WebSearchParams
    parameter_aliases: Mapping[str, str] = {
        "q": "query", "search_query": "query", "max_results": "limit", "num_results": "limit", "count": "limit",
    }  # fmt: skip

    def __init__(self, settings: SearchSettings, opener: Callable[[], UrlOpener]) -> None:
        self._settings = settings
        self._opener = opener
        self.version = repr(([(provider.name, provider.url) for provider in settings.providers], settings.default))

    @property
    def is_listed(self) -> bool:
        return bool(self._settings.providers)

    def problems(self, params: WebSearchParams, original_names: Mapping[str, str]) -> Iterator[str]:
        provider, names = params.provider, self._settings.names
        if not params.query.strip():
            yield f"'{original_names['query']}' is empty; give a few words to search for."
        if provider is not None and not provider.strip():
            yield "'provider' is empty; omit it for the default."
        if provider is not None and names and _provider_name(params) not in names:
            yield f"the provider '{brief(provider)}' is not set up. Available: {', '.join(names)}."

    def get_description(self, params: WebSearchParams, context: ToolContext) -> str:
        provider_note = f" with {brief(params.provider.strip())}" if params.provider is not None else ""
        return f'Search the web for "{brief(params.query.strip())}"{provider_note}'

    def subjects(self, params: WebSearchParams, context: ToolContext) -> Sequence[Subject]:
        return (HostSubject(self._provider(params).target.host),)

    async def should_confirm_execute(self, params: WebSearchParams, context: ToolContext) -> InfoConfirmation:
        from tools.contract.display import visible_line  # noqa: PLC0415 - loaded on first use

        provider = self._provider(params)
        authority = provider.target.authority
        return InfoConfirmation(
            title="Search the web",
            prompt=f"Query: {visible_line(params.query.strip())}\nSent to: {provider.title} ({authority})",
        )

    async def execute(self, params: WebSearchParams, context: ToolContext) -> ToolResult:
        from tools.web.search_providers import format_results  # noqa: PLC0415 - loaded on first use

        context.signal.raise_if_aborted()
        provider = self._provider(params)
        query = params.query.strip()
        try:
            response = await provider.search(query, params.limit, self._opener())
        except ToolError as error:
            other_names = ", ".join(name for name in self._settings.names if name != provider.name)
            hint = f" Or use another provider: {other_names}." if other_names else ""
            raise ToolError(error.code, f"{error.message}{hint}") from None
        count = len(response.results)
        return ToolResult(
            llm_content=format_results(query, provider.title, response),
            return_display=f'{provider.title}: {count} {"result" if count == 1 else "results"} for "{brief(query)}"',
            facts={"provider": provider.name, "results": count},
        )

    def _provider(self, params: WebSearchParams) -> SearchProvider:
        """Return the provider to ask. Raises `no_search_provider` if none is set up."""
        from tools.web.search_providers import SearchProvider  # noqa: PLC0415 - loaded on first use

        settings = self._settings.provider(_provider_name(params))
        if settings is None:
            raise ToolError(
                ToolErrorType.NO_SEARCH_PROVIDER,
                "Web search is not available: no provider is set up. The operator can set one of: "
                f"{'; '.join(SETUP.values())}. Do not try again. If you know an address, use web_fetch; otherwise tell "
                "the user.",
            )
        return SearchProvider(settings)


def _provider_name(params: WebSearchParams) -> str | None:
    return params.provider.strip().lower() if params.provider is not None else None
