"""The work of `read_many_files`: the files are chosen, read into one result, and what was left out is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolErrorType
from tools.contract.names import one_line, sendable_name, shown_path, shown_whole_path
from tools.contract.result import Part, ToolResult
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.listing_text import count, walk_notes
from tools.filesystem.finding.options import respects
from tools.filesystem.finding.patterns import PatternRefusedError
from tools.filesystem.finding.selection import Candidate, FileSelection
from tools.filesystem.finding.walk import Filters, Walk
from tools.filesystem.reading.batch import Batch, Wish
from tools.filesystem.workspace import Workspace, explain

if TYPE_CHECKING:
    from tools.filesystem.read_many_files import ReadManyFilesParams

MAX_LISTED = 100
"""Files left out that are listed by name and size."""

MAX_REASONS = 20
"""Skipped files whose reason the text tells."""

MAX_LISTED_CHARS = 10_000
"""Characters of one such list; paths may be very long."""

MAX_REASON_CHARS = 400
"""Characters of one reason."""

END_MARKER = "\n--- End of content ---"


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
