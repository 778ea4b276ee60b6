"""A command that first looks whether its sandbox is the one that was meant.

What stays as it is in a workspace is mounted by path, and other commands may be at work in the same workspace: one of
them can put a link in place of a folder between our look and the mount, so that something else of the machine is
mounted, writable. So before the command itself, but inside, a shell looks in the mount table for what was meant (what
is mounted, and where), in its order and with nothing in between. Where that is not found nothing is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.filesystem.workspace import contains

CHANGED_CODE = 125
"""Exit code for a workspace that was changed meanwhile, that of programs which start others and cannot."""

_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}
"""How the mount table writes these characters (proc_pid_mountinfo(5))."""

# The table is read at once: a shell's own `read` takes one system call for each character.
_SCRIPT = f"""set -f
look() {{ mounts="$mounts $3 $4 $5 "; }}
IFS='
'
for line in $(cat /proc/self/mountinfo); do IFS=' '; look $line; done
case $mounts in *"$1"*) ;; *)
  echo 'The workspace changed while the sandbox was set up. Nothing was run; run it again.' >&2
  exit {CHANGED_CODE} ;;
esac
shift
exec "$@"
"""


def checked(argv: tuple[str, ...], order: Sequence[str], records: Mapping[str, str]) -> tuple[str, ...]:
    """A command with the look before it.

    Args:
        argv: The command.
        order: What is mounted one after the other, each path on itself.
        records: What the mount table then says of each, as `MountTable.records` tells.
    """
    if not order:
        return argv
    table = "".join(records[path] for path in order)
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

    def records(self, path: str) -> str:
        """What the mount table says of a path that was mounted onto itself: device, path in its file system, and place.

        What is mounted below it comes along.

        Args:
            path: An absolute path without links.
        """
        over = max((mount for mount in self._mounts if contains(mount.at, path)), key=lambda mount: len(mount.at))
        below = path[len(over.at.rstrip("/")) :]
        own = _Mount(over.device, over.what.rstrip("/") + below, path)
        along = [mount for mount in reversed(self._mounts) if mount.at != path and contains(path, mount.at)]
        return "".join(f" {mount.device} {_escaped(mount.what)} {_escaped(mount.at)} " for mount in (own, *along))


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
