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
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from time import monotonic, sleep
from types import MappingProxyType
from typing import Protocol

from anyio import CancelScope, move_on_after

from tools.contract.command_views import (
    NO_RESTRICTIONS,
    CommandSite,
    CommandView,
    Engine,
    FileRestrictions,
    Network,
    ViewKind,
)
from tools.contract.errors import (
    NOTHING_DONE,
    ExhaustedError,
    ToolError,
    ToolErrorType,
    exhaustion_of,
    sandbox_unavailable,
    scarcity_in,
)
from tools.contract.file_names_in_text import shown_whole_path
from tools.contract.threads import THREADS
from tools.files.child_process import find_program, is_outside
from tools.files.workspace import contains
from tools.shell.private_folders import PrivateFolders
from tools.shell.process import ConfinedCommand, ProcessSpec, SandboxChanges
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox import visible_file_system
from tools.shell.sandbox.auto_run_guard import AutoRunLookout
from tools.shell.sandbox.hidden_secrets import secret_places
from tools.shell.sandbox.landlock import LandlockConfinement
from tools.shell.sandbox.mount_check import ExpectedMount, Gate
from tools.shell.sandbox.probe_program import FIRST_CODE
from tools.shell.sandbox.reading_view import reading_view_paths, without_closed
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import PreparedView, Site, View, depth, prepare

