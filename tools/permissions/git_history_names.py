"""Finds the file names that git has stored in a repository: in all commits, reflogs, and the index of each worktree.

A file that is hidden in the work tree can be read from the repository's data, under any name that it ever had.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import islice

from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import NOTHING_DONE, exhaustion_of, suppress_unless_scarce
from tools.files.child_process import Child, ChildFailedError, find_program
from tools.files.ignore_files import exclude_file
from tools.files.path_opener import StampedCache, open_regular, stamp_of
from tools.files.workspace import resolve_links

MAX_SECONDS = 2.0  # time limit for git to list the names
MAX_BYTES = 64_000_000  # maximum bytes of output to read from git
# Maximum number of files and folders of a repository that are checked for changes. If there are more, nothing is cached
MAX_STATE_ENTRIES = 5_000
MAX_CACHED = 1_000  # maximum cached repositories
MAX_ALTERNATE_LEVELS = 5  # levels of alternates to follow, as in git
MAX_ALTERNATES_BYTES = 64 * 1024  # bytes to read of each `info/alternates`
MAX_STORES = 100  # maximum submodules of a repository, and maximum object folders to list
# Parts of a repository, at least one of which changes with every commit and with every change to a branch, a stash or
# an index
_STATE_FILES = ("HEAD", "packed-refs", "index", "logs", "logs/HEAD", "logs/refs/stash", "shallow")
_STATE_FOLDERS = ("refs", "reftable", "worktrees")
# Makes git ignore user and system settings, and ignore replacements and grafts, which would show a different history.
# Also keeps git from fetching objects.
_ENVIRONMENT = {
    "HOME": os.devnull, "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull, "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}  # fmt: skip
_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=", "-c", "protocol.allow=never")
# `git rev-list --objects` is faster than `git log --name-only`, and includes merges. It lists each object once, so if
# the same content has several names, a hidden name may be missed.
_LIST_COMMAND = (
    "rev-list", "--objects", "--all", "--reflog", "--indexed-objects", "--missing=allow-any", "--ignore-missing",
)  # fmt: skip
_OBJECT_ID = re.compile(rb"^(?:[0-9a-f]{64}|[0-9a-f]{40})\b", re.MULTILINE)
MAX_IDS = 2_000  # maximum object ids in a repository's files, such as refs and `FETCH_HEAD`
MAX_ID_BYTES = 256 * 1024  # bytes to read of each such file


def store_of(folder: str) -> str | None:
    """Return the real path of the folder with a work tree's data, or `None`. A bare repository is its own store."""
    exclude = exclude_file(folder)  # `info/exclude`, which is in the store even for linked worktrees
    store = resolve_links(os.path.dirname(os.path.dirname(exclude)) if exclude is not None else folder)
    return store if all(os.path.exists(os.path.join(store, name)) for name in ("HEAD", "objects")) else None


def stores_of_submodules(store: str) -> Iterator[tuple[str, str]]:
    """Yield the store and the name of each submodule, including submodules that are not checked out."""
    modules, count = os.path.join(store, "modules"), 0
    for folder, subfolders, files in os.walk(modules, onerror=_raise_if_scarce):
        if "HEAD" in files and "objects" in subfolders:
            yield folder, os.path.relpath(folder, modules)
            subfolders[:] = [name for name in subfolders if name == "modules"]
            count += 1
        if count >= MAX_STORES:
            return


def _raise_if_scarce(error: OSError) -> None:
    with suppress_unless_scarce():
        raise error


def stored_in(store: str) -> Iterator[str]:
    """Yield the existing files and folders in which a repository stores the content and the names of files."""
    folders, worktrees = [store], os.path.join(store, "worktrees")
    with suppress_unless_scarce():  # sorted, because consent depends on the order of masked paths
        folders += (os.path.join(worktrees, name) for name in sorted(os.listdir(worktrees)))
    for folder in folders:
        for name in ("index", "lfs", "rebase-apply", "rebase-merge", "rr-cache"):
            if os.path.lexists(path := os.path.join(folder, name)):
                yield path
    yield from object_folders([store])


