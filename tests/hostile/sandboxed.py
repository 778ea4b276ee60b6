"""Runs commands in the real sandbox, for tests: in this process, or as a program that first gives up root's rights.

python sandboxed.py ROOT HOME VIEW COMMAND [ROOT]...

prints one JSON object. Environment variables change what it does:

- KEEP_RIGHTS: keep root's rights.
- MEANWHILE: a shell command that runs between the scan of the workspace and the mounts.
- MASKED and READ_ONLY: paths, separated by colons, that are hidden from the command or read-only for it.
- MOUNTS: a shell script that first mounts file systems in a new mount namespace, with ROOT as `$1`. ROOT is then
  relative to the current folder.
- AFTERWARDS: with MOUNTS, a shell command that runs in ROOT at the end.
- WORKS: do not probe the sandbox, because it is known to work here.

The user without rights may not be able to read the interpreter and the checkout, so everything is imported before: the
program is forked from a process that has done so (see `fork_server.py`).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import thread
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import anyio
import pytest
from anyio._backends import _asyncio  # pyright: ignore[reportPrivateUsage]

from tests.other_user import become_nobody, own_mounts
from tests.processes import PRIVATE_FOLDERS, BrokerPerProgram
from tools.contract.command_views import CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.tool_errors import ToolError
from tools.shell.broker import broker_messages
from tools.shell.command_environment import command_environment
from tools.shell.command_runner import sandbox_failed
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import EndedEarlyError, Mount, MountStep, ProcessSpec, SandboxChanges
from tools.shell.sandbox.auto_run_guard import AutoRunScanner
from tools.shell.sandbox.bubblewrap import (
    BubblewrapConfinement,
    SandboxedCommand,
    SandboxMode,
    SandboxStatus,
    find_bubblewrap,
)
from tools.shell.sandbox.visible_file_system import PreparedView, Site, StandIns, ViewPreparation, secrets_of, writable

PROGRAM = Path(__file__)
CHECKOUT = PROGRAM.resolve().parents[2]
WORKING = CommandView(Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK)
READING = CommandView(Engine.BUBBLEWRAP, ViewKind.READING, Network.OWN_LOOPBACK)
KEEPS_RIGHTS = "KEEP_RIGHTS" in os.environ
USED_LATER = (_asyncio, ctypes, resource, thread)


class ProbedBubblewrap(BubblewrapConfinement):
    """Bubblewrap, which each process probes once and not for each test.

    Args:
        site: The places on this machine.
        consented_digests: As for `AutoRunScanner`.
        mode: The mode of the sandbox.
        folders: The private folders of commands.
    """

    works: bool = False
    """Whether a probe in this process has succeeded."""

    def __init__(
        self,
        site: Site,
        consented_digests: Mapping[str, str] = MappingProxyType({}),
        mode: SandboxMode = SandboxMode.AUTO,
        folders: PrivateFolders = PRIVATE_FOLDERS,
    ) -> None:
        super().__init__(mode, site, BrokerPerProgram(), folders, consented_digests=consented_digests)

    async def _test_bubblewrap(self, roots: Sequence[str]) -> SandboxStatus:
        if ProbedBubblewrap.works:
            return SandboxStatus(find_bubblewrap(os.defpath, roots), None)
        status = await super()._test_bubblewrap(roots)
        ProbedBubblewrap.works = status.failure is None
        return status


async def sandbox_for(site: Site, consented_digests: Mapping[str, str] = MappingProxyType({})) -> ProbedBubblewrap:
    """Return a sandbox with bubblewrap, or skip the test where bubblewrap does not work."""
    sandbox = ProbedBubblewrap(site, consented_digests)
    if (await sandbox.status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    return sandbox


@dataclass(frozen=True)
class CommandResult:
    """How a command in the sandbox ended."""

    code: int
    output: str
    changes: SandboxChanges


def prepare_view(
    site: Site,
    roots: Sequence[str],
    view: CommandView = WORKING,
    scanner: AutoRunScanner | None = None,
    private_folder: Callable[[], str] | None = None,
) -> PreparedView:
    """Prepare the view of a command that no rule restricts, with empty paths for the stand-ins."""
    secrets = secrets_of(site, writable(roots), view)
    preparation = ViewPreparation(
        site=site,
        scanner=scanner or AutoRunScanner(),
        roots=roots,
        command_view=view,
        hidden_paths=secrets,
        stand_ins=lambda: StandIns("", "", ""),
        private_folder=private_folder,
    )
    return preparation.prepare()


async def run_confined(
    command: SandboxedCommand, seconds: float = 30, before_mounts: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Run a command with its descriptors, and return its exit code and output.

    Args:
        command: The command.
        seconds: The time limit.
        before_mounts: Runs between the scan of the workspace and the mounts.

    Raises:
        ToolError: The command may not begin.
    """
    prepare = command.prepare

    def prepare_and_change() -> PreparedView:
        view = prepare()
        before_mounts()
        return view

    command.prepare = prepare_and_change
    spec = command.spec
    # Copies whose numbers do not collide with the numbers that the command expects.
    copies = {number: fcntl.fcntl(original, fcntl.F_DUPFD_CLOEXEC, 50) for number, original in spec.descriptors.items()}
    try:
        for number, content in spec.attachments.items():
            file = os.memfd_create("attached")
            os.write(file, content)
            os.lseek(file, 0, os.SEEK_SET)
            copies[number] = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 50)
            os.close(file)
        script = f'echo 0 > "{spec.limits.group}"; ' if spec.limits.group is not None else ""
        script += "".join(f"exec {number}<&{copy} {copy}<&-; " for number, copy in copies.items())
        process = subprocess.Popen(  # noqa: ASYNC220 - only the start blocks; threads wait for the program
            ["/bin/bash", "-c", script + 'exec "$@"', "sh", *spec.argv],
            cwd=spec.folder,
            env=dict(spec.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(copies.values()),
            start_new_session=True,
        )
    finally:
        for descriptor in copies.values():
            os.close(descriptor)
    with process:
        try:
            await command.begin(mounting_for(process.pid))
        except EndedEarlyError:
            raise sandbox_failed((await anyio.to_thread.run_sync(process.communicate))[0].decode()) from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        output, _ = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=seconds))
    return process.returncode, output.decode("utf-8", "replace")