logger = logging.getLogger(__name__)
# Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
# capabilities, also in a user namespace: `core_pattern` alone would run a program outside.
TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
SHARED_BYTES = 512 * 1024**2  # of `/dev/shm`, which each command has for itself
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
    if not view.has_network:
        options.append("--unshare-net")
    options += ("--new-session", "--cap-drop", "ALL", "--info-fd", str(descriptors.info))

    def bind_each(option: str, paths: Iterable[str]) -> None:
        for path in paths:
            options.extend((option, path, path))

    if view.is_whole:
        options += ("--ro-bind", "/", "/")
    for place in sorted(view.links, key=depth):
        options += ("--symlink", view.links[place], place)
    for path in view.empty:
        options += ("--dir", path)
    options += ("--dev", "/dev", "--perms", "1777", "--size", str(SHARED_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
    options += ("--proc", "/proc")
    bind_each("--ro-bind-try", TUNING)
    for private in view.private:
        if private in view.lasting:
            options += ("--bind", view.lasting[private], private)
        else:
            mode = "1777" if private in OPEN_TO_ALL else "0755"
            options += ("--perms", mode, "--size", str(visible_file_system.PRIVATE_BYTES), "--tmpfs", private)
    bind_each("--ro-bind-try", view.seen)

    hidden: list[tuple[str, tuple[str, ...]]] = [
        *((path, ("--size", "4096", "--perms", "0555", "--tmpfs", path)) for path in view.hidden_folders),
        # A device on a mount without devices: opening it is refused, whoever asks.
        *((path, ("--ro-bind-try", "/dev/null", path)) for path in view.hidden_files),
        *((path, ("--ro-bind-data", str(descriptor), path)) for path, descriptor in view.copies.items()),
        *((path, ("--ro-bind-try", path, path)) for path in view.shown),
        *((path, ("--ro-bind", what, path)) for path, what in view.masked.items()),
    ]
    in_roots = {path for path, _ in hidden if any(contains(root, path) and path != root for root in view.roots)}
    # A root that is itself hidden was named by the operator, so it comes second.
    writable = ((path, ("--bind", path, path)) for path in (*view.roots, *view.writable))
    outside = (*(step for step in hidden if step[0] not in in_roots), *writable)
    for _, mount in sorted(outside, key=lambda step: depth(step[0])):
        options += mount
    bind_each("--bind-try", view.pinned)
    bind_each("--ro-bind-try", view.read_only)
    # After these, which show what is really in the folders that they mount.
    for _, mount in sorted((step for step in hidden if step[0] in in_roots), key=lambda step: depth(step[0])):
        options += mount
    # What is made in a file system in memory is lost, so nothing can be.
    for path in ("/", "/dev"):
        options += ("--remount-ro", path)
    # Here it waits at the gate. Nothing is left of what it reads.
    options += ("--file", str(descriptors.held), "/dev/null", "--chdir", folder)
    if descriptors.calls is not None:
        options += ("--seccomp", str(descriptors.calls))
    return tuple(options)


class SessionLoopbacks(Protocol):
    """What holds a network for each client, in which its commands reach each other and nobody else does."""

    async def of(self, client_key: str, bubblewrap: str) -> tuple[int, ...] | None:
        """Descriptors for the namespaces of a client, which stay open; `None` where there can be none."""
        ...


@dataclass(slots=True)
class SandboxedCommand(ConfinedCommand):
    """A command in the sandbox, with what is held for it. To be released."""

    prepare: Callable[[], PreparedView] = field(repr=False, kw_only=True)  # called once bubblewrap was started
    gate: Gate = field(repr=False, kw_only=True)
    descriptors: Descriptors = field(repr=False, kw_only=True)  # what bubblewrap reads and writes
    look: Callable[[], FileRestrictions] = field(repr=False, kw_only=True)  # what rules about files keep from it now
    _prepared: PreparedView | None = field(default=None, repr=False, init=False)

    def send_options(self) -> tuple[ExpectedMount, ...]:
        """Prepare, and tell the bubblewrap that was started what to mount: what its mount table then has. Blocks."""
        self.gate.give_away()
        prepared = self._prepared = self.prepare()
        view = prepared.view
        if not all(map(os.path.lexists, view.masked)):
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, NOT_AS_MEANT)
        self.gate.say(bubblewrap_options(view, prepared.folder(self.spec.folder), self.descriptors))
        return view.expected()

    def is_as_looked_at(self) -> bool:
        """Whether rules about files say the same once all is mounted: a folder may have moved meanwhile. Blocks."""
        before = self._prepared.restrictions if self._prepared is not None else NO_RESTRICTIONS
        now = self.look()
        return (set(now.masked), set(now.read_only)) == (set(before.masked), set(before.read_only))

    async def begin(self) -> None:
        """Tell bubblewrap what to mount, and let it begin the command if that is what was mounted, in time."""
        expected: tuple[ExpectedMount, ...] = ()
        try:
            # Not to be lost on the way: bubblewrap waits.
            with CancelScope(shield=True):
                expected = await THREADS.run(self.send_options)
            await self.gate.wait_mounted()
            if await THREADS.run(self.is_as_looked_at) and await self.gate.look(expected):
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
SCARCITY_ATTEMPTS, SCARCITY_PAUSE_SECONDS = 12, 0.25  # where there are too few descriptors or processes for it
RETRY_SECONDS = 60.0  # after so long a sandbox that did not answer is tried again
PROBE_ATTEMPTS = 2  # a machine under load is asked again; a sandbox that hangs, hangs twice
_NO_ANSWER = f"it did not answer within {PROBE_SECONDS:g} s"
_WRONG_MOUNTS = "it does not mount what it is told to"
# In the order of the attempts of `probe_program`.
_WHAT_WORKED = (
    "a command could not write in its workspace, or could where it only reads",
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
        site: Site,
        search_path: str = os.defpath,
        program: str | None = None,  # the program to use instead of the one that would be found
        *,
        consented: Mapping[str, float] = MappingProxyType({}),  # as `AutoRunLookout` takes it
        folders: PrivateFolders | None = None,  # where it keeps what it puts in the place of what is masked
        loopbacks: SessionLoopbacks | None = None,
        landlock: LandlockConfinement | None = None,  # what holds readers where bubblewrap does not work
    ) -> None:
        self._mode = mode
        self._site = site
        self._search_path = search_path
        self._program = program
        self._status: SandboxStatus | None = None
        self._retry_at = float("inf")
        self._left: list[str] = []  # folders of attempts that could not be removed
        self._trying = threading.Lock()
        self._group = ProcessGroupLimit()
        self._lookout = AutoRunLookout(consented)
        self._folders = folders or PrivateFolders()
        self._loopbacks = loopbacks
        self._landlock = landlock

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        view: CommandView,
        private_folder: Callable[[], str] | None = None,
        client_key: str = "",
    ) -> ConfinedCommand:
        """Put a command into its view; `sandbox_unavailable` if that cannot be made."""
        if view.kind is ViewKind.OPEN and view.engine is not Engine.BUBBLEWRAP:
            # A verdict without a sandbox: somebody was asked, or the operator asks nobody.
            if self._mode is not SandboxMode.REQUIRED:
                return ConfinedCommand(spec, view.engine)
            failure = (await self.status(workspace_roots)).failure or "the command was judged before it could be"
        else:
            status = await self.status(workspace_roots)
            failure = status.failure
            if view.engine is Engine.LANDLOCK and self._landlock is not None and view.kind is ViewKind.READING:
                failure = await self._landlock.failure()
                if not failure:
                    try:
                        return await THREADS.run(
                            partial(self._by_landlock, self._landlock, spec, workspace_roots, private_folder)
                        )
                    except OSError as error:
                        raise not_made(error) from None
            elif view.engine is not Engine.BUBBLEWRAP or view.kind is ViewKind.OPEN:
                failure = f"'{view.engine}' makes no such view of the machine ('{view.kind}')"
            elif failure is None and status.program is not None:
                namespaces = None
                if view.network is Network.SESSION_LOOPBACK and self._loopbacks is not None:
                    namespaces = await self._loopbacks.of(client_key, status.program)
                make = partial(self._sandboxed, status.program, spec, workspace_roots, view)
                # Not to be lost on the way: it holds descriptors.
                with CancelScope(shield=True):
                    try:
                        return await THREADS.run(partial(make, namespaces=namespaces, private_folder=private_folder))
                    except OSError as error:
                        raise not_made(error) from None
        if self._mode is SandboxMode.REQUIRED:
            raise sandbox_unavailable(failure or "it was lost")
        raise ToolError(
            ToolErrorType.SANDBOX_UNAVAILABLE,
            f"The command was not run: the sandbox that it was approved for is no longer available ({failure}). "
            "Nothing runs with more access than it was given. Run it again; the user is asked if needed.",
        )

    async def status(self, workspace_roots: Sequence[str]) -> SandboxStatus:
        """Whether the sandbox works for these roots; tried out at the first call, and remembered."""
        return await THREADS.run(partial(self._status_for, workspace_roots))

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """What can hold commands here, and what a reading view shows; tried out the first time. Blocks."""
        failure = self._status_for(workspace_roots).failure
        engine = Engine.NONE if failure is not None else Engine.BUBBLEWRAP
        if engine is Engine.NONE and self._mode is not SandboxMode.OFF and self._landlock is not None:
            may_hold = self._landlock.may_work() and visible_file_system.too_broad(workspace_roots) is None
            engine = Engine.LANDLOCK if may_hold else engine
        shown = () if engine is Engine.NONE else self._reading_paths(workspace_roots, search_path)
        return CommandSite(engine, failure or "", self._mode is SandboxMode.REQUIRED, shown)

    async def landlock_failure(self) -> str:
        """Why Landlock does not hold what only reads, as the middle of a sentence; empty where it does."""
        return "there is none" if self._landlock is None else await self._landlock.failure()

    def _reading_paths(self, roots: Sequence[str], search_path: str) -> tuple[str, ...]:
        hidden = secret_places(self._site.home, self._site.hidden, self._site.readable, roots)
        covered = (*hidden.folders, *hidden.files, *hidden.copies)
        return reading_view_paths(self._site.home, search_path, roots, covered, self._site.readable)

    def close(self) -> None:
        """Give back what belongs to the server, after its last command."""
        self._remove_left()
        self._group.close()

    def _status_for(self, roots: Sequence[str]) -> SandboxStatus:
        if self._mode is SandboxMode.OFF:
            return SandboxStatus(None, "it is switched off by shell.sandbox")
        if (broad := visible_file_system.too_broad(roots)) is not None:
            return SandboxStatus(
                None,
                f"the workspace root '{shown_whole_path(broad)}' holds the system itself, so nothing would be confined",
            )
        with self._trying:
            if self._status is None or monotonic() >= self._retry_at:
                self._status = self._tried_out(roots)
                # One that has not answered in time may have met a busy machine.
                is_final = self._status.failure != _NO_ANSWER
                self._retry_at = float("inf") if is_final else monotonic() + RETRY_SECONDS
            status = self._status
        if status.failure is None and status.program is not None and not is_outside(status.program, roots):
            failure = "the program bubblewrap lies in the workspace, where commands can replace it"
            return SandboxStatus(status.program, failure)
        return status

    def _by_landlock(
        self,
        landlock: LandlockConfinement,
        spec: ProcessSpec,
        roots: Sequence[str],
        private_folder: Callable[[], str] | None,
    ) -> ConfinedCommand:
        shown = self._reading_paths(roots, spec.environment.get("PATH", ""))
        readable = (*visible_file_system.writable(roots), *(path for each in shown for path in without_closed(each)))
        temporary = None
        if private_folder is not None:
            temporary = os.path.join(private_folder(), "landlock-tmp")
            os.makedirs(temporary, 0o700, exist_ok=True)
        return landlock.confined(spec, readable, temporary)

    def _masks(self) -> tuple[str, str]:
        """A file and a folder that nobody can open, to put in the place of others."""
        base = self._folders.make("masks")
        file, folder = os.path.join(base, "file"), os.path.join(base, "folder")
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
        with suppress(FileExistsError):
            os.mkdir(folder, 0)
        return file, folder

    def _sandboxed(
        self,
        program: str,
        spec: ProcessSpec,
        roots: Sequence[str],
        allowed: CommandView,
        *,
        needed: Sequence[str] = (),  # what it has to see wherever it lies
        namespaces: tuple[int, ...] | None = None,  # those of its session
        private_folder: Callable[[], str] | None = None,
        filter_descriptor: int | None = None,
        site: Site | None = None,  # another one than that of commands
    ) -> SandboxedCommand:
        """A command in the sandbox, ready to be started; an `OSError` if there are no descriptors left.

        A bubblewrap that is started with our own numbers of descriptors is told that of the filter of system calls,
        which is an attachment then, and gets no copies of settings.
        """
        site = site or self._site
        calls_filter = seccomp_program(os.uname().machine) if sys.platform != "win32" else None
        # Looked for before anything is started: bubblewrap is given the copies as descriptors.
        present = visible_file_system.writable(roots)
        hidden = visible_file_system.secrets_of(site, present, allowed)
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
            environment=visible_file_system.sandbox_environment(spec.environment, present, allowed.kind),
            attachments={**spec.attachments, **attachments},
            descriptors={descriptors.info: gate.info, descriptors.held: gate.held, descriptors.options: gate.options},
            namespaces=namespaces or (),
        )
        is_own = allowed.network is not Network.HOST and namespaces is None
        look = partial(
            prepare,
            site,
            self._lookout,
            roots,
            allowed,
            search_path=spec.environment.get("PATH", ""),
            needed=needed,
            secrets=(hidden, copies),
            private_folder=private_folder,
            masks=self._masks,
            has_network=not is_own,
        )
        return SandboxedCommand(
            wrapped,
            Engine.BUBBLEWRAP,
            allowed.kind,
            Network.OWN_LOOPBACK if is_own else allowed.network,
            withheld=hidden.withheld,
            prepare=look,
            gate=gate,
            descriptors=descriptors,
            look=allowed.look,
        )

    def _tried_out(self, roots: Sequence[str]) -> SandboxStatus:
        """Try it as soon as there is enough for it: what other calls hold for a moment comes back."""
        for _ in range(SCARCITY_ATTEMPTS - 1):
            with suppress(ExhaustedError):
                return self._try_out(roots)
            sleep(SCARCITY_PAUSE_SECONDS)
            self._remove_left()
        return self._try_out(roots)

    def _remove_left(self) -> None:
        while self._left:
            shutil.rmtree(self._left.pop(), ignore_errors=True)

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
        # In the home folder, where no command may write; not below /tmp, where each may.
        above = self._site.home if not contains(visible_file_system.TEMPORARY, self._site.home) else "/etc"
        marker = os.path.join(above, f".{os.path.basename(folder)}")
        failure: str | None = None
        try:
            for kind in (ViewKind.WORKING, ViewKind.READING):
                for _ in range(PROBE_ATTEMPTS):
                    failure = self._probe(program, folder, marker, kind)
                    if failure != _NO_ANSWER:
                        break
                if failure is not None:
                    break
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
                raise exhaustion from None
            failure = f"it cannot be tried out ({type(error).__name__})"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                self._left.append(folder)  # there are too few descriptors to remove it
            with suppress(OSError):
                os.unlink(marker)
        return SandboxStatus(program, failure)

    def _probe(self, bubblewrap: str, folder: str, marker: str, kind: ViewKind) -> str | None:
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
        argv = (python, "-P", "-S", script, root, marker, abstract, namespace, kind.value)
        view = CommandView(Engine.BUBBLEWRAP, kind, Network.OWN_LOOPBACK)
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
            confined = self._sandboxed(
                bubblewrap,
                spec,
                [root],
                view,
                needed=needed,
                filter_descriptor=calls,
                site=replace(self._site, writable=()),
            )
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
