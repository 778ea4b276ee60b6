"""The registry: which tools there are, found by name or alias, listed in a stable order."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tools.contract.base import BaseTool
from tools.contract.errors import ToolNotRegisteredError
from tools.contract.result import FunctionDeclaration

AnyTool = BaseTool[Any]


class ToolRegistry:
    """Holds all tools. Built-in tools come first, the others in the order of their source.

    A source is a name under which a group of tools comes and goes together: an upstream's alias, the
    discovery command. Within the registry a name has exactly one tool; the first one keeps it.
    """

    def __init__(self) -> None:
        self._builtin: dict[str, AnyTool] = {}
        self._sources: dict[str, dict[str, AnyTool]] = {}
        self._aliases: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self._discover: list[Callable[[], Awaitable[None]]] = []

    def register_tool(self, tool: AnyTool) -> None:
        """Add a built-in tool under its name and its aliases.

        Raises:
            ValueError: The name or an alias is taken; two built-in tools cannot share one.
        """
        for name in (tool.name, *tool.aliases):
            if name in self._builtin or name in self._aliases:
                raise ValueError(f"two built-in tools claim the name {name!r}")
        self._builtin[tool.name] = tool
        self._aliases.update(dict.fromkeys(tool.aliases, tool.name))
        self._changed()

    def replace_source(self, source: str, tools: Iterable[AnyTool]) -> None:
        """Set the tools of one source; an empty set removes it. Tells the listeners if anything changed."""
        fresh = {tool.name: tool for tool in tools}
        if fresh == self._sources.get(source, {}):
            return
        if fresh:
            self._sources[source] = fresh
        else:
            self._sources.pop(source, None)
        self._changed()

    def add_discovery(self, discover: Callable[[], Awaitable[None]]) -> None:
        """Add a way of finding tools; `discover_all_tools` runs it."""
        self._discover.append(discover)

    async def discover_all_tools(self) -> None:
        """Run every discovery. Each replaces the tools of its own source."""
        for discover in self._discover:
            await discover()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the set of tools."""
        self._listeners.append(listener)

    def get_tool(self, name: str) -> AnyTool:
        """Find a tool by its name or by an alias.

        Raises:
            ToolNotRegisteredError: Nobody has this name; it proposes the nearest three.
        """
        tool = self._builtin.get(name) or self._builtin.get(self._aliases.get(name, ""))
        if tool is not None:
            return tool
        for tools in self._sources.values():
            if name in tools:
                return tools[name]
        known = [tool.name for tool in self.get_all_tools()]
        nearest = difflib.get_close_matches(name[:128], known, n=3, cutoff=0.0)
        raise ToolNotRegisteredError(name[:128], tuple(nearest))

    def get_all_tools(self) -> list[AnyTool]:
        """All tools: built-in ones in their order of registration, then each source by its name."""
        listed = dict(self._builtin)
        for source in sorted(self._sources):
            for name, tool in self._sources[source].items():
                listed.setdefault(name, tool)
        return list(listed.values())

    def get_function_declarations(self) -> list[FunctionDeclaration]:
        """What the model is told of all tools."""
        return [tool.declaration() for tool in self.get_all_tools()]

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
