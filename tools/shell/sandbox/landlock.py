"""The sandbox of commands that only read where no namespaces can be made: Landlock and a filter of system calls.

It gives rights to files and cannot take one away below them; other processes are seen but not touched.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import CancelScope, Lock

from tools.contract.command_views import SYSTEM, Engine, Network, ViewKind
from tools.contract.tool_errors import NOTHING_DONE, ExhaustedError, exhaustion_of
from tools.machine.threads import THREADS
from tools.shell.private_folders import PrivateFolders, empty_if_large
from tools.shell.process_spec import ConfinedCommand, LandlockRules, ProcessSpec, ProcessStarter, SandboxChanges
from tools.shell.sandbox.probe import NO_ANSWER, Probe, failure_of
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import PRIVATE_BYTES, UNREACHABLE

# Beside the folders that a command is given. `/dev/shm` is not among them: what lies there is other programs' memory.
_READABLE = ("/proc", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")


def landlock_rules(readable: Iterable[str], writable: Iterable[str], *, may_take_shares: bool = False) -> LandlockRules:
    """What a command is given that may read some real paths and change others; an `OSError` where that cannot be."""
    if sys.platform == "linux":
        from tools.shell.broker.confinement import SCOPES_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

        may_signal = landlock_abi() >= SCOPES_ABI
        calls = seccomp_program(
            os.uname().machine, only_reads=True, may_signal=may_signal, may_take_shares=may_take_shares
        )
        if calls is not None:
            return LandlockRules((*readable, *_READABLE), (*writable, *_WRITABLE), calls)
    raise OSError(errno.ENOSYS, "no filter of system calls")


def why_not_here() -> str:
    """Why nothing can be held by Landlock here, as the middle of a sentence; empty where it may be, as far as known."""
    if sys.platform != "linux":
        return "there is none for this system, only for Linux"
    from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi  # noqa: PLC0415 - not on Windows

    abi = landlock_abi()
    if abi == 0:
        return "the kernel has no Landlock, or it is switched off or forbidden here"
    if abi < OLDEST_ABI:
        return "the Landlock of this kernel is too old; Linux 6.2 or newer is needed"
    if seccomp_program(os.uname().machine) is None:
        return "there is no filter of system calls for this architecture"
    return ""


def ruleset_for_views() -> int | None:
    """A ruleset for what runs in a view of bubblewrap, to which is added what it may write; `None` without Landlock."""
    if sys.platform != "linux" or why_not_here():
        return None
    from tools.shell.broker.confinement import ruleset_for_writing  # noqa: PLC0415 - not on Windows

    return ruleset_for_writing()


async def landlock_failure(starter: ProcessStarter, parent: str) -> str | None:
    """Why Landlock does not hold what only reads here, as the middle of a sentence; `None` where it does.

    Tried again with each call, in a new folder in another one. An `ExhaustedError` where too little is left to tell.
    """
    if why := why_not_here():
        return why
    probe: Probe | None = None
    try:
        probe = await THREADS.run(partial(Probe.made_in, parent, Engine.LANDLOCK.value))
        readable = (*map(os.path.realpath, SYSTEM), *probe.needed, probe.root)
        rules = landlock_rules(readable, [os.path.join(probe.folder, "own")])
        return await failure_of(starter, ConfinedCommand(ProcessSpec(probe.argv, "/", {}, landlock=rules)))
    except OSError as error:
        if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
            raise exhaustion from None
        return f"it cannot be tried out ({type(error).__name__})"
    finally:
        if probe is not None:
            with CancelScope(shield=True):
                await THREADS.run(probe.remove)


@dataclass(slots=True)
class LandlockCommand(ConfinedCommand):
    """A command that only reads, with its folder for temporary files, if it has one."""

    temporary: str | None = field(kw_only=True)

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """That folder."""
        return (self.temporary,) if self.temporary is not None else (), PRIVATE_BYTES

    async def release(self) -> SandboxChanges:
        """Empty that folder where it holds too much."""
        size = count = 0
        if self.temporary is not None:
            with suppress(OSError, ExhaustedError):
                size, count = await THREADS.run(partial(empty_if_large, self.temporary, PRIVATE_BYTES))
        return SandboxChanges(temporary_bytes=size, temporary_files=count)


class LandlockConfinement:
    """Holds commands that only read, where no namespaces can be made; tried out with the first of them."""

    def __init__(self, starter: ProcessStarter, folders: PrivateFolders) -> None:
        self._starter = starter
        self._folders = folders
        self._failure = ""  # empty until it was tried out, and while it works
        self._is_tried = False
        self._trying = Lock()

    def may_work(self) -> bool:
        """Whether the kernel has it, and it has not failed; asks the kernel alone."""
        return not (self._failure or why_not_here())

    async def failure(self) -> str:
        """Why it does not hold what only reads, as the middle of a sentence; empty where it does."""
        async with self._trying:
            if not self._is_tried:
                parent = await THREADS.run(partial(self._folders.make, "probe"))
                failure = await landlock_failure(self._starter, parent) or ""
                if failure == NO_ANSWER:
                    return failure  # the machine may have been busy
                self._failure, self._is_tried = failure, True
            return self._failure

    def confined(
        self, spec: ProcessSpec, readable: Sequence[str], temporary: str | None, *, may_take_shares: bool
    ) -> ConfinedCommand:
        """A command that reads some real paths and writes in its folder for temporary files, if it has one. Blocks."""
        environment = {name: value for name, value in spec.environment.items() if name not in UNREACHABLE}
        settings = next((path for path in readable if path.endswith(("/.gitconfig", "/git/config"))), os.devnull)
        environment |= {"GIT_CONFIG_GLOBAL": settings}  # one that it may not read would end git
        writable = ()
        if temporary is not None:
            writable = (temporary,)
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        held = replace(
            spec, environment=environment, landlock=landlock_rules(readable, writable, may_take_shares=may_take_shares)
        )
        return LandlockCommand(held, Engine.LANDLOCK, ViewKind.READING, Network.OWN_LOOPBACK, temporary=temporary)
