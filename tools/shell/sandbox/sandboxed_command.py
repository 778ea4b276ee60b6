"""One command in bubblewrap: how it is told what to mount, begins once that was checked, and what it leaves.

Bubblewrap is started first, which takes about as long as to look at the machine: it waits for its options meanwhile.

Of its options later mounts lie over earlier ones: first all of the machine read-only, then what is private, then what
is hidden outside of the workspace and what is writable in the order of depth (a workspace below a hidden folder is
seen), then what stays where it is or as it is in the workspace, last what is hidden in it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import CancelScope, move_on_after

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import NOTHING_DONE, ExhaustedError, exhaustion_of
from tools.contract.subjects import NO_WAIVER, Waiver
from tools.contract.threads import THREADS
from tools.files.workspace import contains
from tools.shell.confinement import ConfinedCommand, NetworkAccess, SandboxChanges
from tools.shell.process import ProcessSpec
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox.auto_run_guard import AutoRunLookout
from tools.shell.sandbox.hidden_secrets import secret_places
from tools.shell.sandbox.mount_check import ExpectedMount, Gate
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.view import (
    PRIVATE_BYTES,
    TEMPORARY,
    PreparedView,
    Site,
    View,
    depth,
    prepare,
    sandbox_environment,
    writable,
)

logger = logging.getLogger(__name__)

TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
"""Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
capabilities, also in a user namespace: `core_pattern` alone would run a program outside."""

OPEN_TO_ALL = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 - names of mount points, nothing is made there

SETTLE_SECONDS = 8.0
"""How long a command waits for the look at what it has left; that goes on, but is not reported any more."""

NOT_AS_MEANT = (
    "The command was not run: the workspace changed while its sandbox was set up (a folder was moved, or a link "
    "took its place, perhaps through another command). Run it again."
)
TOO_SLOW = (
    "The command was not run: its sandbox took too long to set up. This machine may be very busy, or a folder of the "
    "workspace does not answer; run it again later."
)


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The numbers of descriptors that bubblewrap has.

    Args:
        info: It writes there what its process is.
        held: Before it begins the command, it reads this to its end.
        options: It reads its options from there.
        calls: From it comes the program of the system call filter; `None` for none.
    """

    info: int
    held: int
    options: int
    calls: int | None


DESCRIPTORS = Descriptors(info=10, held=11, options=12, calls=9)
"""Those of bubblewrap, above what a shell command uses by number."""

FIRST_COPY = 13
"""The first of the descriptors that have what is shown in place of settings."""


def bubblewrap_options(view: View, folder: str, descriptors: Descriptors) -> tuple[str, ...]:
    """The options of bubblewrap for one command.

    Args:
        view: What the command sees.
        folder: Where it starts.
        descriptors: What bubblewrap reads and writes.
    """
    options = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if view.network is NetworkAccess.NONE:
        options.append("--unshare-net")
    options += ("--new-session", "--cap-drop", "ALL", "--info-fd", str(descriptors.info))
    options += ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")

    def bind_each(option: str, paths: Iterable[str]) -> None:
        for path in paths:
            options.extend((option, path, path))

    bind_each("--ro-bind-try", TUNING)
    for private in view.private:
        if view.temporary is not None and private == TEMPORARY:
            options += ("--bind", view.temporary, private)
        else:
            mode = "1777" if private in OPEN_TO_ALL else "0755"
            options += ("--perms", mode, "--size", str(PRIVATE_BYTES), "--tmpfs", private)
    bind_each("--ro-bind-try", view.readable)

    hidden: list[tuple[str, tuple[str, ...]]] = [
        *((path, ("--size", "4096", "--perms", "0555", "--tmpfs", path)) for path in view.hidden_folders),
        # A device on a mount without devices: opening it is refused, whoever asks.
        *((path, ("--ro-bind-try", "/dev/null", path)) for path in view.hidden_files),
        *((path, ("--ro-bind-data", str(descriptor), path)) for path, descriptor in view.copies.items()),
        *((path, ("--ro-bind-try", path, path)) for path in view.shown),
    ]
    in_roots = {path for path, _ in hidden if any(contains(root, path) and path != root for root in view.roots)}
    # A root that is itself hidden was named by the operator, so it comes second.
    roots = ((path, ("--bind", path, path)) for path in view.roots)
    outside = (*(step for step in hidden if step[0] not in in_roots), *roots)
    for _, mount in sorted(outside, key=lambda step: depth(step[0])):
        options += mount
    bind_each("--bind-try", view.pinned)
    bind_each("--ro-bind-try", view.read_only)
    # After these, which show what is really in the folders that they mount.
    for _, mount in sorted((step for step in hidden if step[0] in in_roots), key=lambda step: depth(step[0])):
        options += mount
    # Here it waits at the gate. Nothing is left of what it reads.
    options += ("--file", str(descriptors.held), "/dev/null", "--chdir", folder)
    if descriptors.calls is not None:
        options += ("--seccomp", str(descriptors.calls))
    return tuple(options)


