"""The registry: which tools there are, found by name or alias, listed in a stable order."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tools.call.base_tool import BaseTool
from tools.contract.tool_errors import ToolNotRegisteredError
from tools.contract.tool_results import FunctionDeclaration
from tools.permissions.tool_names import BETWEEN

AnyTool = BaseTool[Any]

NEAR = 0.55  # how alike a name has to be to be proposed, from 0 to 1
MEANT: Mapping[str, str] = {
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
"""What names of other programs and habits mean here; they are proposed and never followed."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The tools of one source: those that are listed, by name, and those that only calls reach."""

    listed: Mapping[str, AnyTool] = field(default_factory=dict[str, AnyTool])
    unlisted: Mapping[str, AnyTool] = field(default_factory=dict[str, AnyTool])


class ToolRegistry:
    """Holds all tools. Built-in tools come first, then each source in the order in which it was declared.

    A source is a name under which a group of tools comes and goes together: an upstream's alias, the
    discovery command. A name has exactly one tool, the first one in that order, for listing and for calling.
    """

    def __init__(self) -> None:
        self._builtin: dict[str, AnyTool] = {}
        self._aliases: dict[str, str] = {}
        self._sources: dict[str, _Source] = {}
        self._visible: dict[str, AnyTool] = {}
        self._others: dict[str, AnyTool] = {}  # by the further names of what sources hold
        self._listeners: list[Callable[[], None]] = []
        self._discoveries: dict[str, Callable[[], Awaitable[None]]] = {}

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

    def replace_tool(self, tool: AnyTool) -> None:
        """Put a built-in tool in the place of the one of its name. Calls that are at work go on with the former one."""
        self._builtin[tool.name] = tool
        self._changed()

    def declare_source(self, source: str, discover: Callable[[], Awaitable[None]] | None = None) -> None:
        """Give a source its place in the order, before its tools are known.

        Args:
            source: Its name.
            discover: Finds its tools; run by `discover_all_tools`.
        """
        self._sources.setdefault(source, _Source())
        if discover is not None:
            self._discoveries[source] = discover

    def replace_source(self, source: str, tools: Iterable[AnyTool], unlisted: Iterable[AnyTool] = ()) -> None:
        """Set the tools of one source; an empty set removes them. Tells the listeners if anything changed.

        Args:
            source: Its name.
            tools: Those that are listed. Their aliases reach them too, where those are nobody's name.
            unlisted: Those that are not listed, and found by name and alias where those are nobody else's.
        """
        fresh = _Source({tool.name: tool for tool in tools}, {tool.name: tool for tool in unlisted})
        if fresh == self._sources.get(source, _Source()):
            return
        self._sources[source] = fresh
        self._changed()

    def drop_source(self, source: str) -> None:
        """Forget a source with its tools and its place; one that is declared again comes last."""
        self._discoveries.pop(source, None)
        if self._sources.pop(source, _Source()) != _Source():
            self._changed()

    async def discover_all_tools(self) -> None:
        """Wait until every source has said what tools it has, or that it has none now."""
        for discover in tuple(self._discoveries.values()):
            await discover()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the set of tools."""
        self._listeners.append(listener)

    def get_tool(self, name: str) -> AnyTool:
        """Find a tool by its name or by an alias.

        Raises:
            ToolNotRegisteredError: Nobody has this name; it proposes the nearest three.
        """
        tool = self.find(name)
        if tool is None:
            raise self.not_registered(name)
        return tool

    def not_registered(
        self, name: str, is_proposed: Callable[[AnyTool], bool] = lambda _: True
    ) -> ToolNotRegisteredError:
        """The error for a name that nobody has, with up to three that were perhaps meant."""
        name = name[:128]
        folded, visible = name.casefold(), [listed for listed, tool in self._visible.items() if is_proposed(tool)]
        meant = {listed.casefold(): listed for listed in visible}
        meant.update({spelling.casefold(): listed for spelling, listed in self._aliases.items()})
        meant.update(MEANT)
        nearest = [meant[folded]] if meant.get(folded) in visible else []
        # What a server calls it, no matter who the server is; and the same tool of a server with nearly that name.
        nearest += [listed for listed in visible if listed.partition(BETWEEN)[2].casefold() == folded]
        alias, between, own = folded.partition(BETWEEN)
        if between:
            aliases = {listed.partition(BETWEEN)[0] for listed in visible if BETWEEN in listed}
            for like in difflib.get_close_matches(alias, aliases, n=1):
                there = [listed for listed in visible if listed.startswith(f"{like}{BETWEEN}")]
                nearest += difflib.get_close_matches(f"{like}{BETWEEN}{own}", there, n=1, cutoff=NEAR)
        nearest += difflib.get_close_matches(name, visible, n=3, cutoff=NEAR)
        return ToolNotRegisteredError(name, tuple(dict.fromkeys(nearest))[:3])

    def canonical(self, name: str) -> str:
        """The wire name that an alias stands for; any other name as it is."""
        return self._aliases.get(name, name)

    def find(self, name: str) -> AnyTool | None:
        """The tool that has this name or alias now."""
        return self._visible.get(name) or self._builtin.get(self._aliases.get(name, "")) or self._others.get(name)

    def names(self) -> set[str]:
        """Every name that a call may use now, aliases included."""
        return {*self._visible, *self._aliases, *self._others}

    def names_beside(self, sources: Container[str]) -> set[str]:
        """The names of all listed tools and of their aliases, but for those that come from some sources."""
        others = (source.listed for name, source in self._sources.items() if name not in sources)
        return {*self._builtin, *self._aliases, *chain.from_iterable(others)}

    def get_all_tools(self) -> list[AnyTool]:
        """All tools in the order of listing."""
        return list(self._visible.values())

    def get_function_declarations(self) -> list[FunctionDeclaration]:
        """What a model is told about all tools, in the shape of Qwen Code and Gemini CLI."""
        return [tool.declaration() for tool in self.get_all_tools()]

    def _changed(self) -> None:
        self._visible = dict(self._builtin)
        self._others = {}
        for source in self._sources.values():
            for name, tool in source.listed.items():
                self._visible.setdefault(name, tool)
            for tool in (*source.listed.values(), *source.unlisted.values()):
                for name in (tool.name, *tool.aliases):
                    self._others.setdefault(name, tool)
        for listener in self._listeners:
            listener()
