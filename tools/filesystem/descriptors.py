"""What is opened: regular files, never blocking, and folders, by descriptors that stay what they are.

Nothing here knows of roots. `tools.filesystem.workspace` opens in their name; only ignore files are opened without
it, since git's may stand above the root, and what is in them is never shown.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, cast

from tools.contract.context import AbortSignal
from tools.contract.ledger import FileIdentity

BLOCK_BYTES = 1 << 20
"""Read at a time where a whole file is read."""

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""The flag that refuses a link in place of a file."""

_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
FOLDER_FLAGS = _OPEN_FLAGS | NO_LINK | getattr(os, "O_DIRECTORY", 0)
"""To open a folder, and nothing else."""

CAN_OPEN_FOLDERS = os.scandir in os.supports_fd
"""Windows opens no folder as a descriptor; there it is read by its path."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A regular file, open for reading.

    Args:
        stream: Unbuffered; read it in large blocks.
        info: Its `fstat`.
    """

    stream: BinaryIO
    info: os.stat_result

    @property
    def identity(self) -> FileIdentity:
        """The fingerprint for the read ledger."""
        return identity_of(self.info)

    def head(self, size: int) -> bytes:
        """The first bytes; afterwards the file is at its beginning."""
        self.stream.seek(0)
        data = self.stream.read(size)
        self.stream.seek(0)
        return data

    def blocks(self, signal: AbortSignal) -> Iterator[bytes]:
        """The whole content from the beginning on, in blocks.

        Raises:
            OSError: It cannot be read.
            ToolError: `cancelled`, looked at before each block.
        """
        self.stream.seek(0)
        while True:
            signal.raise_if_aborted()
            block = self.stream.read(BLOCK_BYTES)
            if not block:
                return
            yield block


class PathKind(Enum):
    """What is at a path, links not followed."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    OTHER = "other"
    """A device, a pipe or a socket."""


Entry = tuple[str, PathKind]
"""One entry of a folder: its name and what it is. A plain pair, since a walk makes one for each file."""


class Folder:
    """An open folder. What is asked about its entries is asked of this very folder, wherever its path leads by now.

    Args:
        path: Its path when it was opened.
        descriptor: Its descriptor, or `None` where the system has none for folders.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    def entries(self) -> list[Entry]:
        """Everything in it, in no order.

        Raises:
            OSError: It cannot be read.
        """
        with os.scandir(self._path if self._descriptor is None else self._descriptor) as found:
            return [(entry.name, _kind_of_entry(entry)) for entry in found]

    def stat(self, name: str) -> os.stat_result | None:
        """The stat of an entry, a link not followed; `None` if it cannot be looked at."""
        try:
            if self._descriptor is None:
                return os.lstat(os.path.join(self._path, name))
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None

    def link_target(self, name: str) -> str:
        """What is written in a link; empty if it cannot be read."""
        try:
            if self._descriptor is None:
                return os.readlink(os.path.join(self._path, name))
            return os.readlink(name, dir_fd=self._descriptor)
        except OSError:
            return ""


def _kind_of_entry(entry: os.DirEntry[str]) -> PathKind:
    if entry.is_file(follow_symlinks=False):
        return PathKind.FILE
    if entry.is_dir(follow_symlinks=False):
        return PathKind.FOLDER
    return PathKind.LINK if entry.is_symlink() else PathKind.OTHER


def kind_of_mode(mode: int) -> PathKind:
    """What has this mode."""
    if stat.S_ISREG(mode):
        return PathKind.FILE
    if stat.S_ISDIR(mode):
        return PathKind.FOLDER
    return PathKind.LINK if stat.S_ISLNK(mode) else PathKind.OTHER


class NotRegularError(OSError):
    """Something that is no regular file, and therefore not opened for reading."""

    def __init__(self, kind: PathKind) -> None:
        super().__init__(errno.EISDIR if kind is PathKind.FOLDER else errno.ENXIO, "not a regular file")
        self.kind = kind


def open_regular(path: str, flags: int = 0) -> OpenedFile:
    """Open a regular file for reading, never blocking. The caller closes its stream.

    Args:
        path: Not held against any root.
        flags: `NO_LINK`, where a link in its place is refused.

    Raises:
        NotRegularError: It is a folder, a device, a pipe or a socket.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, _OPEN_FLAGS | flags)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise NotRegularError(kind_of_mode(info.st_mode))
    return OpenedFile(cast("BinaryIO", os.fdopen(descriptor, "rb", buffering=0)), info)


def identity_of(info: os.stat_result) -> FileIdentity:
    """The fingerprint of a file from its stat."""
    return FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
