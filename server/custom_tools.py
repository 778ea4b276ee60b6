"""Custom tools, found by the operator's discovery command. Nothing of it is loaded where there is no such command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from server.settings import Settings
from server.settings.files import real_path
from server.settings.load import working_folder
from server.tool_services import Commands
from tools.call.registry import ToolRegistry
from tools.permissions.tool_names import GROUPS

if TYPE_CHECKING:
    from tools.builtin.discovered_tools import Discovery, DiscoveryState


class CustomTools:
    """Keeps the custom tools in the registry, which holds the built-in tools already."""

    def __init__(
        self, settings: Settings, commands: Commands, registry: ToolRegistry, reserved: Iterable[str] = ()
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._registry = registry
        self._reserved = frozenset((*registry.names(), *reserved, *GROUPS))
        self._folder = working_folder() or os.sep
        self._environment: dict[str, str] = {}
        self._discovery = self._made(settings) if settings.tools.discovery_command is not None else None

    @property
    def state(self) -> DiscoveryState | None:
        """What came of the discovery; `None` where no command is configured."""
        return self._discovery.state if self._discovery is not None else None

    def start(self, tasks: TaskGroup) -> None:
        """Begin the first discovery, once. To be called when a client is really there."""
        if self._discovery is not None:
            self._discovery.start(tasks)

    def change(self, settings: Settings, tasks: TaskGroup) -> None:
        if self._discovery is not None:
            self._set_environment(settings.shell.env)
            self._discovery.change(settings.tools.for_tools(), tasks)
        elif settings.tools.discovery_command is not None:
            self._discovery = self._made(settings)
            self._discovery.start(tasks)

    def _set_environment(self, given: Mapping[str, str]) -> None:
        """Let what is started from now on have these variables: the dictionary stays, what is in it does not."""
        from tools.shell.environment import command_environment  # noqa: PLC0415 - only with a discovery command

        fresh = command_environment(given, os.environ)
        for name in self._environment.keys() - fresh.keys():
            del self._environment[name]
        self._environment.update(fresh)

    async def wait_for_first_list(self) -> None:
        """Give the discovery a moment after the start, so that the first list is whole where it can be."""
        if self._discovery is not None:
            await self._discovery.wait_for_first_list()

    async def wait_until_known(self) -> None:
        if self._discovery is not None:
            await self._discovery.known.wait()

    def _made(self, settings: Settings) -> Discovery:
        from tools.builtin.discovered_tools import GROUP, Discovery  # noqa: PLC0415 - as above
        from tools.builtin.task import TaskTool  # noqa: PLC0415 - as above
        from tools.discovery.commands import CommandSite  # noqa: PLC0415 - only with a discovery command

        roots = tuple(real_path(root) for root in self._settings.workspace.roots)
        self._set_environment(settings.shell.env)
        site = CommandSite(self._commands.programs, self._environment, roots[0] if roots else self._folder, roots)
        wait_seconds = self._settings.proxy.first_list_wait / 1000
        # Without agents the tool is not there; a rule for it is for no other one all the same.
        reserved = self._reserved | {GROUP, TaskTool.name, *TaskTool.aliases}
        return Discovery(settings.tools.for_tools(), self._registry, site, reserved, wait_seconds)
