"""`list_directory`: what is in one folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.parameters import ToolParams
from tools.contract.result import ToolResult
from tools.filesystem.descriptors import Folder, PathKind
from tools.filesystem.finding.listing_text import count, fitting, hidden_note, one_line, page_end
from tools.filesystem.finding.options import MAX_PATTERNS, FileFilteringOptions, ShortPattern, gather_options, respects
from tools.filesystem.finding.starts import refuse_hidden
from tools.filesystem.finding.wildcards import base_name_regex
from tools.filesystem.ignore import HiddenBy, scope_of
from tools.filesystem.paths import FOLDER_ALIASES, shown
from tools.filesystem.workspace import Location, Workspace, explain

_TYPES = {PathKind.FOLDER: "directory", PathKind.FILE: "file", PathKind.LINK: "link", PathKind.OTHER: "other"}
"""What the result calls each kind."""


class LSParams(ToolParams):
    """Which folder to list."""

    path: str = Field(description="The folder to list: an absolute path, or one relative to the workspace ('.' is it).")
    ignore: list[ShortPattern] | None = Field(
        default=None,
        max_length=MAX_PATTERNS,
        description="Names to leave out; * stands for any characters, ? for one: ['*.log', 'tmp?'].",
    )
    offset: int = Field(default=0, ge=0, description="Entries to skip, to continue a listing that was cut.")
    limit: int | None = Field(default=None, ge=1, description="Most entries to return; 100 by default.")
    file_filtering_options: FileFilteringOptions | None = Field(
        default=None, description="Whether ignore files hide entries."
    )


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
        target = f" -> {one_line(self.target)}" if self.target is not None else ""
        size = f" ({self.size} bytes)" if self.size is not None else ""
        return f"{mark}{one_line(self.name)}{target}{size}{self.note}"

    @property
    def structured(self) -> dict[str, Any]:
        """The entry for programs."""
        return {"name": self.name, "type": self.type, "size": self.size, "target": self.target}


class LSTool(BuiltinTool[LSParams]):
    """Lists a folder."""

    name = "list_directory"
    display_name = "ReadFolder"
    aliases = ("LSTool", "ReadFolder", "ListFiles")
    description = (
        "List a directory (folder), like ls: the names of the files and subdirectories directly in it, directories "
        "first, with file sizes in bytes and link targets. Hidden dotfiles are included; entries that .gitignore or "
        "agent-ignore files hide are left out and counted. Not recursive: use glob to find files by name in a whole "
        "tree. A long listing is cut and tells the offset that continues it."
    )
    kind = Kind.SEARCH
    behaviour = READS
    params_model = LSParams
    parameter_aliases = FOLDER_ALIASES
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Absolute path of the folder."},
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "type": {"enum": ["directory", "file", "link", "other"]},
                        "size": {"type": ["integer", "null"], "description": "Bytes, for files."},
                        "target": {"type": ["string", "null"], "description": "Where a link points."},
                    },
                    "required": ["name", "type", "size", "target"],
                },
            },
            "total": {"type": "integer", "description": "Entries in the folder that are not hidden."},
            "hidden": {
                "type": "object",
                "properties": {"git": {"type": "integer"}, "agent": {"type": "integer"}},
                "required": ["git", "agent"],
            },
            "next_offset": {"type": ["integer", "null"], "description": "The offset that continues the listing."},
        },
        "required": ["path", "entries", "total", "hidden", "next_offset"],
    }

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Gather the filter options, however they were given."""
        return gather_options(arguments)

    def check(self, params: LSParams, spelled: Mapping[str, str]) -> None:
        """The path must not be blank."""
        if not params.path.strip():
            raise InvalidToolParamsError(self.name, f"'{spelled['path']}' is empty; give a folder, '.' for the first.")

    def get_description(self, params: LSParams, context: ToolContext) -> str:
        """The folder, as short as it can be said."""
        return f"List {one_line(shown(params.path, context.workspace))}"

    async def execute(self, params: LSParams, context: ToolContext) -> ToolResult:
        """List in one thread hop."""
        return await run_blocking(context.signal, lambda: _list(params, context))


