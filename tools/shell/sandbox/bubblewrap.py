"""The sandbox of commands: off, used where it works, or required.

    confinement = BubblewrapConfinement(SandboxMode.AUTO, network=NetworkAccess.HOST, site=Site(home=...))
    confined = await confinement.confine(spec, roots)      # the first time, this tries the sandbox out
    ... start confined.spec ...
    await confined.begin()                                 # looks whether the sandbox is the one that was meant
    changes = await confined.release()                     # after everything of the command has ended

What a command leaves running goes on in its sandbox, whose first process ends with the last of them. The one that
starts it sees to their end, as to that of any other process.

Whether the sandbox works is found out by running it with all its options, not by looking for it: a program that exists
can be forbidden what it needs (user namespaces, mounts in containers), and one that starts need not confine. So a
program in the sandbox tries what must fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from time import monotonic
from types import MappingProxyType

from anyio import CancelScope, Lock

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import NOTHING_DONE, exhaustion_of, scarcity_in
from tools.contract.names_on_one_line import shown_whole_path
from tools.contract.subjects import NO_WAIVER, Waiver
from tools.contract.threads import THREADS
from tools.files.programs import find_program, is_outside
from tools.shell.confinement import ConfinedCommand, NetworkAccess
from tools.shell.process import ProcessSpec
from tools.shell.resource_limits import ProcessGroupLimit, is_root
from tools.shell.sandbox.auto_run_guard import AutoRunLookout
from tools.shell.sandbox.probe_program import FIRST_CODE
from tools.shell.sandbox.sandboxed_command import not_made, sandboxed
from tools.shell.sandbox.view import Site, too_broad

USUAL_FOLDER = "/usr/bin"
"""AppArmor on Ubuntu lets the program make user namespaces in this folder only."""

PROBE_SECONDS = 5.0
"""How long the attempt may take; a sandbox takes milliseconds."""

PROBE_ATTEMPTS = 2
"""A machine under load is asked again; a sandbox that hangs, hangs twice."""

_NOT_LINUX = "there is none for this system, only for Linux"
_TOO_SLOW = f"it did not answer within {PROBE_SECONDS:g} s"
_NOT_AS_MEANT = "it does not mount what it is told to"

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
"""In the order of the attempts of `probe_program`."""

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
"""What bubblewrap says, and what it means."""


class SandboxMode(StrEnum):
    """When commands run in the sandbox (`shell.sandbox`)."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """Whether there is a sandbox.

    Args:
        program: The absolute path of bubblewrap, `None` where there is none.
        failure: Why it is not used, as the middle of a sentence; `None` where it works.
    """

    program: str | None
    failure: str | None


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
        self._server = (site, network, AutoRunLookout(consented), self._group)
        """What is the same for every command."""

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        waiver: Waiver = NO_WAIVER,
        private_folder: Callable[[], str] | None = None,
    ) -> ConfinedCommand:
        """Put a command into the sandbox, or leave it as it is.

        Raises:
            ToolError: `sandbox_unavailable`: a sandbox is required, and none works for this command.
        """
        if self._mode is SandboxMode.OFF:
            return ConfinedCommand(spec)
        status = await self.status(workspace_roots)
        failure = status.failure
        if failure is None and status.program is not None:
            if is_outside(status.program, workspace_roots):
                free = replace(waiver, auto_run_files=(*waiver.auto_run_files, *self._site.writable))
                make = partial(
                    sandboxed,
                    status.program,
                    spec,
                    workspace_roots,
                    *self._server,
                    waiver=free,
                    private_folder=private_folder,
                )
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
        broad = too_broad(workspace_roots)
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

    def _try_out(self, roots: Sequence[str]) -> SandboxStatus:
        """Look for the program and try it. What fails for want of descriptors or memory tells nothing of the sandbox.

        Raises:
            ExhaustedError: There is too little of something to try it.
        """
        if sys.platform != "linux":
            return SandboxStatus(None, _NOT_LINUX)
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
                if failure != _TOO_SLOW:
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
            return _NOT_LINUX
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
            confined = sandboxed(bubblewrap, spec, [root], *self._server, readable=needed, filter_descriptor=calls)
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
                            return _NOT_AS_MEANT
                        said, _ = process.communicate(timeout=max(deadline - monotonic(), 0))
                        is_over = True
                    except (TimeoutError, subprocess.TimeoutExpired):
                        return _TOO_SLOW
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
        return _NOT_AS_MEANT if os.path.lexists(marker) else None


def find_bubblewrap(search_path: str, roots: Sequence[str]) -> str | None:
    """The program outside all workspace roots: in its usual folder, else from the search path."""
    return find_program("bwrap", f"{USUAL_FOLDER}{os.pathsep}{search_path}", roots)
