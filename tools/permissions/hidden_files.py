"""Scans the disk before a command starts, to find what file rules and agent-ignore files deny to the command.

A scan goes through the workspace folders from the top down and caches each folder until its entries change. For a rule
about a path outside the workspace, the scan starts at the path formed by the pattern's leading literal components. If
leading components of a pattern match a symlink, the symlink's target is scanned for matches of the remaining
components. A folder is reported as one result if it is hidden as a whole, or if every possible name in it is hidden.

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
from itertools import chain, islice
from typing import NamedTuple

from tools.contract.command_views import FileRestrictions, ViewKind
from tools.contract.permission_subjects import Access
from tools.contract.tool_errors import ExhaustedError, ToolError, exhaustion_of
from tools.files.ignore_files import (
    AGENT_IGNORE_FILES,
    IgnoreScope,
    PresentNames,
    RuleList,
    agent_scope_above,
    bytes_text,
    names_of_ignore_files,
    parse_rules,
    shown_below,
)
from tools.files.path_opener import Stamp, StampedCache, stamp_of
from tools.files.workspace import Workspace, contains, is_inside, outermost, resolve_links
from tools.permissions.git_history_names import GitStores, store_of, stored_in, stores_of_submodules
from tools.permissions.git_repositories import work_tree_above
from tools.permissions.permission_rules import PathSpecifier, Rule, Rules
from tools.permissions.protected_files import REPOSITORY
from tools.text.file_names import shown_path

MAX_HIDDEN = 100  # maximum masked files and folders, and maximum protected ones, because each needs a mount
ENTRIES = 150_000  # maximum files and folders in one scan
MAX_SECONDS = 2.0  # time limit for one scan
MAX_CACHED_FOLDERS = 60_000  # maximum cached folders, for all workspaces together
MAX_CACHED_WALKS = 1_000  # maximum cached walks that start at places other than the workspace folders, per `_RuleTree`
MAX_CACHED_TREES = 100  # maximum cached combinations of a workspace and a set of rules

# The kinds of results, as one bit each, in the order of the first fields of `HiddenFiles`
_DENIED, _ASKED, _IGNORED, _PROTECTED, _PROTECTED_UNLESS_ASKED = (1 << number for number in range(5))
_DENY_BITS = _DENIED | _PROTECTED
_READ_BITS, _EDIT_BITS = _DENIED | _ASKED | _IGNORED, _PROTECTED | _PROTECTED_UNLESS_ASKED
# If a folder itself has a result of one kind (the key), it need not be searched for results of these kinds (the value)
_COVERED_BITS = {
    _DENIED: _READ_BITS | _EDIT_BITS, _ASKED: _ASKED, _IGNORED: _IGNORED, _PROTECTED: _EDIT_BITS,
    _PROTECTED_UNLESS_ASKED: _PROTECTED_UNLESS_ASKED,
}  # fmt: skip
# A name that no file has. If rules would hide a file with this name in a folder, they hide everything in the folder
ANY_NAME = "\uf8ff any name \uf8ff"
# Matches patterns for a name at any depth, which match a file regardless of the folders above it
_NAME_PATTERN = re.compile(r"[^/]+/?|(?:\*\*/)+[^/]+(?:/\*{0,2})?")
_BARE_REPOSITORY = {"HEAD", "objects", "refs"}  # the entries by which git recognises a bare repository
_WHOLE_FOLDER = (("*",), ("**",))  # the remaining components of a pattern that matches all contents of a folder
ScannedIgnoreFile = tuple[str, Stamp | None]  # the path of an agent-ignore file, and its stamp at the time of the scan


@dataclass(frozen=True, slots=True)
class HiddenFile:
    """A file or folder that commands may not read, or may not change."""

    path: str  # real and absolute
    is_folder: bool
    reason: str  # the rule, the path of the agent-ignore file, or the mode of a folder that cannot be listed
    setting: str = ""  # the rule's setting; empty if there is no rule


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """The results of one scan."""

    denied: tuple[HiddenFile, ...] = ()  # hidden by rules that deny reading
    asked: tuple[HiddenFile, ...] = ()  # hidden by rules that ask before reading
    ignored: tuple[HiddenFile, ...] = ()  # hidden by agent-ignore files
    protected: tuple[HiddenFile, ...] = ()  # protected by rules that deny editing
    protected_unless_asked: tuple[HiddenFile, ...] = ()  # protected by rules that ask before editing
    # Why the results are incomplete or cannot be masked, phrased for the middle of a sentence; else empty
    problem: str = ""
    problem_of_deny: bool = False  # whether the problem may affect files that deny rules hide or protect
    # The agent-ignore files, and the folders that contain `.git` or are bare repositories
    ignore_files: tuple[ScannedIgnoreFile, ...] = field(default=(), compare=False)
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
    components: tuple[str, ...]  # the components of the rule's pattern, which are separated by slashes
    # One rule list for each number of leading components, from one to all but the last. Each list matches the path
    # formed by that many components
    leads: tuple[RuleList, ...]

    def at(self, path: str) -> HiddenFile:
        return HiddenFile(path, False, str(self.rule), self.rule.source)

    def components_after(self, number: int) -> tuple[str, ...]:
        """Return the components after the first `number`, and before them a `**` that may match further components."""
        return self.components[number - (number > 0 and self.components[number - 1] == "**") :]


# Patterns whose leading components match a path, each with the number of these components. A scan that starts at this
# path looks for matches of the remaining components
_Leads = frozenset[tuple[_Pattern, int]]


class _Place(NamedTuple):
    """A folder to scan, and what is already known about it."""

    path: str
    scope: IgnoreScope | None  # the agent-ignore files in the folders above it; `None` if they do not matter
    covered_bits: int  # the kinds of results for which the folder need not be searched
    in_repository: bool = False  # whether the folder is `.git` or inside it
    by_path_only: bool = False  # whether the folder is in a repository's store, where rules about names do not apply
    depth: int = -1  # levels of subfolders to scan; all if negative


class _ScannedFolder(NamedTuple):
    """The results of the last scan of one folder."""

    place: _Place
    ignore_files: tuple[ScannedIgnoreFile, ...]  # the agent-ignore files in this folder
    hidden_entries: tuple[tuple[int, HiddenFile], ...]  # the hidden entries, each with the kind of result
    subfolders: tuple[_Place, ...]  # the subfolders to scan
    # Symlinks whose path matches leading components of patterns: the symlink's path as rules name it, its path on disk,
    # and the patterns
    links: tuple[tuple[str, str, _Leads], ...]
    entries: int  # how many entries the folder has
    is_repository: bool  # whether the folder contains `.git`, or is a bare repository


class _Patterns:
    """The rules for a walk. Few names match any, so the rules of each group are first tested together if possible."""

    def __init__(self, patterns: Iterable[_Pattern]) -> None:
        self.bits = self.path_bits = 0
        # Keyed by the base folder with a final separator. The key is empty for rules about a name at any depth.
        groups: dict[str, list[_Pattern]] = {}
        for pattern in patterns:
            self.bits |= pattern.bit
            self.path_bits |= pattern.bit if pattern.by_path else 0
            for base in pattern.bases or ("",):
                groups.setdefault(base and os.path.join(base, ""), []).append(pattern)
        # Each group has one rule list for all its patterns or, if that list would be too costly, one list for each
        # pattern.
        self._groups: list[tuple[str, list[_Pattern], list[RuleList]]] = []
        for base, group in groups.items():
            lines = list(dict.fromkeys(b"\n" + pattern.specifier.line for pattern in group))
            rules = parse_rules(b"".join(lines))
            self._groups.append((base, group, [*map(parse_rules, lines)] if rules.is_cut else [rules]))

    def matching(
        self, folder: str, names: Sequence[str], *, by_path_only: bool = False
    ) -> Mapping[str, Sequence[_Pattern]]:
        """Return the patterns that match entries of a folder, keyed by name. Each entry is tested as a folder."""
        matches: dict[str, list[_Pattern]] = {}
        folder = folder if folder.endswith(os.sep) else folder + os.sep
        texts = [*map(bytes_text, names)] if self._groups else []
        for base, patterns, lists in self._groups:
            if not folder.startswith(base) or (by_path_only and not base):
                continue
            prefix = bytes_text(folder[len(base) :]).replace(os.sep, "/") if base else ""
            paths = [prefix + text for text in texts] if prefix else texts
            for path in dict.fromkeys(path for rules in lists for path in rules.hidden_folders(paths)):
                matching = [p for p in patterns if p.specifier.rules.hides(path, is_folder=True)]
                # On systems that ignore case, the paths are in lower case, so several names may have the same path.
                for name in (name for name, entry_path in zip(names, paths, strict=True) if entry_path == path):
                    matches.setdefault(name, []).extend(p for p in matching if p.by_path or not by_path_only)
        return matches

    def leading(self, path: str) -> _Leads:
        """Return the patterns whose leading components match `path`, each with the number of these components."""
        relative_paths = {base: bytes_text(path[len(base) :]).replace(os.sep, "/") for base, *_ in self._groups if base}
        return frozenset(
            (pattern, number)
            for base, patterns, _ in self._groups
            if base and path.startswith(base)
            for pattern in patterns
            for number, rules in enumerate(pattern.leads, start=1)
            if rules.hides(relative_paths[base], is_folder=True)
        )


def _patterns(rules: Rules, roots: tuple[str, ...]) -> tuple[_Pattern, ...]:
    """Return the deny and ask rules with path patterns: reading before changing, and in each group deny rules first."""
    patterns: list[_Pattern] = []
    for access, deny_bit, ask_bit in (
        (Access.READ, _DENIED, _ASKED),
        (Access.WRITE, _PROTECTED, _PROTECTED_UNLESS_ASKED),
    ):
        for bit, rule in (*((deny_bit, rule) for rule in rules.deny), *((ask_bit, rule) for rule in rules.ask)):
            specifier = rule.specifier
            if not isinstance(specifier, PathSpecifier) or not rule.governs(access):
                continue
            text = os.fsdecode(specifier.line)
            if text.startswith("/**/") and specifier.base in (None, os.sep):
                text = text[1:]
            is_of_name = _NAME_PATTERN.fullmatch(text) is not None
            names = tuple(text.strip("/").split("/"))
            # For a rule about a name, only the last component of a path is tested. For any other rule, the whole path
            # relative to a base folder is tested.
            bases = roots if specifier.base is None else (specifier.base,)
            bases = () if is_of_name and "/" not in text.rstrip("/").replace("**/", "") else bases
            leads = (parse_rules(os.fsencode("\n/" + "/".join(names[:end]))) for end in range(1, len(names)))
            patterns.append(_Pattern(bit, rule, specifier, bases, not is_of_name, names, tuple(leads)))
    return tuple(patterns)


@dataclass(slots=True)
class _Scan:
    """The results of a scan in progress."""

    roots: Sequence[str]
    entries_left: int = field(default_factory=lambda: ENTRIES)
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)
    files: dict[int, dict[str, HiddenFile]] = field(default_factory=lambda: {bit: {} for bit in _COVERED_BITS})
    # Each problem, with the kind of results that it affects
    problems: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    ignore_files: list[ScannedIgnoreFile] = field(default_factory=list[ScannedIgnoreFile])
    repositories: list[str] = field(default_factory=list[str])
    links: list[tuple[str, str, _Leads]] = field(default_factory=list[tuple[str, str, _Leads]])

    def add(self, bit: int, file: HiddenFile) -> None:
        """Add a result, after looking up its real path and its current type."""
        files = self.files[bit]
        if len(files) > MAX_HIDDEN:
            return
        # A symlink cannot be masked, but its target can. A target outside the workspace is added only if a rule about
        # reading, not an agent-ignore file, hides the symlink.
        path = resolve_links(file.path)
        try:
            status = os.lstat(path)
        except OSError:
            return  # the file was removed, or is a broken symlink
        inner_roots = [root for root in self.roots if contains(path, root)]
        is_elsewhere = bool(inner_roots) or not (is_inside(path, self.roots) or bit & (_DENIED | _ASKED))
        if path in files or (path != file.path and is_elsewhere):
            return
        if inner_roots and bit == _IGNORED and [file] != (parts := remaining_parts(file, inner_roots)):
            # Workspace folders inside the hidden folder have walks of their own, which find that all of it is hidden.
            for part in parts:
                self.add(bit, part)
        elif inner_roots and bit & _READ_BITS:
            self.problems.append((bit, f"the workspace folder itself is hidden by {file.reason}"))
        elif not inner_roots or path in self.roots:
            files[path] = replace(file, path=path, is_folder=stat.S_ISDIR(status.st_mode))
            if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
                root = next((root for root in self.roots if contains(root, path) and root != path), None)
                display_path = shown_path(path) if root is None else shown_below(root, path)
                self.problems.append((bit, f"'{display_path}' has a second hard link"))

    def result(self) -> HiddenFiles:
        # Count denied files first, so that files hidden by other rules never push them over the limit.
        for effect, bits in (("hidden", _READ_BITS), ("protected", _EDIT_BITS)):
            paths: set[str] = set()
            for bit in (kind for kind in _COVERED_BITS if kind & bits):
                paths |= self.files[bit].keys()
                if len(paths) > MAX_HIDDEN:
                    reason = [*self.files[bit].values()][-1].reason
                    self.problems.append((bit, f"more than {MAX_HIDDEN} files are {effect}, some of them by {reason}"))
                    break
        problems = sorted(self.problems, key=lambda entry: (not entry[0] & _DENY_BITS, entry[0]))
        problem_bit, problem = problems[0] if problems else (0, "")
        return HiddenFiles(
            *(tuple(files.values()) for files in self.files.values()),
            problem=problem,
            problem_of_deny=bool(problem_bit & _DENY_BITS),
            ignore_files=tuple(self.ignore_files),
            repositories=tuple(self.repositories),
        )


class _Walk:
    """Walks through a folder and its subfolders. Reads only folders that have changed since the last walk."""

    def __init__(
        self,
        folders: StampedCache[_ScannedFolder],
        patterns: Iterable[_Pattern],
        top: str,
        roots: Collection[str],
        rule_path: str = "",
    ) -> None:
        self._folders = folders
        self._patterns = _Patterns(patterns)
        self._top = top
        # The path by which rules name `top`, for a walk outside the workspace or through a symlink
        self._rule_path = rule_path
        # Workspace folders inside `top` are skipped, because they have their own walks.
        self._skipped_roots = frozenset(roots) - {top} if rule_path in ("", top) else frozenset[str]()

    def go(self, scan: _Scan, start: _Place) -> None:
        waiting = deque([start])
        while waiting:
            place = waiting.popleft()
            if time.monotonic() > scan.deadline:
                self._fail(scan, start, f"scanning {shown_path(self._top)} took too long")
                return
            try:
                folder = self._folders.get((self, place.path))
                if folder is None or folder.place != place:
                    folder = self._scan_folder(place, scan)
            except OSError as error:
                if (exhaustion := exhaustion_of(error)) is not None:
                    raise exhaustion from None
                # A folder that was removed hides nothing.
                if isinstance(error, PermissionError) and (place is not start or self._rule_path):
                    self._hide_unlistable(scan, place)
                elif not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
                    self._fail(scan, start, f"{shown_path(place.path)} cannot be listed")
                elif place is start and not self._rule_path and not isinstance(error, PermissionError):
                    self._fail(scan, start, f"the workspace folder {shown_path(place.path)} no longer exists")
                continue
            scan.entries_left -= folder.entries
            if scan.entries_left < 0:
                problem = f"there are more than {ENTRIES:,} files to check; the scan stopped in {shown_path(self._top)}"
                self._fail(scan, start, problem)
                return
            waiting.extend(folder.subfolders)
            scan.ignore_files.extend(folder.ignore_files)
            scan.links.extend(folder.links)
            if folder.is_repository:
                scan.repositories.append(place.path)
            for bit, file in folder.hidden_entries:
                scan.add(bit, file)

    def _hide_unlistable(self, scan: _Scan, place: _Place) -> None:
        """Hide a whole folder that cannot be listed, if commands could still reach its contents."""
        with suppress(OSError):
            if sys.platform == "win32":  # on Windows, commands do not run in views
                return
            if os.access(place.path, os.X_OK) or os.stat(place.path).st_uid == os.geteuid():
                bits = self._patterns.bits | (_IGNORED if place.scope is not None and place.scope.agent else 0)
                for bit in (kind for kind in _COVERED_BITS if kind & bits & ~place.covered_bits):
                    scan.add(bit, HiddenFile(place.path, True, "the mode of a folder that cannot be listed"))

    def _fail(self, scan: _Scan, start: _Place, problem: str) -> None:
        # Without a rule or an agent-ignore file, there is no reason to assume that the unscanned folders contain hidden
        # files.
        bits = self._patterns.bits | (_IGNORED if start.scope is not None and scan.ignore_files else 0)
        scan.problems.extend((bit, problem) for bit in _COVERED_BITS if bit & bits)

    def _scan_folder(self, place: _Place, scan: _Scan) -> _ScannedFolder:
        start_time, stamp = time.time_ns(), stamp_of(place.path)
        with os.scandir(place.path) as dir_entries:
            entries = {entry.name: entry for entry in islice(dir_entries, scan.entries_left + 1)}
        scope, ignore_files, is_known = place.scope, (), len(entries) <= scan.entries_left
        if scope is not None and (present := names_of_ignore_files(entries)):
            files = [os.path.join(place.path, name) for name in AGENT_IGNORE_FILES if name in present]
            ignore_files = tuple((file, stamp_of(file)) for file in files if os.path.lexists(file))
            try:
                scope = scope.with_own_rules(present) if ignore_files else scope
            except ExhaustedError:
                raise
            except ToolError as error:
                is_known = False
                scan.problems.append((_IGNORED, error.message.partition(", so it is unknown")[0]))
        folders = {entry.name for entry in entries.values() if entry.is_dir(follow_symlinks=False)}
        hidden_entries, covered_bits = self._hidden_in(place, scope, list(entries), folders)
        # `.git` has files named after branches and objects, and rules about names are not meant for these files. In a
        # bare repository, such rules still apply, because any folder can be made to look like a bare repository.
        stores = ("objects", "refs", "logs") if place.in_repository and "HEAD" in entries else ()
        subfolders: list[_Place] = []
        for name in folders if place.depth != 0 else ():
            path, skipped_bits = entries[name].path, covered_bits.get(name, place.covered_bits)
            in_repository = place.in_repository or name == REPOSITORY
            by_path_only = place.by_path_only or name in stores
            bits = self._patterns.path_bits if by_path_only else self._patterns.bits
            bits |= _IGNORED if scope is not None and not in_repository else 0
            if bits & ~skipped_bits and path not in self._skipped_roots:
                own_scope = None
                if scope is not None and not in_repository:
                    own_scope = scope.enter(path, ())
                depth = 0 if by_path_only and name == "objects" else max(place.depth - 1, -1)
                subfolders.append(_Place(path, own_scope, skipped_bits, in_repository, by_path_only, depth))
        is_repository = (REPOSITORY in entries or entries.keys() >= _BARE_REPOSITORY) and not (
            place.in_repository or self._rule_path
        )
        symlink_paths = [(self._name_of(entry.path), entry.path) for entry in entries.values() if entry.is_symlink()]
        links = ((*paths, leads) for paths in symlink_paths if (leads := self._patterns.leading(paths[0])))
        folder = _ScannedFolder(
            place, ignore_files, hidden_entries, tuple(subfolders), tuple(links), len(entries), is_repository
        )
        if is_known:
            self._folders.keep((self, place.path), folder, ((place.path, stamp), *ignore_files), start_time)
        return folder

    def _hidden_in(
        self, place: _Place, scope: IgnoreScope | None, names: Sequence[str], folders: Collection[str]
    ) -> tuple[tuple[tuple[int, HiddenFile], ...], Mapping[str, int]]:
        """Return what is hidden in a folder, and the covered kinds of results of hidden entries, keyed by name."""
        hidden_entries: list[tuple[int, HiddenFile]] = []
        covered_bits: dict[str, int] = {}
        for name, by_bit in self._hiding_rules(place, scope, names, folders).items():
            entry_bits = place.covered_bits
            for bit, implied_bits in _COVERED_BITS.items():
                if bit in by_bit and not entry_bits & bit:
                    hidden_entries.append((bit, by_bit[bit]))
                    entry_bits |= implied_bits
            covered_bits[name] = entry_bits
        if hidden_entries and len(covered_bits) == len(names):
            for bit, file in self._hiding_rules(place, scope, [ANY_NAME]).get(ANY_NAME, {}).items():
                other_entries = [entry for entry in hidden_entries if entry[0] != bit]
                is_whole = len(other_entries) < len(hidden_entries) and all(
                    entry_bits & bit for entry_bits in covered_bits.values()
                )
                # A whole workspace folder is never hidden, because no command could then start in it. It is only
                # protected from changes.
                if is_whole and (place.path != self._top or bit & _EDIT_BITS):
                    hidden_entries = [*other_entries, (bit, replace(file, path=place.path))]
        return tuple(hidden_entries), covered_bits

    def _name_of(self, path: str) -> str:
        return self._rule_path + path[len(self._top) :] if self._rule_path else path

    def _hiding_rules(
        self, place: _Place, scope: IgnoreScope | None, names: Sequence[str], folders: Collection[str] = ()
    ) -> dict[str, dict[int, HiddenFile]]:
        """Return what hides entries of a folder, keyed by the entry's name and by the kind of result."""
        hiding: dict[str, dict[int, HiddenFile]] = {}
        for name, patterns in self._patterns.matching(
            self._name_of(place.path), names, by_path_only=place.by_path_only
        ).items():
            by_bit = hiding.setdefault(name, {})
            for pattern in patterns:
                by_bit.setdefault(pattern.bit, pattern.at(os.path.join(place.path, name)))
        if scope is not None and scope.agent:
            for name in names:
                if (file := scope.deciding_file(name, is_folder=name in folders)) is not None:
                    hidden_file = HiddenFile(os.path.join(place.path, name), False, shown_below(self._top, file.path))
                    hiding.setdefault(name, {})[_IGNORED] = hidden_file
        return hiding


