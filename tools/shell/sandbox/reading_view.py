"""Finds what a read-only command sees in addition to the workspace: the system, the user's programs, and files for git.

Everything else is absent, including the rest of the home folder. The paths from `reading_view_paths` are real paths,
and read-only in the view. Of the paths that the workspace refers to, only its repository and the interpreters of its
virtual environments are shown.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from tools.contract.command_views import SYSTEM
from tools.contract.tool_errors import suppress_unless_scarce
from tools.files.path_opener import Stamp, StampedCache, open_regular, stamp_of
from tools.files.workspace import SCRATCH_NAME, contains, is_inside, outermost, resolve_links
from tools.permissions.git_history_names import object_folders
from tools.permissions.git_repositories import is_include, linked_stores, possible_paths, work_tree_above
from tools.permissions.protected_files import REPOSITORY
from tools.shell.sandbox.credential_masks import in_home
from tools.shell.sandbox.mount_check import MountTable

ETC = "/etc"
RUNNING_SYSTEM = ("/run/current-system", "/run/booted-system", "/run/opengl-driver")  # programs of NixOS
# Files that programs read to count processors
PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
PROGRAM_MANAGERS = (".rustup", ".pyenv", ".asdf", ".nvm", ".local/share/mise", ".local/share/uv")  # in the home folder
TEMPORARY, WORK = OPEN_TO_ALL = (SCRATCH_NAME, "/var/tmp")  # noqa: S108 - only names
ETC_SECONDS = 60.0  # how soon the server notices that an existing file has become private
LINKS = 40  # maximum number of symlinks followed in one path, as in the kernel
ENVIRONMENTS = 1_000  # names in a workspace folder to check for Python environments
INCLUDED = 20  # maximum files of the user's git settings to read
SETTINGS_BYTES = 256 * 1024
_HOME_OF_ENVIRONMENT = re.compile(r"^home\s*=\s*(.+)$", re.MULTILINE)
_PYTHON = re.compile(r"python[\d.]*")


def reading_view_paths(
    home: str,
    search_path: str,  # the `PATH` of the command
    roots: Sequence[str],  # real paths of the workspace folders
    hidden_paths: Collection[str] = (),  # real paths not to show, not even as part of a program folder
    required_paths: Iterable[str] = (),  # further files and folders that are needed, regardless of their location
    *,
    with_repository: bool = False,  # whether to show the whole repository whose work tree contains the workspace
) -> tuple[str, ...]:
    """Return the existing real paths that a command sees in addition to the workspace. Blocking.

    None is inside another or in the workspace. Only `required_paths` can contain the home folder.
    """
    real_home = resolve_links(home)
    # Ignore a home folder inside the workspace: a command could write files there that would make other paths readable.
    home_paths = [path for path in (home, real_home) if not is_inside(path, roots)]
    folders = [path for path in search_path.split(os.pathsep) if os.path.isabs(path)]
    managers = [os.path.join(folder, name) for folder in home_paths[:1] for name in PROGRAM_MANAGERS]
    outside = (path for path in (*folders, *managers) if not is_inside(resolve_links(path), roots))
    stamps = tuple((path, stamp_of(path)) for path in outside)
    paths = [path for folder in (*SYSTEM, *RUNNING_SYSTEM, *PROCESSORS) for path in _around(folder, real_home)]
    paths += _programs(stamps, frozenset(managers), real_home, tuple(hidden_paths), tuple(roots))
    paths += _environments(roots, real_home, hidden_paths)
    # Show what git needs to use the repositories that contain the roots.
    for root in roots:
        top = work_tree_above(root)
        is_above = top != root
        if top is None or (is_above and (not with_repository or contains(top, real_home) or top in OPEN_TO_ALL)):
            continue
        linked_folders = linked_stores(top)
        paths += (*([top] if is_above else []), *linked_folders)
        for objects in object_folders(linked_folders or [os.path.join(top, REPOSITORY)]):
            # Show the folder only if it really contains git objects.
            if os.path.basename(objects) == "objects" and os.path.isdir(os.path.join(objects, "pack")):
                paths.append(objects)
    if home_paths:
        paths += (path for path in settings_of_git(home, roots) if not is_inside(path, hidden_paths))
    paths += map(resolve_links, required_paths)
    return tuple(outermost(path for path in paths if not is_inside(path, roots) and os.path.lexists(path)))


def links_to(paths: Iterable[str], visible_paths: Sequence[str]) -> dict[str, str]:
    """Return the symlinks that lead to these paths, with their targets. Symlinks inside visible paths are skipped."""
    links: dict[str, str] = {}
    non_links: set[str] = set()  # known not to be symlinks
    for path in dict.fromkeys(paths):
        folder, rest = "/", deque(path.split("/"))
        budget = LINKS
        while rest and budget:
            name = rest.popleft()
            if name in ("", "."):
                continue
            path_so_far = os.path.dirname(folder) if name == ".." else os.path.join(folder, name)
            if path_so_far in non_links:
                folder = path_so_far
                continue
            try:
                target = os.readlink(path_so_far)
            except OSError:
                folder = path_so_far
                non_links.add(path_so_far)
                continue
            budget -= 1
            if not is_inside(path_so_far, visible_paths):
                links[path_so_far] = target
            rest.extendleft(reversed(target.split("/")))
            folder = "/" if target.startswith("/") else folder
    return links


def links_of_programs(home: str, search_path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the paths, possibly with symlinks, by which commands refer to system folders and programs."""
    yield from SYSTEM
    yield home
    for folder in search_path.split(os.pathsep):
        if os.path.isabs(folder) and not is_inside(real := resolve_links(folder), roots):
            yield folder
            if not is_inside(real, SYSTEM):
                yield from _links_in(folder, stamp_of(folder))
    yield from (os.path.join(home, name) for name in PROGRAM_MANAGERS)


