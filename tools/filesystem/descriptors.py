"""What is opened: regular files, never blocking, and folders, by descriptors that stay what they are.

Nothing here knows of roots. `tools.filesystem.workspace` opens in their name; only ignore files are opened without
it, since git's may stand above the root, and what is in them is never shown.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from io import FileIO
from typing import Self

from tools.contract.context import AbortSignal
from tools.contract.ledger import FileIdentity
from tools.filesystem.link_free import CAN_STEP, JUST_LOOK, open_link_free
from tools.filesystem.temporary_names import is_temporary

BLOCK_BYTES = 1 << 20
"""Read at a time where a whole file is read."""

WHOLE_BLOCK_BYTES = 16 << 20
"""Read at a time where the content is kept anyway."""

_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_FILE_FLAGS = _OPEN_FLAGS | getattr(os, "O_NOFOLLOW", 0)
_PLACE_FLAGS = JUST_LOOK | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
_FOLDER_FLAGS = _OPEN_FLAGS | _PLACE_FLAGS & ~JUST_LOOK


class OpenedFile:
    """A regular file, open for reading; closed at the end of its `with`.

    Args:
        descriptor: Closed here, and by nobody else.
        info: Its `fstat`.
    """

    __slots__ = ("_descriptor", "_stream", "info")

    def __init__(self, descriptor: int, info: os.stat_result) -> None:
        self.info = info
        self._descriptor = descriptor
        self._stream: FileIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is None:
            os.close(self._descriptor)
        else:
            self._stream.close()

    @property
    def stream(self) -> FileIO:
        """Unbuffered; read it in large blocks. Made when first asked for: of most files the head is all there is."""
        if self._stream is None:
            self._stream = FileIO(self._descriptor)
        return self._stream

    @property
    def identity(self) -> FileIdentity:
        """The fingerprint for the read ledger."""
        return identity_of(self.info)

    def head(self, size: int) -> bytes:
        """The first bytes, wherever the file is read otherwise."""
        # A file that seems empty may be one that the kernel makes up, so its size is no bound.
        wanted = self.info.st_size + 1 if 0 < self.info.st_size < size else size
        if sys.platform != "win32":
            return os.pread(self._descriptor, wanted, 0)
        self.stream.seek(0)
        data = self.stream.read(wanted)
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

    def whole(self, signal: AbortSignal) -> bytes:
        """The whole content, by as few reads as it takes.

        Raises:
            OSError: It cannot be read.
            ToolError: `cancelled`, looked at before each block.
        """
        self.stream.seek(0)
        pieces: list[bytes] = []
        wanted = self.info.st_size + 1
        while True:
            signal.raise_if_aborted()
            piece = self.stream.read(min(wanted, WHOLE_BLOCK_BYTES))
            if not piece:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]
            pieces.append(piece)
            wanted = max(wanted - len(piece), BLOCK_BYTES)


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

    Closed at the end of its `with`. An entry that is a link is never followed.

    Args:
        path: Its real path when it was opened.
        descriptor: Its descriptor, or `None` where the system has none for folders.
    """

    __slots__ = ("_path", "descriptor")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def named(self, name: str) -> str:
        """How an entry is called in a call that is given `descriptor` as its `dir_fd`."""
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def open_file(self, name: str) -> OpenedFile:
        """Open a regular file in it for reading, never blocking and through no link. The caller closes it.

        Raises:
            NotRegularError: It is a folder, a device, a pipe or a socket.
            OSError: It cannot be opened; `ELOOP` if it is a link.
        """
        if self.descriptor is None:
            return open_regular(self.named(name))
        return _regular(os.open(name, _FILE_FLAGS, dir_fd=self.descriptor))

    def entries(self) -> list[Entry]:
        """Everything in it but files that are being written, in no order.

        Raises:
            OSError: It cannot be read.
        """
        with os.scandir(self._path if self.descriptor is None else self.descriptor) as found:
            # Most entries are files, and a call for each would be felt.
            return [
                (entry.name, PathKind.FILE if entry.is_file(follow_symlinks=False) else _kind_of_other(entry))
                for entry in found
                if entry.name[0] != "." or not is_temporary(entry.name)
            ]

    def names(self) -> list[str]:
        """The names of everything in it, in no order.

        Raises:
            OSError: It cannot be read.
        """
        return os.listdir(self._path if self.descriptor is None else self.descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """The stat of an entry; `None` if it cannot be looked at."""
        try:
            return os.stat(self.named(name), dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None

    def link_target(self, name: str) -> str:
        """What is written in a link; empty if it cannot be read."""
        try:
            return os.readlink(self.named(name), dir_fd=self.descriptor)
        except OSError:
            return ""


def open_folder(path: str, *, to_list: bool = True) -> Folder:
    """Open the folder at a real path.

    Args:
        path: A real path, not held against any root.
        to_list: Whether its entries will be listed; else a folder that may not be listed is opened all the same.

    Raises:
        OSError: It is no folder, or cannot be opened; `ELOOP` if a part of its path is a link by now.
    """
    if not CAN_STEP:
        return Folder(path, None)
    try:
        return Folder(path, open_link_free(path, _FOLDER_FLAGS))
    except PermissionError:
        if to_list or not JUST_LOOK:
            raise
        return Folder(path, open_link_free(path, _PLACE_FLAGS))


def make_folders(path: str, above: str) -> tuple[Folder, list[str]]:
    """Open the folder at a real path, and make it and the folders above it as far as they are missing.

    Args:
        path: The folder.
        above: A folder above it, or itself, that is never made.

    Returns:
        The folder, and the paths of those that were made, the deepest last.

    Raises:
        OSError: One cannot be made or opened.
    """
    missing: list[str] = []
    while True:
        try:
            folder = open_folder(path, to_list=False)
            break
        except FileNotFoundError:
            if path == above:
                raise
            path, name = os.path.split(path)
            missing.append(name)
    made: list[str] = []
    try:
        for name in reversed(missing):
            path = os.path.join(path, name)
            with folder:
                try:
                    os.mkdir(folder.named(name), dir_fd=folder.descriptor)
                    made.append(path)
                except FileExistsError:
                    pass  # somebody else has made it meanwhile
            folder = open_folder(path, to_list=False)
    except OSError:
        remove_folders(made)
        raise
    return folder, made


def remove_folders(paths: Sequence[str]) -> None:
    """Remove folders that were made for nothing, the last first; what is in use by now stays."""
    for path in reversed(paths):
        above, name = os.path.split(path)
        with suppress(OSError), open_folder(above, to_list=False) as folder:
            os.rmdir(folder.named(name), dir_fd=folder.descriptor)


def _kind_of_other(entry: os.DirEntry[str]) -> PathKind:
    """What an entry is that is no regular file."""
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


def open_regular(path: str, *, through_links: bool = False) -> OpenedFile:
    """Open a regular file for reading, never blocking. The caller closes it.

    Args:
        path: A real path, not held against any root; or any path, if links may be followed.
        through_links: Whether links are followed.

    Raises:
        NotRegularError: It is a folder, a device, a pipe or a socket.
        OSError: It cannot be opened; `ELOOP` if a part of a real path is a link by now.
    """
    return _regular(os.open(path, _OPEN_FLAGS) if through_links else open_link_free(path, _OPEN_FLAGS))


def _regular(descriptor: int) -> OpenedFile:
    """What was opened, if it is a regular file; else it is closed again."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise NotRegularError(kind_of_mode(info.st_mode))
    return OpenedFile(descriptor, info)


def identity_of(info: os.stat_result) -> FileIdentity:
    """The fingerprint of a file from its stat."""
    return FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
