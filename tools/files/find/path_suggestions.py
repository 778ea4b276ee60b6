"""Suggests paths: completions of a path that is being typed, and existing paths in place of a missing one.

A path that is being typed is completed with the entries of one folder whose names begin with the typed text, or with
files anywhere inside that folder whose names contain the typed text.

For a missing path, existing paths that look the same, or that differ only in extra text such as quotes, are suggested.
If there are none, files with similar names are searched for in the deepest existing folder of the missing path, then in
the root, except for ignored entries, excluded folders and nested roots. Paths that are forbidden, hidden from agents or
outside the workspace are never suggested.

When the time for a completion or a search is up, the paths found so far are returned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.find.folder_walk import CHECK_EVERY, Everything, Filters, Walk, visible_kind
from tools.files.ignore_files import agent_ignore_file, is_hidden_target, scope_of
from tools.files.path_opener import PathKind, may_block
from tools.files.workspace import Location, Workspace, contains
from tools.text.file_names import exact_path, shown_whole_path
from tools.text.look_alikes import visible_form

_PIECE = re.compile(
    r"""\\(?P<escaped>[\s,"'])|"(?P<quoted>[^"]*)"|(?P<braces>\{[^{}\s"']*\})|(?P<plain>[^\s,"])|"(?P<open>[^"]*)\Z""",
    re.DOTALL,
)
# If the backslash separates folders, as on Windows, it is not an escape
_PIECE_WITHOUT_ESCAPES = re.compile(_PIECE.pattern.removeprefix(r"""\\(?P<escaped>[\s,"'])|"""), re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'(?P<quoted>[^']*)'(?=[\s,]|\Z)|'(?P<open>[^']*)\Z", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,]*")
_NEEDS_QUOTES = re.compile(r"[\s,\"']")


@dataclass(frozen=True, slots=True)
class TypedPath:
    path: str  # the path without quotes, escapes or a leading `@`
    start: int  # the position in the line where the path, or the `@` before it, starts
    has_at: bool = False  # whether there is an `@` before the path
    is_open: bool = False  # whether the path has a quote that is not yet closed


def typed_paths(line: str) -> list[TypedPath]:
    return [item for item in _scan(line) if item.path]


def last_typed(line: str) -> TypedPath:
    """Return the path being typed at the end of a line; empty after a separator outside quotes and escapes."""
    return [TypedPath("", len(line)), *_scan(line)][-1]


def quoted_path(path: str) -> str:
    """Return a path with quotes or escapes, so that it is read as a single path."""
    at_sign = "@" if path.startswith("@") else ""
    if not _NEEDS_QUOTES.search(path):
        return at_sign + path
    if '"' not in path:
        return f'{at_sign}"{path}"'
    return at_sign + _NEEDS_QUOTES.sub(lambda match: "\\" + match.group(), path)


def _scan(line: str) -> Iterator[TypedPath]:
    """Yield every path, and an empty path after a final separator."""
    piece_pattern = _PIECE if os.sep != "\\" else _PIECE_WITHOUT_ESCAPES
    position = _after_separators(line, 0)
    while position < len(line):
        start, has_at = position, line[position] == "@"
        position += has_at
        texts: list[str] = []
        is_open = False
        single = _SINGLE_QUOTED.match(line, position)
        if single is not None:
            is_open = single["open"] is not None
            texts.append(single["open"] if is_open else single["quoted"])
            position = single.end()
        else:
            while (match := piece_pattern.match(line, position)) is not None:
                texts.append(match[match.lastgroup or 0])
                is_open = match.lastgroup == "open"
                position = match.end()
        yield TypedPath("".join(texts), start, has_at, is_open)
        end, position = position, _after_separators(line, position)
        if end < position == len(line):
            yield TypedPath("", position)


def _after_separators(line: str, position: int) -> int:
    match = _SEPARATORS.match(line, position)
    return match.end() if match else position


LIST_SECONDS = 1.0  # time to examine one folder, while a person waits between keystrokes
BELOW_SECONDS = 0.2  # time for a search of all files inside a folder; enough for about ten thousand files
MAX_BELOW = 1_000  # number of matching files after which a search inside a folder stops


@dataclass(frozen=True, slots=True)
class Candidates:
    # Paths relative to the folder, best first, with forward slashes; folders end in a slash
    names: tuple[str, ...] = ()
    total: int = 0  # the number of completions; `names` may contain fewer
    partial: bool = False  # whether there may be more than `total`, because a limit was reached


def entries_that_start_with(
    workspace: Workspace, folder: Location, start: str, limit: int | None, signal: AbortSignal
) -> Candidates:
    """Return the entries of a folder whose names begin with `start`, without regard to case.

    Folders come before files, and dotfiles last. Entries that are ignored, or neither files nor folders, are omitted,
    and so are symlinks that are broken, leave the workspace or lead to hidden files. An unreadable or hidden folder has
    no completions.
    """
    deadline = Deadline(signal, LIST_SECONDS)
    if agent_ignore_file(workspace, folder) is not None:
        return Candidates()
    try:
        with workspace.open_folder(folder.path) as folder_handle:
            entries = folder_handle.entries()
    except (OSError, PathNotInWorkspaceError):
        return Candidates()
    scope = scope_of(workspace, folder, git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    prefix, names, is_partial = start.casefold(), list[str](), False
    kinds = (entries.files, PathKind.FILE), (entries.folders, PathKind.FOLDER), (entries.links, PathKind.LINK)
    matching_entries = [
        (name, kind) for kind_names, kind in kinds for name in kind_names if name.casefold().startswith(prefix)
    ]
    for number, (name, kind) in enumerate(matching_entries):
        if (kind is PathKind.LINK or number % CHECK_EVERY == 0) and deadline.check():
            is_partial = True
            break
        if scope.hides(name, is_folder=kind is PathKind.FOLDER) is not None:
            continue
        is_link = kind is PathKind.LINK
        target_kind = visible_kind(workspace, os.path.join(folder.name, name)) if is_link else kind
        if target_kind in (PathKind.FILE, PathKind.FOLDER):
            names.append(f"{name}/" if target_kind is PathKind.FOLDER else name)
    names.sort(key=lambda name: (name.startswith("."), not name.endswith("/"), name.casefold(), name))
    return Candidates(tuple(names[:limit]), len(names), is_partial)


@dataclass(frozen=True, slots=True)
class _NameContains(Everything):
    text: str  # in lower case

    def select(self, names: list[str], /) -> list[str]:
        return [name for name in names if self.text in name.casefold()]


def files_containing(workspace: Workspace, folder: Location, text: str, limit: int, signal: AbortSignal) -> Candidates:
    """Return files anywhere inside a folder whose base names contain `text` in any case.

    Files whose names begin with `text` come first. Within each group, less nested files come first.
    """
    filters = Filters(git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    walk = Walk(workspace, filters, Deadline(signal, BELOW_SECONDS))
    paths, folded_text = list[str](), text.casefold()
    try:
        for file in walk.files(folder, _NameContains(folded_text), workspace.roots):
            paths.append(file.path)
            if len(paths) >= MAX_BELOW:
                break
    except (OSError, PathNotInWorkspaceError):
        return Candidates()

    def rank(path: str) -> tuple[bool, int, int, str]:
        return not path.rpartition("/")[2].casefold().startswith(folded_text), path.count("/"), len(path), path

    return Candidates(tuple(sorted(paths, key=rank)[:limit]), len(paths), walk.timed_out or len(paths) >= MAX_BELOW)


NEAR_SECONDS = 0.2  # time to search for similar names; enough for about ten thousand files
MAX_PROPOSED = 3
MIN_LIKENESS = 0.7  # minimum similarity of two names; the similarity of equal names is 1
_CHECK_EVERY = 200  # how many names are compared between checks of the clock
# Text that often surrounds paths, and its replacement
_MARKS = (
    (re.compile(r"""^[`'"<\u2018\u201c]*@?|[`'">\u2019\u201d,;.]+$"""), ""),
    (re.compile(r"\\"), "/"),
    (re.compile(r"(?:[:#]L?\d+(?:[-:,]L?\d+)*|\(\d+(?:,\s*\d+)?\))$"), ""),  # a position in the file: `:12:5`, `#L3-L7`
    (re.compile(r"^(?:file://(?:localhost)?|[ab]/(?=.))", re.IGNORECASE), ""),  # prefix of a URI or a diff
)


def missing_path_error(
    workspace: Workspace,
    location: Location,
    signal: AbortSignal,
    *,
    folders: bool = False,  # whether folders are also suggested
    consequence: str = "",  # a clause that begins with a comma, such as ", so nothing was searched"
    advice: str = "",  # a last sentence that begins with a space
    code: ToolErrorType = ToolErrorType.FILE_NOT_FOUND,
) -> ToolError:
    suggestion = proposal(workspace, location, Deadline(signal, NEAR_SECONDS), folders=folders)
    return ToolError(code, f"'{location.shown}' does not exist{consequence}.{suggestion}{advice}")


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
    alternatives = likely_locations(workspace, location)
    if not alternatives:
        target = location
        for text in _simplified_paths(location.raw_path):
            with suppress(ToolError):
                target = workspace.locate(text)
        alternatives = _similar_paths(workspace, target, deadline, folders)
    if not alternatives:
        return otherwise
    is_relative = not os.path.isabs(location.raw_path)
    names: list[str] = []
    for alternative in alternatives:
        name = alternative.relative if is_relative and alternative.root == workspace.first_root else alternative.name
        names.append(f"'{shown_whole_path(name) if visible_form(name) == name else exact_path(name)}'")
    return f" Did you mean {' or '.join(names)}?"


def likely_locations(workspace: Workspace, location: Location, *, is_new: bool = False) -> list[Location]:
    """Return existing paths that the caller may have meant instead of a missing path.

    Extra text that people or models add, such as quotes, is removed. If the resulting path does not exist either, the
    paths that look the same are returned. If `is_new` is true, diff prefixes are kept, because a new file may be in a
    folder named `a` or `b`.
    """
    for text in _simplified_paths(location.raw_path, _MARKS[:-1] if is_new else _MARKS):
        try:
            target = workspace.locate(text, by_look=True)
        except ToolError:
            continue
        if workspace.kind_of(target) is not None and not is_hidden_target(workspace, target, agent=True):
            return [target]
    # Reads accept a unique look-alike without asking, so this matters only for changes, or if there are several.
    look_alikes = [workspace.at(path) for _, path in workspace.look_alikes(location.path)[:MAX_PROPOSED]]
    return [look_alike for look_alike in look_alikes if not is_hidden_target(workspace, look_alike, agent=True)]


def _simplified_paths(raw_path: str, marks: Sequence[tuple[re.Pattern[str], str]] = _MARKS) -> Iterator[str]:
    text = raw_path.strip()
    for pattern, replacement in marks:
        new_text = pattern.sub(replacement, text)
        if new_text != text and new_text.strip():
            text = new_text
            yield text
    if unquote(text) != text:
        yield unquote(text)


def _similar_paths(workspace: Workspace, location: Location, deadline: Deadline, folders: bool) -> list[Location]:
    """Find files with the most similar names in the same folder or elsewhere in the root.

    If there are none and the folder is missing too, find folders with names similar to the missing folder's name.
    """
    missing_path, parent = location.path, os.path.dirname(location.path)
    while contains(location.root, parent) and workspace.kind_of(workspace.at(parent)) is not PathKind.FOLDER:
        missing_path, parent = parent, os.path.dirname(parent)
    if not contains(location.root, parent) or deadline.check():
        return []
    root = workspace.at(location.root)
    filters = Filters(git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    ranking = _Ranking(location.relative)

    def candidates() -> Iterator[str]:
        folder_location = workspace.at(parent)
        prefix = "" if parent == location.root else f"{folder_location.relative}/"
        for name in entries_that_start_with(workspace, folder_location, "", None, deadline.signal).names:
            if folders or not name.endswith("/"):
                yield prefix + name.removesuffix("/")
        seen: set[str] = set()
        for entry in Walk(workspace, filters, deadline).files(root, Everything(), workspace.roots):
            yield entry.path
            folder = entry.path.rpartition("/")[0]
            while folders and folder and folder not in seen:
                seen.add(folder)
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
    if not ranking.best and missing_path != location.path:
        return _similar_paths(workspace, workspace.at(missing_path), deadline, True)
    return [workspace.below(root, path) for path in ranking.best]


class _Ranking:
    """Ranks paths relative to the root by their similarity to the wanted path."""

    def __init__(self, wanted_path: str) -> None:
        import difflib  # noqa: PLC0415 - rarely needed

        self._folder, _, self._name = _key(wanted_path).rpartition("/")
        self._stem, self._suffix = os.path.splitext(self._name)
        self._matcher = difflib.SequenceMatcher(None, b=self._stem, autojunk=False)
        self._likeness: dict[str, float] = {}  # caching the method would create a reference cycle
        self._rated: dict[str, float] = {}

    def add(self, path: str) -> None:
        folder, _, name = _key(path).rpartition("/")
        if name not in self._likeness:
            self._likeness[name] = self._likeness_of(name)
        likeness = self._likeness[name]
        if likeness < MIN_LIKENESS:
            return
        # The wanted folder is best. Next come folders whose path ends with the wanted path, or vice versa.
        long, short = sorted((f"/{folder}", f"/{self._folder}" if self._folder else ""), key=len, reverse=True)
        if folder == self._folder:
            likeness += 0.3
        elif long.endswith(short):
            likeness += max(0.1, 0.25 - 0.01 * long.count("/"))
        self._rated[path] = likeness

    @property
    def best(self) -> list[str]:
        """Return the best path and a few others that are nearly as good."""
        best_paths = sorted(self._rated, key=lambda path: (-self._rated[path], path))[:MAX_PROPOSED]
        return [path for path in best_paths if self._rated[path] > self._rated[best_paths[0]] - 0.1]

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