def object_folders(stores: Iterable[str]) -> Iterator[str]:
    """Yield the object folders of repositories, including their alternates."""
    waiting = deque((os.path.join(store, "objects"), MAX_ALTERNATE_LEVELS) for store in stores)
    seen: set[str] = set()
    while waiting and len(seen) < MAX_STORES:
        objects, levels_left = waiting.popleft()
        if objects in seen or not os.path.isdir(objects):
            continue
        seen.add(objects)
        yield objects
        alternates = os.path.join(objects, "info", "alternates")
        with suppress_unless_scarce(), open_regular(alternates, through_links=True) as file:
            lines = os.fsdecode(file.head(MAX_ALTERNATES_BYTES)).splitlines() if levels_left > 0 else []
            waiting.extend((resolve_links(os.path.join(objects, line)), levels_left - 1) for line in lines)


class GitStores:
    """Finds out whether repositories store hidden files, and caches each result until the repository changes."""

    def __init__(self) -> None:
        self._cache = StampedCache[tuple[Hashable, bool]](MAX_CACHED)

    def holds(
        self,
        store: str,
        roots: Sequence[str],
        query: Hashable,
        is_any_hidden: Callable[[Collection[str] | None], bool],
        *,
        default: bool,
    ) -> bool:
        """Return True if a repository stores hidden files.

        A git program in the workspace folders `roots` is never run. If git is not installed, the result is `default`.
        `is_any_hidden` returns True if any of the given paths, relative to the top of the work tree, is hidden; it gets
        `None` if the paths cannot be listed. A cached result is used only if it was cached for an equal `query`,
        which is what `is_any_hidden` depends on.
        """
        git = find_program("git", os.environ.get("PATH", os.defpath), roots)
        if git is None:
            return default
        cached = self._cache.get(store)
        if cached is not None and cached[0] == query:
            return cached[1]
        start_time = time.time_ns()
        state = [(path, stamp_of(path)) for path in islice(_state_of(store), MAX_STATE_ENTRIES + 1)]
        names = _stored_names(git, store, [path for path, _ in state])
        holds = is_any_hidden(names)
        if len(state) <= MAX_STATE_ENTRIES:
            self._cache.keep(store, (query, holds), state, start_time)
        return holds


def _stored_names(git: str, store: str, paths: Iterable[str]) -> set[str] | None:
    """Return all names stored in a repository, including those reachable from ids in the files `paths`.

    Return `None` if git fails, takes too long or lists too much, or if there are too many ids.
    """
    ids: set[str] = set()
    for path in paths:
        with suppress_unless_scarce(), open_regular(path) as file:
            ids |= {name.decode() for name in _OBJECT_ID.findall(file.head(MAX_ID_BYTES))}
    if len(ids) > MAX_IDS:
        return None
    arguments = [git, *_OPTIONS, f"--git-dir={store}", *_LIST_COMMAND, *ids]
    chunks: list[bytes] = []
    size = 0
    try:
        with Child(arguments, store, Deadline(AbortSignal(), MAX_SECONDS), environment=_ENVIRONMENT) as child:
            while chunk := child.read():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BYTES:
                    return None
            status, _ = child.finish()
            if status != 0 or child.was_killed:
                return None
    except (ChildFailedError, OSError) as error:
        # Do not cache the result of a shortage.
        if (exhaustion := exhaustion_of(error.__cause__ or error, NOTHING_DONE)) is not None:
            raise exhaustion from None
        return None
    # Git lists commits without a name, and top folders with an empty name.
    return {os.fsdecode(name) for line in b"".join(chunks).split(b"\n") if (name := line.partition(b" ")[2])}


def _state_of(store: str) -> Iterator[str]:
    """Yield the files and folders of a repository that show whether its stored names may have changed."""
    yield from (os.path.join(store, name) for name in _STATE_FILES)
    with suppress_unless_scarce():
        yield from (os.path.join(store, name) for name in os.listdir(store) if name.endswith("_HEAD"))
    for name in _STATE_FOLDERS:
        for folder, _, files in os.walk(os.path.join(store, name), onerror=_raise_if_scarce):
            yield folder
            yield from (os.path.join(folder, file) for file in files)
