"""What a path that is being typed may become: the entries of one folder, or files anywhere below by part of their name.

Only the one folder is listed, however large the tree around it. The look below is for a few characters without a
folder; it has a time of its own and gives what it found by then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.contract.errors import PathNotInWorkspaceError, ToolError
from tools.contract.limits import AbortSignal, Deadline
from tools.files.find.walk import CHECK_EVERY, Filters, Selection, Walk
from tools.files.ignore_files import agent_ignore_file, is_hidden_target, scope_of
from tools.files.opener import Entry, PathKind
from tools.files.workspace import Location, Workspace

_PIECE = re.compile(
    r"""\\(?P<escaped>[\s,"'])|"(?P<quoted>[^"]*)"|(?P<braces>\{[^{}\s"']*\})|(?P<plain>[^\s,"])|"(?P<open>[^"]*)\Z""",
    re.DOTALL,
)
_PIECE_WITHOUT_ESCAPES = re.compile(_PIECE.pattern.removeprefix(r"""\\(?P<escaped>[\s,"'])|"""), re.DOTALL)
"""Where the backslash separates folders it protects nothing."""

_SINGLE_QUOTED = re.compile(r"'(?P<quoted>[^']*)'(?=[\s,]|\Z)|'(?P<open>[^']*)\Z", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,]*")
_NEEDS_QUOTES = re.compile(r"[\s,\"']")


@dataclass(frozen=True, slots=True)
class TypedPath:
    """One path of a line.

    Args:
        path: What is meant, without quotes, protecting backslashes and a leading `@`.
        start: Where it begins in the line, the `@` included.
        has_at: Whether an `@` stood before it.
        is_open: Whether its quote is not closed (yet).
    """

    path: str
    start: int
    has_at: bool = False
    is_open: bool = False


def typed_paths(line: str) -> list[TypedPath]:
    """All paths of a line, those without a name left out."""
    return [item for item in _scan(line) if item.path]


def last_typed(line: str) -> TypedPath:
    """The path at the end of a line, which is still being typed; without a name after a separator."""
    last = TypedPath("", len(line))
    for item in _scan(line):
        last = item
    return last


def spelled(path: str) -> str:
    """A path the way it has to be typed to be taken for one path."""
    at = "@" if path.startswith("@") else ""
    if not _NEEDS_QUOTES.search(path):
        return at + path
    if '"' not in path:
        return f'{at}"{path}"'
    return at + _NEEDS_QUOTES.sub(lambda found: "\\" + found.group(), path)


def _scan(line: str) -> Iterator[TypedPath]:
    """Every path, and after a separator at the end an empty one."""
    position = _end_of(_SEPARATORS, line, 0)
    while position < len(line):
        item, position = _item(line, position)
        yield item
        after = _end_of(_SEPARATORS, line, position)
        if after > position and after == len(line):
            yield TypedPath("", after)
        position = after


def _item(line: str, start: int) -> tuple[TypedPath, int]:
    """The path that begins here, and where it ends."""
    has_at = line[start] == "@"
    position = start + has_at
    single = _SINGLE_QUOTED.match(line, position)
    if single is not None:
        text = single["quoted"] if single["open"] is None else single["open"]
        return TypedPath(text, start, has_at, single["open"] is not None), single.end()
    piece = _PIECE if os.sep != "\\" else _PIECE_WITHOUT_ESCAPES
    texts: list[str] = []
    is_open = False
    while (found := piece.match(line, position)) is not None:
        texts.append(found[found.lastgroup or 0])
        is_open = found.lastgroup == "open"
        position = found.end()
    return TypedPath("".join(texts), start, has_at, is_open), position


def _end_of(pattern: re.Pattern[str], line: str, position: int) -> int:
    found = pattern.match(line, position)
    return found.end() if found else position


LIST_SECONDS = 1.0
"""How long one folder is looked at; a person waits for it between two keys."""

BELOW_SECONDS = 0.2
"""How long a look below takes at most; enough for some ten thousand files."""

MAX_BELOW = 1_000
"""Files found below among which the best are chosen."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a path may become.

    Args:
        names: Relative to the folder, best first, with forward slashes, folders with a slash at their end.
        total: How many there are; `names` may hold fewer.
        partial: There may be more than `total`: the time was up.
    """

    names: tuple[str, ...] = ()
    total: int = 0
    partial: bool = False


def entries_that_start_with(
    workspace: Workspace, folder: Location, start: str, limit: int, signal: AbortSignal
) -> Candidates:
    """The entries of a folder whose names begin with some text, in any case.

    Folders stand before files, names with a dot at their beginning last. Left out is what ignore files hide, what is
    neither file nor folder, and links that lead out of the workspace, nowhere or to what is hidden from agents.

    Args:
        workspace: Opens the folder, and says which ignore files count.
        folder: The folder; nothing is found in one that cannot be read or is hidden from agents.
        start: The beginning of a name; empty for all.
        limit: Most names to return.
        signal: Looked at between entries.

    Raises:
        ToolError: `cancelled`.
    """
    deadline = Deadline(signal, LIST_SECONDS)
    if agent_ignore_file(workspace, folder) is not None:
        return Candidates()
    try:
        with workspace.open_folder(folder.path) as opened:
            entries = opened.entries()
    except (OSError, PathNotInWorkspaceError):
        return Candidates()
    names, partial = _visible(workspace, folder, _matching(entries, start), deadline)
    names.sort(key=lambda name: (name.startswith("."), not name.endswith("/"), name.casefold(), name))
    return Candidates(tuple(names[:limit]), len(names), partial)


def _matching(entries: Sequence[Entry], start: str) -> list[Entry]:
    wanted = start.casefold()
    return [entry for entry in entries if entry[0].casefold().startswith(wanted)]


def _visible(
    workspace: Workspace, folder: Location, entries: Sequence[Entry], deadline: Deadline
) -> tuple[list[str], bool]:
    """The names that may be shown, and whether the time was up before all were looked at."""
    scope = scope_of(workspace, folder, git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    names: list[str] = []
    for number, (name, kind) in enumerate(entries):
        if (kind is PathKind.LINK or number % CHECK_EVERY == 0) and deadline.check():
            return names, True
        if kind is PathKind.OTHER or scope.hides(name, is_folder=kind is PathKind.FOLDER) is not None:
            continue
        shown = _target_kind(workspace, folder, name) if kind is PathKind.LINK else kind
        if shown is not None:
            names.append(f"{name}/" if shown is PathKind.FOLDER else name)
    return names, False


def _target_kind(workspace: Workspace, folder: Location, name: str) -> PathKind | None:
    """What a link leads to; `None` where it must not be shown."""
    try:
        target = workspace.locate(os.path.join(folder.path, name))
    except ToolError:
        return None
    kind = workspace.kind_of(target)
    if kind not in (PathKind.FILE, PathKind.FOLDER) or is_hidden_target(workspace, target, agent=True):
        return None
    return kind


class _NameHolds:
    """Files whose base name holds a text, in any case."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text.casefold()

    def chosen(self, names: list[str]) -> list[str]:
        return [name for name in names if self._text in name.casefold()]

    def enter(self, name: str) -> Selection | None:
        del name
        return self


def files_that_hold(workspace: Workspace, folder: Location, text: str, limit: int, signal: AbortSignal) -> Candidates:
    """Files anywhere below a folder whose base names hold a text, in any case; the nearest to it first.

    Args:
        workspace: Opens folders, and says which ignore files count.
        folder: Where to look.
        text: A part of a name.
        limit: Most names to return.
        signal: Looked at between folders.

    Raises:
        ToolError: `cancelled`.
    """
    filters = Filters(git=workspace.respect_git_ignore, agent=workspace.respect_agent_ignore)
    walk = Walk(workspace, filters, Deadline(signal, BELOW_SECONDS))
    found: list[str] = []
    try:
        for file in walk.files(folder, _NameHolds(text), workspace.roots):
            found.append(file.path)
            if len(found) >= MAX_BELOW:
                break
    except (OSError, PathNotInWorkspaceError):
        return Candidates()
    wanted = text.casefold()
    found.sort(key=lambda path: (not _base(path).startswith(wanted), path.count("/"), len(path), path))
    return Candidates(tuple(found[:limit]), len(found), walk.timed_out or len(found) >= MAX_BELOW)


def _base(path: str) -> str:
    return path.rpartition("/")[2].casefold()
