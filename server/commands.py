"""What runs commands and programs for all clients: put together from the settings, and taken apart in order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from server.settings import Settings, SettingsReport
from server.settings.files import real_path
from tools.execution.jobs import JobTable

if TYPE_CHECKING:
    from tools.execution.brokered_starter import BrokeredStarter
    from tools.execution.program_runner import ProgramRunner
    from tools.execution.runner import CommandRunner
    from tools.execution.sandbox.bubblewrap import BubblewrapConfinement
    from tools.execution.spill_store import SpillStore
    from tools.execution.turns import Turns

CLOSE_SECONDS = 5.0
"""How long the end of the server waits for commands to end; the broker ends what is left."""


class Commands:
    """The runners of commands and of programs with all that they stand on. Nothing is started before the first.

    Args:
        report: The settings.
    """

    def __init__(self, report: SettingsReport) -> None:
        self._report = report
        self._shell = report.settings.shell
        self._confinement: BubblewrapConfinement | None = None
        self.consented: dict[str, float] = {}
        """Real paths of files that programs obey and that tools have written with a person's consent, with the time."""

    def change(self, settings: Settings) -> None:
        """Give commands the `shell.env` of changed settings from the next one on. Those that run go on as they are."""
        if settings.shell.env != self._shell.env:
            self._shell = self._shell.model_copy(update={"env": settings.shell.env})
            self.__dict__.pop("_runner", None)  # the next command has another one made

    @cached_property
    def _spills(self) -> SpillStore:
        from tools.execution.spill_store import SpillStore  # noqa: PLC0415 - with the first client

        return SpillStore()

    @cached_property
    def _starter(self) -> BrokeredStarter:
        from tools.execution.brokered_starter import BrokeredStarter  # noqa: PLC0415 - with the first process

        return BrokeredStarter()

    @cached_property
    def _turns(self) -> Turns:
        from tools.execution.turns import Turns  # noqa: PLC0415 - with the first process

        return Turns()

    def runner(self) -> CommandRunner:
        """What runs commands. Made for the first one, since many servers never run any."""
        return self._runner

    @cached_property
    def _runner(self) -> CommandRunner:
        from tools.execution.confinement import NetworkAccess  # noqa: PLC0415 - with the first command
        from tools.execution.environment import command_environment  # noqa: PLC0415
        from tools.execution.runner import CommandRunner, ShellOptions  # noqa: PLC0415
        from tools.execution.sandbox.bubblewrap import BubblewrapConfinement, SandboxMode  # noqa: PLC0415
        from tools.execution.sandbox.view import Site  # noqa: PLC0415

        report, shell = self._report, self._shell
        site = Site(
            report.home,
            hidden=_own_folders(report),
            read_only=tuple(real_path(path) for path in report.files),
            readable=shell.readable,
            writable=shell.writable,
        )
        search_path = os.environ.get("PATH", os.defpath)
        self._confinement = self._confinement or BubblewrapConfinement(
            SandboxMode(shell.sandbox), NetworkAccess(shell.network), site, search_path, consented=self.consented
        )
        options = ShellOptions(
            environment=command_environment(shell.env, os.environ),
            timeout_seconds=shell.timeout / 1000,
            silence_seconds=shell.silence_timeout / 1000,
            max_concurrent=shell.max_concurrent,
        )
        return CommandRunner(self._starter, self._confinement, options, self._spills, self._turns)

    def programs(self) -> ProgramRunner:
        """What runs the programs that the operator has named, such as agents."""
        return self._programs

    @cached_property
    def _programs(self) -> ProgramRunner:
        from tools.execution.program_runner import ProgramRunner  # noqa: PLC0415 - with the first program

        return ProgramRunner(self._starter, self._spills, turns=self._turns)

    def spill_folder(self, client_key: str) -> tuple[str, ...]:
        """The folder whose files a client may read beside its workspace: its own long outputs."""
        folder = self._spills.folder_of(client_key)
        return (folder,) if folder is not None else ()

    async def forget(self, client_key: str, jobs: JobTable | None) -> None:
        """End what belongs to a client that does not come back."""
        if jobs is not None:
            await jobs.aclose()
        self._spills.forget(client_key)

    async def aclose(self, tables: Iterable[JobTable]) -> None:
        """End everything, in order and within a limit."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for jobs in tables:
                        group.start_soon(jobs.aclose)
            if "_starter" in self.__dict__:
                await self._starter.aclose()
            with anyio.move_on_after(CLOSE_SECONDS):
                await self._spills.aclose()
            if self._confinement is not None:
                self._confinement.close()


def _own_folders(report: SettingsReport) -> tuple[str, ...]:
    """Where the user's settings are, and what is trusted: commands need not see them."""
    return (report.own_folder,) if report.own_folder is not None else ()
