"""Selects several files, reads them into one result, and lists what was left out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from tools.contract.limits import AbortSignal, Deadline, Limits, MediaHandling
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import InlineDataPart, Part, TextPart, ToolResult
from tools.files.find.file_selection import Candidate, FileSelection
from tools.files.find.folder_walk import Filters, Walk, count, walk_notes
from tools.files.ignore_files import agent_ignore_file
from tools.files.path_opener import Folder, OpenedFile, identity_of
from tools.files.read.file_reader import EMPTY, look_at, read
from tools.files.read.line_window import WantedLines
from tools.files.read.media_files import TEXT_KINDS, FileKind
from tools.files.read.pdf import MAX_SECONDS as MAX_PDF_SECONDS
from tools.files.workspace import Location, ReadLedger, SeenFile, Workspace, explain
from tools.text.file_names import one_line, sendable_name, shown_path, shown_whole_path

MAX_MEDIA_BYTES = 10_000_000  # maximum raw bytes of media in one result, which become 13 MB in base64
MAX_LISTED = 100  # maximum number of unread files listed
MAX_REASONS = 20  # maximum number of skipped files listed with a reason
MAX_LISTED_CHARS = 10_000  # maximum number of characters per list, because paths may be very long
MAX_REASON_CHARS = 400  # maximum number of characters of one reason
END_MARKER = "\n--- End of content ---"


@dataclass(slots=True)
class Batch:
    """Reads files until the budget is used up."""

    workspace: Workspace
    limits: Limits
    media: MediaHandling  # how images and other media are returned
    deadline: Deadline
    reads: ReadLedger | None  # where reads are recorded; `None` if they are not
    entries: Sequence[str]  # the call's entries; media are read only if an entry contains their name or extension
    is_checked: bool  # whether found files are known not to be hidden from agents
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    parts: list[Part] = field(default_factory=list[Part])
    read_paths: list[str] = field(default_factory=list[str])
    rest: list[Candidate] = field(default_factory=list[Candidate])
    timed_out: bool = False
    _chars: int = 0
    _media_bytes: int = 0
    _pdf_seconds: float = MAX_PDF_SECONDS
    _above: str = ""
    _folder: Folder | None = None

    @property
    def why_rest(self) -> str:
        return "the time limit was reached" if self.timed_out else "the result would become too long"

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read the files one by one. A failure does not stop the rest."""
        limits = self.limits
        wanted = WantedLines(0, limits.read_lines, limits, self.deadline.signal)
        try:
            for number, candidate in enumerate(candidates):
                self.timed_out = self.deadline.check()
                room = limits.read_many_chars - self._chars
                if self.timed_out or room <= 0 or len(self.read_paths) >= limits.read_many_files:
                    self.rest += candidates[number:]
                    return
                if room < wanted.limits.read_chars:
                    wanted = replace(wanted, limits=replace(limits, read_chars=room))
                try:
                    self._read_one(candidate, wanted)
                except ToolError as error:
                    if error.code is ToolErrorType.CANCELLED:
                        raise
                    self.skipped.append((candidate.path, error.message))
                except OSError as error:
                    self.skipped.append((candidate.path, explain(error, shown_path(candidate.path)).message))
        finally:
            self._leave_folder()

    def _read_one(self, candidate: Candidate, wanted: WantedLines) -> None:
        path, location = candidate.path, candidate.location(self.workspace)
        if candidate.named or not self.is_checked:
            hidden_by = agent_ignore_file(self.workspace, location)
            if hidden_by is not None:
                self.skipped.append((location.name, f"hidden from agents by {hidden_by}"))
                return
        with self._open(location) as opened:
            beginning = look_at(opened, location)
            kind = beginning.type.kind
            if kind is FileKind.BINARY:
                self.skipped.append((path, "binary file"))
                return
            if kind not in TEXT_KINDS:
                name = os.path.basename(path).lower()
                suffix = os.path.splitext(name)[1]
                has_entry = suffix and any(suffix in entry or name in entry for entry in map(str.lower, self.entries))
                if not (candidate.named or has_entry):
                    self.skipped.append((path, f"{kind.value} file; name it, or its extension, to get it"))
                    return
                if self._media_bytes + opened.info.st_size > MAX_MEDIA_BYTES or self._pdf_seconds <= 0:
                    self.rest.append(candidate)
                    return
            started = time.monotonic()
            reading = read(opened, location, beginning, wanted, self.media, pdf_seconds=self._pdf_seconds)
            if kind not in TEXT_KINDS:
                # PDF files share one time budget.
                self._pdf_seconds -= time.monotonic() - started
        self.read_paths.append(location.name)
        if reading.is_text:
            (part,) = reading.parts
            text = (part.text if isinstance(part, TextPart) else "") or EMPTY
            if reading.truncated or reading.shortened:
                text = f"[WARNING: only part of this file is shown. Use read_file to see the rest.]\n\n{text}"
            self._chars += reading.chars
            self.parts.append(TextPart(f"--- {shown_whole_path(location.name)} ---\n\n{text}\n\n"))
        else:
            self._media_bytes += sum(len(part.data) for part in reading.parts if isinstance(part, InlineDataPart))
            self.parts += reading.parts
        if self.reads is not None:
            self.reads.record(location.path, SeenFile(identity_of(opened.info), reading.sha256), reading.content)

    def _open(self, location: Location) -> OpenedFile:
        """Open a file.

        Further files in the same folder are opened through the open folder. This is faster than opening them by path,
        and as safe.
        """
        above, _, name = location.path.rpartition(os.sep)
        if above != self._above:
            self._leave_folder()
            self._above = above
        elif self._folder is None:
            # If the folder cannot be listed or was replaced, its files are opened or refused by their paths.
            with suppress(OSError, PathNotInWorkspaceError):
                self._folder = self.workspace.open_folder(above)
        if self._folder is not None:
            try:
                return self._folder.open_file(name)
            except OSError:
                pass  # opening by path will fail too, and the workspace reports why
        return self.workspace.open_file(location)

    def _leave_folder(self) -> None:
        if self._folder is not None:
            with self._folder:
                self._folder = None

    def notes(self, walk: Walk) -> list[str]:
        """Return notes for the model about what was not read and what was skipped."""
        notes: list[str] = []
        if self.rest:
            notes.append(
                f"[{count(len(self.rest), 'more file')} not read, because {self.why_rest}. "
                "To read more, use read_file, or call read_many_files with fewer paths:"
            )
            sizes = ((rest, self.workspace.size_of(rest.location(self.workspace))) for rest in self.rest)
            lines = (
                shown_whole_path(rest.path) + (f" ({size} bytes)" if size is not None else "") for rest, size in sizes
            )
            notes += _list_of(lines, len(self.rest))
        if self.skipped:
            notes.append(f"[{count(len(self.skipped), 'entry', 'entries')} skipped:")
            reasons = _reasons(self.skipped, MAX_REASONS)
            notes += _list_of((f"{path}: {one_line(reason)}" for path, reason in reasons), len(self.skipped))
        return [*notes, *(f"[{note}]" for note in walk_notes(walk))]

    def display(self) -> str:
        """Summarise in Markdown: the first ten files read, and the first five skipped."""
        read_files, skipped = self.read_paths, self.skipped
        lines = ["### ReadManyFiles Result", ""]
        if read_files:
            lines += [f"Read the content of **{count(len(read_files), 'file')}**.", ""]
            lines += [f"- `{shown_whole_path(path)}`" for path in read_files[:10]]
            lines += [f"- ...and {len(read_files) - 10} more"] if len(read_files) > 10 else []
        else:
            lines.append("No files were read.")
        if self.rest:
            lines += ["", f"**{count(len(self.rest), 'file')} not read**, because {self.why_rest}."]
        if skipped:
            lines += ["", f"**Skipped {count(len(skipped), 'entry', 'entries')}:**"]
            lines += [f"- `{path}` ({one_line(reason)})" for path, reason in _reasons(skipped, 5)]
            lines += [f"- ...and {len(skipped) - 5} more"] if len(skipped) > 5 else []
        return "\n".join(lines)


