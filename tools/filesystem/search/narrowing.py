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
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property

from tools.filesystem.child import ChildFailedError
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import Filters, LeftOut, Walk
from tools.filesystem.ignore_files import (
    AGENT_IGNORE_FILES,
    GIT_FOLDER,
    MAX_COST_IN_FORCE,
    HiddenBy,
    PresentNames,
    Scope,
    scope_of,
)
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.ripgrep_walk import OwnWalk, RipgrepWalk, tells_what_it_leaves_out
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES, is_huge
from tools.filesystem.temporary_names import is_temporary
from tools.filesystem.workspace import Location, contains

FIRST_SECONDS = 3.0
"""How long a walk without a limit for the size of files may take: it may have come upon a very large one."""

SHARE_OF_TIME = 0.7
"""Of what is left of the budget, so that there is time to look into the files found."""

LARGE_TREE = 1_000
"""Files; a folder with more of them will still be large when it is searched again."""

MAX_REMEMBERED = 1_000
"""Folders remembered; then it begins anew."""

MAX_COST = 5 * MAX_COST_IN_FORCE
"""Rules, and characters of those with wildcards, of all folders together that are judged."""

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


@dataclass(frozen=True, slots=True)
class _Memory:
    """What was learned of folders, with the time.

    Args:
        in_vain: Where nothing could be narrowed.
        with_sizes: Where the sizes of files have to be looked at.
        large: Where there were so many files that it pays to begin at once.
    """

    in_vain: dict[str, float] = field(default_factory=dict[str, float])
    with_sizes: dict[str, float] = field(default_factory=dict[str, float])
    large: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class _Asked:
    """What is to be searched, and how: as for `Narrower.begin`."""

    program: str
    walk: Walk
    folder: Location
    query: Query

    @cached_property
    def key(self) -> str:
        """Under which the folder is remembered."""
        return _key(self.folder, self.walk)


def _key(folder: Location, walk: Walk) -> str:
    return f"{folder.path}\0{walk.filters}"


class Narrower:
    """Narrows searches, and remembers where that did not work or needs more care."""

    def __init__(self) -> None:
        self._memory = _Memory()

    def expects_much(self, walk: Walk, folder: Location) -> bool:
        """Whether the last search of this folder was one of very many files.

        Args:
            walk: Whose filters apply.
            folder: The folder searched.
        """
        return _key(folder, walk) in self._memory.large

    def begin(self, program: str, walk: Walk, folder: Location, query: Query) -> Narrowing | None:
        """Begin to find the files that can match, in a process that runs by itself.

        Args:
            program: Absolute path of ripgrep.
            walk: Whose filters and deadline apply.
            folder: The folder searched.
            query: What to search for.

        Returns:
            To be closed by the caller; `None` if our own walk has to decide.
        """
        asked = _Asked(program, walk, folder, query)
        if time.monotonic() - self._memory.in_vain.get(asked.key, -FORGET_SECONDS) < FORGET_SECONDS:
            return None
        scope = scope_of(walk.workspace, folder, git=walk.filters.git, agent=walk.filters.agent)
        inner = [root for root in walk.workspace.roots if root != folder.path and contains(folder.path, root)]
        # ripgrep knows nothing of those rules; of what it has searched in vain it would not even tell. Of files with
        # such rules further below it is made to tell, and then nothing is narrowed either.
        if inner or scope.agent or scope.forbidden or not tells_what_it_leaves_out(program):
            return None
        return Narrowing(self._memory, asked, replace(scope, agent=None))

    def narrow(self, program: str, walk: Walk, folder: Location, query: Query) -> Narrowed | None:
        """Find the files that can match; as `begin` and `Narrowing.result`."""
        narrowing = self.begin(program, walk, folder, query)
        if narrowing is None:
            return None
        with closing(narrowing):
            return narrowing.result()


