"""The folder walk of searches: which files it finds, which it leaves out, and how it reports omissions."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Protocol

from tools.contract.call_options import Deadline
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.ignore_files import HiddenBy, IgnoreScope, is_hidden_target, names_of_ignore_files, scope_of
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace
from tools.text.file_names import shown_whole_path

# Folders of third-party code or version control data, which searches skip (as in Qwen Code and Gemini CLI)
DEFAULT_EXCLUDED_FOLDERS = frozenset({"node_modules", ".git", "bower_components", ".svn", ".hg"})
CHECK_EVERY = 500  # how many entries of one folder are processed between checks for timeout and cancellation
# Maximum number of symlinks to folders that one walk follows, because a pattern may name symlinks that form loops
MAX_LINKED = 100
_TOO_MANY_LINKS = f"PARTIAL RESULT: only {MAX_LINKED} symlinks to folders were followed."
MAX_REFUSALS = 3  # maximum number of skipped folders and symlinks for which the result gives the reason


class Selection(Protocol):
    """The files that a walk is looking for, as seen from one folder."""

    # The wanted files of this folder
    def select(self, names: list[str], /) -> list[str]: ...

    # The selection in a subfolder; `None` if nothing in it is wanted
    def enter(self, name: str, /) -> Selection | None: ...

    # Like `enter`, for a symlink to a folder, which is followed only if the pattern names it
    def enter_link(self, name: str, /) -> Selection | None: ...


class Everything:
    def select(self, names: list[str], /) -> list[str]:
        return names

    def enter(self, _name: str, /) -> Selection | None:
        return self

    def enter_link(self, _name: str, /) -> Selection | None:
        return None


class Exclusion(Protocol):
    """The entries to leave out, as seen from one folder."""

    # The excluded files of this folder
    def select(self, names: list[str], /) -> list[str]: ...

    # Whether a folder and all its contents are excluded
    def covers(self, name: str, /) -> bool: ...

    # The exclusion in a subfolder; `None` if nothing more is excluded
    def enter(self, name: str, /) -> Exclusion | None: ...


@dataclass(frozen=True, slots=True)
class ReducedSelection:
    selection: Selection
    exclusion: Exclusion

    def select(self, names: list[str]) -> list[str]:
        selected_names = self.selection.select(names)
        excluded_names = frozenset(self.exclusion.select(selected_names))
        return [name for name in selected_names if name not in excluded_names] if excluded_names else selected_names

    def enter(self, name: str) -> Selection | None:
        return self._subselection(name, self.selection.enter(name))

    def enter_link(self, name: str) -> Selection | None:
        return self._subselection(name, self.selection.enter_link(name))

    def _subselection(self, name: str, inside: Selection | None) -> Selection | None:
        inside = None if self.exclusion.covers(name) else inside
        exclusion = self.exclusion.enter(name)
        return ReducedSelection(inside, exclusion) if inside is not None and exclusion is not None else inside


@dataclass(frozen=True, slots=True)
class Filters:
    git: bool = True  # whether git's ignore rules apply
    agent: bool = True  # whether agent-ignore files apply
    folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS  # names of folders that are always skipped
    links: bool = False  # whether symlinks to files are also returned
    stats: bool = False  # whether to stat each file, which doubles the time of the walk


class WalkEntry(NamedTuple):
    path: str  # relative to the starting folder, with forward slashes
    is_link: bool  # whether the entry is a symlink (see `Filters.links`), not a regular file
    info: os.stat_result | None  # `None` without `Filters.stats`, or if the entry is gone


@dataclass(slots=True)
class Walk:
    """One or more walks with a common time budget, and what they left out."""

    workspace: Workspace
    filters: Filters
    deadline: Deadline  # the time budget; `timed_out` says whether it was exceeded
    # How many wanted files and folders each kind of rule hides; permission rules count as `AGENT`
    hidden_counts: Counter[HiddenBy] = field(default_factory=Counter[HiddenBy])
    # How many folders with each name were skipped because of that name
    folders_excluded: Counter[str] = field(default_factory=Counter[str])
    unreadable: int = 0  # how many folders could not be read
    # Why some folders were skipped (agent-ignore files that are not understood) and some symlinks not followed
    refusals: list[str] = field(default_factory=list[str])
    timed_out: bool = False
    has_passed_links: bool = False  # whether skipped symlinks may lead to wanted files
    # Targets of symlinks that the selection names, each with the selection that applies in it
    _link_targets: list[tuple[Location, Selection]] = field(default_factory=list[tuple[Location, Selection]])

    def through_links(self, start: Location, selection: Selection) -> Iterator[tuple[Location, Selection]]:
        """Yield a folder to walk, then the targets of symlinks that the walks find and that the selection names.

        Each folder comes with its selection. Request the next folder only after the walk of the previous one is
        complete. Loops are detected.
        """
        pending = deque([(start, selection)])
        seen = {(start.path, selection)}
        while pending:
            yield pending.popleft()
            for target, target_selection in self._link_targets:
                if (target.path, target_selection) in seen:
                    continue
                if len(seen) > MAX_LINKED:
                    if _TOO_MANY_LINKS not in self.refusals:
                        self.refusals.append(_TOO_MANY_LINKS)
                    break
                seen.add((target.path, target_selection))
                pending.append((target, target_selection))
            self._link_targets.clear()

    def files(self, start: Location, selection: Selection, other_roots: Sequence[str] = ()) -> Iterator[WalkEntry]:
        """Walk a folder. Folders come sorted by name, and the files of each folder in any order.

        The starting folder is walked even if it is ignored, because the call named it. `other_roots` are roots that
        have their own walk and are skipped here. An `OSError` is raised only for the starting folder; other folders
        that cannot be read are counted in `unreadable`.
        """
        filters, stats = self.filters, self.filters.stats
        top_scope = scope_of(self.workspace, start, git=filters.git, agent=filters.agent)
        skipped_roots = frozenset(other_roots) - {start.path}
        # Folders to walk: path, relative path, the parent's rules, and the selection.
        pending = [(start.path, "", top_scope, selection)]
        while pending and not self.is_out_of_time():
            path, prefix, scope, folder_selection = pending.pop()
            entries: list[WalkEntry] = []
            try:
                with self.workspace.open_folder(path) as folder:
                    files, folders, links, _, dot_names = folder.entries()
                    if prefix:
                        scope = scope_below(self.workspace, filters, scope, path, names_of_ignore_files(dot_names))
                    for name in links:
                        if (link_selection := folder_selection.enter_link(name)) is not None:
                            folder_name = os.path.join(start.name, prefix.replace("/", os.sep))
                            self._follow(scope, name, folder_name, link_selection)
                        elif not self.has_passed_links:
                            self.has_passed_links = folder_selection.enter(name) is not None
                    for names, are_links in ((files, False), (links if filters.links else [], True)):
                        visible = self._visible_names(names, folder_selection, scope) if names else names
                        entries += [
                            WalkEntry(prefix + name, are_links, folder.stat(name) if stats else None)
                            for name in visible
                        ]
            except (OSError, ToolError) as error:
                if prefix and isinstance(error, ToolError) and error.code is ToolErrorType.PATH_IGNORED:
                    # It is unknown which files are hidden in this folder.
                    self.hidden_counts[HiddenBy.AGENT] += 1
                    if len(self.refusals) < MAX_REFUSALS:
                        self.refusals.append(error.message)
                elif prefix and isinstance(error, OSError | PathNotInWorkspaceError):
                    self.unreadable += 1
                else:
                    raise
                continue
            base = os.path.join(path, "")
            if skipped_roots:
                folders = [name for name in folders if base + name not in skipped_roots]
            pending += self._subfolders(folders, base, prefix, scope, folder_selection)
            yield from entries

    def _subfolders(
        self, folders: list[str], base: str, prefix: str, scope: IgnoreScope, selection: Selection
    ) -> list[tuple[str, str, IgnoreScope, Selection]]:
        """Return the subfolders to walk, in reverse order."""
        subfolders: list[tuple[str, str, IgnoreScope, Selection]] = []
        for batch in self._batches(folders):
            subselections = {name: inside for name in batch if (inside := selection.enter(name)) is not None}
            excluded_names = self.filters.folders.intersection(subselections)
            self.folders_excluded.update(excluded_names)
            other_names = [name for name in subselections if name not in excluded_names]
            hidden_names = scope.hidden_among(other_names, is_folder=True)
            self.hidden_counts.update(hidden_names.values())
            subfolders += (
                (base + name, f"{prefix}{name}/", scope, subselections[name])
                for name in other_names
                if name not in hidden_names
            )
        subfolders.sort(key=lambda folder: folder[1], reverse=True)
        return subfolders

    def _follow(self, scope: IgnoreScope, name: str, folder: str, link_selection: Selection) -> None:
        """Remember the target of a symlink if it is a visible folder."""
        hidden_by = scope.hides(name, is_folder=True)
        try:
            target = self.workspace.locate(os.path.join(folder, name))
        except PathNotInWorkspaceError:
            if hidden_by is None and len(self.refusals) < MAX_REFUSALS:
                path = shown_whole_path(os.path.join(folder, name))
                self.refusals.append(f"The symlink {path} was not followed, because it leads outside the workspace.")
            return
        except ToolError:
            return
        if self.workspace.kind_of(target) is PathKind.FOLDER:
            if hidden_by is None and is_hidden_target(self.workspace, target, agent=self.filters.agent):
                hidden_by = HiddenBy.AGENT
            if hidden_by is None:
                self._link_targets.append((target, link_selection))
            else:
                self.hidden_counts[hidden_by] += 1

    def names_below(self, folder: Location) -> Callable[[str], bool]:
        """Return a function that tells whether a path relative to a folder exists. It returns False once time is up."""
        # A pattern may need a great many checks, and symlinks make each one slow.
        return lambda path: not self.deadline.check() and self.workspace.has(folder, path)

    def is_out_of_time(self) -> bool:
        """Return True if the budget is used up. Also sets `timed_out`, because something may be left out."""
        self.timed_out = self.timed_out or self.deadline.check()
        return self.timed_out

    def _visible_names(self, names: list[str], selection: Selection, scope: IgnoreScope) -> list[str]:
        visible: list[str] = []
        for batch in self._batches(names):
            selected_names = selection.select(batch)
            hidden_names = scope.hidden_among(selected_names, is_folder=False)
            self.hidden_counts.update(hidden_names.values())
            visible += [name for name in selected_names if name not in hidden_names] if hidden_names else selected_names
        return visible

    def _batches(self, names: list[str]) -> Iterator[list[str]]:
        """Yield names in batches, until the time is up."""
        for start in range(0, len(names), CHECK_EVERY):
            if start and self.is_out_of_time():
                return
            yield names[start : start + CHECK_EVERY] if len(names) > CHECK_EVERY else names


def excluded_folders(
    starts: Sequence[Location], literal_names: frozenset[str], folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS
) -> frozenset[str]:
    """Return the folders to skip by default, except those in the call's pattern or in its starting paths."""
    return folders - {part for start in starts for part in start.relative.split("/")} - literal_names


