"""Whether the sandbox works on this machine: told by running it with all its options, not by looking for it.

A program that is there can be forbidden what it needs (user namespaces, mounts in containers), and one that starts need
not confine. So a program in the sandbox tries what must fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from tools.contract.exhaustion import NOTHING_DONE, exhaustion_of, scarcity_in
from tools.shell.confinement import NetworkAccess
from tools.shell.process import ProcessSpec
from tools.shell.sandbox.probe_program import FIRST_CODE

if TYPE_CHECKING:
    from tools.shell.sandbox.bubblewrap import Sandboxed


NOT_LINUX = "there is none for this system, only for Linux"
"""A failure that nobody mends."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """Whether there is a sandbox.

    Args:
        program: The absolute path of bubblewrap, `None` where there is none.
        failure: Why it is not used, as the middle of a sentence; `None` where it works.
    """

    program: str | None
    failure: str | None


SECONDS = 5.0
"""How long the attempt may take; a sandbox takes milliseconds."""

ATTEMPTS = 2
"""A machine under load is asked again; a sandbox that hangs, hangs twice."""

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

_TOO_SLOW = f"it did not answer within {SECONDS:g} s"

_NOT_AS_MEANT = "it does not mount what it is told to"

_KNOWN_FAILURES = (
    (
        "setting up uid map",
        "user namespaces are restricted here (AppArmor, kernel.apparmor_restrict_unprivileged_userns)",
    ),
    ("No permissions to creat", "user namespaces are forbidden here, as in most containers"),
    ("Creating new namespace failed", "new namespaces are forbidden here, as in most containers"),
    ("Failed RTM_NEWADDR", "a network namespace cannot be set up here"),
    ("loopback", "a network namespace cannot be set up here"),
    ("Failed to make / slave", "mounts are forbidden here, as in most containers"),
    ("overflowuid", "/proc is missing or incomplete here"),
    ("mount proc", "a new /proc cannot be mounted here, as in most containers"),
    ("seccomp", "the kernel does not take filters of system calls"),
    ("Unknown option", "this version of bubblewrap is too old; 0.8.0 or newer is needed"),
    ("execvp", "the probe's program cannot be started in it"),
)
"""What bubblewrap says, and what it means."""


class Wrap(Protocol):
    """Puts a command into the sandbox for as long as the `with` lasts."""

    def __call__(
        self, spec: ProcessSpec, root: str, readable: Sequence[str], calls: int
    ) -> AbstractContextManager[Sandboxed]:
        """The command as it is to be started, with our numbers of descriptors.

        Args:
            spec: The command.
            root: Its workspace.
            readable: What it has to see.
            calls: The descriptor from which the filter of system calls will be read.
        """
        ...


def probe(program: str, home: str, network: NetworkAccess, wrap: Wrap) -> SandboxStatus:
    """Try a sandbox. Blocks.

    What fails for want of descriptors, processes or memory tells nothing of the sandbox.

    Args:
        program: The absolute path of bubblewrap.
        home: The home folder, in which the attempt tries to write.
        network: What commands reach.
        wrap: Puts a command into the sandbox.

    Raises:
        ExhaustedError: There is too little of something to try it.
    """
    if sys.platform != "linux":
        return SandboxStatus(None, NOT_LINUX)
    try:
        folder = os.path.realpath(tempfile.mkdtemp(prefix="coretools-mcp-probe-"))
    except OSError:
        return SandboxStatus(program, "there is no temporary folder to try it in")
    marker = os.path.join(home, f".{os.path.basename(folder)}")
    failure: str | None = None
    try:
        for _ in range(ATTEMPTS):
            failure = _attempt(folder, marker, network.value, wrap)
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


def _attempt(folder: str, marker: str, network: str, wrap: Wrap) -> str | None:
    if sys.platform != "linux":
        return NOT_LINUX
    root = tempfile.mkdtemp(dir=folder)
    for kept in (".git/hooks", ".vscode"):
        os.makedirs(os.path.join(root, kept))
    abstract = os.path.basename(folder) + os.path.basename(root)
    # By their real paths: a link to them may lie in a folder that commands have of their own, such as /tmp.
    script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "probe_program.py")
    python = os.path.realpath(sys.executable)
    namespace = os.readlink("/proc/self/ns/pid")
    spec = ProcessSpec((python, "-P", "-S", script, root, marker, abstract, namespace, network), root, {})
    needed = (os.path.dirname(script), sys.prefix, sys.base_prefix, os.path.dirname(python))
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as nameless:
        for server, address in ((named, os.path.join(root, "socket")), (nameless, "\0" + abstract)):
            server.bind(address)
            server.listen()
        descriptor = os.memfd_create("filter")
        try:
            with wrap(spec, root, needed, descriptor) as wrapped:
                os.write(descriptor, wrapped.spec.attachments.get(descriptor, b""))
                os.lseek(descriptor, 0, os.SEEK_SET)
                failure = _run(wrapped, descriptor)
        finally:
            os.close(descriptor)
    return failure or (_NOT_AS_MEANT if os.path.lexists(marker) else None)


def _run(confined: Sandboxed, descriptor: int) -> str | None:
    """Run the attempt, and tell why it failed."""
    if sys.platform == "win32":
        return NOT_LINUX
    spec, setup = confined.spec, confined.setup
    process = subprocess.Popen(
        spec.argv,
        cwd=spec.folder,
        env=dict(spec.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(descriptor, *spec.descriptors.values()),
        start_new_session=True,
    )
    deadline = monotonic() + SECONDS
    with process:
        try:
            if not setup.gate.look_for(setup.say(), SECONDS):
                _kill(process)
                return _NOT_AS_MEANT
            said, _ = process.communicate(timeout=max(deadline - monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            _kill(process)
            return _TOO_SLOW
    return _explain(process.returncode, said.decode("utf-8", "replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It is in a session of its own: its helpers, if it is a script, go with it."""
    if sys.platform != "win32":
        os.killpg(process.pid, signal.SIGKILL)


def _explain(code: int, said: str) -> str | None:
    if FIRST_CODE <= code < FIRST_CODE + len(_WHAT_WORKED):
        return f"it does not confine: {_WHAT_WORKED[code - FIRST_CODE]}"
    if code and (scarce := scarcity_in(said)) is not None:
        raise scarce
    failure = next((meaning for text, meaning in _KNOWN_FAILURES if text in said), f"it ended with code {code}")
    return failure if code else None
