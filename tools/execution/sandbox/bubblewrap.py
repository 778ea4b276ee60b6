"""The sandbox of commands: off, used where it works, or required.

    confinement = BubblewrapConfinement(SandboxMode.AUTO, network=NetworkAccess.HOST, site=Site(home=...))
    confined = await confinement.confine(spec, roots)      # the first time, this tries the sandbox out
    ... start confined.spec ...
    await confined.begin()                                 # looks whether the sandbox is the one that was meant
    steering = await confined.release()                    # after everything of the command has ended

What a command leaves running goes on in its sandbox, whose first process ends with the last of them. The one that
starts it sees to their end, as to that of any other process.
"""

from __future__ import annotations

import os
import sys
from asyncio import get_running_loop
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anyio import CancelScope, Lock, to_thread

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.execution.confinement import Confined, NetworkAccess, SteeringChanges
from tools.execution.process import ProcessSpec
from tools.execution.sandbox.arguments import Descriptors, View, bubblewrap_arguments
from tools.execution.sandbox.gate import Gate
from tools.execution.sandbox.limits import ProcessGroupLimit, is_root
from tools.execution.sandbox.program import NOT_LINUX, SandboxStatus, find_bubblewrap
from tools.execution.sandbox.seccomp import seccomp_program
from tools.execution.sandbox.steering import SteeringLookout, is_diverted_repository
from tools.execution.sandbox.view import Prepared, Site, prepare, sandbox_environment, too_broad
from tools.filesystem.programs import is_outside

DESCRIPTORS = Descriptors(info=10, held=11, calls=9)
"""Those of bubblewrap, above what a shell command uses by number."""

NOT_AS_MEANT = (
    "The command was not run: the workspace changed while its sandbox was set up (a folder was moved, or a link "
    "took its place, perhaps through another command). Run it again."
)
TOO_SLOW = (
    "The command was not run: its sandbox took too long to set up. This machine may be very busy, or a folder of the "
    "workspace does not answer; run it again later."
)

SET_ASIDE = ".untrusted"
"""Stands behind the name of a file that a command must not have made."""


