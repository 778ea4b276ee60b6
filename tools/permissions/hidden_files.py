"""Scans the disk before a command starts, to find what file rules and agent-ignore files deny to the command.

A scan goes through the workspace folders from the top down and caches each folder until its entries change. For a rule
about a path outside the workspace, the scan starts at the path that the pattern's leading literal names form. If
leading names of a pattern match a symlink, the symlink's target is scanned for the remaining names. A folder is a
single result if it is hidden as a whole, or if every possible name in it is hidden.

A scan is bounded. If it is incomplete, or its results cannot be masked, `HiddenFiles.problem` says why.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import NamedTuple

from tools.contract.command_views import FileRestrictions, ViewKind
from tools.contract.permission_subjects import Access
from tools.contract.tool_errors import ExhaustedError, ToolError, exhaustion_of
from tools.files.ignore_files import (
    AGENT_IGNORE_FILES,
    IgnoreScope,
    PresentNames,
    RuleList,
    bytes_text,
    names_of_ignore_files,
    parse_rules,
    shown_below,
)
from tools.files.path_opener import Remembered, Stamp, stamp_of
from tools.files.workspace import Workspace, contains, is_inside, outermost
from tools.permissions.git_store import GitStores, store_of, stores_of_submodules
from tools.permissions.permission_rules import PathSpecifier, Rule, Rules
from tools.permissions.protected_files import REPOSITORY
from tools.permissions.repositories import work_tree_above
from tools.text.file_names import shown_path

MAX_HIDDEN = 100  # maximum masked files and folders, and maximum protected ones, because each needs a mount
ENTRIES = 150_000  # maximum files and folders in one scan
SECONDS = 2.0  # time limit for one scan
REMEMBERED = 60_000  # maximum cached folders, for all workspaces together
WALKS = 1_000  # maximum cached walks that start at places other than the workspace folders, per `_RuleTree`
TREES = 100  # maximum cached combinations of a workspace and a set of rules

# The kinds of results, as one bit each, in the order of the first fields of `HiddenFiles`
_DENIED, _ASKED, _IGNORED, _KEPT, _KEPT_UNLESS_ASKED = (1 << number for number in range(5))
_OF_DENY = _DENIED | _KEPT
_READING, _EDITING = _DENIED | _ASKED | _IGNORED, _KEPT | _KEPT_UNLESS_ASKED
# If a folder has the kind of result in the key, it need not be searched for the kinds of results in the value
_COVERED = {
    _DENIED: _READING | _EDITING, _ASKED: _ASKED, _IGNORED: _IGNORED, _KEPT: _EDITING,
    _KEPT_UNLESS_ASKED: _KEPT_UNLESS_ASKED,
}  # fmt: skip
# A name that no file has. If rules would hide a file with this name in a folder, they hide everything in the folder
ANY_NAME = "\uf8ff any name \uf8ff"
# Matches patterns for a name at any depth, which match a file regardless of the folders above it
_OF_A_NAME = re.compile(r"[^/]+/?|(?:\*\*/)+[^/]+(?:/\*{0,2})?")
_BARE = {"HEAD", "objects", "refs"}  # the entries by which git recognises a bare repository
_WHOLE = (("*",), ("**",))  # the remaining names of a pattern that matches all contents of a folder
IgnoreFileSeen = tuple[str, Stamp | None]  # the path of an agent-ignore file, and its stamp at the time of the scan


@dataclass(frozen=True, slots=True)
class HiddenFile:
    """A file or folder that commands may not read, or may not change."""

    path: str  # real and absolute
    is_folder: bool
    why: str  # the rule, or the path of the agent-ignore file
    setting: str = ""  # the rule's setting; empty if there is no rule


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """The results of one scan."""

    denied: tuple[HiddenFile, ...] = ()  # hidden by rules that deny reading
    asked: tuple[HiddenFile, ...] = ()  # hidden by rules that ask before reading
    ignored: tuple[HiddenFile, ...] = ()  # hidden by agent-ignore files
    kept: tuple[HiddenFile, ...] = ()  # protected by rules that deny editing
    kept_unless_asked: tuple[HiddenFile, ...] = ()  # protected by rules that ask before editing
    # Why the results are incomplete or cannot be masked, phrased for the middle of a sentence; else empty
    problem: str = ""
    problem_of_deny: bool = False  # whether the problem may affect files that deny rules hide or protect
    # The agent-ignore files, and the folders that contain `.git` or are bare repositories
    ignore_files: tuple[IgnoreFileSeen, ...] = field(default=(), compare=False)
    repositories: tuple[str, ...] = field(default=(), compare=False)

    @property
    def unreadable(self) -> tuple[HiddenFile, ...]:
        """Everything that commands may not read, for any reason."""
        return (*self.denied, *self.asked, *self.ignored)


class _Pattern(NamedTuple):
    """A file rule, prepared for scans."""

    bit: int
    rule: Rule
    specifier: PathSpecifier
    bases: tuple[str, ...]  # the folders in which the rule applies; empty for a rule about a name at any depth
    by_path: bool  # whether the rule is about a path, not about a name at any depth
    names: tuple[str, ...]  # the names between the slashes of the rule's pattern
    # One rule list for each number of leading names, from one name to all but the last. It matches the path that these
    # names form
    leads: tuple[RuleList, ...]

    def at(self, path: str) -> HiddenFile:
        return HiddenFile(path, False, str(self.rule), self.rule.source)

    def names_behind(self, number: int) -> tuple[str, ...]:
        """Return the names of the pattern after its first `number` names.

        If the last of these names is `**`, the result begins with `**`, which may match further names.
        """
        return self.names[number - (number > 0 and self.names[number - 1] == "**") :]


# Patterns whose leading names match the path of a place, each with the number of these names. The place is searched for
# the other names of the pattern
_Leads = frozenset[tuple[_Pattern, int]]


class _Place(NamedTuple):
    """A folder to scan, and what is already known about it."""

    path: str
    scope: IgnoreScope | None  # the agent-ignore files in the folders above it; `None` if they do not matter
    covered: int  # the kinds of results for which the folder need not be searched
    in_repository: bool = False  # whether the folder is `.git` or inside it
    by_path_only: bool = False  # whether the folder is in a repository's store, where rules about names do not apply
    depth: int = -1  # levels of subfolders to scan; all if negative


class _FolderRules(NamedTuple):
    """The results in a folder from its last scan."""

    place: _Place
    ignore_files: tuple[IgnoreFileSeen, ...]  # the agent-ignore files in this folder
    found: tuple[tuple[int, HiddenFile], ...]  # the hidden entries, each with the kind of result
    below: tuple[_Place, ...]  # the subfolders to scan
    # Symlinks whose path matches leading names of patterns: the symlink's path as rules name it, its path on disk, and
    # the patterns
    links: tuple[tuple[str, str, _Leads], ...]
    entries: int  # how many entries the folder has
    is_repository: bool  # whether the folder contains `.git`, or is a bare repository


class _Patterns:
    """The rules for a walk. Almost no name matches any rule, so many rules are first tried together."""

    def __init__(self, patterns: Iterable[_Pattern]) -> None:
        self.bits = self.path_bits = 0
        # Keyed by the base folder with a final separator. The key is empty for rules about a name at any depth.
        groups: dict[str, list[_Pattern]] = {}
        for pattern in patterns:
            self.bits |= pattern.bit
            self.path_bits |= pattern.bit if pattern.by_path else 0
            for base in pattern.bases or ("",):
                groups.setdefault(base and os.path.join(base, ""), []).append(pattern)
        # Each group has as few rule lists as possible that together hide what its patterns hide.
        self._groups: list[tuple[str, list[_Pattern], list[RuleList]]] = []
        for base, group in groups.items():
            lines = list(dict.fromkeys(b"\n" + pattern.specifier.line for pattern in group))
            rules = parse_rules(b"".join(lines))
            self._groups.append((base, group, [*map(parse_rules, lines)] if rules.is_cut else [rules]))

    def fitting(
        self, folder: str, names: Sequence[str], *, by_path_only: bool = False
    ) -> Mapping[str, Sequence[_Pattern]]:
        """Return the patterns that match entries of a folder, keyed by the entry's name.

        Each entry is tested as if it were a folder, as in `Rule.fits_path`. If `by_path_only` is true, rules about
        names are skipped.
        """
        found: dict[str, list[_Pattern]] = {}
        folder = folder if folder.endswith(os.sep) else folder + os.sep
        texts = [*map(bytes_text, names)] if self._groups else []
        for base, patterns, lists in self._groups:
            if not folder.startswith(base) or (by_path_only and not base):
                continue
            prefix = bytes_text(folder[len(base) :]).replace(os.sep, "/") if base else ""
            paths = [prefix + text for text in texts] if prefix else texts
            for path in {path for rules in lists for path in rules.hidden_folders(paths)}:
                fitting = [p for p in patterns if p.specifier.rules.hides(path, is_folder=True)]
                # If rules ignore case, names that differ only in case have the same path here.
                for name in (name for name, each in zip(names, paths, strict=True) if each == path):
                    found.setdefault(name, []).extend(p for p in fitting if p.by_path or not by_path_only)
        return found

    def leading(self, path: str) -> _Leads:
        """Return the patterns of which only some leading names match `path`, each with the number of these names."""
        below = {base: bytes_text(path[len(base) :]).replace(os.sep, "/") for base, *_ in self._groups if base}
        return frozenset(
            (pattern, number)
            for base, patterns, _ in self._groups
            if base and path.startswith(base)
            for pattern in patterns
            for number, rules in enumerate(pattern.leads, start=1)
            if rules.hides(below[base], is_folder=True)
        )


def _patterns(rules: Rules, roots: tuple[str, ...]) -> tuple[_Pattern, ...]:
    """Return the rules about reading or changing certain files, prepared for scans. Deny rules come first."""
    found: list[_Pattern] = []
    for access, denied, asked in ((Access.READ, _DENIED, _ASKED), (Access.WRITE, _KEPT, _KEPT_UNLESS_ASKED)):
        for bit, rule in (*((denied, rule) for rule in rules.deny), *((asked, rule) for rule in rules.ask)):
            specifier = rule.specifier
            if not isinstance(specifier, PathSpecifier) or not rule.governs(access):
                continue
            text = os.fsdecode(specifier.line)
            if text.startswith("/**/") and specifier.base in (None, os.sep):
                text = text[1:]
            is_of_name = _OF_A_NAME.fullmatch(text) is not None
            names = tuple(text.strip("/").split("/"))
            # For a rule about a name, only the last name of a path is tested. For other rules, the whole path in one of
            # the base folders is tested.
            bases = roots if specifier.base is None else (specifier.base,)
            bases = () if is_of_name and "/" not in text.rstrip("/").replace("**/", "") else bases
            leads = (parse_rules(os.fsencode("\n/" + "/".join(names[:end]))) for end in range(1, len(names)))
            found.append(_Pattern(bit, rule, specifier, bases, not is_of_name, names, tuple(leads)))
    return tuple(found)


@dataclass(slots=True)
class _Look:
    """The results of a scan in progress."""

    roots: Sequence[str]
    left: int = field(default_factory=lambda: ENTRIES)
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    files: dict[int, dict[str, HiddenFile]] = field(default_factory=lambda: {bit: {} for bit in _COVERED})
    # Each problem, with the kind of results that it affects
    problems: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    ignore_files: list[IgnoreFileSeen] = field(default_factory=list[IgnoreFileSeen])
    repositories: list[str] = field(default_factory=list[str])
    links: list[tuple[str, str, _Leads]] = field(default_factory=list[tuple[str, str, _Leads]])

    def add(self, bit: int, found: HiddenFile) -> None:
        """Add a result, with its current state on disk."""
        files = self.files[bit]
        if len(files) > MAX_HIDDEN:
            return
        # A symlink cannot be masked, but its target can. A target outside the workspace is added only if a rule about
        # reading, not an agent-ignore file, hides the symlink.
        path = os.path.realpath(found.path)
        try:
            status = os.lstat(path)
        except OSError:
            return  # the file was removed, or is a broken symlink
        holds_root = any(contains(path, root) for root in self.roots)
        is_elsewhere = holds_root or not (is_inside(path, self.roots) or bit & (_DENIED | _ASKED))
        if path in files or (path != found.path and is_elsewhere):
            return
        if holds_root and bit & _READING:
            self.problems.append((bit, f"the workspace folder itself is hidden by {found.why}"))
        elif not holds_root or path in self.roots:
            files[path] = replace(found, path=path, is_folder=stat.S_ISDIR(status.st_mode))
            if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
                root = next((root for root in self.roots if contains(root, path) and root != path), None)
                shown = shown_path(path) if root is None else shown_below(root, path)
                self.problems.append((bit, f"'{shown}' has a second hard link"))

    def result(self) -> HiddenFiles:
        # Count denied files first, so that files hidden by other rules never push them over the limit.
        for what, bits in (("hidden", _READING), ("protected", _EDITING)):
            paths: set[str] = set()
            for bit in (each for each in _COVERED if each & bits):
                paths |= self.files[bit].keys()
                if len(paths) > MAX_HIDDEN:
                    why = [*self.files[bit].values()][-1].why
                    self.problems.append((bit, f"more than {MAX_HIDDEN} files are {what}, some of them by {why}"))
                    break
        problems = sorted(self.problems, key=lambda each: (not each[0] & _OF_DENY, each[0]))
        problem_bit, problem = problems[0] if problems else (0, "")
        return HiddenFiles(
            *(tuple(files.values()) for files in self.files.values()),
            problem=problem,
            problem_of_deny=bool(problem_bit & _OF_DENY),
            ignore_files=tuple(self.ignore_files),
            repositories=tuple(self.repositories),
        )


class _Walk:
    """Walks through a folder and its subfolders. Reads only those that have changed since the last walk."""

    def __init__(
        self,
        folders: Remembered[_FolderRules],
        patterns: Iterable[_Pattern],
        top: str,
        roots: Collection[str],
        named: str = "",
    ) -> None:
        self._folders = folders
        self._patterns = _Patterns(patterns)
        self._top = top
        self._named = named  # the path by which rules name `top`, for a walk outside the workspace or behind a symlink
        # Workspace folders inside `top` are skipped, because they have their own walks.
        self._others = frozenset(roots) - {top} if named in ("", top) else frozenset[str]()

    def go(self, look: _Look, start: _Place) -> None:
        waiting = deque([start])
        while waiting:
            place = waiting.popleft()
            if time.monotonic() > look.end:
                self._fail(look, start, f"scanning {shown_path(self._top)} took too long")
                return
            try:
                folder = self._folders.get((self, place.path))
                if folder is None or folder.place != place:
                    folder = self._look_into(place, look)
            except OSError as error:
                if (exhausted := exhaustion_of(error)) is not None:
                    raise exhausted from None
                # A folder that was removed hides nothing.
                if isinstance(error, PermissionError) and (place is not start or self._named):
                    self._hide_closed(look, place)
                elif not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
                    self._fail(look, start, f"{shown_path(place.path)} cannot be listed")
                elif place is start and not self._named and not isinstance(error, PermissionError):
                    self._fail(look, start, f"the workspace folder {shown_path(place.path)} no longer exists")
                continue
            look.left -= folder.entries
            if look.left < 0:
                self._fail(look, start, f"there are more than {ENTRIES:,} files to check in {shown_path(self._top)}")
                return
            waiting.extend(folder.below)
            look.ignore_files.extend(folder.ignore_files)
            look.links.extend(folder.links)
            if folder.is_repository:
                look.repositories.append(place.path)
            for bit, file in folder.found:
                look.add(bit, file)

    def _hide_closed(self, look: _Look, place: _Place) -> None:
        """Hide a whole folder that cannot be listed, if commands could still reach its contents."""
        with suppress(OSError):
            if sys.platform == "win32":  # on Windows, commands do not run in views
                return
            if os.access(place.path, os.X_OK) or os.stat(place.path).st_uid == os.geteuid():
                bits = self._patterns.bits | (_IGNORED if place.scope is not None and place.scope.agent else 0)
                for bit in (each for each in _COVERED if each & bits & ~place.covered):
                    look.add(bit, HiddenFile(place.path, True, "its mode, which forbids listing it"))

    def _fail(self, look: _Look, start: _Place, why: str) -> None:
        # Without a rule or an agent-ignore file, there is no reason to assume that the unscanned folders contain hidden
        # files.
        bits = self._patterns.bits | (_IGNORED if start.scope is not None and look.ignore_files else 0)
        look.problems.extend((bit, why) for bit in _COVERED if bit & bits)

    def _look_into(self, place: _Place, look: _Look) -> _FolderRules:
        looked_at, stamp = time.time_ns(), stamp_of(place.path)
        with os.scandir(place.path) as listed:
            entries = {entry.name: entry for entry in islice(listed, look.left + 1)}
        scope, ignore_files, is_known = place.scope, (), len(entries) <= look.left
        if scope is not None and (present := names_of_ignore_files(entries)):
            files = [os.path.join(place.path, name) for name in AGENT_IGNORE_FILES if name in present]
            ignore_files = tuple((file, stamp_of(file)) for file in files if os.path.lexists(file))
            try:
                scope = scope.with_own_rules(present) if ignore_files else scope
            except ExhaustedError:
                raise
            except ToolError as error:
                is_known = False
                look.problems.append((_IGNORED, error.message.partition(", so it is unknown")[0]))
        folders = {entry.name for entry in entries.values() if entry.is_dir(follow_symlinks=False)}
        found, covered = self._found_in(place, scope, list(entries), folders)
        # `.git` has files named after branches and objects, and rules about names are not meant for these files. In a
        # bare repository, such rules still apply, because any folder can be made to look like a bare repository.
        stores = ("objects", "refs", "logs") if place.in_repository and "HEAD" in entries else ()
        below: list[_Place] = []
        for name in folders if place.depth != 0 else ():
            path, hidden = entries[name].path, covered.get(name, place.covered)
            in_repository = place.in_repository or name == REPOSITORY
            by_path_only = place.by_path_only or name in stores
            bits = self._patterns.path_bits if by_path_only else self._patterns.bits
            bits |= _IGNORED if scope is not None and not in_repository else 0
            if bits & ~hidden and path not in self._others:
                own = None
                if scope is not None and not in_repository:
                    own = IgnoreScope(f"{scope.prefix}{bytes_text(name)}/", None, scope.agent, None, path)
                depth = 0 if by_path_only and name == "objects" else max(place.depth - 1, -1)
                below.append(_Place(path, own, hidden, in_repository, by_path_only, depth))
        is_repository = (REPOSITORY in entries or entries.keys() >= _BARE) and not (place.in_repository or self._named)
        named = [(self._name_of(each.path), each.path) for each in entries.values() if each.is_symlink()]
        links = ((*names, leads) for names in named if (leads := self._patterns.leading(names[0])))
        folder = _FolderRules(place, ignore_files, found, tuple(below), tuple(links), len(entries), is_repository)
        if is_known:
            self._folders.keep((self, place.path), folder, ((place.path, stamp), *ignore_files), looked_at)
        return folder

    def _found_in(
        self, place: _Place, scope: IgnoreScope | None, names: Sequence[str], folders: Collection[str]
    ) -> tuple[tuple[tuple[int, HiddenFile], ...], Mapping[str, int]]:
        """Return what is hidden in a folder, and the kinds of results for which each hidden entry need not be searched.

        The kinds are keyed by the entry's name.
        """
        found: list[tuple[int, HiddenFile]] = []
        covered: dict[str, int] = {}
        for name, by_bit in self._hiding(place, scope, names, folders).items():
            covers = place.covered
            for bit, implied in _COVERED.items():
                if bit in by_bit and not covers & bit:
                    found.append((bit, by_bit[bit]))
                    covers |= implied
            covered[name] = covers
        if found and len(covered) == len(names):
            for bit, file in self._hiding(place, scope, [ANY_NAME]).get(ANY_NAME, {}).items():
                others = [each for each in found if each[0] != bit]
                is_whole = len(others) < len(found) and all(covers & bit for covers in covered.values())
                # A whole workspace folder is never hidden, because no command could then start in it. It is only
                # protected from changes.
                if is_whole and (place.path != self._top or bit & _EDITING):
                    found = [*others, (bit, replace(file, path=place.path))]
        return tuple(found), covered

    def _name_of(self, path: str) -> str:
        return self._named + path[len(self._top) :] if self._named else path

    def _hiding(
        self, place: _Place, scope: IgnoreScope | None, names: Sequence[str], folders: Collection[str] = ()
    ) -> dict[str, dict[int, HiddenFile]]:
        """Return what hides entries of a folder, keyed by the entry's name and by the kind of result."""
        hiding: dict[str, dict[int, HiddenFile]] = {}
        for name, patterns in self._patterns.fitting(
            self._name_of(place.path), names, by_path_only=place.by_path_only
        ).items():
            by_bit = hiding.setdefault(name, {})
            for pattern in patterns:
                by_bit.setdefault(pattern.bit, pattern.at(os.path.join(place.path, name)))
        for name in names if scope is not None and scope.agent else ():
            file = scope.deciding(name, is_folder=name in folders) if scope is not None else None
            if file is not None:
                why = shown_below(self._top, file.path)
                hidden = HiddenFile(os.path.join(place.path, name), False, why)
                hiding.setdefault(name, {})[_IGNORED] = hidden
        return hiding