class Narrowing:
    """The search of one folder for the files that can match, running.

    Args:
        memory: What is known of folders.
        asked: What is to be searched.
        scope: The rules there, without those for agents.
    """

    def __init__(self, memory: _Memory, asked: _Asked, scope: Scope) -> None:
        self._memory = memory
        self._asked = asked
        self._scope = scope
        self._looks_at_sizes = asked.key in memory.with_sizes
        whole = asked.walk.deadline
        seconds = whole.left * SHARE_OF_TIME
        self._deadline = Deadline(whole.signal, seconds if self._looks_at_sizes else min(seconds, FIRST_SECONDS))
        self._running = self._begun()

    def result(self) -> Narrowed | None:
        """The files, once they are found; `None` if our own walk has to decide. To be asked for once.

        Raises:
            ToolError: `cancelled`.
        """
        found = self._running.found() if self._running else None
        if not self._looks_at_sizes and (self._deadline.is_over or (found and found.size > MAX_FILE_BYTES)):
            # It has read so much that a file may have been too large. To look at each size takes a fifth longer.
            _remember(self._memory.with_sizes, self._asked.key)
            self.close()
            self._looks_at_sizes = True
            whole = self._asked.walk.deadline
            self._deadline = Deadline(whole.signal, whole.left * SHARE_OF_TIME)
            self._running = self._begun()
            found = self._running.found() if self._running else None
        judge = _Judge(self._asked.walk.filters, self._asked.folder, self._scope, self._asked.walk.deadline)
        narrowed = judge.judged(found) if found else None
        if narrowed is None:
            _remember(self._memory.in_vain, self._asked.key)
        elif narrowed.searched > LARGE_TREE:
            _remember(self._memory.large, self._asked.key)
        else:
            self._memory.large.pop(self._asked.key, None)
        return narrowed

    def close(self) -> None:
        """End it, wherever it is."""
        if self._running:
            self._running.close()

    def _begun(self) -> RipgrepWalk | None:
        asked = self._asked
        options = [] if asked.walk.filters.git else ["--no-ignore-vcs"]
        # Folders of such a name, but also files: of those it turns out when they are judged.
        options += [f"--glob=!{name}" for name in sorted(asked.walk.filters.folders | {GIT_FOLDER})]
        options += [f"--glob=!{name}" for name in AGENT_IGNORE_FILES if asked.walk.filters.agent]
        options += [f"--max-filesize={MAX_FILE_BYTES}"] if self._looks_at_sizes else []
        try:
            return RipgrepWalk(asked.program, asked.folder.path, options, asked.query, self._deadline)
        except (OSError, ChildFailedError):
            return None


def _remember(keys: dict[str, float], key: str) -> None:
    if len(keys) >= MAX_REMEMBERED:
        keys.clear()
    keys[key] = time.monotonic()


class _Judge:
    """Tells of single paths what our walk would have made of them.

    Args:
        filters: What it leaves out.
        folder: Where it begins.
        scope: The rules there, without those for agents.
        deadline: Looked at before each folder whose rules are read.
    """

    def __init__(self, filters: Filters, folder: Location, scope: Scope, deadline: Deadline) -> None:
        self._filters = filters
        self._deadline = deadline
        self._cost = 0
        self._folder = os.path.join(folder.path, "")
        self._scopes: dict[str, Scope | None] = {"": scope}
        self._hidden: Counter[HiddenBy] = Counter()
        self._excluded: Counter[str] = Counter()

    def judged(self, found: OwnWalk) -> Narrowed | None:
        """What was found, if our walk agrees with it and there was time to see that.

        Raises:
            ToolError: `cancelled`.
        """
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
        if self._filters.agent and name in AGENT_IGNORE_FILES:
            return False  # it may hide what ripgrep has searched
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
            if scope is not None:
                scope = self._entered(scope, below[:-1], below[len(prefix) : -1])
            self._scopes[below] = scope
            prefix = below
        return scope

    def _entered(self, scope: Scope, path: str, name: str) -> Scope | None:
        """The rules in a folder; all are held at once, so there must not be too many of them, nor too little time."""
        if self._cost > MAX_COST or self._deadline.check():
            return None
        if name in self._filters.folders or scope.hides(name, is_folder=True):
            return None
        folder = self._folder + path
        entered = scope.enter(folder, PresentNames(folder) if self._filters.git else ())
        if entered.git and entered.git is not scope.git:
            self._cost += entered.git[-1].rules.cost
        return entered