class _RuleTree:
    """Scans one workspace for one set of rules."""

    def __init__(
        self, workspace: Workspace, patterns: tuple[_Pattern, ...], folders: StampedCache[_ScannedFolder]
    ) -> None:
        self.roots = workspace.roots
        self._ignore_roots = {root: workspace.ignore_root(root) for root in self.roots}
        self.agent = workspace.respect_agent_ignore
        self.reads = any(pattern.bit & _READ_BITS for pattern in patterns)  # whether any rule is about reading
        self.stores = GitStores()
        self._patterns = patterns
        self._folders = folders
        self._all_patterns = _Patterns(patterns)
        # Walks outside the workspace, and through the targets of symlinks
        self._walks: dict[tuple[frozenset[_Pattern], str, str], _Walk] = {}
        # Patterns about paths outside the workspace. The scan for each pattern starts at the path formed by the
        # pattern's leading literal components.
        begins = [(os.path.join(base, *p.specifier.begins), p) for p in patterns for base in p.bases]
        outside_patterns = [(path, p) for path, p in begins if path != os.sep and not is_inside(path, self.roots)]
        self._outside_starts = [(path, path, frozenset({(p, len(p.specifier.begins))})) for path, p in outside_patterns]
        self._root_walks: dict[str, _Walk] = {}
        for root in self.roots:
            # Avoid testing every file against rules about unrelated places.
            lower = root.lower()
            near = {p for path, p in begins if contains(path.lower(), lower) or contains(lower, path.lower())}
            own = (p for p in patterns if not p.bases or p in near)
            self._root_walks[root] = _Walk(folders, own, root, self.roots)

    def scan(self) -> HiddenFiles:
        scan = _Scan(self.roots)
        for root in self.roots:
            covered_bits = 0
            for pattern in self._patterns:
                if not covered_bits & pattern.bit and pattern.rule.fits_path((root,), self.roots):
                    covered_bits |= _COVERED_BITS[pattern.bit]
                    scan.add(pattern.bit, pattern.at(root))
            if not covered_bits & _DENIED:
                scope = self._scope_of_root(root, scan) if self.agent else None
                self._root_walks[root].go(scan, _Place(root, scope, covered_bits))
        scan.links.extend(self._outside_starts)
        scanned: set[tuple[int, int, _Leads]] = set()  # what has been scanned: device, inode and patterns
        for rule_path, path, leads in scan.links:  # the list grows during the loop
            with suppress(OSError):
                status = os.stat(path)
                place = status.st_dev, status.st_ino, leads
                if place not in scanned:
                    scanned.add(place)
                    self._scan_target(rule_path, resolve_links(path), leads, scan)
        return scan.result()

    def _scope_of_root(self, root: str, scan: _Scan) -> IgnoreScope:
        try:
            scope = agent_scope_above(self._ignore_roots[root], root)
        except ExhaustedError:
            raise
        except ToolError as error:
            scan.problems.append((_IGNORED, error.message.partition(", so it is unknown")[0]))
            return IgnoreScope("", None, (), None, root)
        scan.ignore_files.extend((file.path, stamp_of(file.path)) for file in scope.agent or ())
        return scope

    def _scan_target(self, rule_path: str, real: str, leads: _Leads, scan: _Scan) -> None:
        """Scan a file or folder to which leading components of patterns lead. Rules refer to it by `rule_path`."""
        # If the real path is in the workspace, and the same leading components of the same patterns match it, the scan
        # of the workspace finds the same results there.
        if is_inside(real, self.roots) and leads <= self._all_patterns.leading(real):
            return
        remainders = [(pattern, pattern.components_after(number)) for pattern, number in leads]
        is_folder = os.path.isdir(real)
        whole = {pattern for pattern, tail in remainders if not tail or (is_folder and tail in _WHOLE_FOLDER)}
        for pattern in whole:
            scan.add(pattern.bit, pattern.at(real))
        remaining_patterns = frozenset(pattern for pattern, _ in remainders) - whole
        if is_folder and remaining_patterns:
            if len(self._walks) >= MAX_CACHED_WALKS:
                self._walks.clear()
            key = remaining_patterns, rule_path, real
            walk = self._walks.get(key) or _Walk(self._folders, remaining_patterns, real, self.roots, rule_path)
            self._walks[key] = walk
            tails = [tail for pattern, tail in remainders if pattern in remaining_patterns]
            depth = -1 if any("**" in tail for tail in tails) else max(map(len, tails)) - 1
            walk.go(scan, _Place(real, None, 0, depth=depth))

    def hides_any(self, hidden_files: HiddenFiles, top: str, names: Collection[str]) -> bool:
        """Return True if a rule or agent-ignore file hides any of these paths under `top`, even a missing one."""
        reading = [pattern for pattern in self._patterns if pattern.bit & _READ_BITS]
        hidden_paths = {file.path for file in hidden_files.unreadable}
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
        symlink_patterns = [p for p in reading if any(len({*p.specifier.beginning(base)}) > 1 for base in p.bases)]
        for folder, entry_names in entries.items():
            paths = [os.path.join(folder, entry) for entry in entry_names]
            is_hidden = not hidden_paths.isdisjoint(paths) or any(
                p.rule.fits_path(paths, self.roots) for p in symlink_patterns
            )
            if is_hidden or patterns.matching(folder, list(entry_names)):
                return True
        return bool(hidden_files.ignore_files) and self._ignores_any(entries)

    def _ignores_any(self, entries: Mapping[str, Iterable[str]]) -> bool:
        """Return True if the current agent-ignore files hide an entry of one of these folders."""

        @cache
        def scope_in(folder: str) -> IgnoreScope | None:
            if folder in self.roots:
                return agent_scope_above(self._ignore_roots[folder], folder).with_own_rules(PresentNames(folder))
            parent_scope = scope_in(os.path.dirname(folder)) if is_inside(folder, self.roots) else None
            return parent_scope and parent_scope.enter(folder, PresentNames(folder))

        try:
            for folder, entry_names in sorted(entries.items()):  # parents come first
                scope = scope_in(folder)
                if scope is not None and scope.agent:
                    paths = {entry: os.path.join(folder, entry) for entry in entry_names}
                    if any(scope.deciding_file(entry, is_folder=path in entries) for entry, path in paths.items()):
                        return True
        except ToolError:
            return True  # one of the agent-ignore files cannot be read or parsed
        return False


