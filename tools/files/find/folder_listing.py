"""The work of `list_directory`: the entries that nothing hides, in order, as many as a page and the text hold."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tools.call.context import ToolContext
from tools.contract.errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.limits import AbortSignal
from tools.contract.names_on_one_line import sendable_name, shown_name, shown_whole_path
from tools.contract.results import ToolResult
from tools.files.find.file_filtering import respects
from tools.files.find.walk import MAX_TEXT_BYTES, count, fitting, hidden_note, page_end
from tools.files.ignore_files import HiddenBy, Scope, refuse_hidden, scope_of
from tools.files.opener import Entry, Folder, PathKind
from tools.files.workspace import Location, Workspace, missing

if TYPE_CHECKING:
    from tools.builtin.list_directory import LSParams


_TYPES = {PathKind.FOLDER: "directory", PathKind.FILE: "file", PathKind.LINK: "link", PathKind.OTHER: "other"}
"""What the result calls each kind."""

CHECK_EVERY = 1_000
"""Entries between two looks at the signal."""

MAX_SORTED_LINKS = 500
"""Links that are followed before a page is shown, so that those to folders stand among the folders; where a folder
has more, all of them stand among the files. A link costs microseconds, but one made to cost much some milliseconds."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the folder.

    Args:
        name: Its base name.
        type: `directory`, `file`, `link` (broken, or leading out of the workspace) or `other` (device, pipe, socket).
        place: What a link leads to, inside the workspace.
        target: Where a link points, as it is written in the link.
        size: In bytes; known for the files of the page that is returned.
        note: What else there is to say.
    """

    name: str
    type: str
    place: Location | None = None
    target: str | None = None
    size: int | None = None
    note: str = ""

    @property
    def line(self) -> str:
        """The entry in the text."""
        mark = "[DIR] " if self.type == "directory" else ""
        target = f" -> {shown_whole_path(self.target)}" if self.target is not None else ""
        size = f" ({self.size} bytes)" if self.size is not None else ""
        return f"{mark}{shown_name(self.name)}{target}{size}{self.note}"

    @property
    def structured(self) -> dict[str, Any]:
        """The entry for programs."""
        return {
            "name": sendable_name(self.name),
            "type": self.type,
            "size": self.size,
            "target": None if self.target is None else sendable_name(self.target),
        }


def list_folder(params: LSParams, context: ToolContext) -> ToolResult:
    """List, blocking.

    Raises:
        ToolError: There is no such folder, or it cannot be read or may not be listed.
    """
    workspace = context.workspace
    location = workspace.locate(params.path)
    git, agent = respects(workspace, params.file_filtering_options)
    if agent:
        refuse_hidden(workspace, location, "listed")
    ignored = _name_test(params.ignore or ())
    with _opened(workspace, location) as folder:
        scope = scope_of(workspace, location, git=git, agent=agent)
        kept, hidden = _without_hidden(folder.entries(), scope, ignored, context.signal)
        contents = _Contents(workspace, location, folder, context.signal)
        order = contents.ordered(kept)
        limit = params.limit or context.limits.list_entries
        page = contents.page(order[params.offset : params.offset + limit])
    return _result(location, len(order), page, hidden, params.offset)


def _name_test(patterns: Sequence[str]) -> Callable[[str], object] | None:
    """What tells whether a name fits patterns in which `*` and `?` alone are special; `None` without a pattern."""
    expressions = [fnmatch.translate(pattern.replace("[", "[[]")) for pattern in patterns]
    return re.compile("|".join(expressions)).match if expressions else None


def _without_hidden(
    entries: Sequence[Entry], scope: Scope, ignored: Callable[[str], object] | None, signal: AbortSignal
) -> tuple[list[Entry], Counter[HiddenBy]]:
    """The entries that neither rules nor the call leave out, and how many the rules hide."""
    hidden: Counter[HiddenBy] = Counter()
    kept: list[Entry] = []
    for number, entry in enumerate(entries):
        if number % CHECK_EVERY == 0:
            signal.raise_if_aborted()
        name, kind = entry
        hidden_by = scope.hides(name, is_folder=kind is PathKind.FOLDER)
        if hidden_by is not None:
            hidden[hidden_by] += 1
        elif ignored is None or not ignored(name):
            kept.append(entry)
    return kept, hidden


@contextmanager
def _opened(workspace: Workspace, location: Location) -> Generator[Folder]:
    try:
        with workspace.open_folder(location.path) as folder:
            yield folder
    except NotADirectoryError:
        kind = workspace.kind_of(location)
        if kind is None:
            raise missing(location.shown) from None
        if kind is PathKind.OTHER:
            raise ToolError(
                ToolErrorType.PATH_IS_NOT_A_DIRECTORY,
                f"'{location.shown}' is neither a folder nor a regular file (a device, pipe or socket); "
                "it is never opened.",
            ) from None
        raise ToolError(
            ToolErrorType.PATH_IS_NOT_A_DIRECTORY,
            f"'{location.shown}' is a file, not a directory. Use read_file to see what is in it.",
        ) from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.LS_EXECUTION_ERROR) from None


class _Contents:
    """Looks at the entries of one folder, and at no more of them than it must: a link may lead through many others.

    Args:
        workspace: Follows links.
        location: The folder.
        folder: The same, open.
        signal: Looked at before each entry.
    """

    def __init__(self, workspace: Workspace, location: Location, folder: Folder, signal: AbortSignal) -> None:
        self._workspace = workspace
        self._location = location
        self._folder = folder
        self._signal = signal
        self._links: dict[str, _Entry] = {}

    def ordered(self, entries: Sequence[Entry]) -> list[Entry]:
        """Folders first, then by name whatever its case."""
        links = [name for name, kind in entries if kind is PathKind.LINK]
        followed = links if len(links) <= MAX_SORTED_LINKS else []
        folders = {name for name in followed if self._link(name).type == "directory"}
        # Plain tuples, since a folder may hold very many entries.
        order = [
            (kind is not PathKind.FOLDER and name not in folders, name.casefold(), name, kind) for name, kind in entries
        ]
        order.sort()  # names differ, so kinds are never compared
        return [(name, kind) for _, _, name, kind in order]

    def page(self, entries: Sequence[Entry]) -> list[_Entry]:
        """What is known of some entries, as many as the text has room for."""
        page: list[_Entry] = []
        room = MAX_TEXT_BYTES
        for name, kind in entries:
            if room < 0:
                break
            self._signal.raise_if_aborted()
            entry = self._with_size(self._link(name) if kind is PathKind.LINK else _Entry(name, _TYPES[kind]))
            room -= len(entry.line)
            page.append(entry)
        return page

    def _link(self, name: str) -> _Entry:
        """A link as what it leads to."""
        if name not in self._links:
            self._signal.raise_if_aborted()
            self._links[name] = self._followed(name)
        return self._links[name]

    def _followed(self, name: str) -> _Entry:
        plain = _Entry(name, "link", target=self._folder.link_target(name))
        try:
            place = self._workspace.locate(os.path.join(self._location.path, name))
        except PathNotInWorkspaceError:
            return replace(plain, note=" (leads outside the workspace)")
        except ToolError:
            return replace(plain, note=" (broken link)")
        kind = self._workspace.kind_of(place)
        if kind in (PathKind.FOLDER, PathKind.FILE):
            return replace(plain, type=_TYPES[kind], place=place)
        return replace(plain, note=" (not a regular file)" if kind is PathKind.OTHER else " (broken link)")

    def _with_size(self, entry: _Entry) -> _Entry:
        if entry.type == "other":
            return replace(entry, note=" (not a regular file)")
        if entry.type != "file":
            return entry
        if entry.place is not None:
            size = self._workspace.size_of(entry.place)
        else:
            info = self._folder.stat(entry.name)
            size = info.st_size if info is not None else None
        return replace(entry, size=size) if size is not None else replace(entry, note=" (cannot be looked at)")


def _result(
    location: Location, total: int, page: Sequence[_Entry], hidden: Counter[HiddenBy], offset: int
) -> ToolResult:
    where = shown_whole_path(location.path)
    head = [f"Listed {count(total, 'item')} in {where}:", "---"]
    note = hidden_note(hidden)
    if not total:
        head = [f"Directory {where} is empty." if not note else f"Nothing to list in {where}."]
    lines = [entry.line for entry in page]
    page = page[: fitting(lines, head)]
    end = offset + len(page)
    left = max(0, total - end)
    text = [*head, *lines[: len(page)]]
    text += page_end(total, offset, len(page), "item")
    if note:
        text += ["", f"({note}; file_filtering_options can show them)"]
    summary = f"Listed {count(total, 'item')}" + (f" ({note})" if note else "") + (" (truncated)" if left else "")
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary,
        structured={
            "path": sendable_name(location.path),
            "entries": [entry.structured for entry in page],
            "total": total,
            "hidden": {by.value: hidden[by] for by in HiddenBy},
            "next_offset": end if left else None,
        },
    )
