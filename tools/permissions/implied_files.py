"""Which files a command takes away that none of its words names: by a pattern, as untracked, with their folder.

Blocking, and bounded: a folder with more in it than is looked at counts as one with such a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import translate

from tools.contract.errors import ToolError
from tools.files.ignore_files import HiddenBy, PresentNames, Scope, scope_of
from tools.files.workspace import Workspace
from tools.permissions.auto_run_files import FETCHED_FOLDERS, REPOSITORY
from tools.permissions.shell.knowledge.file_programs import Reach

MAX_ENTRIES = 10_000
MAX_INDEX_BYTES = 64 * 1024 * 1024
_LONGEST_TOLD = 0xFFF
"""Of a longer name the index does not tell how long it is."""

_WILD = re.compile(r"[*?\[\\]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def first_taken(
    workspace: Workspace, path: str, reach: Reach, why: Callable[[str], str | None]
) -> tuple[str, str] | None:
    """The first file among those that are taken which something is said of, with that.

    Args:
        workspace: The folders of the workspace.
        path: A folder, or a pattern, as an absolute path.
        reach: Which files in the folder are meant.
        why: Tells what is said of a file by its absolute path.
    """
    is_pattern = reach is Reach.MATCHED
    known = _WILD.split(path, maxsplit=1)[0]
    folder = path if not is_pattern or os.path.isdir(path) else os.path.dirname(known)
    fits = re.compile(
        translate(_ESCAPED.sub(r"[\1]", path).replace("[^", "[!")) if _WILD.search(path) else "", re.DOTALL
    )
    tracked = TrackedFiles()
    try:
        scope = scope_of(workspace, workspace.at(folder), git=reach is Reach.UNTRACKED, agent=False)
        for each in _files_below(scope):
            said = why(each)
            if said is not None and (_is_matched(fits, each, path) if is_pattern else not tracked.has(each)):
                return each, said
    except (OSError, ToolError, ValueError):
        return folder, "it is not known what is in it"
    return None


def first_below(folder: str, why: Callable[[str], str | None]) -> tuple[str, str] | None:
    """The first file or folder in a folder of which something is said, with that; of many, those that come first.

    Args:
        folder: An absolute path.
        why: Tells what is said of a path.
    """
    waiting, left = [folder], MAX_ENTRIES
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue
        left -= len(found)
        for entry in found:
            if (said := why(entry.path)) is not None:
                return entry.path, said
            if entry.name not in FETCHED_FOLDERS and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return None


def _is_matched(fits: re.Pattern[str], file: str, path: str) -> bool:
    """Whether a pattern stands for a file, or for a folder that it is in; without stars, the path itself."""
    while len(file) >= len(os.path.dirname(path)) and file != os.sep:
        if file == path or (fits.pattern and fits.match(file)):
            return True
        file = os.path.dirname(file)
    return False


def _files_below(scope: Scope) -> Iterator[str]:
    """The files in a folder that its rules do not leave out.

    Raises:
        OSError: It cannot be read.
        ToolError: There are too many, or it is not known what a rule says.
    """
    waiting, left = [scope], MAX_ENTRIES
    while waiting:
        current = waiting.pop()
        with os.scandir(current.folder) as entries:
            found = list(entries)
        left -= len(found)
        if left < 0:
            raise ValueError
        for entry in found:
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == REPOSITORY or current.hides(entry.name, is_folder=is_folder) is HiddenBy.GIT:
                continue
            if is_folder:
                waiting.append(current.enter(entry.path, PresentNames(entry.path)))
            else:
                yield entry.path


class TrackedFiles:
    """What repositories track, by their indexes, each of which is read once."""

    def __init__(self) -> None:
        self._indexes: dict[str, bytes] = {}

    def has(self, path: str) -> bool:
        """Whether the index of the repository has a file; an index of a newer form counts as empty."""
        top = os.path.dirname(path)
        while not os.path.lexists(os.path.join(top, REPOSITORY)):
            if (above := os.path.dirname(top)) == top:
                return False
            top = above
        if top not in self._indexes:
            self._indexes[top] = _index_of(top)
        name = os.fsencode(os.path.relpath(path, top))
        return min(len(name), _LONGEST_TOLD).to_bytes(2) + name + b"\0" in self._indexes[top]


def _index_of(top: str) -> bytes:
    try:
        with open(os.path.join(top, REPOSITORY, "index"), "rb") as index:
            return index.read(MAX_INDEX_BYTES)
    except OSError:
        return b""
