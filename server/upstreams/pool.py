"""All upstreams together: started once, waited for briefly, found by the name of a tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio
from anyio.abc import TaskGroup

from server.settings import UpstreamSettings
from server.upstreams.connection import Upstream
from server.upstreams.discovered_mcp_tool import DiscoveredMCPTool
from tools.registry import ToolRegistry


class UpstreamPool:
    """Starts the upstreams and publishes their tools.

    Args:
        entries: Alias to entry, in the order of the configuration.
        registry: Where their tools are published.
        first_list_wait_seconds: How long after the start a list waits for those that are still connecting.
    """

    def __init__(
        self, entries: Mapping[str, UpstreamSettings], registry: ToolRegistry, first_list_wait_seconds: float
    ) -> None:
        self._registry = registry
        self._wait_seconds = first_list_wait_seconds
        self._wait_until: float | None = None
        self.upstreams = [Upstream(alias, entry, self._publish) for alias, entry in entries.items()]
        for upstream in self.upstreams:
            registry.declare_source(upstream.alias, upstream.known.wait)

    def start(self, tasks: TaskGroup) -> None:
        """Start every upstream's owner task, once; later calls do nothing."""
        if self._wait_until is not None:
            return
        self._wait_until = anyio.current_time() + self._wait_seconds
        for upstream in self.upstreams:
            tasks.start_soon(upstream.run, name=f"upstream {upstream.alias}")

    async def wait_for_first_list(self) -> None:
        """Give upstreams a moment after the start, so that the first list is whole where it can be."""
        if self._wait_until is None or anyio.current_time() >= self._wait_until:
            return
        with anyio.CancelScope(deadline=self._wait_until):
            for upstream in self.upstreams:
                await upstream.known.wait()

    def owner_of(self, tool_name: str) -> Upstream | None:
        """The upstream that a published name belongs to, whether or not the tool is known now."""
        return next((each for each in self.upstreams if tool_name.startswith(f"{each.alias}__")), None)

    def _publish(self, alias: str, tools: Iterable[DiscoveredMCPTool]) -> None:
        self._registry.replace_source(alias, tools)
