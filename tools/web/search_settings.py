"""Which providers of web search an operator has set up, and what setting one up takes. Light: read at the start."""

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
"""All providers there are, in the order of preference: the keys of `web.search.NAME` that each cannot do without, with
the environment variable, by the provider's usual name for it, that counts where the settings give none (or "")."""


def _setup(name: ProviderName) -> str:
    needs = SEARCH_VARIABLES[name]
    keys = " and ".join(f"web.search.{name}.{key}" for key in needs)
    variables = " and ".join(filter(None, needs.values()))
    return f"{keys} (or {variables})" if variables else f"{keys}, the address of an instance that answers in JSON"


SETUP: Mapping[str, str] = {name: _setup(name) for name in SEARCH_VARIABLES}
"""For each provider, what an operator has to set, in words."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One provider that is set up."""

    name: str  # one of `SEARCH_VARIABLES`
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
