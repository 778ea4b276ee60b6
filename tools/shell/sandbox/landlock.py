"""The sandbox of commands that only read where no namespaces can be made: Landlock and a filter of system calls.

It gives rights to files and cannot take one away below them; other processes are seen but not touched. Whether it works
is found out by running a program in it that tries what must fail, as with bubblewrap.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from anyio import Lock, move_on_after

from tools.contract.command_views import Engine, Network, ViewKind
from tools.contract.errors import NOTHING_DONE, exhaustion_of
from tools.contract.threads import THREADS
from tools.shell.process import ConfinedCommand, LandlockRules, ProcessSpec, ProcessStarter, StartFailedError
from tools.shell.sandbox.landlock_probe import WORKED
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import UNREACHABLE

PROBE_SECONDS = 10.0  # how long the attempt may take; it takes a start of Python
# Beside the folders that a command is given. `/dev/shm` is not among them: what lies there is other programs' memory.
_READABLE = ("/proc", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/etc")


def landlock_rules(readable: Iterable[str], writable: Iterable[str]) -> LandlockRules | None:
    """What a command is given that may read some real paths and change others; `None` for an unknown architecture."""
    if sys.platform != "linux":
        return None
    from tools.shell.broker.confinement import SCOPES_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

    calls = seccomp_program(os.uname().machine, only_reads=True, may_signal=landlock_abi() >= SCOPES_ABI)
    if calls is None:
        return None
    return LandlockRules((*readable, *_READABLE), (*writable, *_WRITABLE), calls)


async def landlock_failure(starter: ProcessStarter) -> str | None:
    """Why Landlock does not hold what only reads here, as the middle of a sentence; `None` where it does.

    Found out anew with each call, in the time that Python takes to start; an `ExhaustedError` where too little is left
    to tell.
    """
    if sys.platform != "linux":
        return "there is none for this system, only for Linux"
    from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

    abi = landlock_abi()
    if abi < OLDEST_ABI:
        return (
            "the Landlock of this kernel is too old; Linux 6.2 or newer is needed"
            if abi
            else "the kernel has no Landlock, or it is switched off or forbidden here"
        )
    try:
        folder = await THREADS.run(partial(tempfile.mkdtemp, prefix="coretools-mcp-probe-"))
        try:
            return await _probe(starter, *await THREADS.run(partial(_prepare, folder)))
        finally:
            await THREADS.run(partial(shutil.rmtree, folder, ignore_errors=True))
    except OSError as error:
        if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
            raise exhaustion from None
        return f"it cannot be tried out ({type(error).__name__})"


class LandlockConfinement:
    """Holds commands that only read, where no namespaces can be made; tried out with the first of them."""

    def __init__(self, starter: ProcessStarter) -> None:
        self._starter = starter
        self._failure = ""  # empty until it was tried out, and while it works
        self._is_tried = False
        self._trying = Lock()

    def may_work(self) -> bool:
        """Whether the kernel has it, and it has not failed; asks the kernel alone."""
        return not self._failure and landlock_rules((), ()) is not None and _is_new_enough()

    async def failure(self) -> str:
        """Why it does not hold what only reads, as the middle of a sentence; empty where it does."""
        async with self._trying:
            if not self._is_tried:
                self._failure = await landlock_failure(self._starter) or ""
                self._is_tried = True
            return self._failure

    def confined(self, spec: ProcessSpec, readable: Sequence[str], temporary: str | None) -> ConfinedCommand:
        """A command that reads some real paths and writes in its folder for temporary files, if it has one. Blocks."""
        environment = {name: value for name, value in spec.environment.items() if name not in UNREACHABLE}
        settings = next((path for path in readable if path.endswith(("/.gitconfig", "/git/config"))), os.devnull)
        environment |= {"GIT_CONFIG_GLOBAL": settings}  # one that it may not read would end git
        writable = ()
        if temporary is not None:
            writable = (temporary,)
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        rules = landlock_rules(readable, writable)
        if rules is None:
            raise OSError(errno.ENOSYS, "no filter of system calls")
        held = replace(spec, environment=environment, landlock=rules)
        return ConfinedCommand(held, Engine.LANDLOCK, ViewKind.READING, Network.OWN_LOOPBACK)


def _is_new_enough() -> bool:
    if sys.platform == "win32":
        return False
    from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

    return landlock_abi() >= OLDEST_ABI


def _prepare(folder: str) -> tuple[tuple[str, ...], LandlockRules | None]:
    """The program that tries, and what it is given; all that it needs is made in the folder."""
    root, own, outside = (os.path.join(os.path.realpath(folder), name) for name in ("root", "own", "outside"))
    for made in (root, own):
        os.mkdir(made)
    for file in (os.path.join(root, "file"), outside):
        with open(file, "w", encoding="utf-8") as written:
            written.write("unchanged")
    script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "landlock_probe.py")
    python = os.path.realpath(sys.executable)
    needed = {*_SYSTEM, sys.prefix, sys.base_prefix, os.path.dirname(python), script, root}
    argv = (python, "-P", "-S", script, root, own, outside, str(os.getpid()))
    return argv, landlock_rules(sorted(map(os.path.realpath, needed)), [own])


async def _probe(starter: ProcessStarter, argv: tuple[str, ...], rules: LandlockRules | None) -> str | None:
    if rules is None:
        return "there is no filter of system calls for this architecture"
    try:
        process = await starter.start(ProcessSpec(argv, "/", {}, landlock=rules))
    except StartFailedError as error:
        if (exhaustion := exhaustion_of(OSError(error.number, ""), NOTHING_DONE)) is not None:
            raise exhaustion from None
        if error.number in (errno.EACCES, errno.ENOENT):
            return "the probe's program cannot be run in it"
        refused = errno.errorcode.get(error.number, "refused")
        return f"the kernel does not take its rules here ({refused}), as in some containers"
    try:
        with move_on_after(PROBE_SECONDS):
            code = (await process.wait()).code
            if code == WORKED:
                return f"it does not confine: a command {os.read(process.output, 4096).decode()}"
            return None if code == 0 else "the probe's program cannot be run in it"
        return f"it did not answer within {PROBE_SECONDS:g} s"
    finally:
        process.close()
        await process.end(0)
