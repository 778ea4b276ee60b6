"""The sandbox of commands: off, used where it works, or required.

    confinement = BubblewrapConfinement(SandboxMode.AUTO, network=NetworkAccess.HOST, site=Site(home=...))
    confined = await confinement.confine(spec, roots)      # the first time, this tries the sandbox out
    ... start confined.spec ...
    await confined.begin()                                 # looks whether the sandbox is the one that was meant
    changes = await confined.release()                     # after everything of the command has ended

What a command leaves running goes on in its sandbox, whose first process ends with the last of them. The one that
starts it sees to their end, as to that of any other process.

Bubblewrap is started first, which takes about as long as to look at the machine: it waits for its options meanwhile.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from anyio import CancelScope, Lock, move_on_after

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import NOTHING_DONE, ExhaustedError, exhaustion_of
from tools.contract.names_on_one_line import shown_whole_path
from tools.contract.subjects import NO_WAIVER, Waiver
from tools.contract.threads import THREADS
from tools.files.programs import find_program, is_outside
from tools.shell.confinement import Confined, NetworkAccess, SandboxChanges
from tools.shell.process import ProcessSpec
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox.auto_run_guard import AutoRunLookout
from tools.shell.sandbox.hidden_secrets import secret_places
from tools.shell.sandbox.mount_check import Expected, Gate
from tools.shell.sandbox.probe import NOT_LINUX, SandboxStatus, probe
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.view import (
    Descriptors,
    Prepared,
    Site,
    bubblewrap_options,
    prepare,
    sandbox_environment,
    too_broad,
    writable,
)

logger = logging.getLogger(__name__)

USUAL_FOLDER = "/usr/bin"
"""AppArmor on Ubuntu lets the program make user namespaces in this folder only."""

DESCRIPTORS = Descriptors(info=10, held=11, options=12, calls=9)
"""Those of bubblewrap, above what a shell command uses by number."""

FIRST_COPY = 13
"""The first of the descriptors that have what is shown in place of settings."""

SETTLE_SECONDS = 8.0
"""How long a command waits until it was looked what it has left; that goes on, but is not told any more."""

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


class Setup:
    """Makes one sandbox. To be closed or finished.

    Args:
        prepare: Looks at the machine.
        folder: Where the command starts.
        numbers: The descriptors as bubblewrap knows them; `None` where it knows them as we do, with that of `calls`.
        calls: Our descriptor with the filter of system calls, where that is so; `None` for no filter.

    Raises:
        OSError: There are no descriptors left.
    """

    def __init__(
        self,
        prepare: Callable[[], Prepared],
        folder: str,
        numbers: Descriptors | None = None,
        calls: int | None = None,
    ) -> None:
        self.prepare = prepare
        self.gate = Gate()
        self.numbers = numbers or Descriptors(self.gate.info, self.gate.held, self.gate.options, calls)
        self._folder = folder
        self._prepared: Prepared | None = None

    @property
    def descriptors(self) -> dict[int, int]:
        """Ours, by the numbers that bubblewrap has them under."""
        return {
            self.numbers.info: self.gate.info,
            self.numbers.held: self.gate.held,
            self.numbers.options: self.gate.options,
        }

    def say(self) -> tuple[Expected, ...]:
        """Prepare, and tell the bubblewrap that was started what to mount. Blocks.

        Returns:
            What its mount table has to say then.
        """
        self.gate.give_away()
        prepared = self._prepared = self.prepare()
        if not prepared.is_git:
            prepared.lookout.enter(self)
        self.gate.say(bubblewrap_options(prepared.view, self._folder, self.numbers))
        return prepared.view.expected()

    async def begin(self) -> bool:
        """Tell bubblewrap what to mount, and let it begin the command if that is what was mounted.

        Returns:
            Whether it was let on, or has ended by itself before.

        Raises:
            TimeoutError: It takes too long.
        """
        expected: tuple[Expected, ...] = ()
        # Not to be lost on the way: bubblewrap waits.
        with CancelScope(shield=True):
            expected = await THREADS.run(self.say)
        return await self.gate.look(expected)

    async def finish(self) -> SandboxChanges:
        """See to what is left, once everything of the command has ended, or if it was not started."""
        self.gate.close()
        if self._prepared is None:
            return SandboxChanges()
        self._prepared.lookout.leave(self)
        try:
            with move_on_after(SETTLE_SECONDS, shield=True):
                return await THREADS.run(self._prepared.settle)
        except (OSError, RecursionError, ExhaustedError) as error:
            logger.warning("what a command has left could not be looked at: %s", type(error).__name__)
        return SandboxChanges(is_unknown=True)

    def close(self) -> None:
        """The same for one that is only tried out."""
        self.gate.close()
        if self._prepared is not None:
            self._prepared.lookout.leave(self)


@dataclass(frozen=True, slots=True)
class Sandboxed(Confined):
    """A command in the sandbox, with what is held for it."""

    setup: Setup = field(repr=False, kw_only=True)

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

    async def release(self) -> SandboxChanges:
        """See to what is left, once everything of the command has ended."""
        return await self.setup.finish()


class BubblewrapConfinement:
    """Puts commands into bubblewrap. One for each server.

    Args:
        mode: When.
        network: What commands reach.
        site: What of this machine and server matters to every command.
        search_path: Where to look for the program (`PATH`).
        program: The program to use instead of the one that would be found.
        consented: Real paths that other tools have written with a person's consent, each with the monotonic time of
            the last consent; whoever holds it adds to it.
    """

    def __init__(
        self,
        mode: SandboxMode,
        network: NetworkAccess,
        site: Site,
        search_path: str = os.defpath,
        program: str | None = None,
        *,
        consented: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._mode = mode
        self._site = site
        self._network = network
        self._search_path = search_path
        self._program = program
        self._status: SandboxStatus | None = None
        self._trying = Lock()
        self._group = ProcessGroupLimit()
        self._lookout = AutoRunLookout(consented)

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        waiver: Waiver = NO_WAIVER,
        private_folder: Callable[[], str] | None = None,
    ) -> Confined:
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
                    free = replace(waiver, auto_run_files=(*waiver.auto_run_files, *self._site.writable))
                    client = partial(prepare, waiver=free, private_folder=private_folder)
                    return await THREADS.run(partial(self._confined, status.program, spec, workspace_roots, client))
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

        @contextmanager
        def wrap(spec: ProcessSpec, root: str, readable: Sequence[str], calls: int) -> Generator[Sandboxed]:
            confined = self._confined(program, spec, [root], partial(prepare, readable=readable), calls)
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
        view: Callable[..., Prepared],
        calls: int | None = None,
    ) -> Sandboxed:
        """A command in the sandbox. With a descriptor for the filter it is started with our numbers of descriptors."""
        program_of_calls = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
        # Before anything is started: bubblewrap is given the copies as descriptors.
        present = writable(roots)
        hidden = secret_places(self._site.home, self._site.hidden, self._site.readable, present)
        copies = {path: FIRST_COPY + at for at, path in enumerate(hidden.copies)} if calls is None else {}
        look = partial(view, self._site, self._network, self._lookout, roots, secrets=(hidden, copies))
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


def find_bubblewrap(search_path: str, roots: Sequence[str]) -> str | None:
    """The program outside all workspace roots: in its usual folder, else from the search path."""
    return find_program("bwrap", f"{USUAL_FOLDER}{os.pathsep}{search_path}", roots)
