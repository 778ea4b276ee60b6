"""`read_many_files`: turns paths, folders and globs into files, reads them into one result, and lists the omissions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from tools.contract.call_options import AbortSignal, Deadline, Limits, MediaHandling
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import InlineDataPart, Part, TextPart, ToolResult
from tools.files.find.folder_walk import (
    DEFAULT_EXCLUDED_FOLDERS,
    Everything,
    Exclusion,
    Filters,
    ReducedSelection,
    Selection,
    Walk,
    count,
    walk_notes,
)
from tools.files.find.glob_search import MAX_ALTERNATIVES, Names, PathPattern, PatternRefusedError, compile_patterns
from tools.files.find.path_suggestions import NEAR_SECONDS, proposal
from tools.files.ignore_files import agent_ignore_file
from tools.files.path_opener import Folder, OpenedFile, PathKind, identity_of
from tools.files.read.file_reader import EMPTY, read, read_beginning
from tools.files.read.line_window import LineRequest
from tools.files.read.media_files import EXCLUDED_SUFFIXES, TEXT_KINDS, FileKind
from tools.files.read.pdf import MAX_SECONDS as MAX_PDF_SECONDS
from tools.files.workspace import Location, ReadLedger, SeenFile, Workspace, explain
from tools.text.file_names import one_line, sendable_name, shown_path, shown_whole_path

# Folders among Gemini CLI's default excludes
EXCLUDED_FOLDERS = DEFAULT_EXCLUDED_FOLDERS | {".vscode", ".idea", "dist", "build", "coverage", "__pycache__"}
# Matches an entry that is a glob, unless a file or folder has exactly this name
_GLOB = re.compile(r"[*?\[{\\]|[@!+]\(|/$")
# Secrets, folder settings of macOS, and context files that an agent has already read
_EXCLUDED_NAMES = frozenset({".DS_Store", ".env", "GEMINI.md", "QWEN.md", "AGENTS.md"})


class _DefaultExcludes:
    """Excludes files by name in any folder. The walk itself excludes folders."""

    def select(self, names: list[str]) -> list[str]:
        return [
            name for name in names if name in _EXCLUDED_NAMES or os.path.splitext(name)[1].lower() in EXCLUDED_SUFFIXES
        ]

    def covers(self, _name: str, /) -> bool:
        return False

    def enter(self, _name: str, /) -> Exclusion | None:
        return self


class Candidate(NamedTuple):
    """A file that may be read. Its location is created when it is needed, because there may be many candidates."""

    path: str
    named_location: Location | None  # the file's location, if the call named the file

    def location(self, workspace: Workspace) -> Location:
        return self.named_location or workspace.at(self.path)


class FileSelection:
    """Selects files in every root. Raises a `PatternRefusedError` for an unusable pattern."""

    def __init__(self, walk: Walk, exclude: Sequence[str], *, use_defaults: bool) -> None:
        self._walk = walk
        self._exclude = _compiled(exclude, None, at_any_depth=True) if exclude else None
        self._use_defaults = use_defaults
        self.files: dict[str, Candidate] = {}
        # Entries that were skipped: path or pattern, and the reason
        self.skipped: dict[tuple[str, str], None] = {}

    def choose(self, entries: Sequence[str]) -> None:
        """Find the files. Entries are files, folders (with all their contents), or globs."""
        walk = self._walk
        missing: dict[str, list[Location]] = {}
        found_entries: set[str] = set()
        in_scratch: dict[Location, dict[str, None]] = {}
        for root in walk.workspace.root_locations():
            globs: list[str] = []
            for entry in entries:
                if walk.is_out_of_time():
                    break
                if entry in found_entries and os.path.isabs(entry):
                    continue  # found from another root
                location = self._add_existing(root.path, entry)
                if location is None:
                    found_entries.add(entry)
                elif not _GLOB.search(entry):
                    missing.setdefault(entry, []).append(location)
                elif not os.path.isabs(entry):
                    globs.append(entry)
                elif location.root == root.path:
                    globs.append(location.relative)
                elif location.in_scratch:
                    in_scratch.setdefault(walk.workspace.at(location.root), {})[location.relative] = None
            self._search_globs(root, globs)
        for root, patterns in in_scratch.items():
            self._search_globs(root, list(patterns))
        if walk.is_out_of_time():
            return  # an entry may exist in a root that was not reached
        deadline = Deadline(walk.deadline.signal, NEAR_SECONDS)
        for entry, locations in missing.items():
            if entry not in found_entries:
                in_each_root = (
                    proposal(walk.workspace, location, deadline, folders=True, otherwise="")
                    for location in dict.fromkeys(locations)
                )
                suggestion = next(filter(None, in_each_root), "")
                self.skipped[entry, f"does not exist.{suggestion}" if suggestion else "does not exist"] = None

    def _search_globs(self, root: Location, globs: Sequence[str]) -> None:
        if globs:
            pattern = _compiled(globs, self._walk.names_below(root))
            self._search(root, pattern.start, pattern.literals)

    def _add_existing(self, root: str, entry: str) -> Location | None:
        """Add the file or folder that an entry names in one root. Return the location if nothing exists there."""
        workspace = self._walk.workspace
        hidden_by, reason = None, ""
        try:
            location = workspace.locate(entry, within=root, by_look=True)
            kind = workspace.kind_of(location)
            if kind is None:
                return location
            hidden_by = agent_ignore_file(workspace, location) if kind is PathKind.FOLDER else None
        except PathNotInWorkspaceError:
            reason = "outside the workspace"
        except ToolError as error:
            reason = error.message
        else:
            if hidden_by is not None:
                reason = f"hidden from agents by {hidden_by}"
            elif kind is PathKind.FOLDER:
                self._search(location, Everything())
            elif kind is not PathKind.FILE:
                reason = "not a regular file"
            elif self._exclude is not None and self._exclude.matches(location.relative):
                reason = "matches exclude"
            else:
                self.files[location.name] = Candidate(location.name, location)
        if reason:
            self.skipped[entry, reason] = None
        return None

    def _search(self, start: Location, wanted_files: Selection, literal_names: Iterable[str] = ()) -> None:
        """Add the wanted files in a folder tree. Folders in `literal_names` are not excluded by default."""
        walk, folder_names = self._walk, start.relative.split("/") if start.path != start.root else []
        folders = EXCLUDED_FOLDERS if self._use_defaults else frozenset[str]()
        walk.filters = replace(walk.filters, folders=folders.difference(folder_names, literal_names))
        # Nested roots are searched separately, but a folder given by name is included with all its contents.
        other_roots = () if isinstance(wanted_files, Everything) else walk.workspace.roots
        selection = ReducedSelection(wanted_files, _DefaultExcludes()) if self._use_defaults else wanted_files
        exclusion = self._exclude.start if self._exclude else None
        for name in folder_names:
            exclusion = exclusion and exclusion.enter(name)
        if exclusion is not None:
            selection = ReducedSelection(selection, exclusion)
        for folder, folder_selection in walk.through_links(start, selection):
            base = os.path.join(folder.name, "")
            for entry in walk.files(folder, folder_selection, other_roots):
                path = base + entry.path.replace("/", os.sep)
                if path not in self.files:
                    self.files[path] = Candidate(path, None)


def _compiled(globs: Sequence[str], exists: Names | None, *, at_any_depth: bool = False) -> PathPattern:
    """Compile globs into one pattern. The error names the glob that is unusable or exceeds the limit."""
    alternatives = 0
    patterns: list[PathPattern] = []
    for glob in globs:
        try:
            pattern = compile_patterns([glob], ignore_case=True, exists=exists, at_any_depth=at_any_depth)
        except PatternRefusedError as error:
            raise PatternRefusedError(f"the pattern '{shown_path(glob)}' cannot be used: {error}") from None
        alternatives += len(pattern.alternatives)
        if alternatives > MAX_ALTERNATIVES:
            raise PatternRefusedError(
                f"there are too many globs: those up to '{shown_path(glob)}' already expand to more than "
                f"{MAX_ALTERNATIVES} patterns. Give fewer globs, or name the folders or files"
            )
        patterns.append(pattern)
    return PathPattern([steps for pattern in patterns for steps in pattern.alternatives])


MAX_MEDIA_BYTES = 10_000_000  # maximum raw bytes of media in one result, which become 13 MB in base64
MAX_LISTED = 100  # maximum number of files per list
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
    reads: ReadLedger | None  # where reads are recorded; `None` if reads are not recorded
    entries: Sequence[str]  # the call's entries; media are read only if an entry contains their name or extension
    is_checked: bool  # whether found files are known not to be hidden from agents
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    parts: list[Part] = field(default_factory=list[Part])
    read_paths: list[str] = field(default_factory=list[str])
    unread_files: list[Candidate] = field(default_factory=list[Candidate])
    timed_out: bool = False
    _chars: int = 0
    _media_bytes: int = 0
    _pdf_seconds: float = MAX_PDF_SECONDS  # what is left of the time that all PDF files share
    _parent: str = ""
    _folder: Folder | None = None

    @property
    def stop_reason(self) -> str:
        return "the time limit was reached" if self.timed_out else "the result is full"

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read the files one by one. If one of them cannot be read, continue with the next."""
        limits = self.limits
        request = LineRequest(0, limits.read_lines, limits, self.deadline.signal)
        try:
            for number, candidate in enumerate(candidates):
                self.timed_out = self.deadline.check()
                room = limits.read_many_chars - self._chars
                if self.timed_out or room <= 0 or len(self.read_paths) >= limits.read_many_files:
                    self.unread_files += candidates[number:]
                    return
                if room < request.limits.read_chars:
                    request = replace(request, limits=replace(limits, read_chars=room))
                try:
                    self._read_one(candidate, request)
                except ToolError as error:
                    if error.code is ToolErrorType.CANCELLED:
                        raise
                    self.skipped.append((candidate.path, error.message))
                except OSError as error:
                    self.skipped.append((candidate.path, explain(error, shown_path(candidate.path)).message))
        finally:
            self._leave_folder()

    def _read_one(self, candidate: Candidate, request: LineRequest) -> None:
        path, location = candidate.path, candidate.location(self.workspace)
        if candidate.named_location or not self.is_checked:
            hidden_by = agent_ignore_file(self.workspace, location)
            if hidden_by is not None:
                self.skipped.append((location.name, f"hidden from agents by {hidden_by}"))
                return
        with self._open(location) as file:
            file_type, head = read_beginning(file, location)
            kind = file_type.kind
            if kind is FileKind.BINARY:
                self.skipped.append((path, "binary file"))
                return
            if kind not in TEXT_KINDS:
                name = os.path.basename(path).lower()
                suffix = os.path.splitext(name)[1]
                has_entry = suffix and any(suffix in entry or name in entry for entry in map(str.lower, self.entries))
                if not (candidate.named_location or has_entry):
                    self.skipped.append((path, f"{kind.value} file; name it, or its extension, to read it"))
                    return
                if kind is FileKind.PDF and self._pdf_seconds <= 0:
                    self.skipped.append(
                        (path, "PDF file; earlier PDF files used up the time. Use read_file for this one")
                    )
                    return
                if self._media_bytes + file.info.st_size > MAX_MEDIA_BYTES:
                    self.unread_files.append(candidate)
                    return
            start_time = time.monotonic()
            reading = read(file, location, file_type, head, request, self.media, pdf_seconds=self._pdf_seconds)
            if kind is FileKind.PDF:
                self._pdf_seconds -= time.monotonic() - start_time
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
            self.reads.record(location.path, SeenFile(identity_of(file.info), reading.sha256), reading.content)

    def _open(self, location: Location) -> OpenedFile:
        """Open a file. Consecutive files of a folder are opened through its descriptor: faster, and just as safe."""
        parent, _, name = location.path.rpartition(os.sep)
        if parent != self._parent:
            self._leave_folder()
            self._parent = parent
        elif self._folder is None:
            # If the folder cannot be listed or was replaced, its files are opened or refused by their paths.
            with suppress(OSError, PathNotInWorkspaceError):
                self._folder = self.workspace.open_folder(parent)
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
        notes: list[str] = []
        if self.unread_files:
            notes.append(
                f"[{count(len(self.unread_files), 'more file')} not read, because {self.stop_reason}. "
                "To read more, use read_file, or call read_many_files with fewer paths:"
            )

            def described(candidate: Candidate) -> str:
                size = self.workspace.size_of(candidate.location(self.workspace))
                return shown_whole_path(candidate.path) + (
                    f" ({size} byte{'s' * (size != 1)})" if size is not None else ""
                )

            notes += _list_of(map(described, self.unread_files), len(self.unread_files))
        if self.skipped:
            notes.append(f"[{count(len(self.skipped), 'entry', 'entries')} skipped:")
            reasons = _reasons(self.skipped, MAX_REASONS)
            notes += _list_of((f"{path}: {one_line(reason)}" for path, reason in reasons), len(self.skipped))
        return [*notes, *(f"[{note}]" for note in walk_notes(walk))]

    def display(self) -> str:
        """Summarise in Markdown: the first ten files read, and the first five skipped."""
        read_files, skipped_entries = self.read_paths, self.skipped
        lines = ["### ReadManyFiles Result", ""]
        if read_files:
            lines += [f"Read the content of **{count(len(read_files), 'file')}**.", ""]
            lines += [f"- `{shown_whole_path(path)}`" for path in read_files[:10]]
            lines += [f"- ...and {len(read_files) - 10} more"] if len(read_files) > 10 else []
        else:
            lines.append("No files were read.")
        if self.unread_files:
            lines += ["", f"**{count(len(self.unread_files), 'file')} not read**, because {self.stop_reason}."]
        if skipped_entries:
            lines += ["", f"**Skipped {count(len(skipped_entries), 'entry', 'entries')}:**"]
            lines += [f"- `{path}` ({one_line(reason)})" for path, reason in _reasons(skipped_entries, 5)]
            lines += [f"- ...and {len(skipped_entries) - 5} more"] if len(skipped_entries) > 5 else []
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
            "not_read": _fitting(sendable_name(candidate.path) for candidate in batch.unread_files),
            "partial": walk.timed_out or batch.timed_out,
        },
    )


def _list_of(lines: Iterable[str], total: int) -> list[str]:
    """Format, as a list, the lines that fit, followed by the number of omitted lines and the end of the note."""
    items = [f"- {line}" for line in _fitting(lines)]
    omitted_count = total - len(items)
    return [*items, *([f"- and {omitted_count:,} more"] if omitted_count else []), "]"]


def _fitting(lines: Iterable[str]) -> list[str]:
    fitting_lines: list[str] = []
    room = MAX_LISTED_CHARS
    for line in islice(lines, MAX_LISTED):
        room -= len(line)
        if room < 0:
            break
        fitting_lines.append(line)
    return fitting_lines


def _reasons(entries: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
    """Return the first skipped entries with their reasons, each truncated to `MAX_REASON_CHARS`."""
    return [(shown_path(path), reason[:MAX_REASON_CHARS]) for path, reason in entries[:limit]]
