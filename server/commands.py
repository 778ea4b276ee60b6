"""What runs shell commands for all clients: put together from the settings, and taken apart in order."""

from __future__ import annotations

import os
from collections.abc import Iterable

import anyio

from server.settings import SettingsReport
from tools.contract.services import Services
from tools.execution.broker_client import ProcessBroker
from tools.execution.environment import command_environment
from tools.execution.jobs import JobTable
from tools.execution.runner import CommandRunner, ShellOptions
from tools.execution.sandbox.bubblewrap import BubblewrapConfinement, NetworkAccess, SandboxMode
from tools.execution.sandbox.view import Site
from tools.execution.spill_store import SpillStore

CLOSE_SECONDS = 5.0
"""How long the end of the server waits for commands to end; the broker ends what is left."""


class Commands:
    """The runner of commands with all that it stands on. Nothing is started before the first command.

    Args:
        report: The settings.
    """

    def __init__(self, report: SettingsReport) -> None:
        shell = report.settings.shell
        own_files = tuple(os.path.realpath(path) for path in report.files)
        self._broker = ProcessBroker()
        self._confinement = BubblewrapConfinement(
            SandboxMode(shell.sandbox),
            NetworkAccess(shell.network),
            Site(report.home, hidden=_folders_of(report), read_only=own_files),
            os.environ.get("PATH", os.defpath),
        )
        options = ShellOptions(
            environment=command_environment(shell.env, os.environ),
            timeout_seconds=shell.timeout / 1000,
            silence_seconds=shell.silence_timeout / 1000,
            max_concurrent=shell.max_concurrent,
        )
        self.runner = CommandRunner(self._broker, self._confinement, options, SpillStore())

    @property
    def services(self) -> Services:
        """The services for calls of tools."""
        return Services(commands=self.runner)

    def spill_folder(self, client_key: str) -> tuple[str, ...]:
        """The folder whose files a client may read beside its workspace: its own long outputs."""
        folder = self.runner.spill_folder(client_key)
        return (folder,) if folder is not None else ()

    async def forget(self, client_key: str, jobs: JobTable | None) -> None:
        """End what belongs to a client that does not come back."""
        if jobs is not None:
            await jobs.aclose()
        self.runner.forget(client_key)

    async def aclose(self, tables: Iterable[JobTable]) -> None:
        """End everything, in order and within a limit."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for jobs in tables:
                        group.start_soon(jobs.aclose)
            await self._broker.aclose()
            with anyio.move_on_after(CLOSE_SECONDS):
                await self.runner.aclose()
            self._confinement.close()


def _folders_of(report: SettingsReport) -> tuple[str, ...]:
    """Our own settings: commands need not see them."""
    return (os.path.dirname(report.user_file),) if report.user_file is not None else ()
