"""Turns a path as written into a location inside a root, or an error, and opens the files and folders there.

Containment is checked component by component on the real path, in which every symlink is resolved. The real path is
then opened without following symlinks, so it cannot lead elsewhere. Only regular files are opened, and opening them
never blocks. All tools reach the disk through this module, and change files through `tools.files.change.writer`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType, exhaustion_of
from tools.files import path_opener
from tools.files.path_opener import FileIdentity, Folder, NotRegularError, OpenedFile, PathKind, is_temporary
from tools.machine.unlocked_cached_property import cached_property
from tools.text.file_names import parse_quoted_path, shown_path, shown_whole_path
from tools.text.look_alikes import visible_form

MAX_PATH_CHARS = 4096  # Linux's PATH_MAX; resolving a longer path is slow and always fails
SCRATCH_NAME = "/tmp"  # noqa: S108 - the name of a client's scratch folder for tools and commands
WORK_NAME = "/var/tmp"  # noqa: S108 - the folder for temporary files of commands that change files
MAX_FILES = 10_000  # maximum number of files remembered per client; the oldest reads are dropped first
MAX_CONTENT_BYTES = 2_000_000  # maximum bytes of file contents kept per client, to show what has changed
MAX_REPLACED = 20  # maximum number of overwritten contents kept per client
_BELOW_TMP = "This workspace is in /tmp, so files that commands put elsewhere in /tmp are not kept."
# Characters that a model may have copied with the backslash that a shell needs (Qwen Code's list)
_SHELL_ESCAPE = re.compile(r"\\([ \t()\[\]{};|*?$`'\"#&<>!~])")


@dataclass(frozen=True, slots=True)
class Location:
    """A path inside a root, a readable folder or the scratch folder. Nothing has to exist at the path."""

    root: str  # real path of the innermost of these folders that contains the path
    path: str  # the real path; equal to `root` for the root itself
    raw_path: str  # the path as the caller wrote it
    unresolved_path: str  # the absolute form of the path as written, without resolving symlinks
    in_scratch: bool = False  # whether `root` is the client's scratch folder, whose real path is never shown
    by_look: bool = False  # whether the file's name only looks like the one that the caller wrote

    @property
    def shown(self) -> str:
        return shown_path(self.raw_path)

    @property
    def name(self) -> str:
        """The absolute path for results, questions and rules: the real path, or a path in `/tmp`."""
        return SCRATCH_NAME + self.path[len(self.root) :] if self.in_scratch else self.path

    @property
    def brief(self) -> str:
        """The path for people: relative to the root, but absolute in the scratch folder."""
        return self.name if self.in_scratch else self.relative

    @property
    def relative(self) -> str:
        """The path relative to the root, with forward slashes; `.` for the root itself."""
        relative_path = self.path[len(self.root) :].lstrip(os.sep)
        return relative_path.replace(os.sep, "/") or "."


# A function that takes a real path, and returns the rule that forbids reading it, such as `permissions.deny rule
# Read(x)`, or `None`. Rules for a folder cover its contents
Forbidden = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder that is `/tmp` for one client. Commands see it at `/tmp`, and tools reach it only by that name."""

    path: str  # the folder's real path, in the real `/tmp` or elsewhere
    make: Callable[[], None] = field(compare=False, repr=False)  # creates the folder if it does not exist; blocks
    # Real path of the folder that is `/var/tmp` for commands that change files; inside a readable folder
    work: str = ""


