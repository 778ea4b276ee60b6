"""Tests a sandbox engine (bubblewrap or Landlock) by running a program in it that tries forbidden actions.

An installed engine may still lack what it needs (user namespaces, or mounts in containers). Even if the engine starts,
it might not confine anything.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from anyio import CancelScope, fail_after

from tools.contract.tool_errors import NOTHING_DONE, ToolError, exhaustion_of, scarcity_in
from tools.machine.threads import THREADS
from tools.shell.process_spec import (
    ConfinedCommand,
    EndedEarlyError,
    Process,
    ProcessStarter,
    StartFailedError,
    unread_output,
)
from tools.shell.sandbox.probe_program import WORKED

SECONDS = 5.0  # time limit for the test, which takes as long as starting Python
NO_ANSWER = f"it did not answer within {SECONDS:g} s"
# bubblewrap's messages and their meaning.
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
    "seccomp": "the kernel does not accept system call filters",
    "Unknown option": "this version of bubblewrap is too old; 0.8.0 or newer is needed",
    "execvp": "the probe's program cannot be started in it",
}


@dataclass(frozen=True, slots=True)
class Probe:
    """The test program, and the folders created for it."""

    folder: str  # deleted by `remove`, or with the server's folder
    root: str  # the workspace of the program
    argv: tuple[str, ...]
    readable_paths: tuple[str, ...]  # real paths that the program has to read
    outside: str  # the file that the program must not write to; also deleted by `remove`

    @staticmethod
    def create_in(parent: str, engine_or_view: str, own: str = "", outside: str = "") -> Probe:
        """Create the test's files in a new folder inside `parent`.

        If `own` (the writable folder) or `outside` (the forbidden file) is not given, it is created too. All arguments
        except `parent` are passed to the program. Raises an `OSError` on failure. Blocking.
        """
        folder = os.path.realpath(tempfile.mkdtemp(dir=parent))
        root, own = os.path.join(folder, "root"), own or os.path.join(folder, "own")
        if not outside:
            outside = os.path.join(folder, "outside")
            _write(outside)
        for folder_path in (own, os.path.join(root, ".git", "hooks"), os.path.join(root, ".vscode")):
            os.makedirs(folder_path, exist_ok=True)
        _write(os.path.join(root, "file"))
        # Use real paths, because a symlink to one of them may be in a folder that is private to commands, such as /tmp.
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "probe_program.py")
        python = os.path.realpath(sys.executable)
        process = f"{os.getpid()}:{os.readlink('/proc/self/ns/pid')}"
        argv = (python, "-P", "-S", script, engine_or_view, root, own, outside, process)
        readable_paths = (sys.prefix, sys.base_prefix, os.path.dirname(python), script)
        return Probe(folder, root, argv, tuple(map(os.path.realpath, readable_paths)), outside)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            os.unlink(self.outside)


def _write(path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("unchanged")


async def failure_of(
    starter: ProcessStarter, make: Callable[[], Probe], confine: Callable[[Probe], ConfinedCommand]
) -> str | None:
    """Return why the test program is not confined, phrased for the middle of a sentence, or `None` if it is confined.

    `make` and `confine` are blocking. Raises an `ExhaustedError` if a lack of resources prevents a result.
    """
    try:
        # A cancellation here would lose the confined command, and nothing would close its descriptors.
        with CancelScope(shield=True) as scope:
            probe = await THREADS.run(make)
            try:
                confined_command = await THREADS.run(partial(confine, probe))
                scope.shield = False
                return await _failure_in(starter, confined_command)
            finally:
                scope.shield = True
                await THREADS.run(probe.remove)
    except OSError as error:
        if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
            raise exhaustion from None
        return f"it cannot be tested ({type(error).__name__})"


async def _failure_in(starter: ProcessStarter, confined_command: ConfinedCommand) -> str | None:
    process: Process | None = None
    try:
        process = await starter.start(confined_command.spec)
        with fail_after(SECONDS):
            with suppress(EndedEarlyError):
                await confined_command.begin(process.mount)
            code = (await process.wait()).code
        output = unread_output(process)
    except StartFailedError as error:
        if (exhaustion := exhaustion_of(OSError(error.number, ""), NOTHING_DONE)) is not None:
            raise exhaustion from None
        if error.number in (errno.EACCES, errno.ENOENT):
            return "the probe's program cannot be run in it"
        error_name = errno.errorcode.get(error.number, "refused")
        return f"the kernel does not accept its rules here ({error_name}), as in some containers"
    except TimeoutError:
        return NO_ANSWER
    except ToolError:
        return "it does not make the requested mounts"
    finally:
        if process is not None:
            await process.end(0)
            process.close()
        await confined_command.release()
    if code == WORKED:
        return f"it does not confine commands as it should: one {output}"
    if code == 0:
        return None
    if (resource_error := exhaustion_of(scarcity_in(output) or OSError(), NOTHING_DONE)) is not None:
        raise resource_error
    meanings = (meaning for words, meaning in _KNOWN_FAILURES.items() if words in output)
    return next(meanings, f"it ended with code {code}")
