"""Many files one after the other, as far as the budget goes: the body of `read_many_files`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

from tools.contract.context import ToolContext
from tools.contract.errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.ledger import SeenFile
from tools.contract.names import shown_path, shown_whole_path
from tools.contract.result import InlineDataPart, Part, TextPart
from tools.filesystem.descriptors import Folder, OpenedFile
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.selection import Candidate
from tools.filesystem.ignore_files import agent_ignore_file
from tools.filesystem.reading.content import Beginning, look_at, plain_text, read_on
from tools.filesystem.reading.line_window import Wanted
from tools.filesystem.reading.media import FileKind
from tools.filesystem.reading.outcome import Reading
from tools.filesystem.reading.pdf import MAX_SECONDS as MAX_PDF_SECONDS
from tools.filesystem.workspace import Location, Workspace, explain

MAX_MEDIA_BYTES = 10_000_000
"""Raw bytes of images and the like in one result; base64 makes 13 MB of it."""


class Wish:
    """Whether media are wanted: those that an entry names, or whose extension it holds.

    Args:
        entries: What was asked for.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = "\n".join(entries).lower()

    def names(self, path: str) -> bool:
        """Whether an entry names a file or its extension."""
        name = os.path.basename(path).lower()
        suffix = os.path.splitext(name)[1]
        return bool(suffix) and (suffix in self._entries or name in self._entries)


