"""Suggests what a missing path was meant to be: other readings of the path, and files with similar names.

Files with similar names come from a walk, and from the folder of the missing path. Paths that are forbidden, hidden
from agents or outside the workspace are never suggested. The time is limited, however large the workspace is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

from tools.contract.limits import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.find.path_completion import entries_that_start_with
from tools.files.ignore_files import is_hidden_target
from tools.files.path_opener import PathKind, may_block
from tools.files.workspace import Location, Workspace, contains
from tools.text.file_names import exact_path, shown_whole_path, visible_form

NEAR_SECONDS = 0.2  # time to search for similar names; enough for about ten thousand files
MAX_PROPOSED = 3
MIN_LIKENESS = 0.7  # minimum similarity of two names; equal names have 1
_CHECK_EVERY = 200  # how many names are compared between checks of the clock
# Text that often surrounds paths, and its replacement
_MARKS = (
    (re.compile(r"""^[`'"<\u2018\u201c]*@?|[`'">\u2019\u201d,;.]+$"""), ""),
    (re.compile(r"\\"), "/"),
    (re.compile(r"(?:[:#]L?\d+(?:[-:,]L?\d+)*|\(\d+(?:,\s*\d+)?\))$"), ""),  # a position in the file: `:12:5`, `#L3-L7`
    (re.compile(r"^(?:file://(?:localhost)?|[ab]/(?=.))", re.IGNORECASE), ""),  # prefix of a URI or a diff
)


def not_there(
    workspace: Workspace,
    location: Location,
    signal: AbortSignal,
    *,
    folders: bool = False,  # whether folders are suggested too
    so: str = "",  # the consequence, after a comma
    advice: str = "",  # a last sentence, after a space
    code: ToolErrorType = ToolErrorType.FILE_NOT_FOUND,
) -> ToolError:
    """Return the error for a missing path, with suggestions."""
    meant = proposal(workspace, location, Deadline(signal, NEAR_SECONDS), folders=folders)
    return ToolError(code, f"'{location.shown}' does not exist{so}.{meant}{advice}")


def proposal(
    workspace: Workspace,
    location: Location,
    deadline: Deadline,
    *,
    folders: bool = False,
    otherwise: str = " Use list_directory or glob to see what is there.",
) -> str:
    """Return a sentence, preceded by a space, that suggests other paths in place of a missing one."""
    may_block()
    if note := workspace.note_of_absent(location):
        return note
    found = readings(workspace, location)
    if not found:
        meant = location
        for text in _without_marks(location.spelled):
            with suppress(ToolError):
                meant = workspace.locate(text)
        found = _nearest(workspace, meant, deadline, folders)
    if not found:
        return otherwise
    is_relative = not os.path.isabs(location.spelled)
    names: list[str] = []
    for near in found:
        name = near.relative if is_relative and near.root == workspace.first_root else near.name
        names.append(f"'{shown_whole_path(name) if visible_form(name) == name else exact_path(name)}'")
    return f" Did you mean {' or '.join(names)}?"


def readings(workspace: Workspace, location: Location, *, is_new: bool = False) -> list[Location]:
    """Return existing paths that a missing path may mean.

    Extra text that people or models add, such as quotes, is removed. If the resulting path does not exist either, the
    paths that look the same are returned. If `is_new` is true, diff prefixes are kept, because a new file may be in a
    folder named `a` or `b`.
    """
    for text in _without_marks(location.spelled, _MARKS[:-1] if is_new else _MARKS):
        try:
            meant = workspace.locate(text, by_look=True)
        except ToolError:
            continue
        if workspace.kind_of(meant) is not None and not is_hidden_target(workspace, meant, agent=True):
            return [meant]
    # Reads accept a single look-alike, so only changes, and paths with several look-alikes, get here.
    alike = [workspace.at(path) for path in workspace.look_alikes(location.path)[:MAX_PROPOSED]]
    return [each for each in alike if not is_hidden_target(workspace, each, agent=True)]