def read_several(
    workspace: Workspace,
    paths: Sequence[str],
    *,
    exclude: Sequence[str],
    use_default_excludes: bool,
    filters: Filters,
    limits: Limits,
    media: MediaHandling,
    signal: AbortSignal,
    reads: ReadLedger | None,
    seconds: float,
) -> ToolResult:
    """Find files by paths, folders and globs, and read them. Blocking; finding and reading may each take `seconds`.

    Raises a `PatternRefusedError` for a glob that cannot be used.
    """
    first = workspace.first_root
    walk = Walk(workspace, filters, Deadline(signal, seconds))
    try:
        selection = FileSelection(walk, exclude, use_defaults=use_default_excludes)
        selection.choose(paths)
    except OSError as error:
        raise explain(error, shown_path(first), ToolErrorType.READ_MANY_FILES_SEARCH_ERROR) from None
    deadline = Deadline(signal, seconds)
    batch = Batch(workspace, limits, media, deadline, reads, paths, filters.agent, list(selection.skipped))
    batch.read([selection.files[path] for path in sorted(selection.files)])
    parts: list[Part | str] = list(batch.parts)
    if not batch.read_paths:
        parts.append("No matching files were found, or all of them were skipped.")
    notes = batch.notes(walk)
    if notes:
        parts.append("\n".join(notes))
    if batch.read_paths:
        parts.append(END_MARKER)
    return ToolResult(
        llm_content=parts,
        return_display=batch.display(),
        facts={
            "files": [sendable_name(path) for path in batch.read_paths],
            "skipped": [{"path": path, "reason": reason} for path, reason in _reasons(batch.skipped, MAX_LISTED)],
            "not_read": _fitting(sendable_name(candidate.path) for candidate in batch.rest),
            "partial": walk.timed_out or batch.timed_out,
        },
    )


def _list_of(lines: Iterable[str], total: int) -> list[str]:
    """Format the lines that fit as a list, followed by the number of omitted lines and the end of the note."""
    listed = [f"- {line}" for line in _fitting(lines)]
    more = total - len(listed)
    return [*listed, *([f"- and {more:,} more"] if more else []), "]"]


def _fitting(lines: Iterable[str]) -> list[str]:
    fitting: list[str] = []
    room = MAX_LISTED_CHARS
    for line in islice(lines, MAX_LISTED):
        room -= len(line)
        if room < 0:
            break
        fitting.append(line)
    return fitting


def _reasons(skipped: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return the first skipped entries with their reasons, each truncated to a reasonable length."""
    return [(shown_path(path), reason[:MAX_REASON_CHARS]) for path, reason in skipped[:most]]