class SandboxMode(StrEnum):
    """When commands run in the sandbox (`shell.sandbox`)."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Sandboxed(Confined):
    """A command in the sandbox, with what is held for it."""

    prepared: Prepared = field(repr=False, kw_only=True)
    gate: Gate = field(repr=False, kw_only=True)

    async def begin(self) -> None:
        """Let the command begin, if its sandbox is the one that was meant.

        Raises:
            ToolError: `shell_execute_error`: it is not, or is not set up in time. Nothing of the command has run.
        """
        self.gate.give_away()
        try:
            # While bubblewrap is at work.
            expected = await to_thread.run_sync(self.prepared.view.kept)
            if await self.gate.look(expected):
                return
        except TimeoutError:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, TOO_SLOW) from None
        raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_MEANT)

    async def release(self) -> SteeringChanges:
        """Give back what is held, once everything of the command has ended."""
        self.gate.close()
        changes = SteeringChanges()
        with CancelScope(shield=True):
            changes = await to_thread.run_sync(_finish, self.prepared)
        # Nobody waits for that.
        get_running_loop().run_in_executor(None, self.prepared.placeholders.close)
        return changes


class BubblewrapConfinement:
    """Puts commands into bubblewrap. One for each server.

    Args:
        mode: When.
        network: What commands reach.
        site: What of this machine and server matters to every command.
        search_path: Where to look for the program (`PATH`).
        program: The program to use instead of the one that would be found.
    """

    def __init__(
        self,
        mode: SandboxMode,
        network: NetworkAccess,
        site: Site,
        search_path: str = os.defpath,
        program: str | None = None,
    ) -> None:
        self._mode = mode
        self._site = site
        self._network = network
        self._search_path = search_path
        self._program = program
        self._status: SandboxStatus | None = None
        self._trying = Lock()
        self._group = ProcessGroupLimit()
        self._lookout = SteeringLookout()

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str]) -> Confined:
        """Put a command into the sandbox, or leave it as it is.

        Raises:
            ToolError: `sandbox_unavailable`: a sandbox is required, and none works for this command.
        """
        if self._mode is SandboxMode.OFF:
            return Confined(spec)
        status = await self.status(workspace_roots)
        failure = status.failure or self._unfit(status, workspace_roots)
        if failure is None and status.program is not None:
            # Not to be lost on the way: it holds folders.
            with CancelScope(shield=True):
                return await to_thread.run_sync(self._confined, status.program, spec, workspace_roots)
        if self._mode is SandboxMode.REQUIRED:
            raise _unavailable(failure)
        return Confined(spec)

    async def status(self, workspace_roots: Sequence[str]) -> SandboxStatus:
        """Whether the sandbox works here; tried out at the first call, and remembered."""
        async with self._trying:
            if self._status is None:
                self._status = await to_thread.run_sync(self._try_out, workspace_roots)
            return self._status

    def close(self) -> None:
        """Give back what belongs to the server, after its last command."""
        self._group.close()

    def _try_out(self, roots: Sequence[str]) -> SandboxStatus:
        if sys.platform != "linux":
            return SandboxStatus(None, NOT_LINUX)
        program = self._program or find_bubblewrap(self._search_path, roots)
        if program is None:
            return SandboxStatus(None, "bubblewrap is not installed")
        if self._mode is SandboxMode.REQUIRED and is_root() and self._group.entrance() is None:
            return SandboxStatus(
                program,
                "this server runs as root, whose number of processes only a control group limits, and none can be "
                "made here; start the server as another user",
            )

        from tools.execution.sandbox.probe import probe  # noqa: PLC0415 - once, with the first command

        @contextmanager
        def wrap(spec: ProcessSpec, root: str, readable: Sequence[str], calls: int) -> Generator[Sandboxed]:
            confined = self._confined(program, spec, [root], readable, calls)
            try:
                yield confined
            finally:
                confined.gate.close()
                confined.prepared.placeholders.close()

        return probe(program, self._site.home, self._network, wrap)

    def _unfit(self, status: SandboxStatus, roots: Sequence[str]) -> str | None:
        """Why this command cannot have the sandbox, although it works."""
        broad = too_broad(roots)
        if broad is not None:
            return (
                f"the workspace root '{shown_whole_path(broad)}' holds the system itself, so nothing would be confined"
            )
        program = status.program
        if program is not None and not is_outside(program, roots):
            return "the program bubblewrap lies in the workspace, where commands can replace it"
        return None

    def _confined(
        self,
        program: str,
        spec: ProcessSpec,
        roots: Sequence[str],
        readable: Sequence[str] = (),
        calls: int | None = None,
    ) -> Sandboxed:
        """A command in the sandbox. With a descriptor for the filter it is started with our numbers of descriptors."""
        prepared = prepare(self._site, self._network, self._lookout, roots, readable)
        try:
            gate = Gate()
        except BaseException:
            prepared.placeholders.close()
            raise
        numbers = DESCRIPTORS if calls is None else Descriptors(gate.info, gate.held, calls)
        wrapped = self._wrapped(program, spec, prepared.view, numbers)
        wrapped = replace(wrapped, descriptors={numbers.info: gate.info, numbers.held: gate.held})
        return Sandboxed(wrapped, sandbox="bwrap", network=self._network, prepared=prepared, gate=gate)

    def _wrapped(self, program: str, spec: ProcessSpec, view: View, numbers: Descriptors) -> ProcessSpec:
        calls = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
        attached = {} if numbers.calls is None or calls is None else {numbers.calls: calls}
        numbers = numbers if attached else replace(numbers, calls=None)
        return replace(
            spec,
            argv=(program, *bubblewrap_arguments(view, spec.folder, spec.argv, numbers)),
            limits=replace(spec.limits, group=self._group.entrance() if is_root() else None),
            environment=sandbox_environment(spec.environment, view.roots),
            attachments={**spec.attachments, **attached},
        )


def _unavailable(failure: str | None) -> ToolError:
    return ToolError(
        ToolErrorType.SANDBOX_UNAVAILABLE,
        f"The command was not run: a sandbox is required here, and it cannot be used: {failure}. "
        "Nothing is run without it. The operator can mend that, or set shell.sandbox to 'auto' to run commands without "
        "a sandbox where there is none. Until then use the file tools, or ask the user to run it.",
    )


def _finish(prepared: Prepared) -> SteeringChanges:
    new: list[str] = []
    set_aside: list[str] = []
    changed = prepared.changed()
    for path in prepared.finish():
        # git would take hooks and commands from wherever it points, and nobody but an attacker puts it there.
        aside = _set_aside(path) if is_diverted_repository(path) else None
        if aside is None:
            new.append(path)
        else:
            set_aside.append(aside)
    return SteeringChanges(tuple(new), tuple(set_aside), changed, prepared.uncovered)


def _set_aside(path: str) -> str | None:
    """Give a file a name that no program obeys; where it is now, or `None` where it cannot be renamed."""
    # The first name may be taken, by a folder that the command has made there.
    for aside in (path + SET_ASIDE, f"{path}{SET_ASIDE}-{os.urandom(8).hex()}"):
        with suppress(OSError):
            os.rename(path, aside)
            return aside
    return None