class _RuleTree:
    """Scans one workspace for one set of rules."""

    def __init__(self, workspace: Workspace, patterns: tuple[_Pattern, ...], folders: Remembered[_FolderRules]) -> None:
        self.roots = workspace.roots
        self.agent = workspace.respect_agent_ignore
        self.reads = any(pattern.bit & _READING for pattern in patterns)  # whether any rule is about reading
        self.stores = GitStores()
        self._patterns = patterns
        self._folders = folders
        self._all = _Patterns(patterns)
        # Walks outside the workspace, and through the targets of symlinks
        self._walks: dict[tuple[frozenset[_Pattern], str, str], _Walk] = {}
        # Patterns about paths outside the workspace. The scan for each of them starts at the path that the pattern's
        # leading literal names form.
        begins = [(os.path.join(base, *p.specifier.begins), p) for p in patterns for base in p.bases]
        named = [(path, p) for path, p in begins if path != os.sep and not is_inside(path, self.roots)]
        self._beginnings_elsewhere = [(path, path, frozenset({(p, len(p.specifier.begins))})) for path, p in named]
        self._walks_of_roots: dict[str, _Walk] = {}
        for root in self.roots:
            # Avoid testing every file against rules about unrelated places.
            lower = root.lower()
            near = {p for path, p in begins if contains(path.lower(), lower) or contains(lower, path.lower())}
            own = (p for p in patterns if not p.bases or p in near)
            self._walks_of_roots[root] = _Walk(folders, own, root, self.roots)

    def look(self) -> HiddenFiles:
        look = _Look(self.roots)
        for root in self.roots:
            covered = 0
            for pattern in self._patterns:
                if not covered & pattern.bit and pattern.rule.fits_path((root,), self.roots):
                    covered |= _COVERED[pattern.bit]
                    look.add(pattern.bit, pattern.at(root))
            if not covered & _DENIED:
                scope = IgnoreScope("", None, (), None, root) if self.agent else None
                self._walks_of_roots[root].go(look, _Place(root, scope, covered))
        look.links.extend(self._beginnings_elsewhere)
        known: set[tuple[int, int, _Leads]] = set()  # what has been scanned: device, inode and patterns
        for named, path, leads in look.links:  # the list grows in the loop
            with suppress(OSError):
                status = os.stat(path)
                place = status.st_dev, status.st_ino, leads
                if place not in known:
                    known.add(place)
                    self._look_behind(named, os.path.realpath(path), leads, look)
        return look.result()

    def _look_behind(self, named: str, real: str, leads: _Leads, look: _Look) -> None:
        """Apply patterns to a place whose path matches their leading names, and add the results to `look`.

        The place is outside the workspace, or is the target of a symlink. Rules name it `named`.
        """
        # If the same patterns match the real path with the same number of leading names, the scan of the workspace
        # finds the same results at the real path.
        if is_inside(real, self.roots) and leads <= self._all.leading(real):
            return
        rests = [(pattern, pattern.names_behind(number)) for pattern, number in leads]
        is_folder = os.path.isdir(real)
        whole = {pattern for pattern, names in rests if not names or (is_folder and names in _WHOLE)}
        for pattern in whole:
            look.add(pattern.bit, pattern.at(real))
        rest = frozenset(pattern for pattern, _ in rests) - whole
        if is_folder and rest:
            if len(self._walks) >= WALKS:
                self._walks.clear()
            key = rest, named, real
            walk = self._walks.get(key) or _Walk(self._folders, rest, real, self.roots, named)
            self._walks[key] = walk
            behind = [names for pattern, names in rests if pattern in rest]
            depth = -1 if any("**" in names for names in behind) else max(map(len, behind)) - 1
            walk.go(look, _Place(real, None, 0, depth=depth))

    def is_stored(self, hidden: HiddenFiles, top: str, names: Collection[str]) -> bool:
        """Return True if a rule or an agent-ignore file hides any of these paths. The paths need not exist.

        `hidden` are the results of the scan. The paths are relative to `top`, the top folder of a work tree.
        """
        reading = [pattern for pattern in self._patterns if pattern.bit & _READING]
        hidden_paths = {file.path for file in hidden.unreadable}
        if is_inside(top, hidden_paths) or any(p.rule.fits_path((top,), self.roots) for p in reading):
            return True
        entries: dict[str, set[str]] = {}  # the names in each folder, keyed by the folder's path
        for name in names:
            path = os.path.join(top, name)
            while path != top:
                folder, entry = os.path.split(path)
                if entry in entries.setdefault(folder, set()):
                    break
                entries[folder].add(entry)
                path = folder
        patterns = _Patterns(reading)
        linked = [p for p in reading if any(len({*p.specifier.beginning(base)}) > 1 for base in p.bases)]
        for folder, below in entries.items():
            paths = [os.path.join(folder, entry) for entry in below]
            is_hidden = not hidden_paths.isdisjoint(paths) or any(p.rule.fits_path(paths, self.roots) for p in linked)
            if is_hidden or patterns.fitting(folder, list(below)):
                return True
        return bool(hidden.ignore_files) and self._is_ignored(entries)

    def _is_ignored(self, entries: Mapping[str, Iterable[str]]) -> bool:
        """Return True if the current agent-ignore files hide an entry of one of these folders."""

        @cache
        def scope_in(folder: str) -> IgnoreScope | None:
            if folder in self.roots:
                return IgnoreScope("", None, (), None, folder).with_own_rules(PresentNames(folder))
            above = scope_in(os.path.dirname(folder)) if is_inside(folder, self.roots) else None
            return above and above.enter(folder, PresentNames(folder))

        try:
            for folder, below in sorted(entries.items()):  # parents come first
                scope = scope_in(folder)
                if scope is not None and scope.agent:
                    paths = {entry: os.path.join(folder, entry) for entry in below}
                    if any(scope.deciding(entry, is_folder=path in entries) for entry, path in paths.items()):
                        return True
        except ToolError:
            return True  # one of the agent-ignore files cannot be read or parsed
        return False


