"""Adds a fact to a memory file, to which several servers may write at the same time.

Each server reads the file, adds its line, and replaces the file only if it has not changed since. Otherwise, the server
repeats these steps, so that no entry is lost.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Sequence
from operator import ne

from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff, ToolResult
from tools.files.change.diff import Diff, unified_diff
from tools.files.change.file_change import (
    PROPOSED,
    WRITTEN,
    TargetFile,
    about_broken_links,
    record_change,
    take_snapshot,
    truncate,
)
from tools.files.change.writer import exclusive, replace_file
from tools.files.ignore_files import agent_ignore_file
from tools.files.text_encodings import UTF_8, Decoded, decode, encode, is_utf8, line_endings, split_lines
from tools.files.workspace import SeenFile
from tools.memory.memory_files import MemoryScope
from tools.text.file_names import UNSEEN, sendable_name, shown_whole_path

_JOINERS = "\u200c\u200d"  # invisible, but kept because some languages and many emoji need them
_IMPORT = re.compile(r"(?<!\S)@")  # begins an import: Qwen Code and Gemini CLI include the file at the path after `@`
_MARKUP = re.compile(r"<(?=[!?])")  # begins a comment, declaration or processing instruction, which hides text
# Begins a heading, a quotation, a list, a thematic break, code, or a link definition, which is invisible.
_BLOCK = re.compile(r"#|>|[*+](?=\s|$)|[*_]{3,}$|```|~~~|\[[^\]]*\]:")
_NUMBER = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ITEM = re.compile(r"\s*[-*+]\s+(.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")  # begins and ends a code block, in which nothing is a heading or an entry
_COMMENT, _COMMENT_END = re.compile(r" {0,3}<!--(?!.*-->)"), "-->"  # the beginning and end of a multi-line comment
_WORDS = re.compile(r"\w+")
_HEADING = re.compile(r"#{1,2}(\s|$)")  # a heading of level 1 or 2, which ends a section


def entry_of(fact: str) -> str:
    """Format a fact as a line of a Markdown list. Return an empty string if the fact has no visible text."""
    visible_text = UNSEEN.sub(lambda match: match[0] if match[0] in _JOINERS else " ", fact)
    line = " ".join(visible_text.split()).lstrip("- ")
    if not line:
        return ""
    line = _IMPORT.sub(r"\\@", _MARKUP.sub("&lt;", line))
    if _BLOCK.match(line):
        line = f"\\{line}"
    return "- " + _NUMBER.sub(r"\1\\\2", line)


def entries_in(text: str) -> list[str]:
    """Return the entries of all bulleted lists in `text`, with escapes removed."""
    lines, _ = outside_code(text)
    return [_unescape(item[1]) for line in lines if (item := _ITEM.fullmatch(line)) is not None]


def _unescape(entry: str) -> str:
    return " ".join(_ESCAPED.sub(r"\1", entry).replace("&lt;", "<").split())


def similar_entry(entries: Sequence[str], fact: str) -> str | None:
    """Return the first entry with the same words as `fact`, regardless of case and punctuation.

    Either the entry or the fact may have further words at the end.
    """
    fact_words = _WORDS.findall(fact.casefold())
    for entry in entries:
        entry_words = _WORDS.findall(entry.casefold())
        if fact_words and entry_words and not any(map(ne, fact_words, entry_words)):
            return entry
    return None


def outside_code(text: str) -> tuple[list[str], int]:
    """Return the lines of `text` with code blocks and comments blanked, and where an unclosed one begins.

    The second value is the index of the line in which the unclosed block or comment begins, or the number of lines if
    all code blocks and comments are closed.
    """
    lines, fence, begin = split_lines(text)[0], "", 0
    for number, line in enumerate(lines):
        fence_match = _FENCE.match(line)
        if fence == _COMMENT_END:
            fence, lines[number] = "" if fence in line else fence, ""
        elif fence:
            is_end = fence_match is not None and fence_match[1].startswith(fence) and not line.strip().strip(fence[0])
            fence, lines[number] = "" if is_end else fence, ""
        elif fence_match is not None:
            fence, begin, lines[number] = fence_match[1], number, ""
        elif _COMMENT.match(line):
            fence, begin, lines[number] = _COMMENT_END, number, ""
    return lines, begin if fence else len(lines)


def with_entry(text: str, entry: str, headings: Sequence[str]) -> str:
    """Add an entry at the end of its section. The existing text is not changed.

    The section ends at the next heading of level 1 or 2. If the text has none of `headings`, the first of them is
    appended after a blank line. The entry is inserted before an unclosed code block or comment.
    """
    bodies, endings = split_lines(text)
    eol = line_endings(text).majority or "\n"
    lines, begin = outside_code(text)
    if begin < len(bodies):
        place = sum(map(len, bodies[:begin])) + sum(map(len, endings[:begin]))
        head = with_entry(text[:place], entry, headings)
        return f"{head}{'' if head.endswith(eol * 2) else eol}{text[place:]}"
    bare_lines = [line.rstrip() for line in lines]
    heading = next((heading for heading in headings if heading in bare_lines), None)
    if heading is None:
        gap = ""  # line endings to append to the text so that a blank line follows it
        if any(body.strip() for body in bodies):
            gap = eol * 2 if bodies[-1].strip() else eol if bodies[-1] or bodies[-2].strip() else ""
        return f"{text}{gap}{headings[0]}{eol}{entry}{eol}"
    start = bare_lines.index(heading)
    line_numbers = range(start + 1, len(bodies))
    end = next((number for number in line_numbers if _HEADING.match(lines[number])), len(bodies))
    last = max(number for number in range(start, end) if bodies[number].strip() or number == start)
    place = sum(map(len, bodies[: last + 1])) + sum(map(len, endings[: last + 1]))
    prefix = "" if endings[last] else eol
    suffix = eol if last + 1 == end < len(bodies) else ""
    return f"{text[:place]}{prefix}{entry}{eol}{suffix}{text[place:]}"


MAX_MEMORY_BYTES = 1_000_000  # every conversation reads the whole file, so nothing is added to a larger file
PATIENCE_SECONDS = 20.0  # how long a save is retried while other writers are faster; in each round, one writer succeeds
PAUSE_SECONDS = 0.001  # pause before a save is retried
PRIVATE_FOLDER = 0o700  # mode of a new folder for the global memory, which is private to the user
_WRITE_BITS = 0o222


class MemoryAddition:
    """The planned addition of a fact to a memory file. Blocking. Raises a `ToolError` if nothing can be added."""

    def __init__(self, scope: MemoryScope, target: TargetFile, entry: str, headings: Sequence[str]) -> None:
        workspace, location = target.workspace, target.location
        name = f"The {scope} memory '{location.relative}'"
        forbidden = workspace.forbidden_in(location)
        rule = forbidden(location.path) if forbidden is not None else None
        hidden_by = f"the {rule}" if rule else agent_ignore_file(workspace, location)
        if hidden_by is not None:
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"{name} is hidden from agents by {hidden_by}, so nothing was added to it. If the user wants to add "
                "the fact, ask them to change that ignore file or rule.",
            )
        info = workspace.stat(location)
        if info is not None and stat.S_ISREG(info.st_mode) and not info.st_mode & _WRITE_BITS:
            raise ToolError(
                ToolErrorType.PERMISSION_DENIED,
                f"{name} is read-only, so nothing was added to it. If the user wants to add the fact, ask them to "
                "make the file writable.",
            )
        self._scope, self._target = scope, target
        self.snapshot = take_snapshot(target)
        data = self.snapshot.data
        if data is not None and len(data) > MAX_MEMORY_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"{name} is {len(data):,} bytes long, more than the limit of {MAX_MEMORY_BYTES:,}. Nothing was added. "
                "Ask the user to shorten it.",
            )
        old = Decoded("", UTF_8) if data is None else decode(data)
        if old is None or "\0" in old.text or (data is not None and not old.encoding.is_known and is_utf8(data)):
            raise ToolError(
                ToolErrorType.READ_CONTENT_FAILURE,
                f"{name} is damaged: it contains bytes that are not text, perhaps because it was only half written. "
                "Nothing was changed. Ask the user to repair it.",
            )
        if not old.encoding.is_known and not entry.isascii():
            raise ToolError(
                ToolErrorType.READ_CONTENT_FAILURE,
                f"{name} is not UTF-8 and has an unknown encoding, so only a fact in plain ASCII can be added to it. "
                "Ask the user to save it as UTF-8.",
            )
        entries, fact = entries_in(old.text), _unescape(entry.removeprefix("- "))
        is_present = fact in entries
        new = old.text if is_present else with_entry(old.text, entry, headings)
        self._data = encode(new, old.encoding)  # the file's new bytes
        self._sha256 = hashlib.sha256(self._data).hexdigest()
        # If a rule asks about all reading or denies it, the outcome must not depend on the rest of the file.
        is_hidden = self.snapshot.hidden_by is not None
        self.is_present = is_present and not is_hidden  # whether the file already has the fact, if that may be known
        # An entry with nearly the same words
        self.similar = None if is_present or is_hidden else similar_entry(entries, fact)
        self.shown_sha256 = None if is_hidden else self._sha256
        self.diff = (
            Diff(f"+{entry}\n", 1, 0)
            if is_hidden
            else unified_diff(None if data is None else old.shown(), Decoded(new, old.encoding).shown())
        )

    def write(self) -> list[str]:
        """Write the file and return notes for the result. Raises a `ToolError` if it changed or cannot be written."""
        target, snapshot, last_read = self._target, self.snapshot, self._target.seen
        if self._scope == "global":  # the folder may not exist yet
            try:
                os.makedirs(target.location.root, PRIVATE_FOLDER, exist_ok=True)
            except OSError as error:
                symbol = errno.errorcode.get(error.errno or 0, "unknown")
                raise ToolError(
                    ToolErrorType.FILE_WRITE_FAILURE,
                    f"The folder of the global memory cannot be created ({symbol}), so nothing was written. Ask "
                    "the user to check the setting memory.globalFolder, or use the 'project' scope.",
                ) from None
        with record_change(target, snapshot, self._data, self._sha256, self.diff) as record:
            identity, links_broken = replace_file(target.workspace, target.location, self._data, snapshot.identity)
        # If the client had read the old content, it knows the new content as well.
        was_current = last_read is not None and (
            last_read.identity == snapshot.identity or last_read.sha256 in {snapshot.sha256} - {None}
        )
        if target.reads is not None and was_current:
            target.reads.record(target.location.path, SeenFile(identity, self._sha256))
        notes = ["The file is new."] if snapshot.data is None else []
        if links_broken:
            notes.append(about_broken_links(links_broken))
        return [*notes, *record.notes]


def question_of(scope: MemoryScope, target: TargetFile, fact: str, headings: Sequence[str]) -> EditConfirmation | None:
    """Return the question to ask before a fact is added, or `None` if the file already has the fact. Blocking.

    The consent covers adding this fact to this file, whatever else the file contains, because the added entry is always
    the same. Therefore, several facts can be saved at once without invalidating each other's consent.
    """
    addition = MemoryAddition(scope, target, entry_of(fact), headings)
    if addition.is_present:
        return None
    path, diff = target.location.path, addition.diff
    return EditConfirmation(
        title=f"Confirm Memory Save: {scope} memory",
        file_path=path,
        file_diff=diff.text(os.path.basename(path), PROPOSED),
        added=diff.added,
        removed=diff.removed,
        state=path,
        truncated=diff.truncated,
        editable=fact,
    )


def remember(
    scope: MemoryScope, target: TargetFile, fact: str, headings: Sequence[str], *, adds: bool, is_users: bool
) -> ToolResult:
    """Add a fact and report the result. Raises a `ToolError` if the fact cannot be added. Blocking.

    If `adds` is false, nothing is written: no question was asked, because the file already had the fact.
    `is_users` is true if the user edited the fact that the model gave.
    """
    entry = entry_of(fact)
    if not entry:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS, "The user deleted the text of the fact, so nothing was written."
        )
    location = target.location
    addition: MemoryAddition | None = None
    saved: MemoryAddition | None = None
    notes: list[str] = []
    with exclusive(location, target.signal):
        end = time.monotonic() + PATIENCE_SECONDS
        while adds and saved is None:
            target.signal.raise_if_aborted()
            addition = MemoryAddition(scope, target, entry, headings)
            if addition.is_present:
                break
            try:
                notes, saved = addition.write(), addition
            except ToolError as error:
                # Another writer was faster: start over with the current file.
                if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or time.monotonic() > end:
                    raise
                time.sleep(PAUSE_SECONDS)
    is_new = saved is not None and saved.snapshot.data is None
    if addition is not None and addition.similar is not None:
        notes.append(f"An older entry says nearly the same: {truncate(addition.similar)}")
    if is_users:
        notes.append("The user edited the fact before it was written.")
    fact_text, place = entry.removeprefix("- "), f"the {scope} memory {shown_whole_path(location.path)}"
    outcome = f"Remembered in {place}" if saved is not None else f"Nothing was added, because {place} already has this"
    display: FileDiff | str = f"{outcome}: {truncate(fact_text)}"
    text = "\n".join([display, *notes])
    if saved is not None:
        diff, name = saved.diff, os.path.basename(location.path)
        diff_text = diff.text(name, WRITTEN)
        display = FileDiff(
            sendable_name(name), diff_text, diff.added, diff.removed, is_new_file=is_new, truncated=diff.truncated
        )
    return ToolResult(
        llm_content=text,
        return_display=display,
        structured={
            "scope": scope,
            "path": sendable_name(location.path),
            "fact": fact_text,
            "saved": saved is not None,
            "created": is_new,
            "sha256": saved.shown_sha256 if saved is not None else None,
            "user_modified": is_users,
            "notes": notes,
        },
    )
