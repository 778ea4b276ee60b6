"""Adding a fact to a memory file: planned against what the file is now, and written whole beside other writers.

Several servers may add to one file at the same time. Each reads it, adds its line and puts the new file in place only
while the one that it has read is still there; else it begins again, so that no entry is lost.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.contract.confirmation import EditConfirmation
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names_on_one_line import UNSEEN, sendable_name, shown_whole_path
from tools.contract.results import FileDiff, ToolResult
from tools.files.change.diff import Diff, unified_diff
from tools.files.change.file_change import (
    PROPOSED,
    Snapshot,
    TargetFile,
    about_broken_links,
    clipped,
    settled_text,
    take_snapshot,
)
from tools.files.change.writer import Written, exclusive, replace_file
from tools.files.ignore_files import agent_ignore_file
from tools.files.line_endings import line_endings, split_lines
from tools.files.read_ledger import SeenFile
from tools.files.text_encodings import UTF_8, Decoded, decode, encode, is_utf8
from tools.memory.memory_files import MemoryFile, MemoryFiles, MemoryScope

if TYPE_CHECKING:
    from tools.call.context import ToolContext


_JOINERS = "\u200c\u200d"
"""Unseen too, but words of some languages and many emoji are not written without them."""

_IMPORT = re.compile(r"(?<!\S)@")
"""Qwen Code and Gemini CLI read in the file that is named behind it."""

_MARKUP = re.compile(r"<(?=[!?])")
"""Begins a comment, a declaration or an instruction of HTML, which hides what follows."""

_BLOCK = re.compile(r"#|>|[*+](?=\s|$)|[*_]{3,}$|```|~~~|\[[^\]]*\]:")
"""Begins a heading, a quotation, a list, a rule, code, or a definition that is not shown."""

_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
"""Begins a numbered list."""

_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ITEM = re.compile(r"\s*[-*+]\s+(.*)")
_HEADING = re.compile(r"#{1,2}(\s|$)")
"""What ends a section: a heading of its own level or of the one above."""


def entry_of(fact: str) -> str:
    """A fact as one line of a Markdown list, or an empty text if nothing is left of it."""
    seen = UNSEEN.sub(lambda found: found[0] if found[0] in _JOINERS else " ", fact)
    line = " ".join(seen.split()).lstrip("- ")
    if not line:
        return ""
    line = _IMPORT.sub(r"\\@", _MARKUP.sub("&lt;", line))
    if _BLOCK.match(line):
        line = f"\\{line}"
    return "- " + _NUMBER.sub(r"\1\\\2", line, count=1) if _NUMBER.match(line) else f"- {line}"


def holds_entry(text: str, entry: str) -> bool:
    """Whether some list of the text has this entry, however it is escaped there."""
    wanted = _meaning(entry)
    return any(_meaning(line) == wanted for line in split_lines(text)[0])


def _meaning(line: str) -> str | None:
    item = _ITEM.fullmatch(line)
    if item is None:
        return None
    return " ".join(_ESCAPED.sub(r"\1", item[1]).replace("&lt;", "<").split())


def heading_in(text: str, headings: Sequence[str]) -> str | None:
    """The first of these headings that the text has."""
    lines = {line.rstrip() for line in split_lines(text)[0]}
    return next((heading for heading in headings if heading in lines), None)


def with_entry(text: str, entry: str, headings: Sequence[str]) -> str:
    """The text with one more entry at the end of its section; all that was there stays, character by character.

    The section ends at the next heading of its level or above. Without one it is made at the end of the text, a blank
    line before it.

    Args:
        text: The file's text.
        entry: As `entry_of` made it.
        headings: The lines that begin the section; the first is used where the text has none of them.
    """
    bodies, endings = split_lines(text)
    eol = line_endings(text).majority or "\n"
    heading = heading_in(text, headings)
    if heading is None:
        return f"{text}{_separation(bodies, eol)}{headings[0]}{eol}{entry}{eol}"
    start = next(number for number, line in enumerate(bodies) if line.rstrip() == heading)
    below = range(start + 1, len(bodies))
    end = next((number for number in below if _HEADING.match(bodies[number])), len(bodies))
    last = max(number for number in range(start, end) if bodies[number].strip() or number == start)
    place = sum(map(len, bodies[: last + 1])) + sum(map(len, endings[: last + 1]))
    before = "" if endings[last] else eol
    after = eol if last + 1 == end < len(bodies) else ""
    return f"{text[:place]}{before}{entry}{eol}{after}{text[place:]}"


def _separation(bodies: Sequence[str], eol: str) -> str:
    """The line endings that leave one blank line, at least, behind the lines of a text."""
    if not any(body.strip() for body in bodies):
        return ""
    if bodies[-1].strip():
        return eol * 2
    return eol if bodies[-1] or bodies[-2].strip() else ""


MAX_MEMORY_BYTES = 1_000_000
"""A memory file is read into every conversation; a larger one is something else."""

PATIENCE_SECONDS = 20.0
"""How long a save begins again when others were faster; each round one of them gets through."""

PAUSE_SECONDS = 0.001

PRIVATE_FOLDER = 0o700
"""Mode of the folder of the global memory where it has to be made: what is in it is the user's."""