class HiddenFileLookout:
    """Runs the scans for all of the server's commands, and caches unchanged folders."""

    def __init__(self) -> None:
        self._folders = Remembered[_FolderRules](REMEMBERED)
        self._trees: dict[Hashable, _RuleTree] = {}
        self._lock = threading.Lock()

    def look(self, workspace: Workspace, rules: Rules) -> HiddenFiles:
        """Return the files that commands in a workspace may not read or change now. Blocking."""
        tree = self._tree(workspace, rules)
        return tree.look() if tree is not None else HiddenFiles()

    def stores_hidden(self, workspace: Workspace, hidden: HiddenFiles, rules: Rules) -> tuple[str, ...]:
        """Return the real paths of repositories' data folders that store hidden files. Blocking.

        Checks the repositories around and inside the workspace folders. The result includes repositories that cannot be
        checked.
        """
        tree = self._tree(workspace, rules)
        # Git need not be queried if no rule is about reading and agent-ignore files hide nothing on disk, because
        # agent-ignore files mostly name build output, which is not committed.
        if tree is None or not (hidden.ignored or tree.reads):
            return ()
        tops: dict[str, list[str]] = {}
        for top in sorted({*filter(None, map(work_tree_above, tree.roots)), *hidden.repositories}):
            if (store := store_of(top)) is not None:
                tops.setdefault(store, []).append(top)
                for inner, name in stores_of_submodules(store):
                    tops.setdefault(inner, []).append(os.path.join(top, name))

        def holds(store: str, work_trees: Sequence[str]) -> bool:
            def is_among(names: Collection[str]) -> bool:
                return any(tree.is_stored(hidden, top, names) for top in work_trees)

            asked = hidden.unreadable, hidden.ignore_files, tuple(work_trees)
            return tree.stores.holds(store, tree.roots, asked, is_among, otherwise=bool(hidden.unreadable))

        return tuple(store for store, work_trees in tops.items() if holds(store, work_trees))

    def _tree(self, workspace: Workspace, rules: Rules) -> _RuleTree | None:
        patterns = _patterns(rules, workspace.roots)
        if not workspace.roots or not (patterns or workspace.respect_agent_ignore):
            return None
        of_rules = tuple((pattern.bit, pattern.rule) for pattern in patterns)
        key = workspace.roots, workspace.respect_agent_ignore, of_rules
        with self._lock:
            if key not in self._trees:
                if len(self._trees) >= TREES:
                    self._trees.clear()
                self._trees[key] = _RuleTree(workspace, patterns, self._folders)
            return self._trees[key]


