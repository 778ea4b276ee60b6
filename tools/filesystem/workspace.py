"""The one way to a file: a path as somebody spelled it becomes a location inside a root, or an error.

Containment is decided on the real path, every link resolved, component by component, and checked again on the
opened descriptor. Only regular files are opened, never blocking. Every tool reaches the disk through here.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tools.contract.errors import PathNotInWorkspaceError, ToolError, ToolErrorType, shown_path
from tools.filesystem.descriptors import (
    CAN_OPEN_FOLDERS,
    FOLDER_FLAGS,
    NO_LINK,
    Folder,
    NotRegularError,
    OpenedFile,
    PathKind,
    kind_of_mode,
    open_regular,
)

_SHELL_ESCAPE = re.compile(r"\\([ \t()\[\]{};|*?$`'\"#&<>!~])")
"""A backslash before one of these may be a shell escape that the model copied (Qwen Code's list)."""

MAX_PATH_CHARS = 4096
"""Linux's PATH_MAX; resolving a longer path takes time and leads nowhere."""


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

    def root_locations(self) -> list[Location]:
        """Every root as a place to look in.

        Raises:
            ToolError: There is no root (`no_workspace`).
        """
        return [Location(self._root_of(root, root), root, root) for root in (self.roots or (self.first_root,))]

    def below(self, folder: Location, relative: str) -> Location:
        """What a walk came by below a folder, without a look at the disk.

        Args:
            folder: Where the walk began.
            relative: Names of real folders and of an entry, with forward slashes.
        """
        path = os.path.join(folder.path, relative.replace("/", os.sep))
        return Location(self._root_of(path, path), path, path)

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

    def kind_of(self, location: Location) -> PathKind | None:
        """What is there, or `None` where nothing can be seen."""
        info = self._looked_at(location)
        return kind_of_mode(info.st_mode) if info is not None else None

    def size_of(self, location: Location) -> int | None:
        """The size in bytes of what is there, or `None` where nothing can be seen."""
        info = self._looked_at(location)
        return info.st_size if info is not None else None

    def has(self, folder: Location, relative: str) -> bool:
        """Whether something is below a folder under exactly this name, a link that leads out not followed."""
        path = os.path.join(folder.path, relative)
        if not os.path.lexists(path):
            return False
        above = os.path.realpath(os.path.dirname(path))
        return any(contains(root, above) for root in self.roots)

    def _looked_at(self, location: Location) -> os.stat_result | None:
        try:
            return os.lstat(location.path)
        except (OSError, ValueError):
            return None

    @contextmanager
    def open_file(self, location: Location) -> Generator[OpenedFile]:
        """Open a regular file for reading.

        Raises:
            ToolError: `file_not_found`, `target_is_directory`, `permission_denied`, `read_content_failure` (not a
                regular file), `path_not_in_workspace` (the path was exchanged while it was opened).
        """
        try:
            opened = open_regular(location.path, NO_LINK)
        except NotRegularError as error:
            raise _not_a_file(error, location) from None
        except OSError as error:
            raise explain(error, location.spelled) from None
        with opened.stream:
            self._check_opened(opened.stream.fileno(), location.spelled)
            yield opened

    def _check_opened(self, descriptor: int, spelled: str) -> None:
        """Hold what was really opened against the roots: a folder above it may have been exchanged for a link."""
        if sys.platform == "linux":
            opened = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
            if not any(contains(root, opened) for root in self.roots):
                raise PathNotInWorkspaceError(spelled, self.roots)

    @contextmanager
    def open_folder(self, path: str) -> Generator[Folder]:
        """Open a folder to see what is in it.

        Args:
            path: Its real path.

        Raises:
            OSError: It cannot be opened; a walker decides what that means.
            PathNotInWorkspaceError: It lies outside every root, or was exchanged for a link that leads there.
        """
        if not any(contains(root, path) for root in self.roots):
            raise PathNotInWorkspaceError(path, self.roots)
        if not CAN_OPEN_FOLDERS:
            yield Folder(path, None)
            return
        try:
            descriptor = os.open(path, FOLDER_FLAGS)
        except OSError:
            self._root_of(os.path.realpath(path), path)
            raise
        try:
            self._check_opened(descriptor, path)
            yield Folder(path, descriptor)
        finally:
            os.close(descriptor)


def _not_a_file(error: NotRegularError, location: Location) -> ToolError:
    if error.kind is PathKind.FOLDER:
        return ToolError(
            ToolErrorType.TARGET_IS_DIRECTORY,
            f"'{location.spelled}' is a directory, not a file. Use list_directory to see what is in it.",
        )
    return ToolError(
        ToolErrorType.READ_CONTENT_FAILURE,
        f"'{location.spelled}' is not a regular file (a device, pipe or socket); it is never opened.",
    )


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
