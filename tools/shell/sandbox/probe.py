"""Tests a sandbox engine (bubblewrap or Landlock) by running a shell in it that tries forbidden actions.

An installed engine may still lack what it needs (user namespaces, or mounts in containers). Even if the engine starts,
it might not confine anything.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import CancelScope, fail_after

from tools.contract.tool_errors import NOTHING_DONE, ExhaustedError, ToolError, exhaustion_of, scarcity_in
from tools.machine.threads import THREADS
from tools.shell.process_spec import (
    ConfinedCommand,
    EndedEarlyError,
    Process,
    ProcessStarter,
    StartFailedError,
    unread_output,
)

SECONDS = 5.0  # time limit for the test, which takes as long as starting a command
NO_ANSWER = f"it did not answer within {SECONDS:g} s"
WORKED = 100  # exit status of the script after it has printed what it unexpectedly could, or could not, do
# Arguments: `working` or `reading` for bubblewrap's views, or `landlock`; the workspace; a file that the shell may
# write to; a file that it must not write to; the id of a process outside the sandbox, and the number of that process's
# system call filters. The script uses only builtins, because a view may lack other programs. It uses `true` instead of
# `:`, because a failed redirection of `:` would end the shell. Error messages are discarded.
_SCRIPT = f"""
confinement=$1 root=$2 own=$3 outside=$4 process=$5 filters=$6 calls=
exec 2< /dev/null
tell() {{ echo "$1"; exit {WORKED}; }}
true >> "$outside" && tell "wrote outside its workspace"
true < "$root/file" && true >> "$own" || tell "could not read its workspace, or could not write to its own folder"
true >> /proc/sys/kernel/core_pattern && tell "could change kernel settings"
while read -r name value rest; do
    case $name$value in
        CapInh:*[!0]* | CapPrm:*[!0]* | CapEff:*[!0]* | CapAmb:*[!0]*) tell "kept a capability" ;;
        Seccomp:*) calls=$value ;;
        Seccomp_filters:*) [ "$value" -gt "$filters" ] || calls= ;;
    esac
done < /proc/self/status
[ "$calls" = 2 ] || tell "ran without a system call filter"
if [ "$confinement" = working ]; then
    true > "$root/new" || tell "could not create a file in its workspace"
else
    true > "$root/new" && tell "created a file in its workspace"
    true >> "$root/file" && tell "wrote to a file in its workspace"
fi
if [ "$confinement" = landlock ]; then
    true < "$outside" && tell "read a file outside the sandbox"
    kill -0 "$process" && tell "signalled a process outside the sandbox"
    true < "/proc/$process/environ" && tell "read the environment of a process outside the sandbox"
else
    [ "$PPID" = 1 ] || tell "was in the process namespace of this server"
    {{ read -r line && ! read -r line; }} < /proc/net/route || tell "had a route to the network"
fi
exit 0
"""
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
    """The shell to run, and the files created for it."""

    folder: str  # deleted by `remove`, or with the server's folder
    root: str  # the workspace of the shell
    argv: tuple[str, ...]
    # The file that the shell may write to, and the file that it must not write to; each may be outside `folder`
    files: tuple[str, ...]

    @staticmethod
    def create_in(parent: str, confinement: str, own: str = "", outside: str = "") -> Probe:
        """Create the test's files in a new folder inside `parent`. The comment on `_SCRIPT` explains `confinement`.

        `own` is a folder that the shell may write to; by default, a subfolder of the new folder. `outside` is a folder
        that the shell must not write to; by default, the new folder, with a file that the shell must not read. Raises
        an `OSError` on failure. Blocking.
        """
        # Use a real path, because a symlink to it may be in a folder that is private to commands, such as /tmp.
        folder = os.path.realpath(tempfile.mkdtemp(prefix=".coretools-mcp-probe-", dir=parent))
        root, name = os.path.join(folder, "root"), os.path.basename(folder)
        own_file = os.path.join(own or os.path.join(folder, "own"), name)
        outside_file = os.path.join(outside or folder, name)
        for path in (root, os.path.dirname(own_file)):
            os.makedirs(path, exist_ok=True)
        for path in (os.path.join(root, "file"), *(() if outside else (outside_file,))):
            Path(path).touch()
        with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
            filters = next((line.split()[1] for line in status if line.startswith("Seccomp_filters:")), "0")
        arguments = (confinement, root, own_file, outside_file, str(os.getpid()), filters)
        return Probe(folder, root, ("/bin/sh", "-c", _SCRIPT, "sh", *arguments), (own_file, outside_file))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in self.files:
            with suppress(OSError):
                os.unlink(path)


async def failure_of(
    starter: ProcessStarter, make: Callable[[], Probe], confine: Callable[[Probe], ConfinedCommand]
) -> str | None:
    """Return why the shell is not confined, phrased for the middle of a sentence, or `None` if it is confined.

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
            status = await process.wait()
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
    except ExhaustedError:
        raise
    except ToolError:
        return "it does not make the requested mounts"
    finally:
        if process is not None:
            await process.end(0)
            process.close()
        await confined_command.release()
    if status.code == WORKED:
        return f"it does not confine commands as it should: a test command {output.strip()}"
    if status.code == 0:
        return None
    if (resource_error := exhaustion_of(scarcity_in(output) or OSError(), NOTHING_DONE)) is not None:
        raise resource_error
    meanings = (meaning for words, meaning in _KNOWN_FAILURES.items() if words in output)
    return next(meanings, f"it was killed by {status.signal}" if status.signal else f"it ended with code {status.code}")