def restrictions(
    hidden: HiddenFiles, kind: ViewKind, *, named: Collection[str], is_asked: bool, rules: Rules, workspace: Workspace
) -> FileRestrictions:
    """Turn the results of a scan with these rules into restrictions for a command in a view.

    `named` are real paths that the question named and the answer allowed. `is_asked` is true if the user was asked
    about the command.
    """
    roots = workspace.roots
    masked = [*hidden.denied, *(each for file in hidden.asked for each in beside(file, named))]
    for file in hidden.ignored:
        # A command that can change files sees the folders that agent-ignore files hide, because programs need folders
        # such as `node_modules`. If the user was asked, the command also sees the hidden files.
        hides = kind is ViewKind.READING or (kind is ViewKind.WORKING and not is_asked and not file.is_folder)
        masked += beside(file, named) if hides else ()
    read_only = [*hidden.kept, *(each for file in hidden.kept_unless_asked for each in beside(file, named))]
    strict = (*rules.deny, *(() if is_asked else rules.ask))
    bare = [rule for rule in strict if rule.specifier is None and rule.governs(Access.WRITE)]
    kept_roots = roots if bare else ()
    masks = tuple(outermost(file.path for file in masked))
    keeps = outermost(file.path for file in read_only if not is_inside(file.path, masks))
    mounts = {*masks, *keeps}
    pinned: dict[str, None] = {}
    for path in mounts:
        root = max((root for root in roots if contains(root, path)), key=len, default=None)
        while root is not None and root not in (path, path := os.path.dirname(path)) and path not in pinned:
            pinned[path] = None
    return FileRestrictions(
        masked=masks,
        read_only=(*dict.fromkeys((*kept_roots, *keeps)),),
        pinned=tuple(folder for folder in pinned if folder not in mounts),
        why={file.path: file.why for file in (*masked, *read_only)}
        | dict.fromkeys(kept_roots, "".join(map(str, bare[:1]))),
    )


def beside(file: HiddenFile, named: Collection[str]) -> list[HiddenFile]:
    """Return the parts of a hidden file or folder that stay hidden when the paths in `named` are opened."""
    if is_inside(file.path, named):
        return []
    inside = [path for path in named if contains(file.path, path)]
    if not inside:
        return [file]
    try:
        with os.scandir(file.path) as listed:
            entries = [entry for entry in islice(listed, MAX_HIDDEN + 1) if not entry.is_symlink()]
        if len(entries) > MAX_HIDDEN:
            return [file]
        others = [replace(file, path=each.path, is_folder=each.is_dir(follow_symlinks=False)) for each in entries]
    except OSError:
        return [file]
    return [each for other in others for each in beside(other, inside)]
