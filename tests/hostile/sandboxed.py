"""Runs commands in the real sandbox, for tests: in this process, or as a program that gives up root's rights before.

python sandboxed.py ROOT HOME VIEW COMMAND [ROOT]...

prints one JSON object. With the variable KEEP_RIGHTS it stays who it is; the shell command in MEANWHILE runs between
the look at the workspace and the mounts; MASKED and READ_ONLY are what rules keep from it, with colons between. The
interpreter and the checkout may lie where a user without rights may not look, so everything is imported before. It is
forked from the process that has done so (see `fork_server.py`).

With the variable MOUNTS it mounts before, by that shell script with ROOT as `$1`, in a namespace of its own that ends
with it, and runs the shell command in AFTERWARDS in ROOT at the end. ROOT is then relative to the folder it is started
in. With the variable WORKS it is known that the sandbox works here, and not tried out once more.
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


class TriedOut(BubblewrapConfinement):
    """Bubblewrap, which a process asks once whether it works here, not for each test.

    Args:
        site: What lies where.
        consented: As `AutoRunScanner` takes it.
        mode: The mode it is in.
    """

    works: bool = False
    """Whether it is known to, in this process."""

    def __init__(
        self,
        site: Site,
        consented: Mapping[str, str] = MappingProxyType({}),
        mode: SandboxMode = SandboxMode.AUTO,
        folders: PrivateFolders = PRIVATE_FOLDERS,
    ) -> None:
        super().__init__(mode, site, BrokerPerProgram(), folders, consented_digests=consented)

    async def _test_bubblewrap(self, roots: Sequence[str]) -> SandboxStatus:
        if TriedOut.works:
            return SandboxStatus(find_bubblewrap(os.defpath, roots), None)
        status = await super()._test_bubblewrap(roots)
        TriedOut.works = status.failure is None
        return status


async def sandbox_for(site: Site, consented: Mapping[str, str] = MappingProxyType({})) -> TriedOut:
    """Bubblewrap for tests that need it."""
    made = TriedOut(site, consented)
    if (await made.status([])).failure is not None:
        pytest.skip("not run: bubblewrap does not run here")
    return made


@dataclass(frozen=True)
class Ran:
    """How a command in the sandbox ended."""

    code: int
    output: str
    changes: SandboxChanges


def look_at(
    site: Site,
    roots: Sequence[str],
    view: CommandView = WORKING,
    lookout: AutoRunScanner | None = None,
    private_folder: Callable[[], str] | None = None,
) -> PreparedView:
    """What is prepared for a command from which no rule hides anything, with nothing in the place of settings."""
    secrets = secrets_of(site, writable(roots), view)
    preparation = ViewPreparation(
        site=site,
        scanner=lookout or AutoRunScanner(),
        roots=roots,
        command_view=view,
        hidden_paths=secrets,
        stand_ins=lambda: StandIns("", "", ""),
        private_folder=private_folder,
    )
    return preparation.prepare()


async def run_confined(
    confined: SandboxedCommand, seconds: float = 30, before_mounts: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Start what is confined, with the descriptors that it has; its exit code, and what it printed.

    Args:
        confined: The command.
        seconds: How long it may take.
        before_mounts: What happens between the look at the workspace and the mounts.

    Raises:
        ToolError: It must not begin.
    """
    look = confined.prepare

    def look_then() -> PreparedView:
        prepared = look()
        before_mounts()
        return prepared

    confined.prepare = look_then
    spec = confined.spec
    # Copies with numbers that are not among those to be given.
    passed = {number: fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 50) for number, ours in spec.descriptors.items()}
    try:
        for number, content in spec.attachments.items():
            attached = os.memfd_create("attached")
            os.write(attached, content)
            os.lseek(attached, 0, os.SEEK_SET)
            passed[number] = fcntl.fcntl(attached, fcntl.F_DUPFD_CLOEXEC, 50)
            os.close(attached)
        script = f'echo 0 > "{spec.limits.group}"; ' if spec.limits.group is not None else ""
        script += "".join(f"exec {number}<&{ours} {ours}<&-; " for number, ours in passed.items())
        process = subprocess.Popen(  # noqa: ASYNC220 - as the probe does
            ["/bin/bash", "-c", script + 'exec "$@"', "sh", *spec.argv],
            cwd=spec.folder,
            env=dict(spec.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(passed.values()),
            start_new_session=True,
        )
    finally:
        for descriptor in passed.values():
            os.close(descriptor)
    with process:
        try:
            await confined.begin(mounting_for(process.pid))
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
way = socket.socket(fileno=int(sys.argv[1]))
while (asked := socket.recv_fds(way, 1 << 20, 1))[0]:
    program, body = int.from_bytes(asked[0][:4], "big"), asked[0][4:]
    way.send(bytes([supervisor.mount(body, asked[1], program)]))
"""


class Mounter:
    """A process that mounts, in place of the supervisor of a server; it ends with the one that has started it.

    A fork of this process may not be able to: libraries start threads in forks, and only a process without threads may
    join a namespace.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._way, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, "-S", "-c", MOUNTER, str(other.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], cwd=CHECKOUT)

    def mount(self, program: int, told: int, steps: Iterable[MountStep]) -> None:
        """Mount in the namespaces of a child of a program, once its number is read from `told`, then closed. Blocks."""
        try:
            with self._lock:
                socket.send_fds(self._way, [program.to_bytes(4, "big"), broker_messages.pack_mounts(steps)], [told])
                number = self._way.recv(1)[0]
        finally:
            os.close(told)
        if number:
            raise OSError(number, "it could not be mounted")


