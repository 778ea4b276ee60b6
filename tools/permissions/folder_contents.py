"""What a command touches in a folder that none of its words names: by rules, agent-ignore files and auto-run files.

Blocking, and bounded: a folder with more in it than is looked at counts as one with such a file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate

from tools.contract.errors import ToolError
from tools.files import ignore_files
from tools.files.ignore_files import HiddenBy, PresentNames, scope_of, shown_below
from tools.files.workspace import Location, Workspace, contains
from tools.permissions.auto_run_files import FETCHED_FOLDERS, REPOSITORY
from tools.permissions.command_paths import work_tree_above
from tools.permissions.rules import Rule
from tools.permissions.shell.knowledge.program_files import Reach
from tools.permissions.shell.syntax.words import GIT_WILD

MAX_ENTRIES = 10_000  # entries of a folder that are looked at for one question; it takes some 50 ms
LOOK_SECONDS = 1.0  # how long agent-ignore files are looked for below one folder; a shell command waits for it
_ENTRIES_PER_LOOK = 500  # entries between two looks at the clock
_SOME_FILE = "an agent-ignore file"  # what one is called where it is not known whether there is any
MAX_INDEX_BYTES = 64 * 1024 * 1024
_LONGEST_TOLD = 0xFFF  # of a longer name the index does not tell how long it is
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def rules_about_what_is_in(folder: str, rules: Sequence[Rule], roots: Sequence[str]) -> list[Rule]:
    """Those of some rules that are about something in a folder as it is now.

    All of them count where there are links, or more entries than are looked at.
    """
    left, waiting = MAX_ENTRIES, [folder] if rules else []
    try:
        while waiting:
            for entry in _entries_of(waiting.pop()):
                left -= 1
                if left < 0 or entry.is_symlink():
                    return list(rules)
                if found := [rule for rule in rules if rule.fits_path((entry.path,), roots)]:
                    return found
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    except OSError:
        return list(rules)
    return []


def agent_ignore_file_below(workspace: Workspace, location: Location, *, is_as_now: bool = False) -> str | None:
    """An agent-ignore file that may hide something in a folder or beneath it, or where links in it lead, as shown.

    As it is now, only a file counts that hides something there; otherwise, and where there are links or more entries
    than are looked at, one that could. There is none where the workspace does not respect these files.
    """
    if not workspace.respect_agent_ignore:
        return None
    try:
        below = _file_in_force(workspace, location) or _file_beneath(workspace, location)
    except (OSError, ToolError):
        return _SOME_FILE
    if below is None or not is_as_now:
        return below
    left = MAX_ENTRIES
    try:
        waiting = [scope_of(workspace, location, git=False, agent=True)]
        while waiting:
            scope = waiting.pop()
            entries = list(_entries_of(scope.folder))
            left -= len(entries)
            if left < 0 or any(entry.is_symlink() for entry in entries):
                return below
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if (hiding := scope.deciding(entry.name, is_folder=is_folder)) is not None:
                    return shown_below(location.root, hiding.path)
                if is_folder and entry.name != ignore_files.GIT_FOLDER:
                    waiting.append(scope.enter(entry.path, PresentNames(entry.path)))
    except (OSError, ToolError):
        return below
    return None


def _file_in_force(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that a folder comes under."""
    files = scope_of(workspace, location, git=False, agent=True).agent
    return shown_below(location.root, files[-1].path) if files else None


def _file_beneath(workspace: Workspace, start: Location) -> str | None:
    """An agent-ignore file beneath a folder, or that counts where a link beneath it leads."""
    until = time.monotonic() + LOOK_SECONDS
    waiting, led_to = [start.path], {start.path}
    while waiting:
        folder = waiting.pop()
        for number, entry in enumerate(_entries_of(folder)):
            if number % _ENTRIES_PER_LOOK == 0 and time.monotonic() > until:
                return _SOME_FILE
            if entry.name in ignore_files.AGENT_IGNORE_FILES and ignore_files.rules_for_agents(folder, entry.name):
                return shown_below(start.root, entry.path)
            if entry.is_symlink():
                path = os.path.realpath(entry.path)
                if path in led_to or contains(start.path, path) or not workspace.holds(path):
                    continue
                led_to.add(path)
                if (hidden_by := _file_in_force(workspace, workspace.at(path))) is not None:
                    return hidden_by
                waiting.append(path)
            elif entry.name != ignore_files.GIT_FOLDER and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return None


def _entries_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where there is none, or where commands cannot look into it either."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def first_below(folder: str, why: Callable[[str], str | None]) -> tuple[str, str] | None:
    """The first file or folder in a folder for which there is a reason, with that; of many, those that come first."""
    waiting, left = [folder], MAX_ENTRIES
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue
        left -= len(found)
        for entry in found:
            if (reason := why(entry.path)) is not None:
                return entry.path, reason
            if entry.name not in FETCHED_FOLDERS and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return None


def first_taken(
    workspace: Workspace, path: str, reach: Reach, why: Callable[[str], str | None]
) -> tuple[str, str] | None:
    """The first file for which there is a reason among those that git takes away or writes, with that reason.

    The absolute path is a folder, or a pattern.
    """
    is_pattern = reach is Reach.MATCHED
    folder = path
    if is_pattern and not os.path.isdir(path):
        folder = os.path.dirname(GIT_WILD.split(path, maxsplit=1)[0])
    fits = None
    if GIT_WILD.search(path):
        fits = re.compile(translate(_ESCAPED.sub(r"[\1]", path).replace("[^", "[!")), re.DOTALL)
    tracked = TrackedFiles()

    def is_taken(file: str) -> bool:
        if not is_pattern:
            return not tracked.has(file)
        # The pattern may stand for a folder that the file is in; without stars it is the path itself.
        while len(file) >= len(os.path.dirname(path)) and file != os.sep:
            if file == path or (fits is not None and fits.match(file)):
                return True
            file = os.path.dirname(file)
        return False

    left = MAX_ENTRIES
    try:
        waiting = [scope_of(workspace, workspace.at(folder), git=reach is Reach.UNTRACKED, agent=False)]
        while waiting:
            scope = waiting.pop()
            with os.scandir(scope.folder) as entries:
                found = list(entries)
            left -= len(found)
            if left < 0:
                return folder, "it is not known what is in it"
            for entry in found:
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == REPOSITORY or scope.hides(entry.name, is_folder=is_folder) is HiddenBy.GIT:
                    continue
                if is_folder:
                    waiting.append(scope.enter(entry.path, PresentNames(entry.path)))
                elif (reason := why(entry.path)) is not None and is_taken(entry.path):
                    return entry.path, reason
    except (OSError, ToolError, ValueError):
        return folder, "it is not known what is in it"
    return None


class TrackedFiles:
    """What repositories track, by their indexes, each of which is read once."""

    def __init__(self) -> None:
        self._indexes: dict[str, bytes] = {}

    def has(self, path: str) -> bool:
        """Whether the index of the repository has a file; an index of a newer form counts as empty."""
        top = work_tree_above(os.path.dirname(path))
        if top is None:
            return False
        if top not in self._indexes:
            try:
                with open(os.path.join(top, REPOSITORY, "index"), "rb") as index:
                    self._indexes[top] = index.read(MAX_INDEX_BYTES)
            except OSError:
                self._indexes[top] = b""
        name = os.fsencode(os.path.relpath(path, top))
        return min(len(name), _LONGEST_TOLD).to_bytes(2) + name + b"\0" in self._indexes[top]
