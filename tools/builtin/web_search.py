"""`web_search`: asks a provider of web search that the operator has set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tools.call.base_tool import Behaviour, BuiltinTool
from tools.call.tool_context import ToolContext
from tools.contract.confirmation import InfoConfirmation
from tools.contract.permission_subjects import HostSubject, Subject, ToolKind
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult
from tools.text.file_names import brief
from tools.web.search_settings import SETUP, SearchSettings

if TYPE_CHECKING:
    from tools.web.search_providers import SearchProvider
    from tools.web.url_opener import UrlOpener


MAX_QUERY_CHARS = 400  # what Tavily and Brave take
DEFAULT_LIMIT = 5  # results of one search (Qwen Code's number)
MAX_LIMIT = 20  # what Tavily and Brave give at a time
*_FIRST, _LAST = SETUP


class WebSearchParams(ToolParams):
    query: str = Field(
        max_length=MAX_QUERY_CHARS,
        description="A few words or a short question, with a year where it has to be recent.",
    )
    provider: str | None = Field(
        default=None,
        description=f"{', '.join(_FIRST)} or {_LAST}, if it is set up; leave it out for the default.",
    )
    limit: int = Field(
        default=DEFAULT_LIMIT,
        ge=1,
        le=MAX_LIMIT,
        description="Most results, at most 20.",
    )


class WebSearchTool(BuiltinTool[WebSearchParams]):
    """Searches the web with what an operator has set up; other settings make another tool.

    The opener of URLs is made with the first call, and the same one each time.
    """

    name = "web_search"
    title = "Search the web"
    display_name = "WebSearch"
    aliases = ("google_web_search", "GoogleSearch", "WebSearchTool", "WebSearch")
    description = (
        "Search the web (google, internet): titles, addresses and excerpts of pages, with a short answer where the "
        "provider gives one. For what is newer than you know, documentation, versions, error messages, facts to be "
        "checked. Read a page with web_fetch, and name your sources to the user."
    )
    kind = ToolKind.SEARCH
    # Nothing is changed by it; but the query leaves this machine, so a client must not run it unasked.
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
        """Where somebody is set up to be asked."""
        return bool(self._settings.providers)

    def check(self, params: WebSearchParams, spelled: Mapping[str, str]) -> None:
        provider, names, problem = params.provider, self._settings.names, ""
        if not params.query.strip():
            problem = f"'{spelled['query']}' is empty; give a few words to search for."
        elif provider is not None and not provider.strip():
            problem = "'provider' is empty; leave it out to ask the default."
        elif provider is not None and names and _named(params) not in names:
            problem = f"the provider '{brief(provider)}' is not set up; these are: {', '.join(names)}."
        if problem:
            raise InvalidToolParamsError(self.name, problem)

    def get_description(self, params: WebSearchParams, context: ToolContext) -> str:
        whom = f" with {brief(params.provider.strip())}" if params.provider is not None else ""
        return f'Search the web for "{brief(params.query.strip())}"{whom}'

    def subjects(self, params: WebSearchParams, context: ToolContext) -> Sequence[Subject]:
        return (HostSubject(self._provider(params).target.host),)

    async def should_confirm_execute(self, params: WebSearchParams, context: ToolContext) -> InfoConfirmation:
        from tools.contract.display import visible_line  # noqa: PLC0415 - with the first question

        provider = self._provider(params)
        authority = provider.target.authority
        return InfoConfirmation(
            title="Search the web",
            prompt=f"Query: {visible_line(params.query.strip())}\nSent to: {provider.title} ({authority})",
        )

    async def execute(self, params: WebSearchParams, context: ToolContext) -> ToolResult:
        from tools.web.search_providers import report  # noqa: PLC0415 - with the first call

        context.signal.raise_if_aborted()
        provider = self._provider(params)
        query = params.query.strip()
        try:
            found = await provider.search(query, params.limit, self._opener())
        except ToolError as error:
            others = ", ".join(name for name in self._settings.names if name != provider.name)
            hint = f" You can also name another provider: {others}." if others else ""
            raise ToolError(error.code, f"{error.message}{hint}") from None
        count = len(found.results)
        return ToolResult(
            llm_content=report(query, provider.title, found),
            return_display=f'{provider.title}: {count} {"result" if count == 1 else "results"} for "{brief(query)}"',
            facts={"provider": provider.name, "results": count},
        )

    def _provider(self, params: WebSearchParams) -> SearchProvider:
        """Who is asked; a `ToolError` that nobody is set up is `no_search_provider`."""
        from tools.web.search_providers import SearchProvider  # noqa: PLC0415 - with the first call

        settings = self._settings.named(_named(params))
        if settings is None:
            raise ToolError(
                ToolErrorType.NO_SEARCH_PROVIDER,
                "The web cannot be searched here: no provider of web search is set up. The operator sets one of: "
                f"{'; '.join(SETUP.values())}. Do not try again; if you know an address, use web_fetch, else tell the "
                "user.",
            )
        return SearchProvider(settings)


def _named(params: WebSearchParams) -> str | None:
    return params.provider.strip().lower() if params.provider is not None else None
