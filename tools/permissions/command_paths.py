"""Where the paths of a shell command lead: which files its words mean, through which links."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from tools.files.opener import real_path
from tools.permissions.auto_run_files import REPOSITORY, REPOSITORY_WITHOUT_CONTENTS, folded
from tools.permissions.shell.command_analysis import Effect
from tools.permissions.shell.knowledge.program_files import TOP_OF_REPOSITORY, Reach
from tools.permissions.shell.names_on_disk import with_home

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


def work_tree_above(folder: str) -> str | None:
    """The top of the work tree that an absolute folder is in, as git finds it; `None` if it is in none."""
    while not os.path.lexists(os.path.join(folder, REPOSITORY)):
        if (above := os.path.dirname(folder)) == folder:
            return None
        folder = above
    return folder


def _top_of_repository(folder: str) -> str:
    """The top of the work tree that a folder is in, links resolved; the folder itself if it is in none."""
    try:
        return work_tree_above(real_path(folder)) or folder
    except (OSError, ValueError):
        return folder
