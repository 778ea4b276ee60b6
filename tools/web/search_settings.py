"""Which providers of web search an operator has set up, and what setting one up takes. Light: read at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# All providers there are, each with the settings, and the environment variables, that it cannot do without
SETUP: Mapping[str, str] = {
    "tavily": "web.search.tavily.apiKey (or TAVILY_API_KEY)",
    "brave": "web.search.brave.apiKey (or BRAVE_API_KEY)",
    "google": "web.search.google.apiKey and web.search.google.searchEngineId (or GOOGLE_API_KEY and "
    "GOOGLE_SEARCH_ENGINE_ID)",
    "searxng": "web.search.searxng.url, the address of an instance that answers in JSON",
}


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One provider that is set up."""

    name: str  # one of `SETUP`
    # Where to ask instead of the provider's own address, whole, or `None`; of SearXNG the instance's address
    url: str | None = None
    api_key: str = field(default="", repr=False)  # the key; empty for SearXNG
    search_engine_id: str = ""  # Google's name for what is searched


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """All providers that are set up."""

    providers: tuple[ProviderSettings, ...] = ()  # in the order of preference
    # The name of the one that is asked where a call names none; the first if it is not set up
    default: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(provider.name for provider in self.providers)

    def named(self, name: str | None) -> ProviderSettings | None:
        """The provider that a call names, or the default for `None`; `None` if it is not set up."""
        if name is not None:
            return next((provider for provider in self.providers if provider.name == name), None)
        return self.named(self.default or "") or next(iter(self.providers), None)
