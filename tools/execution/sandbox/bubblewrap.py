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
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from anyio import CancelScope, Lock

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.contract.resources import NOTHING_DONE, exhaustion_of
from tools.contract.threads import THREADS
from tools.execution.confinement import Confined, NetworkAccess, SteeringChanges
from tools.execution.process import ProcessSpec
from tools.execution.sandbox.arguments import Descriptors
from tools.execution.sandbox.hidden import secret_places
from tools.execution.sandbox.limits import ProcessGroupLimit, is_root
from tools.execution.sandbox.lingering import SECONDS, Lingering
from tools.execution.sandbox.program import NOT_LINUX, SandboxStatus, find_bubblewrap
from tools.execution.sandbox.seccomp import seccomp_program
from tools.execution.sandbox.setup import Setup
from tools.execution.sandbox.steering import SteeringLookout
from tools.execution.sandbox.view import Site, prepare, sandbox_environment, too_broad, writable
from tools.filesystem.programs import is_outside

DESCRIPTORS = Descriptors(info=10, held=11, options=12, calls=9)
"""Those of bubblewrap, above what a shell command uses by number."""

FIRST_COPY = 13
"""The first of the descriptors that have what is shown in place of settings."""

NOT_AS_MEANT = (
    "The command was not run: the workspace changed while its sandbox was set up (a folder was moved, or a link "
    "took its place, perhaps through another command). Run it again."
)
TOO_SLOW = (
    "The command was not run: its sandbox took too long to set up. This machine may be very busy, or a folder of the "
    "workspace does not answer; run it again later."
)


class SandboxMode(StrEnum):
    """When commands run in the sandbox (`shell.sandbox`)."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Sandboxed(Confined):
    """A command in the sandbox, with what is held for it."""

    setup: Setup = field(repr=False, kw_only=True)
    lingering: Lingering = field(repr=False, kw_only=True)

    async def begin(self) -> None:
        """Let the command begin, if its sandbox is the one that was meant.

        Raises:
            ToolError: `shell_execute_error`: it is not, or is not set up in time. Nothing of the command has run.
        """
        try:
            if await self.setup.begin():
                return
        except TimeoutError:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, TOO_SLOW) from None
        except OSError as error:
            raise _not_made(error) from None
        raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_MEANT)

    async def release(self) -> SteeringChanges:
        """Give back what is held, once everything of the command has ended."""
        return await self.setup.finish(self.lingering)


class BubblewrapConfinement:
    """Puts commands into bubblewrap. One for each server.

    Args:
        mode: When.
        network: What commands reach.
        site: What of this machine and server matters to every command.
        search_path: Where to look for the program (`PATH`).
        program: The program to use instead of the one that would be found.
        linger_seconds: How long after a command the names of folders are kept free for the next one.
    """

    def __init__(
        self,
        mode: SandboxMode,
        network: NetworkAccess,
        site: Site,
        search_path: str = os.defpath,
        program: str | None = None,
        *,
        linger_seconds: float = SECONDS,
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
        self._lingering = Lingering(linger_seconds)

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
            # Not to be lost on the way: it holds descriptors.
            with CancelScope(shield=True):
                try:
                    return await THREADS.run(partial(self._confined, status.program, spec, workspace_roots))
                except OSError as error:
                    raise _not_made(error) from None
        if self._mode is SandboxMode.REQUIRED:
            raise _unavailable(failure)
        return Confined(spec)

    async def status(self, workspace_roots: Sequence[str]) -> SandboxStatus:
        """Whether the sandbox works for these roots; tried out at the first call, and remembered."""
        broad = too_broad(workspace_roots)
        if broad is not None:
            return SandboxStatus(
                None,
                f"the workspace root '{shown_whole_path(broad)}' holds the system itself, so nothing would be confined",
            )
        async with self._trying:
            if self._status is None:
                self._status = await THREADS.run(lambda: self._try_out(workspace_roots))
            return self._status

    def close(self) -> None:
        """Give back what belongs to the server, after its last command."""
        self._lingering.close()
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
                confined.setup.close()

        return probe(program, self._site.home, self._network, wrap)

    def _unfit(self, status: SandboxStatus, roots: Sequence[str]) -> str | None:
        """Why this command cannot have the sandbox, although it works."""
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
        program_of_calls = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
        # Before anything is started: bubblewrap is given the copies as descriptors.
        present = writable(roots)
        hidden = secret_places(self._site.home, self._site.hidden, self._site.readable, present)
        copies = {path: FIRST_COPY + at for at, path in enumerate(hidden.copies)} if calls is None else {}
        look = partial(prepare, self._site, self._network, self._lookout, roots, readable, secrets=(hidden, copies))
        if calls is None:
            numbers = DESCRIPTORS if program_of_calls is not None else replace(DESCRIPTORS, calls=None)
            setup = Setup(look, spec.folder, numbers)
        else:
            setup = Setup(look, spec.folder, calls=None if program_of_calls is None else calls)
        attached = setup.numbers.calls
        wrapped = replace(
            spec,
            argv=(program, "--args", str(setup.numbers.options), "--", *spec.argv),
            limits=replace(spec.limits, group=self._group.entrance() if is_root() else None),
            environment=sandbox_environment(spec.environment, present),
            attachments=dict(spec.attachments)
            | {number: hidden.copies[path] for path, number in copies.items()}
            | ({} if attached is None or program_of_calls is None else {attached: program_of_calls}),
            descriptors=setup.descriptors,
        )
        return Sandboxed(
            wrapped,
            sandbox="bwrap",
            network=self._network,
            withheld=hidden.withheld,
            setup=setup,
            lingering=self._lingering,
        )


def _not_made(error: OSError) -> ToolError:
    why = os.strerror(error.errno) if error.errno else "the system refused"
    return exhaustion_of(error, NOTHING_DONE) or ToolError(
        ToolErrorType.SHELL_EXECUTE_ERROR,
        f"The command was not run: its sandbox could not be made ({why}), so what must stay as it is would have been "
        "open to it. Try again when other commands have ended; if there is no space left, make some first.",
    )


def _unavailable(failure: str | None) -> ToolError:
    return ToolError(
        ToolErrorType.SANDBOX_UNAVAILABLE,
        f"The command was not run: a sandbox is required here, and it cannot be used: {failure}. "
        "Nothing is run without it. The operator can mend that, or set shell.sandbox to 'auto' to run commands without "
        "a sandbox where there is none. Until then use the file tools, or ask the user to run it.",
    )
