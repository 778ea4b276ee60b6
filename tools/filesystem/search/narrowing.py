"""The few files of a large tree that can match, found by ripgrep on its own walk.

ripgrep reads ignore files in its own way, and what is hidden has one meaning here: ours. So its walk counts only if it
agrees with ours on everything that it left out and on everything that it found; both are judged by our rules, which
needs no walk. Where they differ, or it is not certain, nothing is narrowed and our own walk decides.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from dataclasses import dataclass

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import Filters, LeftOut, Walk
from tools.filesystem.ignore import GIT_FOLDER, HiddenBy, PresentNames, Scope, scope_of
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.ripgrep_walk import OwnWalk, tells_what_it_leaves_out, walk_with_ripgrep
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES, is_huge
from tools.filesystem.temporary_names import is_temporary
from tools.filesystem.workspace import Location, contains

FIRST_SECONDS = 3.0
"""How long a walk without a limit for the size of files may take: it may have come upon a very large one."""

SHARE_OF_TIME = 0.7
"""Of what is left of the budget, so that there is time to look into the files found."""

MAX_REMEMBERED = 1_000
"""Folders remembered; then it begins anew."""

FORGET_SECONDS = 300.0
"""How long a folder where nothing could be narrowed is left alone."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The files that can match.

    Args:
        paths: Below the folder searched, in no order.
        searched: How many files were searched for that.
        huge: How many were too large.
        left_out: What was not gone into.
    """

    paths: list[str]
    searched: int
    huge: int
    left_out: LeftOut


class Narrower:
    """Narrows searches, and remembers where that did not work or needs more care."""

    def __init__(self) -> None:
        self._in_vain: dict[str, float] = {}
        self._with_sizes: dict[str, float] = {}

    def narrow(self, program: str, walk: Walk, folder: Location, query: Query) -> Narrowed | None:
        """Find the files that can match.

        Args:
            program: Absolute path of ripgrep.
            walk: Whose filters and deadline apply.
            folder: The folder searched.
            query: What to search for.

        Returns:
            The files; `None` if our own walk has to decide.

        Raises:
            ToolError: `cancelled`.
        """
        key = f"{folder.path}\0{walk.filters}"
        if time.monotonic() - self._in_vain.get(key, -FORGET_SECONDS) < FORGET_SECONDS:
            return None
        scope = scope_of(folder, git=walk.filters.git, agent=walk.filters.agent)
        inner = [root for root in walk.workspace.roots if root != folder.path and contains(folder.path, root)]
        if inner or scope.agent or not tells_what_it_leaves_out(program):
            return None
        found = self._walked(program, walk, folder, query, key)
        narrowed = _Judge(walk.filters, folder, scope).judged(found) if found else None
        if narrowed is None:
            _remember(self._in_vain, key)
        return narrowed

    def _walked(self, program: str, walk: Walk, folder: Location, query: Query, key: str) -> OwnWalk | None:
        options = [] if walk.filters.git else ["--no-ignore-vcs"]
        # Folders of such a name, but also files: of those it turns out when they are judged.
        options += [f"--glob=!{name}" for name in sorted(walk.filters.folders | {GIT_FOLDER})]
        whole = walk.deadline
        if key not in self._with_sizes:
            first = Deadline(whole.signal, min(whole.left * SHARE_OF_TIME, FIRST_SECONDS))
            found = walk_with_ripgrep(program, folder.path, options, query, first)
            if not first.is_over and (found is None or found.size <= MAX_FILE_BYTES):
                return found
            # It has read so much that a file may have been too large. To look at each size takes a fifth longer.
            _remember(self._with_sizes, key)
        options.append(f"--max-filesize={MAX_FILE_BYTES}")
        second = Deadline(whole.signal, whole.left * SHARE_OF_TIME)
        return walk_with_ripgrep(program, folder.path, options, query, second)


def _remember(keys: dict[str, float], key: str) -> None:
    if len(keys) >= MAX_REMEMBERED:
        keys.clear()
    keys[key] = time.monotonic()


class _Judge:
    """Tells of single paths what our walk would have made of them.

    Args:
        filters: What it leaves out.
        folder: Where it begins.
        scope: The rules there.
    """

    def __init__(self, filters: Filters, folder: Location, scope: Scope) -> None:
        self._filters = filters
        self._folder = os.path.join(folder.path, "")
        self._scopes: dict[str, Scope | None] = {"": scope}
        self._hidden: Counter[HiddenBy] = Counter()
        self._excluded: Counter[str] = Counter()

    def judged(self, found: OwnWalk) -> Narrowed | None:
        """What was found, if our walk agrees with it."""
        if not all(map(self._is_left_out, found.left_out)) or not all(map(self._is_shown, found.matching)):
            return None
        paths = [path for path in found.matching if not is_huge(self._folder + path)]
        late = len(found.matching) - len(paths)
        huge = late + sum(map(self._is_shown, found.too_large))
        return Narrowed(paths, found.searched - late, huge, LeftOut(self._hidden, self._excluded, 0))

    def _looked_at(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self._folder + path)
        except OSError:
            return None

    def _is_left_out(self, path: str) -> bool:
        """Whether our walk leaves a file or folder out too; it is counted as it would have been."""
        above, name = self._placed(path)
        info = self._looked_at(path)
        if above is None or info is None:
            return False  # ripgrep should not have come so far, or things are changing
        is_folder = stat.S_ISDIR(info.st_mode)
        if not is_folder and not stat.S_ISREG(info.st_mode):
            return True  # a link, a pipe: nothing that is searched
        if is_folder and name in self._filters.folders:
            self._excluded[name] += 1
            return True
        hidden_by = above.hides(name, is_folder=is_folder)
        if hidden_by is not None:
            self._hidden[hidden_by] += 1
        return hidden_by is not None

    def _is_shown(self, path: str) -> bool:
        above, name = self._placed(path)
        return above is not None and not is_temporary(name) and above.hides(name, is_folder=False) is None

    def _placed(self, path: str) -> tuple[Scope | None, str]:
        prefix, slash, name = path.rpartition("/")
        return self._scope(prefix + slash), name

    def _scope(self, prefix: str) -> Scope | None:
        """The rules in a folder; `None` if we do not enter it."""
        waiting: list[str] = []
        while prefix not in self._scopes:
            waiting.append(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
        scope = self._scopes[prefix]
        for below in reversed(waiting):
            name = below[len(prefix) : -1]
            if scope is not None:
                is_entered = name not in self._filters.folders and not scope.hides(name, is_folder=True)
                folder = self._folder + below[:-1]
                scope = scope.enter(folder, PresentNames(folder) if self._filters.git else ()) if is_entered else None
            self._scopes[below] = scope
            prefix = below
        return scope