_private_paths_in_etc = StampedCache[tuple[str, ...]](1)


def private_paths_in_etc() -> tuple[str, ...]:
    """Return the paths in `/etc` that this user may read but others may not. Cached for at most a minute. Blocking."""
    period, scanned_at = time.monotonic() // ETC_SECONDS, time.time_ns()
    if (cached_paths := _private_paths_in_etc.get(period)) is not None:
        return cached_paths
    private_paths: list[str] = []
    stamps: list[tuple[str, Stamp | None]] = []
    pending = [ETC]
    while pending:
        folder = pending.pop()
        stamps.append((folder, stamp_of(folder)))
        with suppress_unless_scarce(), os.scandir(folder) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                required_bits = 0o005 if stat.S_ISDIR(mode) else 0o004
                if stat.S_ISLNK(mode):
                    continue
                if mode & required_bits == required_bits:
                    pending += [entry.path] if stat.S_ISDIR(mode) else []
                elif os.access(entry.path, os.R_OK):  # otherwise commands of this user cannot read it
                    private_paths.append(entry.path)
    _private_paths_in_etc.keep(period, tuple(private_paths), stamps, scanned_at)
    return tuple(private_paths)


def without_private_paths(path: str) -> Iterator[str]:
    """Yield a path. If it contains private files of `/etc`, yield its other parts instead. Blocking.

    Landlock needs this, because it cannot hide files in a folder that commands may read.
    """
    private_paths = private_paths_in_etc()
    pending = [path]
    while pending:
        place = pending.pop()
        if place in private_paths:
            continue
        if not any(contains(place, private_path) for private_path in private_paths):
            yield place
            continue
        with suppress(OSError):
            inner = (os.path.join(place, name) for name in os.listdir(place))
            pending += (inner_path for inner_path in inner if not os.path.islink(inner_path))


def settings_files_of_git(home: str) -> tuple[str, str]:
    """Return the paths of the user's git settings, which may not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(home, ".gitconfig"), os.path.join(base, "git", "config")


def settings_of_git(home: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield real paths of the user's existing git settings, and of the files that they name. Blocking.

    Ignores settings inside the workspace, because commands can change them.
    """
    pending = deque(settings_files_of_git(home))
    named_files = [os.path.join(os.path.dirname(pending[-1]), name) for name in ("ignore", "attributes")]
    for _ in range(INCLUDED):
        if not pending:
            break
        path = pending.popleft()
        if is_inside(resolve_links(path), roots) or (text := _text(path)) is None:
            continue
        yield resolve_links(path)
        folder = os.path.dirname(path)
        for name, value in possible_paths(text):
            if is_include(name):
                pending.append(os.path.join(folder, in_home(value, home)))
            elif name in ("core.excludesfile", "core.attributesfile"):
                named_files.append(in_home(value, home))
    # Git looks for a relative path in the work tree, which is visible anyway.
    yield from (resolve_links(path) for path in named_files if os.path.isabs(path) and os.path.isfile(path))