class HiddenFileScanner:
    """Runs the scans for all of the server's commands, and caches unchanged folders."""

    def __init__(self) -> None:
        self._folders = StampedCache[_ScannedFolder](MAX_CACHED_FOLDERS)
        self._trees: dict[Hashable, _RuleTree] = {}
        self._lock = threading.Lock()

    def scan(self, workspace: Workspace, rules: Rules) -> HiddenFiles:
        """Return the files that commands in a workspace currently may not read or change. Blocking."""
        tree = self._tree(workspace, rules)
        return tree.scan() if tree is not None else HiddenFiles()

    def stores_hidden(self, workspace: Workspace, hidden_files: HiddenFiles, rules: Rules) -> tuple[str, ...]:
        """Return the real paths of the repositories that store hidden files, or that cannot be checked. Blocking."""
        tree = self._tree(workspace, rules)
        if tree is None or not (hidden_files.ignore_files or tree.reads):
            return ()
        tops: dict[str, list[str]] = {}
        for top in sorted({*filter(None, map(work_tree_above, tree.roots)), *hidden_files.repositories}):
            if (store := store_of(top)) is not None:
                tops.setdefault(store, []).append(top)
                for inner, name in stores_of_submodules(store):
                    tops.setdefault(inner, []).append(os.path.join(top, name))

        def holds(store: str, work_trees: Sequence[str]) -> bool:
            def is_any_hidden(names: Collection[str] | None) -> bool:
                if names is None:
                    # Agent-ignore files that hide nothing on disk mostly name build output, which is rarely committed.
                    return tree.reads or bool(hidden_files.unreadable)
                return any(tree.hides_any(hidden_files, top, names) for top in work_trees)

            query = hidden_files.unreadable, hidden_files.ignore_files, tuple(work_trees)
            return tree.stores.holds(store, tree.roots, query, is_any_hidden, default=bool(hidden_files.unreadable))

        return tuple(store for store, work_trees in tops.items() if holds(store, work_trees))

    def _tree(self, workspace: Workspace, rules: Rules) -> _RuleTree | None:
        patterns = _patterns(rules, workspace.roots)
        if not workspace.roots or not (patterns or workspace.respect_agent_ignore):
            return None
        of_rules = tuple((pattern.bit, pattern.rule) for pattern in patterns)
        key = workspace.roots, workspace.ignore_roots, workspace.respect_agent_ignore, of_rules
        with self._lock:
            if key not in self._trees:
                if len(self._trees) >= MAX_CACHED_TREES:
                    self._trees.clear()
                self._trees[key] = _RuleTree(workspace, patterns, self._folders)
            return self._trees[key]


