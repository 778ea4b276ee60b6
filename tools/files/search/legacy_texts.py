"""Searches the decoded text of non-UTF-8 files, as `read_file` shows it, instead of their bytes.

Several files are decoded into one text, which ripgrep searches, so that they match as other files do. Guessing the
encoding takes longer than everything else. Therefore every possible text of a file is searched, and the encoding is
guessed only if one of these texts matches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable
from itertools import islice
from typing import IO, NamedTuple

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.child_process import unnamed_file
from tools.files.search.match_report import MAX_DECODED_BYTES, is_searchable
from tools.files.search.ripgrep import MAX_LINES_OF_FILE, LineMatch, Query, Ripgrep
from tools.files.text_encodings import UNKNOWN_8BIT, decode, readings, shown_text
from tools.files.workspace import Location, Workspace

FILES_AT_ONCE = 50  # maximum number of files decoded for one run of ripgrep
TEXT_AT_ONCE = 4 << 20  # number of bytes of text after which no more files are added to a run
# For larger files, the encoding is guessed first, because decoding with several encodings often takes longer
MAX_READ_BYTES = 1 << 17


class _TextReading(NamedTuple):
    """One possible text of a file, searched together with others."""

    path: str
    data: bytes
    encodings: set[str]
    last: int  # number of its last line in the searched text


def matches_in_texts(
    workspace: Workspace,
    ripgrep: Ripgrep,
    folder: Location,
    paths: Iterable[str],
    query: Query,
    exclude: Query | None,
    otherwise: dict[str, str],
) -> Generator[LineMatch]:
    """Yield the files with lines that match `query` but not `exclude`, in the order of `paths`.

    The `paths` are relative to `folder`. Files are decoded on demand until ripgrep's time is up. Files that match only
    in an unlikely encoding are added to `otherwise` with that encoding.
    """
    waiting = iter(paths)
    while not ripgrep.timed_out:
        found: list[_TextReading] = []
        with unnamed_file() as texts:
            size = number = 0
            for path in islice(waiting, FILES_AT_ONCE):
                data = _content(workspace, workspace.below(folder, path), ripgrep)
                shown = shown_text(data) if len(data) > MAX_READ_BYTES else None
                each = readings(data) if shown is None else {shown.text: {shown.encoding.name}}
                for text, encodings in each.items():
                    body = text.encode("utf-8", "replace") + (b"" if text.endswith("\n") else b"\n")
                    texts.write(body)
                    size, number = size + len(body), number + body.count(b"\n")
                    found.append(_TextReading(path, data, encodings, number))
                if size >= TEXT_AT_ONCE:
                    break
            if not found:
                return
            hits = _lines_of(texts, ripgrep, folder, query)
            if exclude is not None and hits.lines:
                excluded = _lines_of(texts, ripgrep, folder, exclude)
                hits = hits.only(len(hits.lines), without=frozenset(excluded.lines))
        if ripgrep.timed_out:
            return
        at = before = 0
        shown_in = set[str]()
        for reading in found:
            end = bisect_right(hits.lines, reading.last, at)
            if end > at and shown_text(reading.data).encoding.name in reading.encodings:
                otherwise.pop(reading.path, None)
                shown_in.add(reading.path)
                lines = [line - before for line in hits.lines[at:end]]
                yield LineMatch(reading.path, lines, hits.columns[at:end], is_decoded=True)
            elif end > at and reading.path not in shown_in and UNKNOWN_8BIT not in reading.encodings:
                otherwise.setdefault(reading.path, min(reading.encodings))
            at, before = end, reading.last


def is_searched_by_bytes(workspace: Workspace, location: Location) -> bool:
    """Return True if ripgrep's matches in the file itself count, because it is Unicode text or cannot be decoded."""
    try:
        with workspace.open_file(location) as opened:
            if opened.info.st_size > MAX_DECODED_BYTES or not is_searchable(opened):
                return True
            decoded = decode(opened.whole(AbortSignal()))
            return decoded is not None and decoded.encoding.is_known
    except (OSError, ToolError):
        return True  # the reason is reported when the file is shown


def _lines_of(texts: IO[bytes], ripgrep: Ripgrep, folder: Location, query: Query) -> LineMatch:
    texts.seek(0)
    found = list(ripgrep.matches(query, folder.path, (), f"--max-count={MAX_LINES_OF_FILE}", given=texts))
    return found[0] if found else LineMatch("", (), ())


def _content(workspace: Workspace, location: Location, ripgrep: Ripgrep) -> bytes:
    """Return a file's content, or empty bytes if it is too large or cannot be read."""
    try:
        with workspace.open_file(location) as opened:
            return opened.whole(ripgrep.deadline.signal) if opened.info.st_size <= MAX_DECODED_BYTES else b""
    except OSError:
        return b""
    except ToolError as error:
        if error.code in (ToolErrorType.CANCELLED, ToolErrorType.RESOURCES_EXHAUSTED):
            raise
        return b""
