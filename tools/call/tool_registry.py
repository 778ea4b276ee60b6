"""The registry of tools. It finds them by name or alias and lists them in a stable order."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from itertools import chain
from typing import Any

from tools.call.base_tool import BaseTool
from tools.contract.tool_errors import ToolNotRegisteredError
from tools.permissions.tool_names import BETWEEN

AnyTool = BaseTool[Any]

NEAR = 0.55  # minimum similarity of a proposed name, from 0 to 1
COUNTERPARTS: Mapping[str, str] = {
    **dict.fromkeys(("bash", "sh", "shell", "exec", "execute", "run", "command", "terminal"), "run_shell_command"),
    **dict.fromkeys(("cat", "read", "open", "view"), "read_file"),
    **dict.fromkeys(("ls", "dir", "list"), "list_directory"),
    **dict.fromkeys(("find", "fd", "search_files"), "glob"),
    **dict.fromkeys(("grep", "rg", "ripgrep", "search"), "grep_search"),
    **dict.fromkeys(("write", "create", "create_file"), "write_file"),
    **dict.fromkeys(("sed", "patch", "str_replace", "multiedit", "apply_patch"), "edit"),
    **dict.fromkeys(("fetch", "curl", "wget", "browse"), "web_fetch"),
    **dict.fromkeys(("remember", "memory"), "save_memory"),
    **dict.fromkeys(("todo", "todos", "plan"), "todo_write"),
}
"""Common names from other programs, with their counterparts in this server. The registry only suggests these."""


# The tools of one source, keyed by name: the listed ones, and those that can only be called
_Source = tuple[Mapping[str, AnyTool], Mapping[str, AnyTool]]
_NO_TOOLS: _Source = ({}, {})


class ToolRegistry:
    """Holds all tools. Built-in tools come first, then the tools of each source, in the order of declaration.

    A source is a group of tools that appear and disappear together, such as those of an upstream or of the discovery
    command. If several tools claim a name, the first in this order wins, both in lists and in calls.
    """

    def __init__(self) -> None:
        self._builtin: dict[str, AnyTool] = {}
        self._aliases: dict[str, str] = {}
        self._sources: dict[str, _Source] = {}
        self._listed: dict[str, AnyTool] = {}
        self._source_tools: dict[str, AnyTool] = {}  # tools from sources, keyed by their names and aliases
        self._listeners: list[Callable[[], None]] = []
        self._discoveries: dict[str, Callable[[], Awaitable[None]]] = {}

    def register_tool(self, tool: AnyTool) -> None:
        """Add a built-in tool. Raises a `ValueError` if another one already uses its name or one of its aliases."""
        for name in (tool.name, *tool.aliases):
            if name in self._builtin or name in self._aliases:
                raise ValueError(f"two built-in tools have the name {name!r}")
        self._builtin[tool.name] = tool
        self._aliases.update(dict.fromkeys(tool.aliases, tool.name))
        self._rebuild()

    def replace_tool(self, tool: AnyTool) -> None:
        """Replace the built-in tool of the same name. Calls in progress finish with the old tool."""
        self._builtin[tool.name] = tool
        self._rebuild()

    def declare_source(self, source: str, discover: Callable[[], Awaitable[None]] | None = None) -> None:
        """Reserve a source's place in the order before its tools are known. `discover` finds the tools."""
        self._sources.setdefault(source, _NO_TOOLS)
        if discover is not None:
            self._discoveries[source] = discover

    def replace_source(self, source: str, tools: Iterable[AnyTool], unlisted: Iterable[AnyTool] = ()) -> None:
        """Set the tools of one source. An empty set removes them. Notifies the listeners if anything changed.

        Lists omit the tools in `unlisted`. Calls may use their names and aliases, and the aliases of `tools`, unless
        another tool has them.
        """
        new_source = {tool.name: tool for tool in tools}, {tool.name: tool for tool in unlisted}
        if new_source == self._sources.get(source, _NO_TOOLS):
            return
        self._sources[source] = new_source
        self._rebuild()

    def drop_source(self, source: str) -> None:
        """Remove a source and its tools. If it is declared again, it comes last."""
        self._discoveries.pop(source, None)
        if self._sources.pop(source, _NO_TOOLS) != _NO_TOOLS:
            self._rebuild()

    async def discover_all_tools(self) -> None:
        """Wait until every source has reported its tools, even if it has none."""
        for discover in tuple(self._discoveries.values()):
            await discover()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change to the set of tools."""
        self._listeners.append(listener)

    def get_tool(self, name: str) -> AnyTool:
        """Find a tool by its name or an alias. Raises the error of `not_registered` if there is none."""
        tool = self.find(name)
        if tool is None:
            raise self.not_registered(name)
        return tool

    def not_registered(
        self, name: str, is_proposed: Callable[[AnyTool], bool] = lambda _: True
    ) -> ToolNotRegisteredError:
        """Return the error for an unknown name, with up to three names that may have been meant."""
        name = name[:128]
        key, candidates = name.casefold(), [name for name, tool in self._listed.items() if is_proposed(tool)]
        by_spelling = {candidate.casefold(): candidate for candidate in candidates}
        by_spelling.update({spelling.casefold(): candidate for spelling, candidate in self._aliases.items()})
        by_spelling.update(COUNTERPARTS)
        nearest = [by_spelling[key]] if by_spelling.get(key) in candidates else []
        # Also suggest upstream tools that have the given name after their upstream's alias, and tools whose name begins
        # with the given name. If the given name includes an alias, also suggest a similarly named tool of the upstream
        # with the most similar alias.
        nearest += [candidate for candidate in candidates if candidate.partition(BETWEEN)[2].casefold() == key]
        nearest += [candidate for candidate in candidates if len(key) > 2 and candidate.casefold().startswith(key)]
        alias, between, suffix = key.partition(BETWEEN)
        if between:
            aliases = {candidate.partition(BETWEEN)[0] for candidate in candidates if BETWEEN in candidate}
            for match in difflib.get_close_matches(alias, aliases, n=1):
                siblings = [candidate for candidate in candidates if candidate.startswith(f"{match}{BETWEEN}")]
                nearest += difflib.get_close_matches(f"{match}{BETWEEN}{suffix}", siblings, n=1, cutoff=NEAR)
        nearest += difflib.get_close_matches(name, candidates, n=3, cutoff=NEAR)
        return ToolNotRegisteredError(name, tuple(dict.fromkeys(nearest))[:3])

    def canonical(self, name: str) -> str:
        """Resolve an alias. Any other name is returned unchanged."""
        return self._aliases.get(name, name)

    def find(self, name: str) -> AnyTool | None:
        """Return the tool that currently has this name or alias."""
        return self._listed.get(name) or self._builtin.get(self._aliases.get(name, "")) or self._source_tools.get(name)

    def names(self) -> set[str]:
        """Return every name that a call may use, including aliases."""
        return {*self._listed, *self._aliases, *self._source_tools}

    def names_except(self, sources: Container[str]) -> set[str]:
        """Return the names of all listed tools, except those of `sources`, and the aliases of built-in tools."""
        other_tools = (listed for name, (listed, _) in self._sources.items() if name not in sources)
        return {*self._builtin, *self._aliases, *chain.from_iterable(other_tools)}

    def get_all_tools(self) -> list[AnyTool]:
        """Return all listed tools in order."""
        return list(self._listed.values())

    def _rebuild(self) -> None:
        self._listed = dict(self._builtin)
        self._source_tools = {}
        for listed, unlisted in self._sources.values():
            for name, tool in listed.items():
                self._listed.setdefault(name, tool)
            for tool in (*listed.values(), *unlisted.values()):
                for name in (tool.name, *tool.aliases):
                    self._source_tools.setdefault(name, tool)
        for listener in self._listeners:
            listener()
