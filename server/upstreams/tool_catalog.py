"""The tools of all upstreams in the registry, each under its name: what they list comes in here, anew at any time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.settings import UpstreamSettings
from server.upstreams.definitions import Definitions
from server.upstreams.discovered_mcp_tool import DiscoveredMCPTool, UpstreamCall
from server.upstreams.names import Listed, NameMap, Origin, is_included, name_map
from server.upstreams.prepared import PreparedTools
from server.upstreams.spelling import full_name, rule_name
from tools.permissions.tool_names import BETWEEN
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)

MOST_TOLD = 20
"""Hidden tools that one change of a list tells of in the log (ours)."""

Definition = Mapping[str, Any]
"""A tool as its upstream lists it."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What an upstream lists, by its own names, and what sends it a call."""

    definitions: Mapping[str, Definition]
    call: UpstreamCall


class ToolCatalog:
    """Publishes the tools of upstreams.

    Args:
        registry: Where they are published.
        budget: The most characters of a published name.
    """

    def __init__(self, registry: ToolRegistry, budget: int) -> None:
        self.names = NameMap()
        """What every name means now."""
        self._registry = registry
        self._budget = budget
        self._entries: Mapping[str, UpstreamSettings] = {}
        self._offers: dict[str, _Offer] = {}
        self._known = Definitions()
        self._prepared = PreparedTools()
        self._made: dict[Origin, DiscoveredMCPTool] = {}
        self._named: tuple[list[Listed], set[str]] | None = None
        """What the names of now were made of."""
        self._is_publishing = False
        registry.on_change(self._publish)  # custom tools come and go, and their names are theirs

    def configure(self, entries: Mapping[str, UpstreamSettings]) -> None:
        """Use these upstreams from now on. What one listed before counts as long as it is reached as it was.

        Args:
            entries: Alias to entry, in the order of the configuration.
        """
        gone = [
            alias
            for alias, entry in self._entries.items()
            if (now := entries.get(alias)) is None or not entry.is_reached_like(now)
        ]
        self._entries = dict(entries)
        for alias in gone:
            self._offers.pop(alias, None)
            self._known.forget(alias)
            self._prepared.forget(alias)
        for alias in gone:
            self._registry.replace_source(alias, ())
        self._publish()

    async def prepare(self, alias: str, definitions: Iterable[Definition]) -> None:
        """Work out what is heavy before `set_listed`, which is done in one piece; others have their turns meanwhile.

        Args:
            alias: The upstream.
            definitions: All its tools.
        """
        await self._prepared.prepare(alias, definitions)

    def set_listed(self, alias: str, definitions: Iterable[Definition], call: UpstreamCall) -> None:
        """Publish what an upstream lists now, in place of what it listed before.

        Args:
            alias: The upstream.
            definitions: All its tools; one that stands there twice counts once.
            call: Sends it a call.
        """
        entry = self._entries[alias]
        kept: dict[str, Definition] = {}
        for definition in definitions:
            name = definition["name"]
            others = (full_name(alias, name), *([entry.rename[name]] if name in entry.rename else []))
            if is_included(name, entry.include_tools, entry.exclude_tools, others):
                kept.setdefault(name, definition)
        self._known.note(alias, ((name, self._prepared.of(alias, each).digest) for name, each in kept.items()))
        self._offers[alias] = _Offer(kept, call)
        self._publish()

    def owner_of(self, name: str) -> str | None:
        """The alias of the upstream that a name belongs to, whether or not it lists anything now."""
        origin = self.names.find(name)
        if origin is not None:
            return origin.alias
        alias, between, _ = name.partition(BETWEEN)
        return alias if between and alias in self._entries else None

    def lists_anything(self, alias: str) -> bool:
        """Whether it is known what tools an upstream has."""
        return alias in self._offers

    def _publish(self) -> None:
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            self._name_all()
            made: dict[Origin, DiscoveredMCPTool] = {}
            for alias, offer in self._offers.items():
                self._registry.replace_source(alias, *self._tools(alias, offer, made))
            self._made = made
        finally:
            self._is_publishing = False

    def _name_all(self) -> None:
        listed = [
            Listed(alias, tuple(self._listed(alias)), entry.prefix == "alias", entry.rename)
            for alias, entry in self._entries.items()
        ]
        taken = self._registry.names_beside(self._entries)
        if self._named == (listed, taken):
            return
        self._named = (listed, taken)
        before, self.names = self.names, name_map(listed, taken, self._budget)
        told = set(before.hidden)
        fresh = [hidden for hidden in self.names.hidden if hidden not in told]
        for hidden in fresh[:MOST_TOLD]:
            logger.warning("%s", hidden)
        if len(fresh) > MOST_TOLD:
            logger.warning("%d more names are taken; coretools-mcp tools lists them", len(fresh) - MOST_TOLD)

    def _listed(self, alias: str) -> Iterable[str]:
        offer = self._offers.get(alias)
        return offer.definitions if offer is not None else ()

    def _tools(
        self, alias: str, offer: _Offer, made: dict[Origin, DiscoveredMCPTool]
    ) -> tuple[Sequence[DiscoveredMCPTool], Sequence[DiscoveredMCPTool]]:
        """The tools of one upstream that are listed, and those that are hidden; a tool that is the same stays.

        Args:
            alias: The upstream.
            offer: What it lists.
            made: Takes all of them.
        """
        trusted = self._entries[alias].trust
        published = {origin: name for name, origin in self.names.published.items() if origin.alias == alias}
        listed: list[DiscoveredMCPTool] = []
        unlisted: list[DiscoveredMCPTool] = []
        for name, definition in offer.definitions.items():
            origin = Origin(alias, name)
            exposed = published.get(origin)
            called, known = exposed or rule_name(alias, name), self._known.of(alias, name)
            tool = self._made.get(origin)
            if tool is None or tool.name != called or not tool.is_of(definition, offer.call, known, trusted=trusted):
                shown = self._prepared.of(alias, definition).shown
                tool = DiscoveredMCPTool(
                    alias, called, definition, trusted=trusted, call=offer.call, known=known, shown=shown
                )
            made[origin] = tool
            (unlisted if exposed is None else listed).append(tool)
        return listed, unlisted