class _Neighbours:
    """Locates and opens files one after the other, and makes use of it that most lie in the folder of the one before.

    The second of a folder opens that folder, and from then on names in it lead to the files. That is quicker than
    whole paths, and as safe: no link is followed to the folder, nor in it.

    Args:
        workspace: Whose files they are.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._above = ""
        self._root = ""
        self._folder: Folder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def locate(self, candidate: Candidate) -> Location:
        """Where the next file is; what lies in one folder lies in one root."""
        path = candidate.path
        above = path[: path.rfind(os.sep) + 1]
        if above != self._above:
            self._leave()
            location = candidate.location(self._workspace)
            self._above, self._root = above, location.root
            return location
        if self._folder is None:
            self._enter()
        return candidate.named or Location(self._root, path, path)

    def open_file(self, location: Location) -> OpenedFile:
        """Open the file that was located last, as the workspace does."""
        if self._folder is not None:
            try:
                return self._folder.open_file(location.path[len(self._above) :])
            except OSError:
                pass  # by its path it cannot be opened either, and the workspace says why
        return self._workspace.open_file(location)

    def _enter(self) -> None:
        # A folder that may not be listed, or that was exchanged: its files are opened, or refused, by their paths.
        with suppress(OSError, PathNotInWorkspaceError):
            self._folder = self._workspace.open_folder(self._above)

    def _leave(self) -> None:
        if self._folder is not None:
            with self._folder:
                self._folder = None


@dataclass(slots=True)
class Batch:
    """Reads files until the budget is used up.

    Args:
        context: Opens files and sets the limits.
        deadline: How long it may take.
        wish: Which media are wanted.
        is_checked: Found files are known not to be hidden from agents.
        skipped: Files not read, with the reason.
        parts: What was read.
        read_paths: The files that were read.
        rest: Files that were left for the budget's sake.
        timed_out: The time did not suffice.
    """

    context: ToolContext
    deadline: Deadline
    wish: Wish
    is_checked: bool
    skipped: list[tuple[str, str]]
    parts: list[Part] = field(default_factory=list[Part])
    read_paths: list[str] = field(default_factory=list[str])
    rest: list[Candidate] = field(default_factory=list[Candidate])
    timed_out: bool = False
    _chars: int = 0
    _media: int = 0
    _pdf_seconds: float = MAX_PDF_SECONDS

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read one file after the other; a failing one does not stop the rest.

        Raises:
            ToolError: `cancelled`.
        """
        with _Neighbours(self.context.workspace) as files:
            self._read_through(candidates, files)

    def _read_through(self, candidates: Sequence[Candidate], files: _Neighbours) -> None:
        limits = self.context.limits
        wanted = Wanted(0, limits.read_lines, limits, self.context.signal)
        for number, candidate in enumerate(candidates):
            self.timed_out = self.deadline.check()
            room = limits.read_many_chars - self._chars
            if self.timed_out or room <= 0 or len(self.read_paths) >= limits.read_many_files:
                self.rest += candidates[number:]
                return
            if room < wanted.limits.read_chars:
                wanted = replace(wanted, limits=replace(limits, read_chars=room))
            try:
                self._read_one(candidate, wanted, files)
            except ToolError as error:
                if error.code is ToolErrorType.CANCELLED:
                    raise
                self.skipped.append((candidate.path, error.message))
            except OSError as error:
                self.skipped.append((candidate.path, explain(error, shown_path(candidate.path)).message))

    def _read_one(self, candidate: Candidate, wanted: Wanted, files: _Neighbours) -> None:
        workspace = self.context.workspace
        location = files.locate(candidate)
        if candidate.is_named or not self.is_checked:
            hidden_by = agent_ignore_file(workspace, location)
            if hidden_by is not None:
                self.skipped.append((location.path, f"hidden from agents by {hidden_by}"))
                return
        with files.open_file(location) as opened:
            beginning = look_at(opened, location)
            plain = plain_text(opened, beginning, wanted)
            if plain is not None:
                sha256: str | None = plain.sha256
                self._add_text(location.path, plain.text, len(plain.text))
            elif beginning.type.kind.is_text or self._takes_media(opened, beginning.type.kind, candidate):
                reading = self._reading(opened, location, beginning, wanted)
                sha256 = reading.sha256
                self._add(location.path, reading)
            else:
                return
        if self.context.client.reads is not None:
            self.context.client.reads.record(location.path, SeenFile(opened.identity, sha256))

    def _takes_media(self, opened: OpenedFile, kind: FileKind, candidate: Candidate) -> bool:
        """Whether a file that is no text is read; if not, it is noted."""
        if kind is FileKind.BINARY:
            self.skipped.append((candidate.path, "binary file"))
        elif not (candidate.is_named or self.wish.names(candidate.path)):
            self.skipped.append((candidate.path, f"{kind.value} file; name it, or its extension, to get it"))
        elif self._media + opened.info.st_size > MAX_MEDIA_BYTES or self._pdf_seconds <= 0:
            self.rest.append(candidate)
        else:
            return True
        return False

    def _reading(self, opened: OpenedFile, location: Location, beginning: Beginning, wanted: Wanted) -> Reading:
        """Read any file. To take the text out of a PDF takes time, of which there is a budget."""
        started = time.monotonic()
        media, seconds = self.context.media, max(0.0, self._pdf_seconds)
        reading = read_on(opened, location, beginning, wanted, media, pdf_seconds=seconds)
        if not beginning.type.kind.is_text:
            self._pdf_seconds -= time.monotonic() - started
        return reading

    def _add(self, path: str, reading: Reading) -> None:
        if not reading.is_text:
            self.read_paths.append(path)
            self._media += sum(len(part.data) for part in reading.parts if isinstance(part, InlineDataPart))
            self.parts += reading.parts
            return
        text = "".join([part.text for part in reading.parts if isinstance(part, TextPart)])
        if reading.truncated or reading.shortened:
            text = f"[WARNING: only a part of this file is shown. Use read_file on it to see the rest.]\n\n{text}"
        self._add_text(path, text, reading.chars)

    def _add_text(self, path: str, text: str, chars: int) -> None:
        """Add a text, so many characters of which come from the file."""
        self.read_paths.append(path)
        self._chars += chars
        self.parts.append(TextPart(f"--- {shown_whole_path(path)} ---\n\n{text}\n\n"))
