"""A command that first looks whether its sandbox is the one that was meant.

What stays as it is in a workspace is mounted by path, and other commands may be at work in the same workspace: one of
them can put a link in place of a folder between our look and the mount, so that something else of the machine is
mounted, writable. So before the command itself, but inside, a shell compares the last lines of the mount table (what is
mounted, and where) with what was meant. On a difference nothing is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.execution.sandbox.paths import is_beneath

CHANGED_CODE = 125
"""Exit code for a workspace that was changed meanwhile, that of programs which start others and cannot."""

_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}
"""How the mount table writes these characters (proc_pid_mountinfo(5))."""

# The table is read at once: a shell's own `read` takes one system call for each character.
_SCRIPT = f"""set -f
look() {{ mounts="$mounts $3 $4 $5"; }}
IFS='
'
for line in $(cat /proc/self/mountinfo); do IFS=' '; look $line; done
case $mounts in *"$1") ;; *)
  echo 'The workspace changed while the sandbox was set up. Nothing was run; run it again.' >&2
  exit {CHANGED_CODE} ;;
esac
shift
exec "$@"
"""


def checked(argv: tuple[str, ...], order: Sequence[str], sources: Mapping[str, str]) -> tuple[str, ...]:
    """A command with the look before it.

    Args:
        argv: The command.
        order: What is mounted last, in this order, each path on itself.
        sources: What each path is, as `MountTable.source` tells.
    """
    if not order:
        return argv
    table = "".join(f" {sources[path]} {_escaped(path)}" for path in order)
    return ("/bin/sh", "-c", _SCRIPT, "sh", table, *argv)


@dataclass(frozen=True, slots=True)
class _Mount:
    device: str
    what: str
    at: str


class MountTable:
    """What this process has mounted where, as it was when this was made."""

    def __init__(self) -> None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            # Later mounts on the same place lie over earlier ones, so they are looked at first.
            self._mounts = [_mount(line) for line in lines][::-1]

    def source(self, path: str) -> str:
        """What a path is: device and path in its file system, as the mount table would write them.

        Args:
            path: An absolute path without links.
        """
        over = max((mount for mount in self._mounts if is_beneath(path, mount.at)), key=lambda mount: len(mount.at))
        below = path[len(over.at.rstrip("/")) :]
        return f"{over.device} {_escaped(over.what.rstrip('/') + below)}"


def _mount(line: str) -> _Mount:
    _, _, device, what, at, _ = line.split(" ", 5)
    return _Mount(device, _unescaped(what), _unescaped(at))


def _escaped(path: str) -> str:
    return path.translate(str.maketrans(_ESCAPES))


def _unescaped(text: str) -> str:
    # The backslash last, since all others begin with one.
    for character, escape in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
