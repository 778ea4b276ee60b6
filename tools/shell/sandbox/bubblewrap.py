"""The sandbox of commands: off, used where it works, or required.

Whether the sandbox works is found out by running it with all its options, not by looking for it: a program that exists
can be forbidden what it needs (user namespaces, mounts in containers), and one that starts need not confine. So a
program in the sandbox tries what must fail.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from time import monotonic
from types import MappingProxyType

from anyio import CancelScope, Lock, move_on_after

from tools.contract.errors import NOTHING_DONE, ExhaustedError, ToolError, ToolErrorType, exhaustion_of, scarcity_in
from tools.contract.file_names_in_text import shown_whole_path
from tools.contract.permission_subjects import NO_WAIVER, Waiver
from tools.contract.threads import THREADS
from tools.files.child_process import find_program, is_outside
from tools.files.workspace import contains
from tools.shell.process import ConfinedCommand, NetworkAccess, ProcessSpec, SandboxChanges
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox import visible_file_system
from tools.shell.sandbox.auto_run_guard import AutoRunLookout
from tools.shell.sandbox.hidden_secrets import secret_places
from tools.shell.sandbox.mount_check import ExpectedMount, Gate
from tools.shell.sandbox.probe_program import FIRST_CODE
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import PreparedView, Site, View, depth, prepare

logger = logging.getLogger(__name__)
# Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
# capabilities, also in a user namespace: `core_pattern` alone would run a program outside.
TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
OPEN_TO_ALL = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 - names of mount points, nothing is made there
SETTLE_SECONDS = 8.0  # a command waits so long for the look at what it has left, which then goes on unreported
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
    info: int  # it writes there what its process is
    held: int  # before it begins the command, it reads this to its end
    options: int  # it reads its options from there
    calls: int | None  # from it comes the program of the system call filter; `None` for none


DESCRIPTORS = Descriptors(info=10, held=11, options=12, calls=9)  # above what a shell command uses
FIRST_COPY = 13  # the first of the descriptors that have what is shown in place of settings


def bubblewrap_options(view: View, folder: str, descriptors: Descriptors) -> tuple[str, ...]:
    """The options of bubblewrap for one command that starts in a folder."""
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
        if view.temporary is not None and private == visible_file_system.TEMPORARY:
            options += ("--bind", view.temporary, private)
        else:
            mode = "1777" if private in OPEN_TO_ALL else "0755"
            options += ("--perms", mode, "--size", str(visible_file_system.PRIVATE_BYTES), "--tmpfs", private)
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
    """A command in the sandbox, with what is held for it. To be released."""

    prepare: Callable[[], PreparedView] = field(repr=False, kw_only=True)  # called once bubblewrap was started
    gate: Gate = field(repr=False, kw_only=True)
    descriptors: Descriptors = field(repr=False, kw_only=True)  # what bubblewrap reads and writes
    _prepared: PreparedView | None = field(default=None, repr=False, init=False)

    def send_options(self) -> tuple[ExpectedMount, ...]:
        """Prepare, and tell the bubblewrap that was started what to mount: what its mount table then has. Blocks."""
        self.gate.give_away()
        prepared = self._prepared = self.prepare()
        self.gate.say(bubblewrap_options(prepared.view, self.spec.folder, self.descriptors))
        return prepared.view.expected()

    async def begin(self) -> None:
        """Tell bubblewrap what to mount, and let it begin the command if that is what was mounted, in time."""
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


def not_made(error: OSError) -> ToolError:
    """What a call is told whose sandbox could not be made."""
    why = os.strerror(error.errno) if error.errno else "the system refused"
    return exhaustion_of(error, NOTHING_DONE) or ToolError(
        ToolErrorType.SHELL_EXECUTE_ERROR,
        f"The command was not run: its sandbox could not be made ({why}), so what must stay as it is would have been "
        "open to it. Try again when other commands have ended; if there is no space left, make some first.",
    )


USUAL_FOLDER = "/usr/bin"  # AppArmor on Ubuntu lets the program make user namespaces in this folder only
PROBE_SECONDS = 5.0  # how long the attempt may take; a sandbox takes milliseconds
PROBE_ATTEMPTS = 2  # a machine under load is asked again; a sandbox that hangs, hangs twice
_NO_ANSWER = f"it did not answer within {PROBE_SECONDS:g} s"
_WRONG_MOUNTS = "it does not mount what it is told to"
# In the order of the attempts of `probe_program`.
_WHAT_WORKED = (
    "a command could not write in its workspace",
    "a command wrote outside its workspace",
    "a command wrote a git hook",
    "a command wrote settings of an editor",
    "a command connected to a socket outside",
    "a command connected to an abstract socket outside",
    "a command was in the process namespace of this server",
    "a command could change settings of the kernel",
    "a command had a route to the network",
)
# What bubblewrap says, and what it means.
_KNOWN_FAILURES = {
    "setting up uid map": "user namespaces are restricted here (AppArmor, "
    "kernel.apparmor_restrict_unprivileged_userns)",
    "No permissions to creat": "user namespaces are forbidden here, as in most containers",
    "Creating new namespace failed": "new namespaces are forbidden here, as in most containers",
    "Failed RTM_NEWADDR": "a network namespace cannot be set up here",
    "loopback": "a network namespace cannot be set up here",
    "Failed to make / slave": "mounts are forbidden here, as in most containers",
    "overflowuid": "/proc is missing or incomplete here",
    "mount proc": "a new /proc cannot be mounted here, as in most containers",
    "seccomp": "the kernel does not take filters of system calls",
    "Unknown option": "this version of bubblewrap is too old; 0.8.0 or newer is needed",
    "execvp": "the probe's program cannot be started in it",
}


class SandboxMode(StrEnum):
    """When commands run in the sandbox (`shell.sandbox`)."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    program: str | None  # the absolute path of bubblewrap, `None` where there is none
    failure: str | None  # why it is not used, as the middle of a sentence; `None` where it works


