"""The configured web search providers, and the settings that each needs.

The server imports this module at startup, so the import must stay cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ProviderName = Literal["tavily", "brave", "google", "searxng"]
SEARCH_VARIABLES: Mapping[ProviderName, Mapping[str, str]] = {
    "tavily": {"apiKey": "TAVILY_API_KEY"},
    "brave": {"apiKey": "BRAVE_API_KEY"},
    "google": {"apiKey": "GOOGLE_API_KEY", "searchEngineId": "GOOGLE_SEARCH_ENGINE_ID"},
    "searxng": {"url": ""},
}
"""All providers in order of preference, with the required keys of `web.search.NAME`. Each key maps to the
environment variable that is used if the settings lack the key; empty if there is no such variable.
"""


SETUP: Mapping[str, str] = {
    name: " and ".join(f"web.search.{name}.{key}" for key in needs)
    + (f" (or {' and '.join(needs.values())})" if all(needs.values()) else "")
    + (", the address of an instance that answers in JSON" if name == "searxng" else "")
    for name, needs in SEARCH_VARIABLES.items()
}
"""The settings that each provider needs, in words."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    name: str  # a key of `SEARCH_VARIABLES`
    # A full URL to use instead of the provider's own, or `None`; for SearXNG, the URL of the instance
    url: str | None = None
    api_key: str = field(default="", repr=False)  # empty for SearXNG
    search_engine_id: str = ""  # the id of a Google search engine, which determines the pages that are searched


@dataclass(frozen=True, slots=True)
class SearchSettings:
    providers: tuple[ProviderSettings, ...] = ()  # in order of preference
    # The provider for calls that name no provider. If this provider is not configured, the first one is used
    default: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(provider.name for provider in self.providers)

    def provider(self, name: str | None) -> ProviderSettings | None:
        """Return the provider with this name, or the default if `name` is `None`; `None` if it is not configured."""
        if name is not None:
            return next((provider for provider in self.providers if provider.name == name), None)
        return self.provider(self.default or "") or next(iter(self.providers), None)
