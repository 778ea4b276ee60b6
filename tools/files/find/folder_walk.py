"""The one walk through folders: what is wanted in them, what is left out, and how results say that."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tools.contract.limits import Deadline
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.ignore_files import HiddenBy, IgnoreScope, is_hidden_target, names_of_ignore_files, scope_of
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace
from tools.text.file_names import shown_whole_path

# Folders of other people's code and of version control that searches leave out (the five of Qwen Code and Gemini CLI)
DEFAULT_EXCLUDED_FOLDERS = frozenset({"node_modules", ".git", "bower_components", ".svn", ".hg"})
CHECK_EVERY = 500  # entries of one folder between two looks at the clock and the signal
MAX_LINKED = 100  # links that one walk follows to a folder; a pattern may name many that lead in circles
MAX_REFUSALS = 3  # folders for which the result says why nothing in them is read


class Selection(Protocol):
    """What a walk is looking for, as seen from one folder."""

    # Those files of this folder that are wanted
    def chosen(self, names: list[str]) -> list[str]: ...

    # What is wanted in a folder below, or `None` if nothing in it is
    def enter(self, name: str) -> Selection | None: ...

    # The same for a link to a folder, which is followed only where its name is asked for
    def linked(self, name: str) -> Selection | None: ...


class Everything:
    def chosen(self, names: list[str]) -> list[str]:
        return names

    def enter(self, name: str) -> Selection | None:
        del name
        return self

    def linked(self, name: str) -> Selection | None:
        del name
        return None


class Exclusion(Protocol):
    """What is left out, as seen from one folder: `tools.files.find.glob_patterns.Position` is one."""

    # Those files of this folder that are excluded
    def chosen(self, names: list[str]) -> list[str]: ...

    # Whether a folder is excluded with all that is in it
    def covers(self, name: str) -> bool: ...

    # The exclusion in a folder below, `None` where nothing is excluded any more
    def enter(self, name: str) -> Exclusion | None: ...


@dataclass(frozen=True, slots=True)
class Without:
    """What one selection wants and an exclusion does not cover."""

    wanted: Selection
    excluded: Exclusion

    def chosen(self, names: list[str]) -> list[str]:
        wanted = self.wanted.chosen(names)
        excluded = frozenset(self.excluded.chosen(wanted))
        return [name for name in wanted if name not in excluded] if excluded else wanted

    def enter(self, name: str) -> Selection | None:
        return self._below(name, self.wanted.enter(name))

    def linked(self, name: str) -> Selection | None:
        return self._below(name, self.wanted.linked(name))

    def _below(self, name: str, wanted: Selection | None) -> Selection | None:
        wanted = None if self.excluded.covers(name) else wanted
        excluded = self.excluded.enter(name)
        return Without(wanted, excluded) if wanted is not None and excluded is not None else wanted


@dataclass(frozen=True, slots=True)
class Filters:
    git: bool = True  # whether the rules of git apply
    agent: bool = True  # whether the agent-ignore files apply
    folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS  # names of folders that are never entered
    links: bool = False  # whether links to files are given out as well
    stats: bool = False  # whether the stat of each file is asked for; it costs as much as the walk


class Found(NamedTuple):
    path: str  # below the folder that the walk started from, with forward slashes
    is_link: bool  # whether it is a link, where links are asked for; otherwise a regular file
    info: os.stat_result | None  # its stat where that is asked for; `None` also if it has gone meanwhile


@dataclass(slots=True)
class Walk:
    """One or more walks with one time budget; afterwards, what they left out."""

    workspace: Workspace
    filters: Filters
    deadline: Deadline  # the budget; `timed_out` tells that it did not suffice
    # Files that were wanted, and folders, that ignore files hide
    hidden: Counter[HiddenBy] = field(default_factory=Counter[HiddenBy])
    # Names of folders that were not entered because of their name, with their number
    folders_excluded: Counter[str] = field(default_factory=Counter[str])
    unreadable: int = 0  # folders that could not be read
    # Why nothing is read in a folder whose agent-ignore file is not understood, or a link is not followed, for the
    # first of them
    refusals: list[str] = field(default_factory=list[str])
    timed_out: bool = False
    has_passed_links: bool = False  # whether there were links that may lead to what was wanted
    # Folders that links lead to which the selection asks for, and what is wanted in them
    _linked: list[tuple[Location, Selection]] = field(default_factory=list[tuple[Location, Selection]])

    def through_links(self, start: Location, selection: Selection) -> Iterator[tuple[Location, Selection]]:
        """A folder to walk, and as walks of them come by links that are asked for by name, what these lead to.

        Each comes with what is wanted in it, and the walks of it are over when the next one is asked for. A circle
        leads to nothing new.
        """
        ahead = dict.fromkeys([(start, selection)])
        known = {(start.path, selection)}
        while ahead:
            folder, wanted = next(iter(ahead))
            del ahead[folder, wanted]
            yield folder, wanted
            for target, inside in self._linked:
                if (target.path, inside) in known:
                    continue
                if len(known) > MAX_LINKED:
                    self.refusals.append(f"PARTIAL RESULT: only {MAX_LINKED} links to folders were followed.")
                    return
                known.add((target.path, inside))
                ahead[target, inside] = None
            self._linked.clear()

    def files(self, start: Location, selection: Selection, others: Sequence[str] = ()) -> Iterator[Found]:
        """Walk a folder; files come folder by folder, these in the order of their names, in no order within one.

        The folder is walked even if ignore files hide it, since somebody named it; `others` are roots with a walk of
        their own, not entered by this one. An `OSError` is about the folder itself: those below count as `unreadable`.
        """
        filters = self.filters
        is_file, is_folder, is_link = PathKind.FILE, PathKind.FOLDER, PathKind.LINK  # compared with each entry
        top = scope_of(self.workspace, start, git=filters.git, agent=filters.agent)
        apart = frozenset(others) - {start.path}
        # Folders to be walked: their path, that below the start, the rules of the parent, and what is wanted.
        ahead = [(start.path, "", top, selection)]
        while ahead and not self.is_out_of_time():
            path, prefix, scope, wanted = ahead.pop()
            files: list[str] = []
            links: list[str] = []
            folders: list[str] = []
            found: list[Found] = []
            try:
                with self.workspace.open_folder(path) as opened:
                    entries = opened.entries()
                    for name, kind in entries:
                        if kind is is_file:
                            files.append(name)
                        elif kind is is_folder:
                            folders.append(name)
                        elif kind is is_link:
                            links.append(name)
                    if prefix:
                        scope = scope_below(
                            self.workspace, filters, scope, path, names_of_ignore_files(name for name, _ in entries)
                        )
                    for name in links:
                        if (inside := wanted.linked(name)) is not None:
                            self._follow(scope, name, os.path.join(start.name, prefix.replace("/", os.sep)), inside)
                        elif not self.has_passed_links:
                            self.has_passed_links = wanted.enter(name) is not None
                    for names, are_links in ((files, False), (links if filters.links else [], True)):
                        visible = self._visible(names, wanted, scope) if names else names
                        if filters.stats:
                            found += [Found(prefix + name, are_links, opened.stat(name)) for name in visible]
                        else:
                            found += [Found(prefix + name, are_links, None) for name in visible]
            except (OSError, ToolError) as error:
                if prefix and isinstance(error, ToolError) and error.code is ToolErrorType.PATH_IGNORED:
                    # It is not known what of this folder is hidden.
                    self.hidden[HiddenBy.AGENT] += 1
                    if len(self.refusals) < MAX_REFUSALS:
                        self.refusals.append(error.message)
                elif prefix and isinstance(error, OSError | PathNotInWorkspaceError):
                    self.unreadable += 1
                else:
                    raise
                continue
            base = os.path.join(path, "")
            if apart:
                folders = [name for name in folders if base + name not in apart]
            ahead += self._below(folders, base, prefix, scope, wanted)
            yield from found

    def _below(
        self, folders: list[str], base: str, prefix: str, scope: IgnoreScope, wanted: Selection
    ) -> list[tuple[str, str, IgnoreScope, Selection]]:
        """Those of these folders that are walked, the last one first."""
        below: list[tuple[str, str, IgnoreScope, Selection]] = []
        for some in self._portions(folders):
            inside = {name: there for name in some if (there := wanted.enter(name)) is not None}
            excluded = self.filters.folders.intersection(inside)
            self.folders_excluded.update(excluded)
            hidden = scope.hidden_among([name for name in inside if name not in excluded], is_folder=True)
            self.hidden.update(hidden.values())
            below += (
                (base + name, f"{prefix}{name}/", scope, there)
                for name, there in inside.items()
                if name not in excluded and name not in hidden
            )
        below.sort(key=lambda folder: folder[1], reverse=True)
        return below

    def _follow(self, scope: IgnoreScope, name: str, folder: str, inside: Selection) -> None:
        """Remember what a link leads to, if it is a folder that may be seen."""
        hidden_by = scope.hides(name, is_folder=True)
        try:
            target = self.workspace.locate(os.path.join(folder, name))
        except PathNotInWorkspaceError:
            if hidden_by is None and len(self.refusals) < MAX_REFUSALS:
                shown = shown_whole_path(os.path.join(folder, name))
                self.refusals.append(f"Not followed, since it leads outside the workspace: the link {shown}.")
            return
        except ToolError:
            return
        if self.workspace.kind_of(target) is PathKind.FOLDER:
            if hidden_by is None and is_hidden_target(self.workspace, target, agent=self.filters.agent):
                hidden_by = HiddenBy.AGENT
            if hidden_by is None:
                self._linked.append((target, inside))
            else:
                self.hidden[hidden_by] += 1

    def names_below(self, folder: Location) -> Callable[[str], bool]:
        """What tells whether a relative path exists below a folder; nothing is looked up once the time is up.

        A pattern may ask very often, each time through links.
        """
        return lambda path: not self.deadline.check() and self.workspace.has(folder, path)

    def is_out_of_time(self) -> bool:
        """Whether the budget is used up; from now on `timed_out` says that something may be left out."""
        self.timed_out = self.timed_out or self.deadline.check()
        return self.timed_out

    def _visible(self, names: list[str], wanted: Selection, scope: IgnoreScope) -> list[str]:
        """The files of a folder that are wanted and not hidden."""
        visible: list[str] = []
        for some in self._portions(names):
            chosen = wanted.chosen(some)
            hidden = scope.hidden_among(chosen, is_folder=False)
            self.hidden.update(hidden.values())
            visible += [name for name in chosen if name not in hidden] if hidden else chosen
        return visible

    def _portions(self, names: list[str]) -> Iterator[list[str]]:
        """Names so many at a time; no more once the time is up."""
        for start in range(0, len(names), CHECK_EVERY):
            if start and self.is_out_of_time():
                return
            yield names[start : start + CHECK_EVERY] if len(names) > CHECK_EVERY else names


def excluded_folders(
    starts: Sequence[Location], named: frozenset[str], folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS
) -> frozenset[str]:
    """The folders left out by default, but those that the call names: in its pattern, or above where it starts."""
    return folders - {part for start in starts for part in start.relative.split("/")} - named


def scope_below(
    workspace: Workspace, filters: Filters, above: IgnoreScope, folder: str, names: Container[str]
) -> IgnoreScope:
    """The rules in a folder below the one of a scope; a root below a root has agent-ignore files of its own."""
    if folder in workspace.roots:
        return scope_of(workspace, workspace.locate(folder), git=filters.git, agent=filters.agent)
    return above.enter(folder, names)


def visible_kind(workspace: Workspace, path: str, *, agent: bool = True, within: str | None = None) -> PathKind | None:
    """What a path leads to, links followed; `None` where nothing can be seen, or it is hidden."""
    try:
        location = workspace.locate(path, within=within)
    except ToolError:
        return None
    kind = workspace.kind_of(location)
    return None if kind is None or is_hidden_target(workspace, location, agent=agent) else kind


MAX_TEXT_BYTES = 7_800  # a text beside structured content stays under 8 kB; this leaves room for what closes it


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 item`, `2 items`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def hidden_note(hidden: Mapping[HiddenBy, int]) -> str:
    """`2 git-ignored, 1 agent-ignored`, or nothing."""
    return ", ".join(f"{hidden[by]:,} {by.value}-ignored" for by in HiddenBy if hidden.get(by))


def walk_notes(walk: Walk) -> list[str]:
    """What a walk left out, as sentences."""
    notes: list[str] = []
    if hidden := hidden_note(walk.hidden):
        notes.append(f"Ignore files left out files or folders: {hidden}.")
    notes += walk.refusals
    named = sorted(name for name in walk.folders_excluded if name != ".git")
    if named:
        notes.append(f"Folders left out by default: {', '.join(named)}.")
    if walk.unreadable:
        notes.append(f"{count(walk.unreadable, 'folder')} could not be read.")
    if walk.timed_out:
        notes.append(
            f"PARTIAL RESULT: the time limit of {walk.deadline.seconds:g} s was reached before all folders were "
            "searched. Name a folder as path, or a narrower pattern."
        )
    return notes


def list_page(
    head: Sequence[str], lines: Sequence[str], offset: int, total: int, noun: str
) -> tuple[list[str], int, int | None]:
    """A page of a list: as many lines as fit the text beside structured content, at least one, and how to continue.

    Returns the lines of the text, how many entries are among them, and the offset of the next page, if there is one.
    """
    shown = len(lines)
    if len("\n".join((*head, *lines)).encode("utf-8", "replace")) >= MAX_TEXT_BYTES:
        left = MAX_TEXT_BYTES - sum(len(line.encode("utf-8", "replace")) + 1 for line in head)
        for number, line in enumerate(lines):
            left -= len(line.encode("utf-8", "replace")) + 1
            if left < 0 and number:
                shown = number
                break
    text = [*head, *lines[:shown]]
    if total and not shown:
        text.append(f"(offset {offset} lies past the end)")
    end = offset + shown
    if end >= total:
        return text, shown, None
    text += ["---", f"[{count(total - end, f'more {noun}')} not shown; continue with offset={end}]"]
    return text, shown, end