def scope_below(
    workspace: Workspace, filters: Filters, parent_scope: IgnoreScope, folder: str, names: Container[str]
) -> IgnoreScope:
    """Return the rules that apply in a subfolder. A nested root has its own agent-ignore files."""
    if folder in workspace.roots:
        return scope_of(workspace, workspace.locate(folder), git=filters.git, agent=filters.agent)
    return parent_scope.enter(folder, names)


def visible_kind(workspace: Workspace, path: str, *, agent: bool = True, within: str | None = None) -> PathKind | None:
    """Return the kind of the entry that a path leads to through symlinks; `None` if it is hidden or not accessible."""
    try:
        location = workspace.locate(path, within=within)
    except ToolError:
        return None
    kind = workspace.kind_of(location)
    return None if kind is None or is_hidden_target(workspace, location, agent=agent) else kind


MAX_TEXT_BYTES = 7_800  # text sent with structured content stays below 8 kB; this leaves room for the last lines


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 item`, `2 items`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def hidden_note(counts: Mapping[HiddenBy, int]) -> str:
    """Return, for example, `2 git-ignored, 1 hidden from agents`, or an empty string."""
    words = {HiddenBy.GIT: "git-ignored", HiddenBy.AGENT: "hidden from agents"}
    return ", ".join(f"{counts[by]:,} {words[by]}" for by in HiddenBy if counts.get(by))


def walk_notes(walk: Walk) -> list[str]:
    """Return sentences that say what a walk left out."""
    notes: list[str] = []
    if hidden_summary := hidden_note(walk.hidden_counts):
        notes.append(f"Omitted because of ignore files or rules: {hidden_summary}.")
    notes += walk.refusals
    folder_names = sorted(name for name in walk.folders_excluded if name != ".git")
    if folder_names:
        notes.append(f"Folders skipped by default: {', '.join(folder_names)}.")
    if walk.unreadable:
        notes.append(f"{count(walk.unreadable, 'folder')} could not be read.")
    if walk.timed_out:
        notes.append(
            f"PARTIAL RESULT: the time limit of {walk.deadline.seconds:g} s was reached before all folders were "
            "searched. Set path to a folder, or give a narrower pattern."
        )
    return notes


def list_page(
    head: Sequence[str], lines: Sequence[str], offset: int, total: int, noun: str
) -> tuple[list[str], int, int | None]:
    """Return a page of a list: as many lines as fit into `MAX_TEXT_BYTES`, but at least one.

    Returns the text's lines, the number of entries among them, and the offset of the next page, if any.
    """
    sizes = accumulate(len(line.encode("utf-8", "replace")) + 1 for line in (*head, *lines))
    fitting_count = sum(size <= MAX_TEXT_BYTES for size in sizes) - len(head)
    shown_count = min(len(lines), max(1, fitting_count))
    text = [*head, *lines[:shown_count]]
    if total and not shown_count:
        text.append(f"(offset {offset} is past the end)")
    end = offset + shown_count
    if end >= total:
        return text, shown_count, None
    text += ["---", f"[{count(total - end, f'more {noun}')} not shown; continue with offset={end}]"]
    return text, shown_count, end
