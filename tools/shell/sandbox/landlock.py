"""Uses Landlock and a system call filter to confine read-only commands if namespaces are not available.

Landlock grants rights to folders, and cannot revoke them for a part of a folder. Commands can see other processes, but
cannot affect them.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import Lock

from tools.contract.command_views import SYSTEM, Engine, Network, ViewKind
from tools.contract.tool_errors import ExhaustedError
from tools.machine.threads import THREADS
from tools.shell.private_folders import PrivateFolders, empty_if_large
from tools.shell.process_spec import ConfinedCommand, LandlockRules, ProcessSpec, ProcessStarter, SandboxChanges
from tools.shell.sandbox.probe import NO_ANSWER, Probe, failure_of
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import PRIVATE_BYTES, UNREACHABLE

# Paths that are readable in addition to a command's own folders. `/dev/shm` is not, because it contains other programs'
# memory.
_READABLE = ("/proc", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")


def landlock_rules(readable: Iterable[str], writable: Iterable[str], *, may_take_shares: bool = False) -> LandlockRules:
    """Return the rules that allow reading the paths in `readable` and changing those in `writable`.

    The paths are real. Raises an `OSError` if there is no system call filter.
    """
    if sys.platform == "linux":
        from tools.shell.broker.confinement import SCOPES_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

        may_signal = landlock_abi() >= SCOPES_ABI
        calls = seccomp_program(
            os.uname().machine, only_reads=True, may_signal=may_signal, may_take_shares=may_take_shares
        )
        if calls is not None:
            return LandlockRules((*readable, *_READABLE), (*writable, *_WRITABLE), calls)
    raise OSError(errno.ENOSYS, "no system call filter")


def why_not_here() -> str:
    """Return why Landlock cannot work here, phrased for the middle of a sentence. Empty if it may work."""
    if sys.platform != "linux":
        return "it exists only for Linux"
    from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

    abi = landlock_abi()
    if abi == 0:
        return "the kernel has no Landlock, or it is disabled or forbidden here"
    if abi < OLDEST_ABI:
        return "this kernel's Landlock is too old; Linux 6.2 or newer is needed"
    if seccomp_program(os.uname().machine) is None:
        return "there is no system call filter for this architecture"
    return ""


def ruleset_for_views() -> int | None:
    """Return a Landlock ruleset for a bubblewrap view, or `None` without Landlock. The caller adds writable paths."""
    if sys.platform != "linux" or why_not_here():
        return None
    from tools.shell.broker.confinement import ruleset_for_writing  # noqa: PLC0415 - not on Windows

    return ruleset_for_writing()


async def landlock_failure(starter: ProcessStarter, parent: str) -> str | None:
    """Return why Landlock cannot confine read-only commands here, or `None` if it can.

    The reason is a clause for the middle of a sentence. Each call runs the test in a new folder inside `parent`.
    Raises an `ExhaustedError` if resources are too low for a result.
    """
    if why := why_not_here():
        return why

    def confined(probe: Probe) -> ConfinedCommand:
        readable = (*map(os.path.realpath, SYSTEM), *probe.needed, probe.root)
        rules = landlock_rules(readable, [os.path.join(probe.folder, "own")])
        return ConfinedCommand(ProcessSpec(probe.argv, "/", {}, landlock=rules))

    return await failure_of(starter, partial(Probe.made_in, parent, Engine.LANDLOCK.value), confined)


@dataclass(slots=True)
class LandlockCommand(ConfinedCommand):
    """A read-only command, with its temporary folder if it has one."""

    temporary: str | None = field(kw_only=True)

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """Return the temporary folder."""
        return (self.temporary,) if self.temporary is not None else (), PRIVATE_BYTES

    async def release(self) -> SandboxChanges:
        """Empty the temporary folder if it is too large."""
        size = count = 0
        if self.temporary is not None:
            with suppress(OSError, ExhaustedError):
                size, count = await THREADS.run(partial(empty_if_large, self.temporary, PRIVATE_BYTES))
        return SandboxChanges(temporary_bytes=size, temporary_files=count)


class LandlockConfinement:
    """Confines read-only commands if namespaces are not available. The first command tests whether this works."""

    def __init__(self, starter: ProcessStarter, folders: PrivateFolders) -> None:
        self._starter = starter
        self._folders = folders
        self._failure = ""  # empty if untested or working
        self._is_tried = False
        self._trying = Lock()

    def may_work(self) -> bool:
        """Return True if the kernel has Landlock and no test has failed. Runs no test."""
        return not (self._failure or why_not_here())

    async def failure(self) -> str:
        """Return why Landlock cannot confine read-only commands, as a clause for the middle of a sentence.

        The result is empty if it can.
        """
        async with self._trying:
            if not self._is_tried:
                parent = await THREADS.run(partial(self._folders.make, "probe"))
                failure = await landlock_failure(self._starter, parent) or ""
                if failure == NO_ANSWER:
                    return failure  # not final, because the machine may have been busy
                self._failure, self._is_tried = failure, True
            return self._failure

    def confined(
        self, spec: ProcessSpec, readable: Sequence[str], temporary: str | None, *, may_take_shares: bool
    ) -> ConfinedCommand:
        """Return a command that can read these real paths, and write only to its temporary folder, if any. Blocking."""
        environment = {name: value for name, value in spec.environment.items() if name not in UNREACHABLE}
        settings = next((path for path in readable if path.endswith(("/.gitconfig", "/git/config"))), os.devnull)
        environment |= {"GIT_CONFIG_GLOBAL": settings}  # git fails if it may not read its settings file
        writable = ()
        if temporary is not None:
            writable = (temporary,)
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        held = replace(
            spec, environment=environment, landlock=landlock_rules(readable, writable, may_take_shares=may_take_shares)
        )
        return LandlockCommand(held, Engine.LANDLOCK, ViewKind.READING, Network.OWN_LOOPBACK, temporary=temporary)
