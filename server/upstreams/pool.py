"""All upstreams together: started, waited for briefly, changed with the settings, found by the name of a tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from server.settings import UpstreamSettings
from server.upstreams.connection import Upstream
from server.upstreams.tool_catalog import ToolCatalog
from tools.registry import ToolRegistry

if TYPE_CHECKING:
    from tools.execution.brokered_starter import BrokeredStarter


class UpstreamPool:
    """Starts the upstreams and publishes their tools.

    Args:
        entries: Alias to entry, in the order of the configuration.
        registry: Where their tools are published.
        first_list_wait_seconds: How long after the start a list waits for those that are still connecting.
        name_budget: The most characters of a published name.
    """

    def __init__(
        self,
        entries: Mapping[str, UpstreamSettings],
        registry: ToolRegistry,
        first_list_wait_seconds: float,
        name_budget: int = 48,
    ) -> None:
        self.catalog = ToolCatalog(registry, name_budget)
        self._registry = registry
        self._wait_seconds = first_list_wait_seconds
        self._wait_until: float | None = None
        self._entries = dict(entries)
        self._owners: dict[str, anyio.CancelScope] = {}
        self._starter: BrokeredStarter | None = None
        """Starts the programs of all upstreams, and is closed after the last of them."""
        self._running = 0
        self.upstreams = [self._made(alias, entry) for alias, entry in entries.items()]
        self.catalog.configure(entries)

    def start(self, tasks: TaskGroup) -> None:
        """Start every upstream's owner task, once; later calls do nothing."""
        if self._wait_until is None:
            self._start(self.upstreams, tasks)

    def change(self, entries: Mapping[str, UpstreamSettings], tasks: TaskGroup) -> None:
        """Use other entries from now on. Upstreams whose entry is as it was are left alone, with all their calls.

        Args:
            entries: Alias to entry, in the order of the configuration.
            tasks: Runs the owner tasks of new upstreams, if the others have been started.
        """
        kept = {each.alias: each for each in self.upstreams if entries.get(each.alias) == self._entries[each.alias]}
        gone = [each for each in self.upstreams if each.alias not in kept]
        for upstream in gone:
            if upstream.alias in self._owners:
                self._owners.pop(upstream.alias).cancel()
            upstream.known.set()  # nobody waits for it any more
        self._entries = dict(entries)
        fresh = {alias: self._made(alias, entry) for alias, entry in entries.items() if alias not in kept}
        self.upstreams = [kept.get(alias) or fresh[alias] for alias in entries]
        self.catalog.configure(entries)
        if self._wait_until is not None:
            self._start(fresh.values(), tasks)

    def _made(self, alias: str, entry: UpstreamSettings) -> Upstream:
        upstream = Upstream(alias, entry, self._publish)
        self._registry.declare_source(alias, upstream.known.wait)
        return upstream

    def _start(self, upstreams: Iterable[Upstream], tasks: TaskGroup) -> None:
        self._wait_until = anyio.current_time() + self._wait_seconds
        for upstream in upstreams:
            if self._starter is None:
                from tools.execution.brokered_starter import BrokeredStarter  # noqa: PLC0415 - with the first upstream

                self._starter = BrokeredStarter()
            scope = self._owners[upstream.alias] = anyio.CancelScope()
            self._running += 1
            tasks.start_soon(self._own, upstream, scope, self._starter, name=f"upstream {upstream.alias}")

    async def _own(self, upstream: Upstream, scope: anyio.CancelScope, starter: BrokeredStarter) -> None:
        try:
            with scope:
                await upstream.run(starter)
        finally:
            self._running -= 1
            if not self._running:
                self._starter = None
                await starter.aclose()

    async def wait_for_first_list(self) -> None:
        """Give upstreams a moment after the start, so that the first list is whole where it can be."""
        if self._wait_until is None or anyio.current_time() >= self._wait_until:
            return
        with anyio.CancelScope(deadline=self._wait_until):
            for upstream in self.upstreams:
                await upstream.known.wait()

    @property
    def is_settled(self) -> bool:
        """Whether each has been reached, or tried in vain."""
        return self._wait_until is not None and all(upstream.known.is_set() for upstream in self.upstreams)

    def owner_of(self, tool_name: str) -> Upstream | None:
        """The upstream that a name belongs to, whether or not the tool is known now.

        A name without a prefix that nobody knows may belong to any server without prefixes that has listed nothing yet.
        """
        alias = self.catalog.owner_of(tool_name)
        if alias is not None:
            return next((each for each in self.upstreams if each.alias == alias), None)
        if self._registry.knows(tool_name):
            return None
        return next((each for each in self.upstreams if self._is_unlisted(each.alias)), None)

    def _is_unlisted(self, alias: str) -> bool:
        return self._entries[alias].prefix == "none" and not self.catalog.lists_anything(alias)

    def _publish(self, alias: str, tools: Iterable[Mapping[str, Any]]) -> None:
        upstream = next(each for each in self.upstreams if each.alias == alias)
        self.catalog.set_listed(alias, tools, upstream.call)