_WRITE_BITS = 0o222


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """A fact that is ready to be added.

    Args:
        file: Where.
        snapshot: The file as it is now.
        entry: The line to add.
        heading: The heading it stands below; empty if the file holds the fact already.
        data: The file's bytes afterwards.
        diff: The change for people.
    """

    file: MemoryFile
    snapshot: Snapshot
    entry: str
    heading: str
    data: bytes
    diff: Diff

    @property
    def is_there(self) -> bool:
        """Whether the file holds the fact already."""
        return not self.heading


def plan(files: MemoryFiles, file: MemoryFile, entry: str, context: ToolContext) -> Addition:
    """The addition against what the file is now. Writes nothing.

    Raises:
        ToolError: Nothing can be added to the file: it is hidden from agents, read-only, too large or no text.
    """
    _refuse_hidden(file)
    _refuse_read_only(file)
    snapshot = take_snapshot(TargetFile(file.workspace, file.location, context.client.reads, context.signal))
    old = _decoded(file, snapshot.data, entry)
    is_there = holds_entry(old.text, entry)
    new = old.text if is_there else with_entry(old.text, entry, files.headings)
    return Addition(
        file=file,
        snapshot=snapshot,
        entry=entry,
        heading="" if is_there else (heading_in(old.text, files.headings) or files.headings[0]),
        data=encode(new, old.encoding),
        diff=unified_diff(None if snapshot.data is None else old.shown(), Decoded(new, old.encoding).shown()),
    )


def question_of(files: MemoryFiles, scope: MemoryScope, fact: str, context: ToolContext) -> EditConfirmation | None:
    """What a person is asked before a fact is added; `None` if the file holds it already.

    The answer is bound to the file and to the fact, which is among the arguments, and not to what else the file
    holds: one more line is the same change there, and facts that are saved side by side do not undo each other's
    consent.

    Raises:
        ToolError: It cannot be added.
    """
    file = files.file(scope, context.workspace)
    addition = plan(files, file, entry_of(fact), context)
    if addition.is_there:
        return None
    diff = addition.diff
    return EditConfirmation(
        title=f"Confirm Memory Save: {scope} memory",
        file_path=file.location.path,
        file_diff=diff.text(os.path.basename(file.location.path), PROPOSED),
        added=diff.added,
        removed=diff.removed,
        state=file.location.path,
        truncated=diff.truncated,
        editable=fact,
    )


def remember(files: MemoryFiles, scope: MemoryScope, fact: str, context: ToolContext, *, adds: bool) -> ToolResult:
    """Add a fact and tell of it.

    Args:
        files: Which files hold memories.
        scope: Which of them.
        fact: As the model gave it; the text that a person put in its place counts more.
        context: Whose call it is.
        adds: Whether the fact may be added; else nobody was asked, because the file held it a moment ago.

    Raises:
        ToolError: It cannot be added; the file is as it was.
    """
    text, is_users = settled_text(fact, context.answer)
    entry = entry_of(text)
    if not entry:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            "The user left nothing of the fact to be remembered, so nothing was written.",
        )
    file = files.file(scope, context.workspace)
    if context.confirmed is not None and context.confirmed.state not in ("", file.location.path):
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"The {scope} memory leads to another file than the one that the user was asked about, so nothing was "
            "written. Ask the user before you try again.",
        )
    with exclusive(file.location, context.signal):
        addition, written = _add(files, file, entry, context) if adds else (None, None)
    notes = _notes(addition, written, is_users=is_users)
    is_saved = written is not None
    path, stored = file.location.path, entry.removeprefix("- ")
    where = f"the {scope} memory {shown_whole_path(path)}"
    done = f"Remembered in {where}" if is_saved else f"Nothing was added, {where} holds this already"
    sentence = f"{done}: {clipped(stored)}"
    return ToolResult(
        llm_content="\n".join([sentence, *notes]),
        return_display=_display(addition) if is_saved and addition is not None else sentence,
        structured={
            "scope": scope,
            "path": sendable_name(path),
            "fact": stored,
            "saved": is_saved,
            "created": is_saved and addition is not None and addition.snapshot.data is None,
            "user_modified": is_users,
            "notes": notes,
        },
    )