def _around(folder: str, home: str) -> Iterator[str]:
    """Yield the real path of a system folder. If it contains the home folder, yield its other entries instead."""
    real = resolve_links(folder)
    if not contains(real, home):
        if os.path.exists(real):
            yield real
    elif real != home:
        with suppress(OSError):
            for name in os.listdir(real):
                yield from _around(os.path.join(real, name), home)


@lru_cache(maxsize=64)
def _links_in(folder: str, _stamp: Stamp | None) -> tuple[str, ...]:
    """Return the direct targets of a folder's symlinks, as absolute paths."""
    with suppress_unless_scarce(), os.scandir(folder) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
        return tuple(os.path.join(resolve_links(folder), os.readlink(link)) for link in links)
    return ()


@lru_cache(maxsize=16)
def _programs(
    stamps: tuple[tuple[str, Stamp | None], ...],
    managers: frozenset[str],
    home: str,
    hidden_paths: tuple[str, ...],
    roots: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the paths that programs in these folders need to see; cached until one of the folders changes."""
    table = MountTable()
    paths: list[str] = []
    for stamp in stamps:
        folder = resolve_links(stamp[0])
        if contains(folder, home) or is_inside(folder, hidden_paths) or not os.path.isdir(folder):
            continue
        if stamp[0] in managers:
            paths.append(folder)
            continue
        paths.append(_prefix_of(folder, home, hidden_paths, table) or folder)
        # Ignore targets that are reached through a symlink in the workspace, because a command may have created it.
        link_targets = (
            target
            for target in _links_in(*stamp)
            if not any(is_inside(place, roots) for place in links_to((target,), ()))
        )
        targets = (path for path in map(resolve_links, link_targets) if os.path.isfile(path))
        paths += (
            _prefix_of(os.path.dirname(path), home, hidden_paths, table) or path
            for path in targets
            if not is_inside(path, (folder, *SYSTEM, *hidden_paths))
        )
    return tuple(paths)


def _prefix_of(folder: str, home: str, hidden_paths: Iterable[str], table: MountTable) -> str | None:
    """Return the installation folder that contains a program folder; `None` if there is none, or part of it is hidden.

    Also `None` if the installation folder is a mount point.
    """
    prefix, name = os.path.split(folder)
    is_prefix = (
        name == "bin"
        and any(os.path.isdir(os.path.join(prefix, subfolder)) for subfolder in ("lib", "libexec"))
        and not contains(prefix, os.path.join(home, ".local"))
    )
    if not is_prefix:
        parent, packages, _ = f"{folder}/".partition("/node_modules/")  # a package's dependencies are next to it
        prefix, is_prefix = parent + packages.rstrip("/"), bool(packages)
    is_safe = not any(contains(prefix, path) for path in hidden_paths) and not table.is_mount_point(prefix)
    return prefix if is_prefix and is_safe else None


def _environments(roots: Sequence[str], home: str, hidden_paths: Collection[str]) -> Iterator[str]:
    """Yield the installation folders of the interpreters that the workspace's Python environments are based on."""
    for root in roots:
        folders = [root]
        with suppress_unless_scarce(), os.scandir(root) as entries:
            folders += (entry.path for entry in islice(entries, ENVIRONMENTS) if entry.is_dir(follow_symlinks=False))
        for folder in folders:
            if (text := _text(os.path.join(folder, "pyvenv.cfg"))) is None:
                continue
            home_match = _HOME_OF_ENVIRONMENT.search(text)
            python = resolve_links(os.path.join(folder, "bin", "python"))
            programs, name = os.path.split(python)
            if (
                home_match is not None
                and resolve_links(home_match[1].strip()) == programs
                and _PYTHON.fullmatch(name)
                and os.access(python, os.X_OK)
                and not is_inside(programs, (*SYSTEM, *roots))
                and (prefix := _prefix_of(programs, home, hidden_paths, MountTable())) is not None
            ):
                yield prefix


def _text(path: str) -> str | None:
    """Return the beginning of a regular file as text, or `None` if it cannot be read."""
    with suppress_unless_scarce(), open_regular(path, through_links=True) as file:
        return os.fsdecode(file.head(SETTINGS_BYTES))
    return None