def _list(params: LSParams, context: ToolContext) -> ToolResult:
    workspace = context.workspace
    location = workspace.locate(params.path)
    git, agent = respects(workspace, params.file_filtering_options)
    if agent:
        refuse_hidden(workspace, location)
    ignored = base_name_regex(params.ignore or ())
    hidden: Counter[HiddenBy] = Counter()
    entries: list[_Entry] = []
    with _opened(workspace, location) as folder:
        scope = scope_of(location, git=git, agent=agent)
        for number, (name, kind) in enumerate(folder.entries()):
            if number % 1000 == 0:
                context.signal.raise_if_aborted()
            hidden_by = scope.hides(name, is_folder=kind is PathKind.FOLDER)
            if hidden_by is not None:
                hidden[hidden_by] += 1
            elif ignored is None or not ignored.fullmatch(name):
                link = _link(workspace, location, folder, name) if kind is PathKind.LINK else None
                entries.append(link or _Entry(name, _TYPES[kind]))
        entries.sort(key=lambda item: (item.type != "directory", item.name.casefold(), item.name))
        limit = params.limit or context.limits.list_entries
        page = [_with_size(workspace, folder, item) for item in entries[params.offset : params.offset + limit]]
    return _result(location, entries, page, hidden, params.offset)


@contextmanager
def _opened(workspace: Workspace, location: Location) -> Generator[Folder]:
    try:
        with workspace.open_folder(location.path) as folder:
            yield folder
    except NotADirectoryError:
        if workspace.kind_of(location) is None:
            raise explain(FileNotFoundError(2, ""), location.spelled) from None
        raise ToolError(
            ToolErrorType.PATH_IS_NOT_A_DIRECTORY,
            f"'{location.spelled}' is a file, not a directory. Use read_file to see what is in it.",
        ) from None
    except OSError as error:
        raise explain(error, location.spelled, ToolErrorType.LS_EXECUTION_ERROR) from None


def _link(workspace: Workspace, location: Location, folder: Folder, name: str) -> _Entry:
    """A link as what it leads to."""
    plain = _Entry(name, "link", target=folder.link_target(name))
    try:
        place = workspace.locate(os.path.join(location.path, name))
    except ToolError:
        return replace(plain, note=" (leads outside the workspace)")
    kind = workspace.kind_of(place)
    if kind in (PathKind.FOLDER, PathKind.FILE):
        return replace(plain, type=_TYPES[kind], place=place)
    return replace(plain, note=" (not a regular file)" if kind is PathKind.OTHER else " (broken link)")


def _with_size(workspace: Workspace, folder: Folder, entry: _Entry) -> _Entry:
    if entry.type == "other":
        return replace(entry, note=" (not a regular file)")
    if entry.type != "file":
        return entry
    if entry.place is not None:
        size = workspace.size_of(entry.place)
    else:
        info = folder.stat(entry.name)
        size = info.st_size if info is not None else None
    return replace(entry, size=size) if size is not None else replace(entry, note=" (cannot be looked at)")


def _result(
    location: Location, entries: Sequence[_Entry], page: Sequence[_Entry], hidden: Counter[HiddenBy], offset: int
) -> ToolResult:
    total = len(entries)
    head = [f"Listed {count(total, 'item')} in {location.path}:", "---"]
    note = hidden_note(hidden)
    if not total:
        head = [f"Directory {location.path} is empty." if not note else f"Nothing to list in {location.path}."]
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
            "path": location.path,
            "entries": [entry.structured for entry in page],
            "total": total,
            "hidden": {by.value: hidden[by] for by in HiddenBy},
            "next_offset": end if left else None,
        },
    )