def _add(files: MemoryFiles, file: MemoryFile, entry: str, context: ToolContext) -> tuple[Addition, Written | None]:
    """Add an entry, beginning again while others change the file; nothing is written if it is there by now."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        context.signal.raise_if_aborted()
        addition = plan(files, file, entry, context)
        if addition.is_there:
            return addition, None
        _make_folder(file)
        try:
            written = replace_file(file.workspace, file.location, addition.data, addition.snapshot.identity)
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or time.monotonic() > end:
                raise
        else:
            _record(addition, written, context)
            return addition, written
        time.sleep(PAUSE_SECONDS)


def _record(addition: Addition, written: Written, context: ToolContext) -> None:
    """What this client has seen of the file stays seen; what it has not seen does not become so by one line."""
    reads = context.client.reads
    path, before = addition.file.location.path, addition.snapshot
    seen = reads.get(path) if reads is not None else None
    if reads is None or seen is None:
        return
    if seen.identity == before.identity or (seen.sha256 is not None and seen.sha256 == before.sha256):
        reads.record(path, SeenFile(written.identity, hashlib.sha256(addition.data).hexdigest()))


def _make_folder(file: MemoryFile) -> None:
    """The folder of the global memory, where it is the first thing that the user keeps there."""
    if file.scope == "global":
        try:
            os.makedirs(file.location.root, PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            symbol = errno.errorcode.get(error.errno or 0, "unknown")
            raise ToolError(
                ToolErrorType.FILE_WRITE_FAILURE,
                f"The folder of the global memory cannot be made ({symbol}), so nothing was written. Ask the user to "
                "look at the setting memory.globalFolder, or use the scope 'project'.",
            ) from None


def _refuse_hidden(file: MemoryFile) -> None:
    workspace, location = file.workspace, file.location
    hidden_by = agent_ignore_file(workspace, location)
    if hidden_by is None and workspace.forbidden is not None:
        hidden_by = workspace.forbidden.hides(location.path)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"The {file.scope} memory '{location.relative}' is hidden from agents by {hidden_by}, so nothing is added "
            "to it. If that is wanted, ask the user to change what hides it.",
        )


def _refuse_read_only(file: MemoryFile) -> None:
    info = file.workspace.stat(file.location)
    if info is not None and stat.S_ISREG(info.st_mode) and not info.st_mode & _WRITE_BITS:
        raise ToolError(
            ToolErrorType.PERMISSION_DENIED,
            f"The {file.scope} memory '{file.location.relative}' is read-only, so nothing is added to it. If that is "
            "wanted, ask the user to make it writable.",
        )


def _decoded(file: MemoryFile, data: bytes | None, entry: str) -> Decoded:
    """The text of the file, if a line can be added without touching another byte.

    Raises:
        ToolError: It cannot.
    """
    if data is None:
        return Decoded("", UTF_8)
    name = f"The {file.scope} memory '{file.location.relative}'"
    if len(data) > MAX_MEMORY_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"{name} has {len(data):,} bytes; nothing is added above {MAX_MEMORY_BYTES:,}. Ask the user to shorten it.",
        )
    decoded = decode(data)
    if decoded is None or "\0" in decoded.text or (not decoded.encoding.is_known and is_utf8(data)):
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"{name} is damaged, as a file that was only half written: it holds bytes that are no text. Nothing was "
            "changed. Ask the user to repair it.",
        )
    if not decoded.encoding.is_known and not entry.isascii():
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"{name} is not UTF-8, and its encoding is not known, so only a fact in plain ASCII can be added to it. "
            "Ask the user to save it as UTF-8.",
        )
    return decoded


def _notes(addition: Addition | None, written: Written | None, *, is_users: bool) -> list[str]:
    notes: list[str] = []
    if addition is not None and written is not None and addition.snapshot.data is None:
        notes.append("The file is new.")
    if written is not None and written.links_broken:
        notes.append(about_broken_links(written.links_broken))
    if is_users:
        notes.append("The user changed the fact before it was written.")
    return notes


def _display(addition: Addition) -> FileDiff:
    diff, name = addition.diff, os.path.basename(addition.file.location.path)
    return FileDiff(
        sendable_name(name),
        diff.text(name, PROPOSED),
        diff.added,
        diff.removed,
        is_new_file=addition.snapshot.data is None,
        truncated=diff.truncated,
    )
