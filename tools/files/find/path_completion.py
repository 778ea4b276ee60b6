"""Completes a path that is being typed, with entries of one folder, or with files anywhere inside it.

For entries, only that one folder is listed, however large the tree is. If a few characters are typed without a folder,
files whose names contain them are searched for in the whole tree. This search has its own time limit, and returns what
it has found when the time is up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.limits import AbortSignal, Deadline
from tools.contract.tool_errors import PathNotInWorkspaceError
from tools.files.find.folder_walk import CHECK_EVERY, Everything, Filters, Walk, visible_kind
from tools.files.ignore_files import agent_ignore_file, scope_of
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace

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
    """Return all paths in a line, except empty ones."""
    return [item for item in _scan(line) if item.path]


def last_typed(line: str) -> TypedPath:
    """Return the path being typed at the end of a line. After a separator, the path is empty."""
    return [TypedPath("", len(line)), *_scan(line)][-1]


def quoted_path(path: str) -> str:
    """Return a path with quotes or escapes, so that it is read as a single path."""
    at = "@" if path.startswith("@") else ""
    if not _NEEDS_QUOTES.search(path):
        return at + path
    if '"' not in path:
        return f'{at}"{path}"'
    return at + _NEEDS_QUOTES.sub(lambda found: "\\" + found.group(), path)


def _scan(line: str) -> Iterator[TypedPath]:
    """Yield every path, and an empty one after a final separator."""
    quotable = _PIECE if os.sep != "\\" else _PIECE_WITHOUT_ESCAPES
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
            while (found := quotable.match(line, position)) is not None:
                texts.append(found[found.lastgroup or 0])
                is_open = found.lastgroup == "open"
                position = found.end()
        yield TypedPath("".join(texts), start, has_at, is_open)
        end, position = position, _after_separators(line, position)
        if end < position == len(line):
            yield TypedPath("", position)


def _after_separators(line: str, position: int) -> int:
    found = _SEPARATORS.match(line, position)
    return found.end() if found else position


LIST_SECONDS = 1.0  # time to examine one folder, while a person waits between keystrokes
BELOW_SECONDS = 0.2  # time for a search of all files inside a folder; enough for about ten thousand
MAX_BELOW = 1_000  # number of files after which such a search stops; the best of these files are returned


@dataclass(frozen=True, slots=True)
class Candidates:
    # Paths relative to the folder, best first, with forward slashes; folders end in a slash
    names: tuple[str, ...] = ()
    total: int = 0  # the number of completions; `names` may have fewer
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
        with workspace.open_folder(folder.path) as opened:
            entries = opened.entries()
    except (OSError, PathNotInWorkspaceError):
        return Candidates()
    scope = scope_of(workspace, folder, git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    wanted, names, is_partial = start.casefold(), list[str](), False
    kinds = (entries.files, PathKind.FILE), (entries.folders, PathKind.FOLDER), (entries.links, PathKind.LINK)
    matching = [(name, kind) for some, kind in kinds for name in some if name.casefold().startswith(wanted)]
    for number, (name, kind) in enumerate(matching):
        if (kind is PathKind.LINK or number % CHECK_EVERY == 0) and deadline.check():
            is_partial = True
            break
        if scope.hides(name, is_folder=kind is PathKind.FOLDER) is not None:
            continue
        is_link = kind is PathKind.LINK
        shown = visible_kind(workspace, os.path.join(folder.name, name)) if is_link else kind
        if shown in (PathKind.FILE, PathKind.FOLDER):
            names.append(f"{name}/" if shown is PathKind.FOLDER else name)
    names.sort(key=lambda name: (name.startswith("."), not name.endswith("/"), name.casefold(), name))
    return Candidates(tuple(names[:limit]), len(names), is_partial)


@dataclass(frozen=True, slots=True)
class _NameHolds(Everything):
    text: str  # in lower case

    def chosen(self, names: list[str]) -> list[str]:
        return [name for name in names if self.text in name.casefold()]


def files_that_hold(workspace: Workspace, folder: Location, text: str, limit: int, signal: AbortSignal) -> Candidates:
    """Return files inside a folder whose base names contain `text`, without regard to case.

    Names that begin with the text come first, then the least nested files.
    """
    filters = Filters(git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    walk = Walk(workspace, filters, Deadline(signal, BELOW_SECONDS))
    found, wanted = list[str](), text.casefold()
    try:
        for file in walk.files(folder, _NameHolds(wanted), workspace.roots):
            found.append(file.path)
            if len(found) >= MAX_BELOW:
                break
    except (OSError, PathNotInWorkspaceError):
        return Candidates()

    def rank(path: str) -> tuple[bool, int, int, str]:
        return not path.rpartition("/")[2].casefold().startswith(wanted), path.count("/"), len(path), path

    return Candidates(tuple(sorted(found, key=rank)[:limit]), len(found), walk.timed_out or len(found) >= MAX_BELOW)