@dataclass(slots=True)
class SandboxedCommand(ConfinedCommand):
    """A command in the sandbox, with what is held for it. To be released.

    Args:
        prepare: Looks at the machine, once bubblewrap was started.
        gate: Holds bubblewrap back.
        descriptors: What bubblewrap reads and writes.
    """

    prepare: Callable[[], PreparedView] = field(repr=False, kw_only=True)
    gate: Gate = field(repr=False, kw_only=True)
    descriptors: Descriptors = field(repr=False, kw_only=True)
    _prepared: PreparedView | None = field(default=None, repr=False, init=False)

    def send_options(self) -> tuple[ExpectedMount, ...]:
        """Prepare, and tell the bubblewrap that was started what to mount. Blocks.

        Returns:
            What its mount table has to say then.
        """
        self.gate.give_away()
        prepared = self._prepared = self.prepare()
        if not prepared.auto_run.is_git:
            prepared.auto_run.lookout.enter(self.gate)
        self.gate.say(bubblewrap_options(prepared.view, self.spec.folder, self.descriptors))
        return prepared.view.expected()

    async def begin(self) -> None:
        """Tell bubblewrap what to mount, and let it begin the command if that is what was mounted.

        Raises:
            ToolError: `shell_execute_error`: it is not, or not in time. Nothing of the command has run.
        """
        expected: tuple[ExpectedMount, ...] = ()
        try:
            # Not to be lost on the way: bubblewrap waits.
            with CancelScope(shield=True):
                expected = await THREADS.run(self.send_options)
            if await self.gate.look(expected):
                return
        except TimeoutError:
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, TOO_SLOW) from None
        except OSError as error:
            raise not_made(error) from None
        raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_MEANT)

    async def release(self) -> SandboxChanges:
        """See to what is left, once everything of the command has ended, or if it was not started."""
        self.close()
        if self._prepared is None:
            return SandboxChanges()
        try:
            with move_on_after(SETTLE_SECONDS, shield=True):
                return await THREADS.run(self._prepared.settle)
        except (OSError, RecursionError, ExhaustedError) as error:
            logger.warning("what a command has left could not be looked at: %s", type(error).__name__)
        return SandboxChanges(is_unknown=True)

    def close(self) -> None:
        """Give back what is held, without looking at what is left."""
        self.gate.close()
        if self._prepared is not None:
            self._prepared.auto_run.lookout.leave(self.gate)


def sandboxed(
    program: str,
    spec: ProcessSpec,
    roots: Sequence[str],
    site: Site,
    network: NetworkAccess,
    lookout: AutoRunLookout,
    processes: ProcessGroupLimit,
    *,
    readable: Sequence[str] = (),
    waiver: Waiver = NO_WAIVER,
    private_folder: Callable[[], str] | None = None,
    filter_descriptor: int | None = None,
) -> SandboxedCommand:
    """A command in the sandbox, ready to be started.

    Args:
        program: The absolute path of bubblewrap.
        spec: The command as it would be started without a sandbox.
        roots: Real paths of the folders it may change.
        site: What matters to every command.
        network: What it reaches.
        lookout: Looks through the roots.
        processes: Limits the processes of all commands, where this server runs as root.
        readable: What it has to see wherever it lies.
        waiver: What of the protection it is let off.
        private_folder: Makes the client's folder, if it has one.
        filter_descriptor: Where bubblewrap is started with our own numbers of descriptors: that of the filter of system
            calls, an attachment. It gets no copies of settings then.

    Raises:
        OSError: There are no descriptors left.
    """
    calls_filter = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
    # Looked for before anything is started: bubblewrap is given the copies as descriptors.
    present = writable(roots)
    hidden = secret_places(site.home, site.hidden, site.readable, present)
    gate = Gate()
    copies: dict[str, int] = {}
    descriptors = Descriptors(gate.info, gate.held, gate.options, filter_descriptor)
    if filter_descriptor is None:
        copies = {path: FIRST_COPY + at for at, path in enumerate(hidden.copies)}
        descriptors = DESCRIPTORS
    attachments = {number: hidden.copies[path] for path, number in copies.items()}
    if calls_filter is None:
        descriptors = replace(descriptors, calls=None)
    elif descriptors.calls is not None:
        attachments[descriptors.calls] = calls_filter
    wrapped = replace(
        spec,
        argv=(program, "--args", str(descriptors.options), "--", *spec.argv),
        limits=replace(spec.limits, group=processes.entrance() if is_root() else None),
        environment=sandbox_environment(spec.environment, present),
        attachments={**spec.attachments, **attachments},
        descriptors={descriptors.info: gate.info, descriptors.held: gate.held, descriptors.options: gate.options},
    )
    return SandboxedCommand(
        wrapped,
        sandbox="bwrap",
        network=network,
        withheld=hidden.withheld,
        prepare=partial(
            prepare,
            site,
            network,
            lookout,
            roots,
            readable,
            secrets=(hidden, copies),
            waiver=waiver,
            private_folder=private_folder,
        ),
        gate=gate,
        descriptors=descriptors,
    )


def not_made(error: OSError) -> ToolError:
    """What a call is told whose sandbox could not be made."""
    why = os.strerror(error.errno) if error.errno else "the system refused"
    return exhaustion_of(error, NOTHING_DONE) or ToolError(
        ToolErrorType.SHELL_EXECUTE_ERROR,
        f"The command was not run: its sandbox could not be made ({why}), so what must stay as it is would have been "
        "open to it. Try again when other commands have ended; if there is no space left, make some first.",
    )
