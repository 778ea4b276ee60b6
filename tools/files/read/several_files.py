"""The work of `read_many_files`: the files are chosen, read into one result, and what was left out is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Self

from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.limits import Deadline
from tools.contract.names_on_one_line import one_line, sendable_name, shown_path, shown_whole_path
from tools.contract.results import InlineDataPart, Part, TextPart, ToolResult
from tools.files.find.file_filtering import respects
from tools.files.find.patterns import PatternRefusedError
from tools.files.find.selection import Candidate, FileSelection
from tools.files.find.walk import Filters, Walk, count, walk_notes
from tools.files.ignore_files import agent_ignore_file
from tools.files.opener import Folder, OpenedFile
from tools.files.read.line_window import Reading, Wanted
from tools.files.read.media import FileKind
from tools.files.read.pdf import MAX_SECONDS as MAX_PDF_SECONDS
from tools.files.read.reader import Beginning, look_at, plain_text, read_on
from tools.files.read_ledger import SeenFile
from tools.files.workspace import Location, Workspace, explain

if TYPE_CHECKING:
    from tools.builtin.read_many_files import ReadManyFilesParams


MAX_MEDIA_BYTES = 10_000_000
"""Raw bytes of images and the like in one result; base64 makes 13 MB of it."""

MAX_LISTED = 100
"""Files left out that are listed by name and size."""

MAX_REASONS = 20
"""Skipped files whose reason the text tells."""

MAX_LISTED_CHARS = 10_000
"""Characters of one such list; paths may be very long."""

MAX_REASON_CHARS = 400
"""Characters of one reason."""

END_MARKER = "\n--- End of content ---"


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


def read_several(params: ReadManyFilesParams, context: ToolContext, seconds: float) -> ToolResult:
    """Find and read, blocking.

    Args:
        params: What to read, checked.
        context: Where, and for whom.
        seconds: How long finding the files may take, and then reading them.
    """
    workspace = context.workspace
    first = workspace.first_root
    git, agent = respects(workspace, params.file_filtering_options)
    walk = Walk(workspace, Filters(git=git, agent=agent), Deadline(context.signal, seconds))
    try:
        selection = FileSelection(workspace, params.exclude or (), use_defaults=params.useDefaultExcludes)
        chosen = selection.choose(walk, params.paths)
    except PatternRefusedError as error:
        raise InvalidToolParamsError("read_many_files", f"{error}.") from None
    except OSError as error:
        raise explain(error, shown_path(first), ToolErrorType.READ_MANY_FILES_SEARCH_ERROR) from None
    deadline = Deadline(context.signal, seconds)
    batch = Batch(context, deadline, Wish(params.paths), is_checked=agent, skipped=list(chosen.skipped))
    batch.read([chosen.files[path] for path in sorted(chosen.files)])
    return _result(batch, walk)


def _result(batch: Batch, walk: Walk) -> ToolResult:
    parts: list[Part | str] = list(batch.parts)
    if not batch.read_paths:
        parts.append("No files matching the criteria were found, or all of them were skipped.")
    notes = _notes(batch, walk)
    if notes:
        parts.append("\n".join(notes))
    if batch.read_paths:
        parts.append(END_MARKER)
    return ToolResult(
        llm_content=parts,
        return_display=_display(batch),
        facts={
            "files": [sendable_name(path) for path in batch.read_paths],
            "skipped": [{"path": path, "reason": reason} for path, reason in _reasons(batch.skipped, MAX_LISTED)],
            "not_read": _fitting((sendable_name(candidate.path) for candidate in batch.rest), MAX_LISTED),
            "partial": walk.timed_out or batch.timed_out,
        },
    )


def _reasons(skipped: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """The first of the skipped entries, each cut to a length that can be shown."""
    return [(shown_path(path), reason[:MAX_REASON_CHARS]) for path, reason in skipped[:most]]


def _fitting(lines: Iterable[str], most: int) -> list[str]:
    """The first of some lines, as far as there is room for them."""
    kept: list[str] = []
    room = MAX_LISTED_CHARS
    for line in islice(lines, most):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept


def _notes(batch: Batch, walk: Walk) -> list[str]:
    """What was not read, and why."""
    notes: list[str] = []
    if batch.rest:
        why = "the time limit was reached" if batch.timed_out else "the result would become too long"
        notes.append(
            f"[{count(len(batch.rest), 'more file')} not read, {why}. "
            "Read them with read_file, or call read_many_files with fewer paths:"
        )
        notes += _list_of((_with_size(batch.context.workspace, rest) for rest in batch.rest), len(batch.rest))
    if batch.skipped:
        notes.append(f"[{count(len(batch.skipped), 'entry', 'entries')} skipped:")
        reasons = _reasons(batch.skipped, MAX_REASONS)
        notes += _list_of((f"{path}: {one_line(reason)}" for path, reason in reasons), len(batch.skipped))
    return [*notes, *(f"[{note}]" for note in walk_notes(walk))]


def _list_of(lines: Iterable[str], total: int) -> list[str]:
    """The first of some lines as a list that tells how many follow, and the end of the note."""
    listed = [f"- {line}" for line in _fitting(lines, MAX_LISTED)]
    more = total - len(listed)
    return [*listed, *([f"- and {more:,} more"] if more else []), "]"]


def _with_size(workspace: Workspace, candidate: Candidate) -> str:
    size = workspace.size_of(candidate.location(workspace))
    return shown_whole_path(candidate.path) + (f" ({size} bytes)" if size is not None else "")


def _display(batch: Batch) -> str:
    """A summary in Markdown: the first ten files read, the first five skipped."""
    read_files, skipped = batch.read_paths, batch.skipped
    lines = ["### ReadManyFiles Result", ""]
    if read_files:
        lines += [f"Read the content of **{count(len(read_files), 'file')}**.", ""]
        lines += [f"- `{shown_whole_path(path)}`" for path in read_files[:10]]
        lines += [f"- ...and {len(read_files) - 10} more"] if len(read_files) > 10 else []
    else:
        lines.append("No files were read.")
    if batch.rest:
        why = "the time limit was reached" if batch.timed_out else "the result would become too long"
        lines += ["", f"**{count(len(batch.rest), 'file')} not read**, {why}."]
    if skipped:
        lines += ["", f"**Skipped {count(len(skipped), 'entry', 'entries')}:**"]
        lines += [f"- `{path}` ({one_line(reason)})" for path, reason in _reasons(skipped, 5)]
        lines += [f"- ...and {len(skipped) - 5} more"] if len(skipped) > 5 else []
    return "\n".join(lines)