class Workspace:
    """The roots, and the only functions that access anything inside them."""

    def __init__(
        self,
        roots: Sequence[str],  # existing directories; their symlinks are resolved only once
        problem: str = "No workspace folder is configured.",  # why there is no root, and what to do
        *,
        respect_git_ignore: bool = True,  # whether calls leave out files that git ignores, by default
        respect_agent_ignore: bool = True,  # whether agent-ignore files apply, by default
        ignore_case: bool | None = None,  # whether names that differ only in case mean one file; detected if `None`
        # Real paths of further folders whose files may be read by name. These folders are not listed with the roots,
        # are never written to, and need not exist.
        readable: Sequence[str] = (),
        forbidden: Forbidden | None = None,  # rules against reading; files that they cover are never listed
        rule_of_all_reading: str = "",  # the permission rule that denies all reading or asks the user about it
        private: Sequence[str] = (),  # real paths of the server's own folders, which tools never read, find or write
        scratch: Scratch | str = "",  # `str`: why there is no scratch folder, as a sentence; empty if none is expected
        outer_roots: Sequence[str] = (),  # further folders whose agent-ignore files apply to the roots inside them
    ) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(map(resolve_links, roots)))
        self.ignore_roots = (*self.roots, *map(resolve_links, outer_roots))
        self.respect_git_ignore = respect_git_ignore
        self.respect_agent_ignore = respect_agent_ignore
        self.rule_of_all_reading = rule_of_all_reading
        # Keep only the private folders that contain a root or are inside one; usually none, so nothing is checked.
        self._own = tuple(private)
        self._private = tuple(p for p in private if any(contains(r, p) or contains(p, r) for r in self.roots))
        self._problem = problem
        self._ignore_case = ignore_case
        self._readable = tuple(readable)
        is_among_roots = any(contains(SCRATCH_NAME, r) or contains(r, SCRATCH_NAME) for r in self.roots)
        if is_among_roots and not isinstance(scratch, str):
            scratch = _BELOW_TMP
        self.scratch, self._no_scratch = (None, scratch) if isinstance(scratch, str) else (scratch, "")
        self._top = self.scratch.path if self.scratch is not None else ""  # the scratch folder's real path
        self._folders = tuple(filter(None, (*self.roots, *self._readable, self._top)))
        self.forbidden = forbidden
        if self._private or (self._top and forbidden is not None):

            def hides(path: str) -> str | None:
                if is_inside(path, self._private):
                    return "rule that this server's own files are private"
                return forbidden(self._name_of(path)) if forbidden is not None else None

            self.forbidden = hides

    def ignore_root(self, root: str) -> str:
        """Return the outermost folder whose agent-ignore files apply to a root: one around the root, or the root."""
        return min((folder for folder in self.ignore_roots if contains(folder, root)), key=len, default=root)

    @property
    def first_root(self) -> str:
        """The root for relative paths. Raises `no_workspace` if there is none."""
        if not self.roots:
            raise ToolError(ToolErrorType.NO_WORKSPACE, self._problem)
        return self.roots[0]

    def locate(self, raw_path: str, *, within: str | None = None, by_look: bool = False) -> Location:
        """Resolve a path as written by a model.

        A relative path is resolved against `within` if given, else against the first root. If the literal path does not
        exist, variants are tried: without surrounding blanks, without the quotes that results put around names, and
        without shell escapes. A variant is used if it exists in the workspace. If `by_look` is true, a path that looks
        the same is also accepted if it is the only one. No path outside the workspace is tried, so nothing about such
        paths is revealed.

        Raises:
            ToolError: The path is blank, too long or a URI, contains NUL, or begins with a `~` that would need to be
                expanded (`invalid_tool_params`). It belongs to this server, or is named like a temporary file
                (`path_ignored`). There is no root (`no_workspace`). It cannot be resolved (see `explain`).
            PathNotInWorkspaceError: The path is outside every root.
        """
        base = within or self.first_root
        if not raw_path.strip():
            raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, "The path is empty; give the path of a file or folder.")
        if len(raw_path) > MAX_PATH_CHARS:
            raise ToolError(
                ToolErrorType.INVALID_TOOL_PARAMS,
                f"The path has {len(raw_path):,} characters; the limit is {MAX_PATH_CHARS:,}.",
            )
        if "\0" in raw_path:
            raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, "The path contains a NUL character; no file name can.")
        try:
            unresolved_path = _join(base, raw_path)
            literal = self._map_work_path(unresolved_path)
            scratch_path = self._map_scratch_path(literal)
            link_free = path_opener.path_without_links(scratch_path or literal)
            real = link_free or self._real_path(literal)
            root = self._root_above(real)
            alike: list[tuple[str, str]] = []
            if root and not link_free and not os.path.lexists(real if scratch_path else literal):
                unresolved_path, real = self._resolve_variant(base, raw_path)
                # A name that a rule forbids is not replaced by a similar name, to which the rule does not apply.
                if by_look and not os.path.lexists(real) and not self._forbids(os.path.normpath(unresolved_path)):
                    alike = self.look_alikes(self._unresolved_in_root(unresolved_path) or real)
                if len(alike) == 1:
                    unresolved_path, real = self._name_of(alike[0][0]), alike[0][1]
                root = self._root_above(real)
        except (OSError, ValueError) as error:
            raise explain(error, shown_path(raw_path)) from None
        if not root:
            # The names in a root's path may be unusual, so results show them in quotes. A path that is inside a root
            # when taken literally is not such a quoted path: it leads out of the root through a symlink.
            is_inside_literally = self._root_above(os.path.normpath(scratch_path or literal)) != ""
            unquoted_path = parse_quoted_path(raw_path.strip())
            if unquoted_path is not None and not is_inside_literally:
                with suppress(PathNotInWorkspaceError):
                    return replace(self.locate(unquoted_path, within=within, by_look=by_look), raw_path=raw_path)
            is_below_tmp = bool(self._no_scratch) and contains(SCRATCH_NAME, os.path.normpath(literal))
            detail = self._no_scratch if is_below_tmp else ""
            raise PathNotInWorkspaceError(raw_path, self.roots, detail, by_link=is_inside_literally)
        if root in self._roots_without_case:
            real = _with_actual_case(real, root)
            root = self._root_of(real, raw_path)
        self._refuse_reserved(real, root, raw_path)
        normal = os.path.normpath(unresolved_path)
        return Location(root, real, raw_path, normal, in_scratch=root == self._top, by_look=len(alike) == 1)

    def _refuse_reserved(self, real: str, root: str, raw_path: str) -> None:
        if self._private and is_inside(real, self._private):
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"'{shown_path(raw_path)}' belongs to this server; tools neither read nor write it. Use another path.",
            )
        if path_opener.TEMPORARY_PREFIX in real and any(is_temporary(name) for name in real[len(root) :].split(os.sep)):
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"'{shown_path(raw_path)}' is named like the temporary files that writes create. Such files are "
                "neither read nor written, and a later write in their folder removes them. Use another name.",
            )

    def _unresolved_in_root(self, path: str) -> str:
        """Return an absolute path with symlinks unresolved, or an empty string if only resolving it shows its root."""
        if ".." in path:
            return ""
        mapped_path = self._map_scratch_path(path) or os.path.normpath(self._map_work_path(path))
        return mapped_path if self.holds(mapped_path) else ""

    def look_alikes(self, path: str) -> list[tuple[str, str]]:
        """Return the existing paths that look like a missing path, each with unresolved symlinks and as a real path.

        Paths covered by a rule against reading are left out.
        """
        root = self._root_above(path)
        matches = [(root, root)] if root else []
        for name in path[len(root) :].strip(os.sep).split(os.sep):
            if len(matches) != 1:
                return []
            [(unresolved_parent, parent)] = matches
            names, target_form = [name], visible_form(name)
            try:
                if not os.path.lexists(os.path.join(parent, name)):
                    with self.open_folder(parent) as folder:
                        names = [entry for entry in folder.names() if visible_form(entry) == target_form]
                paths = [(os.path.join(unresolved_parent, entry), os.path.join(parent, entry)) for entry in names]
                matches = [
                    (unresolved_path, self._real_path(self._name_of(path)))
                    for unresolved_path, path in paths
                    if not self._forbids(unresolved_path) and not self._forbids(path)
                ]
            except (OSError, PathNotInWorkspaceError):
                return []
            matches = [match for match in matches if self.holds(match[1]) and not self._forbids(match[1])]
        return matches

    def _forbids(self, path: str) -> bool:
        return self.forbidden is not None and self.forbidden(path) is not None

    def _map_work_path(self, literal: str) -> str:
        """Map a name in `/var/tmp` to its real location, if the `/var/tmp` of commands that change files exists."""
        work, normal = self.scratch.work if self.scratch is not None else "", os.path.normpath(literal)
        is_work_path = contains(WORK_NAME, normal) and not is_inside(normal, self._folders) and os.path.lexists(work)
        return work + normal[len(WORK_NAME) :] if is_work_path else literal

    def _map_scratch_path(self, literal: str) -> str | None:
        """Map a name in `/tmp` to the scratch folder without resolving symlinks. Return `None` for other names."""
        if not self._top or not (literal.startswith(SCRATCH_NAME) or ".." in literal):
            return None
        normal = os.path.normpath(literal)
        # Do not map real paths of the server's own folders, which are often in the real `/tmp`.
        if not contains(SCRATCH_NAME, normal) or is_inside(normal, (*self._readable, self._top)):
            return None
        return self._top + normal[len(SCRATCH_NAME) :]

    def _real_path(self, literal: str) -> str:
        """Return the real path of an absolute path, which need not exist.

        Returns an empty string for a path in `/tmp` if a symlink leads out of the scratch folder.
        """
        if self.scratch is None or self._map_scratch_path(literal) is None:
            return path_opener.real_path(self._map_work_path(literal))
        path_opener.may_block()
        self.scratch.make()
        real = path_opener.real_path(os.path.normpath(literal), (SCRATCH_NAME, self._top))
        return real if contains(self._top, real) else ""

    def rule_about_reading(self, location: Location) -> str | None:
        """Return the permission rule that forbids showing a file's content in results, if there is one."""
        forbidden = self.forbidden_in(location)
        rule = (forbidden and forbidden(location.path)) or self.rule_of_all_reading
        return f"the {rule}" if rule else None

    def forbidden_in(self, location: Location) -> Forbidden | None:
        """Return the rules against reading `location` and its contents, under its real path or its unresolved path."""
        forbidden, unresolved_path = self.forbidden, location.unresolved_path
        if forbidden is None or unresolved_path == location.path:
            return forbidden
        return lambda path: forbidden(path) or forbidden(unresolved_path + path.removeprefix(location.path))

    def _name_of(self, real: str) -> str:
        """Return the name that rules use for a real path. In the scratch folder, this is a path in `/tmp`."""
        return SCRATCH_NAME + real[len(self._top) :] if self._top and contains(self._top, real) else real

    def _resolve_variant(self, base: str, raw_path: str) -> tuple[str, str]:
        """Return the most likely variant of a missing path (one that exists, if there is one), and its real path."""
        bare_path = raw_path.strip()
        variants = [_join(base, bare_path)]
        unquoted_path = parse_quoted_path(bare_path)
        if unquoted_path is not None and "\0" not in unquoted_path:
            variants.insert(0, _join(base, unquoted_path))
        if "\\" in bare_path and os.sep != "\\":
            variants.append(_join(base, _SHELL_ESCAPE.sub(r"\1", bare_path)))
        for path in variants:
            real = self._real_path(path)
            if self.holds(real) and os.path.lexists(real):
                return path, real
        first = bare_path.partition(os.sep)[0]
        if not os.path.lexists(os.path.join(base, first)):
            if first.startswith("~") and (first == "~" or os.sep in bare_path):
                raise ToolError(
                    ToolErrorType.INVALID_TOOL_PARAMS,
                    f"'{shown_path(raw_path)}' begins with '~', which is not expanded here. Give the absolute path.",
                )
            if bare_path.lower().startswith("file://"):
                raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, f"'{shown_path(raw_path)}' is a URI. Give its path.")
        # Quotes or blanks around a name are never intended, even for a new file.
        return variants[0], self._real_path(variants[0])

    def locate_exactly(self, path: str) -> Location:
        """Resolve an absolute path, such as one from a URI, exactly as written. The path must exist."""
        location = self.locate(path)
        if location.in_scratch:
            is_there = self._real_path(path) == location.path and self.kind_of(location) is not None
        else:
            is_root = location.path == location.root and self._root_above(self._real_path(path)) != ""
            # `path` is absolute, so it does not matter which location is passed to `has`.
            is_there = is_root or self.has(location, path)
        if not is_there:
            raise self.explain(FileNotFoundError(errno.ENOENT, ""), location)
        return location

    @cached_property
    def _roots_without_case(self) -> frozenset[str]:
        if self._ignore_case is None:
            return frozenset(root for root in self.roots if ignores_case(root))
        return frozenset(self.roots) if self._ignore_case else frozenset()

    def holds(self, real: str) -> bool:
        """Return True if a real path is in a root, a readable folder or the scratch folder."""
        return self._root_above(real) != ""

    def root_locations(self) -> list[Location]:
        """Return every root as a location. Raises `no_workspace` if there is none."""
        return [self.at(root) for root in (self.roots or (self.first_root,))]

    def require_root(self, path: str) -> None:
        """Raise a `ToolError` if the workspace folder that contains a real path no longer exists. Blocking."""
        root = self._root_above(path)
        if root in self.roots and not os.path.isdir(root):
            raise ToolError(
                ToolErrorType.NO_WORKSPACE,
                f"The workspace folder '{shown_whole_path(root)}' no longer exists: it was renamed, moved or removed. "
                "Nothing was done. Tell the user to restart this server with the folder's new path.",
            )

    def below(self, folder: Location, relative: str) -> Location:
        """Return the location of an entry found by a walk, without disk access. `relative` has forward slashes."""
        return self.at(os.path.join(folder.path, relative.replace("/", os.sep)))

    def at(self, path: str) -> Location:
        """Return the location of a real path or scratch name, without disk access. Refuses paths outside all roots."""
        real = self._map_scratch_path(path) or path
        root = self._root_of(real, path)
        name = self._name_of(real)
        return Location(root, real, name, name, in_scratch=root == self._top)

    def _root_above(self, real: str) -> str:
        """Return the innermost root, readable folder or scratch folder that contains a path; empty if there is none."""
        innermost = ""
        for root in self._folders:
            if len(root) > len(innermost) and contains(root, real):
                innermost = root
        return innermost

    def _root_of(self, real: str, raw_path: str) -> str:
        root = self._root_above(real)
        if not root:
            raise PathNotInWorkspaceError(raw_path, self.roots, by_link=True)
        return root

    def stat(self, location: Location) -> os.stat_result | None:
        try:
            return path_opener.lstat(location.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.explain(error, location) from None

    def kind_of(self, location: Location) -> PathKind | None:
        """Return the kind of the entry at a location, or `None` if it is not accessible."""
        try:
            return PathKind.of_mode(path_opener.lstat(location.path).st_mode)
        except (OSError, ValueError):
            return None

    def size_of(self, location: Location) -> int | None:
        """Return the size of a file in bytes, or `None` if the file is not accessible."""
        try:
            return path_opener.lstat(location.path).st_size
        except (OSError, ValueError):
            return None

    def has(self, folder: Location, relative: str) -> bool:
        """Return True if a path (absolute, or relative to `folder`) exists as written, in a folder of the workspace."""
        parent, name = os.path.split(os.path.join(folder.path, relative))
        try:
            real = path_opener.real_path(parent)
            if not self.holds(real):
                return False
            path_opener.lstat(os.path.join(real, name))
        except (OSError, ValueError):
            return False
        return True

    def open_file(self, location: Location) -> OpenedFile:
        """Open a regular file for reading. It is closed at the end of the `with` block.

        Raises:
            ToolError: `file_not_found`, `target_is_directory`, `permission_denied`, `read_content_failure` (not a
                regular file), `path_not_in_workspace` (the path was replaced by a symlink out of the workspace).
        """
        try:
            return path_opener.open_regular(location.path)
        except NotRegularError as error:
            if error.kind is PathKind.FOLDER:
                raise ToolError(
                    ToolErrorType.TARGET_IS_DIRECTORY,
                    f"'{location.shown}' is a directory, not a file. Use list_directory to see what is in it.",
                ) from None
            raise ToolError(
                ToolErrorType.READ_CONTENT_FAILURE,
                f"'{location.shown}' is not a regular file but a device, pipe or socket; these are never opened.",
            ) from None
        except (OSError, ValueError) as error:
            raise self.explain(error, location) from None

    def open_folder(self, path: str) -> Folder:
        """Open a folder at its real path to list it. It is closed at the end of the `with` block.

        Raises an `OSError` if the folder cannot be opened, and `PathNotInWorkspaceError` if its path is outside every
        root or was replaced by a symlink out of the workspace.
        """
        self._root_of(path, path)
        try:
            return path_opener.open_folder(path)
        except OSError:
            self._root_of(path_opener.real_path(path), self._name_of(path))
            raise

    def refuse_to_write(self, location: Location) -> None:
        """Raise `PathNotInWorkspaceError` if a location is neither in a root nor in the scratch folder."""
        if location.root not in self.roots and not location.in_scratch:
            raise PathNotInWorkspaceError(location.raw_path, self.roots)

    def folder_to_write_in(self, location: Location) -> AbstractContextManager[Folder]:
        """Open the folder in which a file will be written. Create missing folders, and remove them after an error.

        Raises an `OSError` (see `explain`), or `PathNotInWorkspaceError` (see `refuse_to_write`).
        """
        self.refuse_to_write(location)
        return path_opener.folder_to_write_in(os.path.dirname(location.path), location.root)

    def explain(
        self,
        error: OSError | ValueError,
        location: Location,
        otherwise: ToolErrorType = ToolErrorType.READ_CONTENT_FAILURE,
    ) -> ToolError:
        """Explain why a location cannot be used. A possible cause is a symlink that now leads out of the workspace."""
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            try:
                self._root_of(path_opener.real_path(location.path), location.shown)
            except PathNotInWorkspaceError as outside:
                return outside
            except OSError:
                pass  # a symlink loop
        if isinstance(error, FileNotFoundError) and (note := self.note_of_absent(location)):
            return ToolError(ToolErrorType.FILE_NOT_FOUND, f"'{location.shown}' does not exist.{note}")
        return explain(error, location.shown, otherwise)

    def note_of_absent(self, location: Location) -> str:
        """Return a note if a missing file exists in the machine's own `/tmp`, else an empty string.

        The note reveals nothing about the server's own folders and other folders that only their owner may enter.
        """
        if not location.in_scratch or os.path.normpath(location.raw_path) != location.name:
            return ""
        path_opener.may_block()
        real = resolve_links(location.name)
        if not os.path.lexists(location.name) or is_inside(real, self._own) or _is_in_private_folder(real):
            return ""
        return " It exists in the machine's own /tmp, which tools cannot see. The user can copy it into the workspace."


def _is_in_private_folder(real: str) -> bool:
    """Return True if a real path is, or is inside, a folder that only its owner may enter or that cannot be checked."""
    try:
        modes = [os.stat(path).st_mode for path in (real, *map(str, Path(real).parents))]
    except OSError:
        return True
    return any(stat.S_ISDIR(mode) and not mode & stat.S_IXOTH for mode in modes)


def _join(base: str, path: str) -> str:
    joined = os.path.join(base, path)
    # `normpath` keeps two leading slashes.
    return "/" + joined.lstrip("/") if os.sep == "/" and joined.startswith("//") else joined


def contains(root: str, path: str) -> bool:
    return path == root or path.startswith(root if root.endswith(os.sep) else root + os.sep)


def is_inside(path: str, folders: Iterable[str]) -> bool:
    """Return True if an absolute path is one of these folders or inside one. Compares only text."""
    return any(contains(folder, path) for folder in folders)


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the absolute paths that are not inside another one, shortest first. Compares only text."""
    result: list[str] = []
    # Equally long paths need a fixed order, because a person's answer is bound to the list (`CommandView.digest`).
    for path in sorted(dict.fromkeys(paths), key=lambda path: (len(path), path)):
        if not is_inside(path, result):
            result.append(path)
    return result


def resolve_links(path: str) -> str:
    """Resolve the symlinks in a path as far as they can be read.

    A path that has a NUL or leads through too many symlinks is returned unchanged.
    """
    with suppress(OSError, ValueError, RecursionError):
        return os.path.realpath(path)
    # A symlink cannot be read, such as /proc/1/root, or was replaced just now. Before Python 3.13, `realpath` fails
    # after about a thousand symlinks.
    with suppress(OSError, ValueError):
        return path_opener.real_path(os.path.join(os.getcwd(), path))
    return path


def ignores_case(folder: str) -> bool:
    """Return True if a folder can also be found under its name with upper and lower case swapped."""
    path_opener.may_block()
    parent, name = os.path.split(folder)
    while name and name.swapcase() == name:
        parent, name = os.path.split(parent)
    if not name:
        return sys.platform in ("win32", "darwin")
    try:
        return os.path.samestat(os.stat(os.path.join(parent, name)), os.stat(os.path.join(parent, name.swapcase())))
    except OSError:
        return False


def _with_actual_case(path: str, root: str) -> str:
    """Return a real path with the actual case of each name under the root. Missing names stay as written."""

    def fold(name: str) -> str:
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

    names = os.path.relpath(path, root).split(os.sep) if path != root else []
    real = root
    for number, name in enumerate(names):
        try:
            with path_opener.open_folder(real) as folder:
                entries = folder.names()
        except OSError:
            return os.path.join(real, *names[number:])
        actual_name = name if name in entries else next((entry for entry in entries if fold(entry) == fold(name)), None)
        if actual_name is None:
            return os.path.join(real, *names[number:])
        real = os.path.join(real, actual_name)
    return real


_CODES: dict[int, tuple[ToolErrorType | None, str]] = {
    errno.ENOENT: (ToolErrorType.FILE_NOT_FOUND, "does not exist"),
    errno.ENOTDIR: (ToolErrorType.FILE_NOT_FOUND, "does not exist: part of the path is a file, not a folder"),
    errno.EISDIR: (ToolErrorType.TARGET_IS_DIRECTORY, "is a directory, not a file"),
    errno.EACCES: (ToolErrorType.PERMISSION_DENIED, "cannot be accessed: permission denied"),
    errno.EPERM: (ToolErrorType.PERMISSION_DENIED, "cannot be accessed: the operation is not permitted"),
    errno.EROFS: (ToolErrorType.PERMISSION_DENIED, "is on a read-only file system"),
    errno.ENOSPC: (ToolErrorType.NO_SPACE_LEFT, "cannot be written: no space is left on the device"),
    errno.EDQUOT: (ToolErrorType.NO_SPACE_LEFT, "cannot be written: the disk quota is used up"),
    errno.ENAMETOOLONG: (ToolErrorType.INVALID_TOOL_PARAMS, "is too long, or contains a name that is too long"),
    errno.ELOOP: (
        ToolErrorType.READ_CONTENT_FAILURE,
        "leads through a symlink loop, or through too many symlinks or components, or was replaced during the call",
    ),
    errno.ENXIO: (ToolErrorType.READ_CONTENT_FAILURE, "is not a regular file"),
    errno.EBUSY: (None, "is in use by another program; try again"),
    errno.EFBIG: (None, "would be larger than the system allows"),
    errno.EIO: (None, "cannot be used: the disk reports an error"),
}


def explain(
    error: OSError | ValueError, display_path: str, otherwise: ToolErrorType = ToolErrorType.READ_CONTENT_FAILURE
) -> ToolError:
    """Turn an operating system error into a tool error, which reveals only the `errno` of the original error."""
    exhaustion = exhaustion_of(error)
    if exhaustion is not None:
        return exhaustion
    number = error.errno if isinstance(error, OSError) else None
    code, reason = _CODES.get(number or 0, (otherwise, "cannot be used"))
    symbol = f" ({errno.errorcode[number]})" if number is not None and number in errno.errorcode else ""
    hint = " Use list_directory or glob to see what is there." if code is ToolErrorType.FILE_NOT_FOUND else ""
    return ToolError(code or otherwise, f"'{display_path}' {reason}{symbol}.{hint}")


class SeenFile(NamedTuple):
    identity: FileIdentity
    sha256: str | None  # hex digest of the whole content, if known


class ReadLedger:
    """Files that a client has seen, by real path. A write uses it to notice that a file has changed. Thread-safe."""

    __slots__ = ("_content_bytes", "_contents", "_lock", "_noticed", "_replaced", "_seen", "is_shared")

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared  # whether several clients that cannot be told apart may use the ledger
        self._replaced: OrderedDict[str, bytes] = OrderedDict()  # the content that the latest write to a path replaced
        self._seen: OrderedDict[str, SeenFile] = OrderedDict()
        self._contents: OrderedDict[str, bytes] = OrderedDict()  # the content that was seen, while it is kept
        self._content_bytes = 0  # total bytes in `_contents`
        self._noticed: set[str] = set()
        self._lock = threading.Lock()

    def record(
        self, real_path: str, seen_file: SeenFile, content: bytes | None = None, old_content: bytes | None = None
    ) -> None:
        """Record a file as seen.

        `content`, the whole content if it is known, is kept until newer contents need its space. `old_content`, the
        content that a write replaced, is kept only if the ledger is shared.
        """
        with self._lock:
            if self.is_shared and old_content is not None and len(old_content) <= MAX_CONTENT_BYTES // MAX_REPLACED:
                self._replaced[real_path] = old_content
                if len(self._replaced) > MAX_REPLACED:
                    self._replaced.popitem(last=False)
            self._content_bytes -= len(self._contents.pop(real_path, b""))
            if content is not None and len(content) <= MAX_CONTENT_BYTES:
                self._contents[real_path] = content
                self._content_bytes += len(content)
            while self._content_bytes > MAX_CONTENT_BYTES:
                self._content_bytes -= len(self._contents.popitem(last=False)[1])
            self._seen[real_path] = seen_file
            self._seen.move_to_end(real_path)
            if len(self._seen) > MAX_FILES:
                self._seen.popitem(last=False)

    def content(self, real_path: str) -> bytes | None:
        with self._lock:
            return self._contents.get(real_path)

    def replaced(self, real_path: str) -> bytes | None:
        with self._lock:
            return self._replaced.get(real_path)

    def is_first_notice(self, key: str) -> bool:
        """Return True on the first call with this key, usually a path. Used to give each warning only once."""
        with self._lock:
            is_first = key not in self._noticed
            if len(self._noticed) >= MAX_FILES:
                self._noticed.clear()
            self._noticed.add(key)
        return is_first

    def get(self, real_path: str) -> SeenFile | None:
        with self._lock:
            return self._seen.get(real_path)