def _without_marks(spelled: str, marks: Sequence[tuple[re.Pattern[str], str]] = _MARKS) -> Iterator[str]:
    text = spelled.strip()
    for pattern, instead in marks:
        changed = pattern.sub(instead, text)
        if changed != text and changed.strip():
            text = changed
            yield text
    if unquote(text) != text:
        yield unquote(text)


def _nearest(workspace: Workspace, location: Location, deadline: Deadline, folders: bool) -> list[Location]:
    """Find files with the most similar names in the same folder or elsewhere in the root.

    If there are none and the folder is missing too, find folders with names similar to the missing folder's name.
    """
    absent, above = location.path, os.path.dirname(location.path)
    while contains(location.root, above) and workspace.kind_of(workspace.at(above)) is not PathKind.FOLDER:
        absent, above = above, os.path.dirname(above)
    if not contains(location.root, above) or deadline.check():
        return []
    top = workspace.at(location.root)
    filters = Filters(git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    ranking = _Ranking(location.relative)

    def candidates() -> Iterator[str]:
        beside = workspace.at(above)
        prefix = "" if above == location.root else f"{beside.relative}/"
        for name in entries_that_start_with(workspace, beside, "", None, deadline.signal).names:
            if folders or not name.endswith("/"):
                yield prefix + name.removesuffix("/")
        known: set[str] = set()
        for found in Walk(workspace, filters, deadline).files(top, Everything(), workspace.roots):
            yield found.path
            folder = found.path.rpartition("/")[0]
            while folders and folder and folder not in known:
                known.add(folder)
                yield folder
                folder = folder.rpartition("/")[0]

    try:
        for number, path in enumerate(candidates()):
            if number % _CHECK_EVERY == 0 and deadline.check():
                break
            ranking.add(path)
    except (OSError, ToolError) as error:
        if isinstance(error, ToolError) and error.code is ToolErrorType.CANCELLED:
            raise
    if not ranking.best and absent != location.path:
        return _nearest(workspace, workspace.at(absent), deadline, True)
    return [workspace.below(top, path) for path in ranking.best]


class _Ranking:
    """Ranks paths relative to the root by their similarity to the wanted path."""

    def __init__(self, wanted: str) -> None:
        import difflib  # noqa: PLC0415 - rarely needed

        self._folder, _, self._name = _key(wanted).rpartition("/")
        self._stem, self._suffix = os.path.splitext(self._name)
        self._matcher = difflib.SequenceMatcher(None, b=self._stem, autojunk=False)
        self._likeness: dict[str, float] = {}
        self._rated: dict[str, float] = {}

    def add(self, path: str) -> None:
        folder, _, name = _key(path).rpartition("/")
        if name not in self._likeness:
            self._likeness[name] = self._likeness_of(name)
        likeness = self._likeness[name]
        if likeness < MIN_LIKENESS:
            return
        # The wanted folder is best, followed by a folder whose path ends with the wanted folder's path, or the reverse.
        long, short = sorted((f"/{folder}", f"/{self._folder}" if self._folder else ""), key=len, reverse=True)
        if folder == self._folder:
            likeness += 0.3
        elif long.endswith(short):
            likeness += max(0.1, 0.25 - 0.01 * long.count("/"))
        self._rated[path] = likeness

    @property
    def best(self) -> list[str]:
        """Return the best path and a few others that are nearly as good."""
        ranked = sorted(self._rated, key=lambda path: (-self._rated[path], path))[:MAX_PROPOSED]
        return [path for path in ranked if self._rated[path] > self._rated[ranked[0]] - 0.1]

    def _likeness_of(self, name: str) -> float:
        """Return the similarity of a name to the wanted name, from 0 to 1."""
        stem, suffix = os.path.splitext(name)
        if stem == self._stem:
            return 1 if suffix == self._suffix else 0.95
        self._matcher.set_seq1(stem)
        if self._matcher.real_quick_ratio() < MIN_LIKENESS or self._matcher.quick_ratio() < MIN_LIKENESS:
            return 0
        return 0.9 * self._matcher.ratio() + 0.1 * (suffix == self._suffix)


def _key(path: str) -> str:
    return visible_form(path).casefold()
