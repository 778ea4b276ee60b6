"""The one way to a file: a path as somebody spelled it becomes a location inside a root, or an error.

Containment is decided on the real path, every link resolved, component by component, and checked again on the
opened descriptor. Only regular files are opened, never blocking. Every tool reaches the disk through here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from tools.contract.errors import PathNotInWorkspaceError, ToolError, ToolErrorType, shown_path
from tools.contract.ledger import FileIdentity

_SHELL_ESCAPE = re.compile(r"\\([ \t()\[\]{};|*?$`'\"#&<>!~])")
"""A backslash before one of these may be a shell escape that the model copied (Qwen Code's list)."""

MAX_PATH_CHARS = 4096
"""Linux's PATH_MAX; resolving a longer path takes time and leads nowhere."""

_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Location:
    """A path that lies inside a root, whether or not it exists.

    Args:
        root: Real path of the root it lies in.
        path: Its own real path; equal to `root` for the root itself.
        spelled: How the caller wrote it, for messages.
    """

    root: str
    path: str
    spelled: str

    @property
    def relative(self) -> str:
        """The path below the root with forward slashes, `.` for the root itself."""
        below = self.path[len(self.root) :].lstrip(os.sep)
        return below.replace(os.sep, "/") or "."


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


def identity_of(info: os.stat_result) -> FileIdentity:
    """The fingerprint of a file from its stat."""
    return FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def contains(root: str, path: str) -> bool:
    """Whether a real path is the root or lies beneath it, by components."""
    if path == root:
        return True
    return path.startswith(root if root.endswith(os.sep) else root + os.sep)


class Workspace:
    """The roots, and the only functions that touch anything below them.

    Args:
        roots: Existing directories; links are resolved once, here.
        problem: Why there is no root, as a sentence that says what to do; used when `roots` is empty.
        respect_git_ignore: Whether discovery leaves out what git ignores, unless a call says otherwise.
        respect_agent_ignore: Whether the agent-ignore files count, unless a call says otherwise.
    """

    def __init__(
        self,
        roots: Sequence[str],
        problem: str = "No workspace folder is configured.",
        *,
        respect_git_ignore: bool = True,
        respect_agent_ignore: bool = True,
    ) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        self.respect_git_ignore = respect_git_ignore
        self.respect_agent_ignore = respect_agent_ignore
        self._problem = problem

    @property
    def first_root(self) -> str:
        """The root that relative paths start from.

        Raises:
            ToolError: There is no root (`no_workspace`).
        """
        if not self.roots:
            raise ToolError(ToolErrorType.NO_WORKSPACE, self._problem)
        return self.roots[0]

    def locate(self, spelled: str, *, within: str | None = None) -> Location:
        """Resolve a path as a model writes it.

        A relative path starts from the first root, or from `within`. The literal path is taken if it exists;
        otherwise a leading `~` is expanded and shell escapes are removed.

        Raises:
            ToolError: The path is blank or holds a NUL (`invalid_tool_params`), or there is no root.
            PathNotInWorkspaceError: It leads outside every root.
        """
        base = within or self.first_root
        if not spelled.strip():
            raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, "The path is empty; give the path of a file or folder.")
        if len(spelled) > MAX_PATH_CHARS:
            raise ToolError(
                ToolErrorType.INVALID_TOOL_PARAMS,
                f"The path has {len(spelled):,} characters; no path is longer than {MAX_PATH_CHARS:,}.",
            )
        if "\0" in spelled:
            raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, "The path holds a NUL character; no file has one.")
        literal = os.path.join(base, spelled)
        if not os.path.lexists(literal):
            literal = next((path for path in _other_readings(base, spelled) if os.path.lexists(path)), literal)
        try:
            real = os.path.realpath(literal)
        except (OSError, ValueError) as error:
            raise explain(error, spelled) from None
        return Location(self._root_of(real, spelled), real, spelled)

    def _root_of(self, real: str, spelled: str) -> str:
        inside = [root for root in self.roots if contains(root, real)]
        if not inside:
            raise PathNotInWorkspaceError(spelled, self.roots)
        return max(inside, key=len)

    def stat(self, location: Location) -> os.stat_result | None:
        """The stat of what is there, or `None` if nothing is.

        Raises:
            ToolError: It cannot be looked at.
        """
        try:
            return os.lstat(location.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain(error, location.spelled) from None

    @contextmanager
    def open_file(self, location: Location) -> Generator[OpenedFile]:
        """Open a regular file for reading.

        Raises:
            ToolError: `file_not_found`, `target_is_directory`, `permission_denied`, `read_content_failure` (not a
                regular file), `path_not_in_workspace` (the path was exchanged while it was opened).
        """
        try:
            descriptor = os.open(location.path, _OPEN_FLAGS | _NEVER_WAIT)
        except OSError as error:
            raise explain(error, location.spelled) from None
        try:
            info = os.fstat(descriptor)
            self._check_opened(descriptor, info, location)
            with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as stream:
                yield OpenedFile(stream, info)  # pyright: ignore[reportArgumentType]
        finally:
            os.close(descriptor)

    def _check_opened(self, descriptor: int, info: os.stat_result, location: Location) -> None:
        if stat.S_ISDIR(info.st_mode):
            raise ToolError(
                ToolErrorType.TARGET_IS_DIRECTORY,
                f"'{location.spelled}' is a directory, not a file. Use list_directory to see what is in it.",
            )
        if not stat.S_ISREG(info.st_mode):
            raise ToolError(
                ToolErrorType.READ_CONTENT_FAILURE,
                f"'{location.spelled}' is not a regular file (a device, pipe or socket); it is never opened.",
            )
        if sys.platform == "linux":
            opened = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
            if not any(contains(root, opened) for root in self.roots):
                raise PathNotInWorkspaceError(location.spelled, self.roots)

    def scan(self, directory: str) -> list[os.DirEntry[str]]:
        """The entries of a directory given by its real path, in no order, links not followed.

        Raises:
            OSError: It cannot be read; a walker decides what that means.
        """
        if not any(contains(root, directory) for root in self.roots):
            raise PathNotInWorkspaceError(directory, self.roots)
        with os.scandir(directory) as entries:
            return list(entries)


def _other_readings(base: str, spelled: str) -> Iterator[str]:
    stripped = spelled.strip()
    yield os.path.join(base, stripped)
    if stripped.startswith("~"):
        yield os.path.expanduser(stripped)
    if "\\" in stripped and os.sep != "\\":
        yield os.path.join(base, _SHELL_ESCAPE.sub(r"\1", stripped))


_CODES = {
    errno.ENOENT: (ToolErrorType.FILE_NOT_FOUND, "does not exist"),
    errno.ENOTDIR: (
        ToolErrorType.FILE_NOT_FOUND,
        "does not exist: a part of the path is a file, not a folder",
    ),
    errno.EISDIR: (ToolErrorType.TARGET_IS_DIRECTORY, "is a directory, not a file"),
    errno.EACCES: (ToolErrorType.PERMISSION_DENIED, "cannot be accessed: permission denied"),
    errno.EPERM: (ToolErrorType.PERMISSION_DENIED, "cannot be accessed: the operation is not permitted"),
    errno.EROFS: (ToolErrorType.PERMISSION_DENIED, "lies on a read-only file system"),
    errno.ENOSPC: (ToolErrorType.NO_SPACE_LEFT, "cannot be written: no space is left on the device"),
    errno.EDQUOT: (ToolErrorType.NO_SPACE_LEFT, "cannot be written: the disk quota is used up"),
    errno.ENAMETOOLONG: (ToolErrorType.INVALID_TOOL_PARAMS, "is too long for a path"),
    errno.ELOOP: (
        ToolErrorType.READ_CONTENT_FAILURE,
        "is a link that leads in a circle or was exchanged meanwhile",
    ),
    errno.ENXIO: (ToolErrorType.READ_CONTENT_FAILURE, "is not a regular file"),
}


def explain(
    error: OSError | ValueError, spelled: str, otherwise: ToolErrorType = ToolErrorType.READ_CONTENT_FAILURE
) -> ToolError:
    """Turn an error of the operating system into one for the model; only the error's symbol is taken over."""
    number = error.errno if isinstance(error, OSError) else None
    code, why = _CODES.get(number or 0, (otherwise, "cannot be used"))
    symbol = f" ({errno.errorcode[number]})" if number is not None and number in errno.errorcode else ""
    hint = " Use list_directory or glob to see what is there." if code is ToolErrorType.FILE_NOT_FOUND else ""
    return ToolError(code, f"'{shown_path(spelled)}' {why}{symbol}.{hint}")