MOUNTER = """
import socket, sys
from tools.shell.broker import supervisor
connection = socket.socket(fileno=int(sys.argv[1]))
while (request := socket.recv_fds(connection, 1 << 20, 1))[0]:
    program, body = int.from_bytes(request[0][:4], "big"), request[0][4:]
    connection.send(bytes([supervisor.mount(body, request[1], program)]))
"""


class Mounter:
    """A process that mounts file systems like the supervisor of a server. It ends with its parent.

    This process or a fork may not be able to mount: libraries start threads, and only a process without threads may
    join a namespace.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with peer:
            command = [sys.executable, "-S", "-c", MOUNTER, str(peer.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[peer.fileno()], cwd=CHECKOUT)

    def mount(self, program: int, pid_reader: int, steps: Iterable[MountStep]) -> None:
        """Mount in the namespaces of a program's child, whose pid comes from `pid_reader`. Close that. Blocking."""
        try:
            with self._lock:
                socket.send_fds(
                    self._connection, [program.to_bytes(4, "big"), broker_messages.pack_mounts(steps)], [pid_reader]
                )
                number = self._connection.recv(1)[0]
        finally:
            os.close(pid_reader)
        if number:
            raise OSError(number, "the file systems could not be mounted")


@cache
def _mounter_of(_process: int) -> Mounter:
    """Return the mounter of a process: a fork starts its own."""
    return Mounter()


def mounting_for(program: int) -> Mount:
    """Return a function that mounts in the namespaces of a program's child, without a supervisor."""
    mounter = _mounter_of(os.getpid())

    async def mount_in_child(pid_reader: int, steps: Iterable[MountStep]) -> None:
        await anyio.to_thread.run_sync(mounter.mount, program, os.dup(pid_reader), steps)

    return mount_in_child


async def run(
    confinement: BubblewrapConfinement,
    command: str,
    roots: Sequence[str],
    environment: Mapping[str, str] | None = None,
    before_mounts: Callable[[], None] = lambda: None,
    *,
    view: CommandView = WORKING,
    private_folder: Callable[[], str] | None = None,
    folder: str | None = None,
) -> CommandResult:
    """Run a shell command in the sandbox until it ends."""
    base = command_environment({}, os.environ) if environment is None else environment
    spec = ProcessSpec(("/bin/bash", "-c", command), folder or roots[0], base)
    job = await confinement.confine(spec, roots, view, private_folder)
    assert isinstance(job, SandboxedCommand)
    assert job.engine is Engine.BUBBLEWRAP
    code, output = await run_confined(job, before_mounts=before_mounts)
    return CommandResult(code, output, await job.release())


async def main() -> None:
    root, home, kind, command, *extra_roots = sys.argv[1:]
    meanwhile = os.environ.get("MEANWHILE", "true")
    # Root would need a control group for the stricter mode.
    mode = SandboxMode.AUTO if KEEPS_RIGHTS else SandboxMode.REQUIRED
    ProbedBubblewrap.works = "WORKS" in os.environ
    confinement = ProbedBubblewrap(Site(home=home), mode=mode, folders=PrivateFolders())
    masks, read_only = (tuple(filter(None, os.environ.get(n, "").split(":"))) for n in ("MASKED", "READ_ONLY"))
    view = replace(WORKING, kind=ViewKind(kind), current_restrictions=lambda: FileRestrictions(masks, read_only))
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home}

    def change() -> None:
        subprocess.run(["/bin/bash", "-ec", meanwhile], check=True)

    try:
        result = asdict(await run(confinement, command, [root, *extra_roots], environment, change, view=view))
    except ToolError as error:
        result = {"refused": error.message}
    print(json.dumps(result))  # noqa: T201 - read by the test


def mount(script: str, afterwards: str) -> None:
    """Mount file systems and return in a child. The parent waits for the child and then runs `afterwards`."""
    folder = os.getcwd()
    own_mounts()
    subprocess.run(["/bin/bash", "-ec", script, "sh", sys.argv[1]], check=True)
    os.chdir(folder)  # a file system may have been mounted on it
    os.chdir(sys.argv[1])
    sys.argv[1] = os.getcwd()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        subprocess.run(["/bin/bash", "-c", afterwards], check=True)
        sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if "MOUNTS" in os.environ:
        mount(os.environ["MOUNTS"], os.environ["AFTERWARDS"])
    os.chdir("/")
    if sys.platform != "win32" and os.geteuid() == 0 and not KEEPS_RIGHTS:
        become_nobody()
        # The interpreter for the broker. This user may not be able to read the current one.
        sys.executable, sys.prefix, sys.base_prefix = "/usr/bin/python3", "/usr", "/usr"
    anyio.run(main)
