"""From what is set up to who searches; the only module that loads all providers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.web.providers.brave import Brave
from tools.web.providers.google import Google
from tools.web.providers.search_provider import SearchProvider
from tools.web.providers.search_settings import ProviderSettings
from tools.web.providers.searxng import Searxng
from tools.web.providers.tavily import Tavily

PROVIDERS: Mapping[str, Callable[[ProviderSettings], SearchProvider]] = {
    Tavily.name: Tavily,
    Brave.name: Brave,
    Google.name: Google,
    Searxng.name: Searxng,
}


def provider_of(settings: ProviderSettings) -> SearchProvider:
    """The provider that is set up."""
    return PROVIDERS[settings.name](settings)
