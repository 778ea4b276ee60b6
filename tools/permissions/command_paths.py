"""Where the paths of a shell command lead, and what it touches in a folder that none of its words names.

What lies in a folder is looked at by rules, agent-ignore files and auto-run files. That is blocking, and bounded: a
folder with more in it than is looked at counts as one with such a file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from tools.contract.errors import ToolError
from tools.files import ignore_files
from tools.files.ignore_files import HiddenBy, PresentNames, scope_of, shown_below
from tools.files.opener import real_path
from tools.files.workspace import Location, Workspace, contains
from tools.permissions.auto_run_files import FETCHED_FOLDERS, REPOSITORY, REPOSITORY_WITHOUT_CONTENTS, folded
from tools.permissions.repositories import TrackedFiles, work_tree_above
from tools.permissions.rules import Rule
from tools.permissions.shell.command_analysis import Effect
from tools.permissions.shell.expansion import with_home
from tools.permissions.shell.knowledge.program_files import TOP_OF_REPOSITORY, Reach
from tools.permissions.shell.syntax.words import GIT_WILD

# What these lead to depends on who looks
_OF_A_PROCESS = re.compile(
    r"//?(?:proc/[^/]+/(?:cwd|root|exe|fd|map_files|task)|proc/(?:self|thread-self)\Z|dev/fd(?!/[012]\Z))(?:/|\Z)"
)


@dataclass(frozen=True, slots=True)
class CommandPaths:
    """Finds the files that one command touches. Blocking: it looks where links lead."""

    home: str
    directory: str  # where the command starts, absolute
    _found: dict[tuple[str | None, str | None, Reach], tuple[str, ...]] = field(
        default_factory=dict[tuple[str | None, str | None, Reach], tuple[str, ...]], compare=False, repr=False
    )
    """What was looked up already: every sub-command of a long script may name each word of the text."""

    def of(self, effect: Effect) -> tuple[str, ...]:
        """The absolute path of what is touched, as named and with links resolved; empty if it is not known."""
        key = effect.target, effect.folder, effect.reach
        if key not in self._found:
            self._found[key] = self._look_up(effect)
        return self._found[key]

    def _look_up(self, effect: Effect) -> tuple[str, ...]:
        target = None if effect.target is None else self._absolute(effect.target, effect.folder)
        if target is None or "\0" in target:
            return ()
        if effect.reach is Reach.NAMED and not os.path.lexists(target):
            target = _top_of_repository(os.path.dirname(target))
        elif effect.reach is not Reach.BELOW and TOP_OF_REPOSITORY in target:
            folder, _, path = target.partition(TOP_OF_REPOSITORY)
            target = os.path.join(_top_of_repository(folder or os.sep), path)
        named = os.path.normpath(target)
        if _OF_A_PROCESS.match(named):
            return ()
        try:
            return named, real_path(target)
        except (OSError, ValueError):
            return (named,)

    def folder_of(self, effect: Effect) -> str | None:
        """The folder in which something is touched that is not known itself."""
        folder = self._absolute(effect.beginning, effect.folder) if effect.beginning else None
        return None if folder is None else os.path.normpath(folder)

    def possible(self, effect: Effect) -> tuple[str, ...]:
        """Where something may be of which only the beginning or the end of the path is known."""
        folder = self.folder_of(effect)
        begun = () if folder is None else (folder, os.path.join(folder, "x"))
        return (*begun, os.path.normpath(os.path.join(self.directory, effect.ending))) if effect.ending else begun

    def is_of_a_process(self, effect: Effect) -> bool:
        """Whether a path leads through the files that a process has open."""
        spelled = effect.target or effect.beginning
        if not spelled or (effect.target and effect.reach is Reach.BELOW and len(self.of(effect)) > 1):
            return False  # what was found is not one of these
        absolute = self._absolute(spelled, effect.folder)
        return absolute is not None and _OF_A_PROCESS.match(os.path.normpath(absolute)) is not None

    def _absolute(self, target: str, folder: str | None) -> str | None:
        target = with_home(target, self.home)
        if not os.path.isabs(target):
            if folder is None:
                return None
            target = os.path.join(self.directory, with_home(folder, self.home), target)
        # POSIX lets exactly two slashes in front mean something else; on the systems that we know they mean one.
        return "/" + target.lstrip("/") if target.startswith("//") else target


def repository_stored_at(path: str) -> str | None:
    """The work tree of the repository that keeps contents of files at an absolute path, or in it."""
    parts = path.split(os.sep)
    place = next((at for at, part in enumerate(parts) if folded(part) == REPOSITORY), len(parts))
    behind = parts[place + 1 :]
    is_store = behind[0] not in REPOSITORY_WITHOUT_CONTENTS if behind else place < len(parts) and os.path.isdir(path)
    return (os.sep.join(parts[:place]) or os.sep) if is_store else None


def _top_of_repository(folder: str) -> str:
    """The top of the work tree that a folder is in, links resolved; the folder itself if it is in none."""
    try:
        return work_tree_above(real_path(folder)) or folder
    except (OSError, ValueError):
        return folder


MAX_ENTRIES = 10_000  # entries of a folder that are looked at for one question; it takes some 50 ms
LOOK_SECONDS = 1.0  # how long agent-ignore files are looked for below one folder; a shell command waits for it
_ENTRIES_PER_LOOK = 500  # entries between two looks at the clock
_SOME_FILE = "an agent-ignore file"  # what one is called where it is not known whether there is any
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