@dataclass(frozen=True, slots=True)
class LiftedLimits:
    """Real paths in which consent lifts limits on files."""

    asked: set[str] = field(default_factory=set[str])  # files that rules ask about before reading are visible
    ignored: set[str] = field(default_factory=set[str])  # files that agent-ignore files hide are visible
    protected: set[str] = field(default_factory=set[str])  # files that rules ask about before editing are writable


def restrictions(
    hidden_files: HiddenFiles,
    rules: Rules,
    roots: Sequence[str],
    kind: ViewKind,
    stores: Sequence[str],
    *,
    lifted: LiftedLimits,
    is_asked: bool,
) -> FileRestrictions:
    """Turn the results of a scan with these rules into restrictions for a command in a view.

    The content of the repositories `stores` is masked too. `is_asked` is true if the user was asked about the command.
    """
    masked_files = [
        *hidden_files.denied,
        *(part for file in hidden_files.asked for part in remaining_parts(file, lifted.asked)),
    ]
    for file in hidden_files.ignored:
        # A command that can change files sees the folders that agent-ignore files hide, because programs need folders
        # such as `node_modules`. If the user was asked, the command also sees single files that agent-ignore files
        # hide.
        hides = kind is ViewKind.READING or (kind is ViewKind.WORKING and not is_asked and not file.is_folder)
        masked_files += remaining_parts(file, lifted.ignored) if hides else ()
    read_only = [
        *hidden_files.protected,
        *(part for file in hidden_files.protected_unless_asked for part in remaining_parts(file, lifted.protected)),
    ]
    strict = (*rules.deny, *(() if is_asked else rules.ask))
    bare = [rule for rule in strict if rule.specifier is None and rule.governs(Access.WRITE)]
    kept_roots = roots if bare else ()
    masks = tuple(outermost(file.path for file in masked_files))
    keeps = outermost(file.path for file in read_only if not is_inside(file.path, masks))
    mounts = dict.fromkeys((*masks, *keeps))
    pinned_folders: dict[str, None] = {}
    for path in mounts:
        root = max((root for root in roots if contains(root, path)), key=len, default=None)
        while root is not None and root not in (path, path := os.path.dirname(path)) and path not in pinned_folders:
            pinned_folders[path] = None
    return FileRestrictions(
        masked=(*masks, *chain.from_iterable(map(stored_in, stores))),
        read_only=(*dict.fromkeys((*kept_roots, *keeps)),),
        pinned=tuple(folder for folder in pinned_folders if folder not in mounts),
        why={file.path: file.reason for file in (*masked_files, *read_only)}
        | dict.fromkeys(kept_roots, "".join(map(str, bare[:1]))),
    )


def remaining_parts(file: HiddenFile, opened_paths: Collection[str]) -> list[HiddenFile]:
    """Return the parts of a hidden file or folder that stay hidden if `opened_paths` are made accessible."""
    if is_inside(file.path, opened_paths):
        return []
    inside = [path for path in opened_paths if contains(file.path, path)]
    if not inside:
        return [file]
    try:
        with os.scandir(file.path) as dir_entries:
            entries = [entry for entry in islice(dir_entries, MAX_HIDDEN + 1) if not entry.is_symlink()]
        if len(entries) > MAX_HIDDEN:
            return [file]
        children = [replace(file, path=entry.path, is_folder=entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return [file]
    return [part for child in children for part in remaining_parts(child, inside)]