class BubblewrapConfinement:
    """Puts commands into bubblewrap. One for each server."""

    def __init__(
        self,
        mode: SandboxMode,
        network: NetworkAccess,
        site: Site,
        search_path: str = os.defpath,
        program: str | None = None,  # the program to use instead of the one that would be found
        *,
        consented: Mapping[str, float] = MappingProxyType({}),  # as `AutoRunLookout` takes it
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
    ) -> ConfinedCommand:
        """Put a command into the sandbox, or leave it as it is; `sandbox_unavailable` if one is required."""
        if self._mode is SandboxMode.OFF:
            return ConfinedCommand(spec)
        status = await self.status(workspace_roots)
        failure = status.failure
        if failure is None and status.program is not None:
            if is_outside(status.program, workspace_roots):
                free = replace(waiver, auto_run_files=(*waiver.auto_run_files, *self._site.writable))
                wrap = partial(self._sandboxed, status.program, spec, workspace_roots)
                make = partial(wrap, waiver=free, private_folder=private_folder)
                # Not to be lost on the way: it holds descriptors.
                with CancelScope(shield=True):
                    try:
                        return await THREADS.run(make)
                    except OSError as error:
                        raise not_made(error) from None
            failure = "the program bubblewrap lies in the workspace, where commands can replace it"
        if self._mode is SandboxMode.REQUIRED:
            raise ToolError(
                ToolErrorType.SANDBOX_UNAVAILABLE,
                f"The command was not run: a sandbox is required here, and it cannot be used: {failure}. Nothing is "
                "run without it. The operator can mend that, or set shell.sandbox to 'auto' to run commands without a "
                "sandbox where there is none. Until then use the file tools, or ask the user to run it.",
            )
        return ConfinedCommand(spec)

    async def status(self, workspace_roots: Sequence[str]) -> SandboxStatus:
        """Whether the sandbox works for these roots; tried out at the first call, and remembered."""
        broad = visible_file_system.too_broad(workspace_roots)
        if broad is not None:
            return SandboxStatus(
                None,
                f"the workspace root '{shown_whole_path(broad)}' holds the system itself, so nothing would be confined",
            )
        async with self._trying:
            if self._status is None:
                self._status = await THREADS.run(partial(self._try_out, workspace_roots))
            return self._status

    def close(self) -> None:
        """Give back what belongs to the server, after its last command."""
        self._group.close()

    def _sandboxed(
        self,
        program: str,
        spec: ProcessSpec,
        roots: Sequence[str],
        *,
        readable: Sequence[str] = (),  # what it has to see wherever it lies
        waiver: Waiver = NO_WAIVER,
        private_folder: Callable[[], str] | None = None,
        filter_descriptor: int | None = None,
    ) -> SandboxedCommand:
        """A command in the sandbox, ready to be started; an `OSError` if there are no descriptors left.

        A bubblewrap that is started with our own numbers of descriptors is told that of the filter of system calls,
        which is an attachment then, and gets no copies of settings.
        """
        calls_filter = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
        # Looked for before anything is started: bubblewrap is given the copies as descriptors.
        present = visible_file_system.writable(roots)
        hidden = secret_places(self._site.home, self._site.hidden, self._site.readable, present)
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
            limits=replace(spec.limits, group=self._group.entrance() if is_root() else None),
            environment=visible_file_system.sandbox_environment(spec.environment, present),
            attachments={**spec.attachments, **attachments},
            descriptors={descriptors.info: gate.info, descriptors.held: gate.held, descriptors.options: gate.options},
        )
        view = partial(prepare, self._site, self._network, self._lookout, roots, readable)
        return SandboxedCommand(
            wrapped,
            sandbox="bwrap",
            network=self._network,
            withheld=hidden.withheld,
            prepare=partial(view, secrets=(hidden, copies), waiver=waiver, private_folder=private_folder),
            gate=gate,
            descriptors=descriptors,
        )

    def _try_out(self, roots: Sequence[str]) -> SandboxStatus:
        """Look for the program and try it; an `ExhaustedError` where too little is left to tell of the sandbox."""
        if sys.platform != "linux":
            return SandboxStatus(None, "there is none for this system, only for Linux")
        program = self._program or find_bubblewrap(self._search_path, roots)
        if program is None:
            return SandboxStatus(None, "bubblewrap is not installed")
        if self._mode is SandboxMode.REQUIRED and is_root() and self._group.entrance() is None:
            return SandboxStatus(
                program,
                "this server runs as root, whose number of processes only a control group limits, and none can be "
                "made here; start the server as another user",
            )
        try:
            folder = os.path.realpath(tempfile.mkdtemp(prefix="coretools-mcp-probe-"))
        except OSError:
            return SandboxStatus(program, "there is no temporary folder to try it in")
        # In the home folder, where no command may write.
        marker = os.path.join(self._site.home, f".{os.path.basename(folder)}")
        failure: str | None = None
        try:
            for _ in range(PROBE_ATTEMPTS):
                failure = self._probe(program, folder, marker)
                if failure != _NO_ANSWER:
                    break
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
                raise exhaustion from None
            failure = f"it cannot be tried out ({type(error).__name__})"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                os.unlink(marker)
        return SandboxStatus(program, failure)

    def _probe(self, bubblewrap: str, folder: str, marker: str) -> str | None:
        """Run the probe's program in the sandbox; why that does not confine, or does not start."""
        if sys.platform != "linux":
            raise NotImplementedError
        root = tempfile.mkdtemp(dir=folder)
        for kept in (".git/hooks", ".vscode"):
            os.makedirs(os.path.join(root, kept))
        abstract = os.path.basename(folder) + os.path.basename(root)
        # By their real paths: a link to them may lie in a folder that commands have of their own, such as /tmp.
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "probe_program.py")
        python = os.path.realpath(sys.executable)
        namespace = os.readlink("/proc/self/ns/pid")
        argv = (python, "-P", "-S", script, root, marker, abstract, namespace, self._network.value)
        needed = (os.path.dirname(script), sys.prefix, sys.base_prefix, os.path.dirname(python))
        with (
            socket.socket(socket.AF_UNIX) as named,
            socket.socket(socket.AF_UNIX) as nameless,
            open(os.memfd_create("filter"), "r+b", buffering=0) as calls_filter,
        ):
            for server, address in ((named, os.path.join(root, "socket")), (nameless, "\0" + abstract)):
                server.bind(address)
                server.listen()
            calls, spec = calls_filter.fileno(), ProcessSpec(argv, root, {})
            confined = self._sandboxed(bubblewrap, spec, [root], readable=needed, filter_descriptor=calls)
            spec = confined.spec
            try:
                calls_filter.write(spec.attachments.get(calls, b""))
                calls_filter.seek(0)
                deadline = monotonic() + PROBE_SECONDS
                with subprocess.Popen(
                    spec.argv,
                    cwd=spec.folder,
                    env=dict(spec.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(calls, *spec.descriptors.values()),
                    start_new_session=True,
                ) as process:
                    is_over = False
                    try:
                        if not confined.gate.look_for(confined.send_options(), PROBE_SECONDS):
                            return _WRONG_MOUNTS
                        said, _ = process.communicate(timeout=max(deadline - monotonic(), 0))
                        is_over = True
                    except (TimeoutError, subprocess.TimeoutExpired):
                        return _NO_ANSWER
                    finally:
                        if not is_over:
                            # It is in a session of its own: its helpers, if it is a script, go with it.
                            os.killpg(process.pid, signal.SIGKILL)
            finally:
                confined.close()
        code, text = process.returncode, said.decode("utf-8", "replace")
        if FIRST_CODE <= code < FIRST_CODE + len(_WHAT_WORKED):
            return f"it does not confine: {_WHAT_WORKED[code - FIRST_CODE]}"
        if code:
            if (scarce := scarcity_in(text)) is not None:
                raise scarce
            known = (meaning for words, meaning in _KNOWN_FAILURES.items() if words in text)
            return next(known, f"it ended with code {code}")
        return _WRONG_MOUNTS if os.path.lexists(marker) else None


def find_bubblewrap(search_path: str, roots: Sequence[str]) -> str | None:
    """The program outside all workspace roots: in its usual folder, else from the search path."""
    return find_program("bwrap", f"{USUAL_FOLDER}{os.pathsep}{search_path}", roots)