@cache
def _mounter_of(_process: int) -> Mounter:
    """One for each process: a fork starts its own."""
    return Mounter()


def mounting_for(program: int) -> Mount:
    """What mounts in the namespaces of a child of a program, without a supervisor."""
    mounter = _mounter_of(os.getpid())

    async def mount_there(told: int, steps: Iterable[MountStep]) -> None:
        await anyio.to_thread.run_sync(mounter.mount, program, os.dup(told), steps)

    return mount_there


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
) -> Ran:
    """Run a shell command in the sandbox, to its end."""
    base = command_environment({}, os.environ) if environment is None else environment
    spec = ProcessSpec(("/bin/bash", "-c", command), folder or roots[0], base)
    confined = await confinement.confine(spec, roots, view, private_folder)
    assert isinstance(confined, SandboxedCommand)
    assert confined.engine is Engine.BUBBLEWRAP
    code, output = await run_confined(confined, before_mounts=before_mounts)
    return Ran(code, output, await confined.release())


async def main() -> None:
    root, home, kind, command, *others = sys.argv[1:]
    meanwhile = os.environ.get("MEANWHILE", "true")
    # Root itself needs a control group for the stricter mode.
    mode = SandboxMode.AUTO if KEEPS_RIGHTS else SandboxMode.REQUIRED
    TriedOut.works = "WORKS" in os.environ
    confinement = TriedOut(Site(home=home), mode=mode, folders=PrivateFolders())
    masked, read_only = (tuple(filter(None, os.environ.get(n, "").split(":"))) for n in ("MASKED", "READ_ONLY"))
    view = replace(WORKING, kind=ViewKind(kind), current_restrictions=lambda: FileRestrictions(masked, read_only))
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home}

    def change() -> None:
        subprocess.run(["/bin/bash", "-ec", meanwhile], check=True)

    try:
        ended = asdict(await run(confinement, command, [root, *others], environment, change, view=view))
    except ToolError as error:
        ended = {"refused": error.message}
    print(json.dumps(ended))  # noqa: T201 - read by the test


def mount(script: str, afterwards: str) -> None:
    """Mount things for a child, which this returns in; this process waits for it and looks what it has left."""
    folder = os.getcwd()
    own_mounts()
    subprocess.run(["/bin/bash", "-ec", script, "sh", sys.argv[1]], check=True)
    os.chdir(folder)  # something may be mounted there by now
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
        # The interpreter that the sandbox is tried with; ours may be out of reach.
        sys.executable, sys.prefix, sys.base_prefix = "/usr/bin/python3", "/usr", "/usr"
    anyio.run(main)
