"""Changes one file: checks that it is what the model and the user saw, locks out other writers, and writes it.

`text_edit`, `notebook_change` and `revert` plan most changes. The change of `write_file` is planned at the end of this
module: new content, by default with the encoding and line endings of the old content.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tools.contract.call_options import AbortSignal
from tools.contract.confirmation import Answer, EditConfirmation
from tools.contract.display import cut_at_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff, ToolResult
from tools.files.change.diff import Diff, changed_lines, line_range, unified_diff
from tools.files.change.journal import Journal, JournalError, NewChange
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.change.writer import exclusive, refuse_path_through_file, remove_file, replace_file
from tools.files.find.folder_walk import count
from tools.files.find.path_suggestions import likely_locations
from tools.files.ignore_files import is_hidden_target, why_hidden
from tools.files.path_opener import FileIdentity, identity_of
from tools.files.text_encodings import (
    Decoded,
    Encoding,
    check_fits,
    count_lines,
    decode,
    decode_unless_binary,
    encode,
    encoding_to_write,
    eol_style,
    guess,
    line_endings,
    marked_encoding,
)
from tools.files.workspace import Location, ReadLedger, SeenFile, Workspace, explain
from tools.machine.unlocked_cached_property import cached_property
from tools.text.file_names import exact_path, parse_quoted_path, sendable_name, shown_name, shown_whole_path

MAX_CHANGED_BYTES = 64_000_000  # larger files cannot be changed
ABSENT = "absent"  # the state of a file that does not exist
EDITABLE_BYTES = 16_000  # the user can edit new content of at most this size in the question
SHOWN_BYTES = 5_000  # maximum bytes of a change shown in the result, so that the result stays below 8 kB
# The labels of the two sides of a diff in a question and in a result (as in Qwen Code and Gemini CLI)
PROPOSED, WRITTEN = ("Current", "Proposed"), ("Original", "Written")


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change, and the journal that records it."""

    journal: Journal
    client: str  # the client's name in the journal
    tool: str


@dataclass(frozen=True, slots=True)
class TargetFile:
    """The file that a call changes. Its path is resolved only once."""

    workspace: Workspace
    location: Location
    reads: ReadLedger | None  # the files that the client has seen; `None` if they are not recorded
    signal: AbortSignal
    author: Author | None = None  # `None` if changes are not recorded
    jobs: Sequence[str] = ()  # ids of the client's running jobs

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings, for the question and the result, about jobs that may read hidden content."""
        if not self.jobs or not is_hidden_target(self.workspace, self.location, agent=True):
            return ()
        return (f"The file is hidden from commands, but running background jobs may read it: {', '.join(self.jobs)}.",)

    @property
    def seen(self) -> SeenFile | None:
        return self.reads.get(self.location.path) if self.reads is not None else None

    def refuse_look_alike(self) -> None:
        """Refuse to create a file whose name looks like that of an existing file.

        A quoted name is accepted. So is the same call when it is repeated, if there is a ledger: without one, a
        repetition cannot be recognised.
        """
        location, reads = self.location, self.reads
        similar_names = [candidate.name for candidate in likely_locations(self.workspace, location, is_new=True)]
        if not similar_names or parse_quoted_path(location.raw_path) is not None:
            return
        if reads is not None and not reads.is_first_notice(location.path):
            return
        instruction = f"write the name as '{exact_path(location.name, is_quoted=True)}', including the quotes"
        if reads is not None:  # `coretools-mcp call` starts a new session each time, so there only the quotes help
            instruction = f"repeat the call in this session, or {instruction}"
        raise ToolError(
            ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE,
            f"'{location.shown}' does not exist, but the similar '{exact_path(similar_names[0])}' does. Nothing was "
            f"written. Use that name to change that file. To create a second file, {instruction}.",
        )


@dataclass(eq=False, repr=False)
class FileSnapshot:
    """The current state of a file. `data` and `identity` are `None` if the file does not exist."""

    target: TargetFile
    data: bytes | None = None
    identity: FileIdentity | None = None
    known_sha256: str | None = None  # the digest, if an earlier read of the same file has computed it

    @cached_property
    def sha256(self) -> str | None:
        return self.known_sha256 if self.known_sha256 or self.data is None else hashlib.sha256(self.data).hexdigest()

    @cached_property
    def hidden_by(self) -> str | None:
        """The permission rule or the agent-ignore file that keeps the content out of results.

        `None` if there is none, or if the client has read or written exactly this content and its ledger is not shared.
        """
        target, seen_file = self.target, self.target.seen
        reason = why_hidden(target.workspace, target.location) if self.data is not None else None
        if reason is None or seen_file is None or (target.reads is not None and target.reads.is_shared):
            return reason
        return None if seen_file.identity == self.identity or seen_file.sha256 == self.sha256 else reason

    def check_fresh(self, expected_sha256: str | None = None) -> None:
        """Refuse to change a file that differs from what the model has seen (`file_changed_since_read`).

        A file that was never read may be changed. An expected digest takes precedence over earlier reads. For content
        that is hidden from the client, no digest is accepted, because a correct guess would reveal the content.
        """
        seen_file, reads, is_hidden = self.target.seen, self.target.reads, self.hidden_by is not None
        display_path, path = self.target.location.shown, self.target.location.path
        # Report a change of hidden content only once: the client cannot read the file, but may replace it.
        was_reported = is_hidden and reads is not None and not reads.is_first_notice(f"{self.sha256} {path}")
        if expected_sha256 is not None and is_hidden:
            problem = (
                f"The content of '{display_path}' is hidden from agents, so expected_sha256 was not compared with "
                "it. Nothing was written. Omit expected_sha256 to replace the file whatever it contains."
            )
        elif expected_sha256 is not None:
            if self.sha256 == expected_sha256.lower():
                return
            now = f"its SHA-256 is {self.sha256}" if self.data is not None else "it does not exist"
            advice = "Read the file again and repeat the change on its current content."
            if self.data is None:
                advice = "To create it, omit expected_sha256."
            problem = f"'{display_path}' does not match expected_sha256: {now}. Nothing was written. {advice}"
        else:
            if seen_file is None or self.data is None or seen_file.identity == self.identity or was_reported:
                return
            if seen_file.sha256 is not None and seen_file.sha256 == self.sha256:
                return
            instruction = "Read it again and repeat the change on its current content."
            if is_hidden:
                instruction = (
                    "Its content is hidden from agents. Read it if that is allowed, or repeat this call to replace "
                    "all of it."
                )
            lines = ""
            if not is_hidden and reads is not None and (seen_content := reads.content(path)) is not None:
                before, after = decode(seen_content), decode(self.data)
                lines = changed_lines(unified_diff(before.text, after.text)) if before and after else ""
            difference = f" (now different: {lines})" if lines else ""
            problem = (
                f"'{display_path}' has changed since you last read or wrote it{difference}. "
                f"Nothing was written. {instruction}"
            )
        raise ToolError(ToolErrorType.FILE_CHANGED_SINCE_READ, problem)

    def refuse_part_of_hidden(self) -> None:
        """Refuse to change part of a file whose content is hidden from the client (`path_ignored`)."""
        if self.hidden_by is not None:
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"'{self.target.location.shown}' is hidden from agents by {self.hidden_by}, so no part of it can be "
                "replaced: the outcome would reveal its content. Read it first if that is allowed, use write_file to "
                "replace all of it, or ask the user.",
            )

    def refuse_undoing_write(self, text: str) -> None:
        """If another client may have made the latest write, refuse the first attempt to write text that undoes it."""
        reads, path = self.target.reads, self.target.location.path
        replaced_content = reads.replaced(path) if reads is not None else None
        if reads is None or replaced_content is None:
            return
        previous, current = decode(replaced_content), decode(self.data or b"")
        if previous is None or current is None:
            return
        old, present, new = (set(version.splitlines()) - {""} for version in (previous.text, current.text, text))
        reverts = old != present and old - present <= new and new.isdisjoint(present - old)
        if reverts and self.hidden_by is None and reads.is_first_notice(f"{self.sha256} {path}"):
            raise ToolError(
                ToolErrorType.FILE_CHANGED_SINCE_READ,
                f"'{self.target.location.shown}' was last written by a call with your token, and this content would "
                f"undo that write ({changed_lines(unified_diff(previous.text, current.text))}). Nothing was written. "
                "If another agent made that write, read the file again and repeat the change on its current "
                "content. To undo that write, repeat this call.",
            )


def take_snapshot(target: TargetFile) -> FileSnapshot:
    """Read a whole file to change it. Raises a `ToolError` if the file is a directory, too large or unreadable."""
    location = target.location
    if target.workspace.stat(location) is None:
        return FileSnapshot(target)
    with target.workspace.open_file(location) as file:
        if file.info.st_size > MAX_CHANGED_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"'{location.shown}' is {file.info.st_size:,} bytes long. Files above {MAX_CHANGED_BYTES:,} bytes "
                "cannot be changed here. Use a stream editor in the shell.",
            )
        try:
            data = file.whole(target.signal)
        except OSError as error:
            raise explain(error, location.shown) from None
        seen_file = target.seen
        digest = seen_file.sha256 if seen_file is not None and seen_file.identity == identity_of(file.info) else None
        return FileSnapshot(target, data, identity_of(file.info), digest)


def encode_or_refuse(text: str, encoding: Encoding, parameter: str) -> bytes:
    """Encode text in an encoding that can represent it, but refuse lone surrogates (`invalid_tool_params`)."""
    try:
        return encode(text, encoding)
    except UnicodeEncodeError as error:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{parameter}' contains U+{ord(text[error.start]):04X}, a lone surrogate, which {encoding.name} "
            "cannot represent. Nothing was written. Use the whole character.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange(ABC):
    """A change that is ready to be written. Most tools that change files have a subclass, such as `TextEdit`."""

    title: ClassVar[str]  # the first words of the question's title
    labels: ClassVar[tuple[str, str]] = WRITTEN  # labels of the two sides of the diff in a result
    proposal_noun: ClassVar[str] = "content"  # a noun for the text that the user may have edited

    snapshot: FileSnapshot
    text: str
    encoding: Encoding  # encoding of the new content
    data: bytes
    diff: Diff
    undoes: int | None = None  # for an undo, the number of the change that it undoes
    removes: bool = False  # whether the file is removed
    mode: int | None = None  # for an undo, the mode of the file
    notes: tuple[str, ...] = ()  # further remarks for the model

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What was done."""

    @property
    @abstractmethod
    def result_fields(self) -> dict[str, Any]:
        """Further fields of the structured result. If there are `regions` (changed places), the text shows them too."""

    @property
    def changes_file(self) -> bool:
        return True

    @property
    def target(self) -> TargetFile:
        return self.snapshot.target

    @property
    def is_new(self) -> bool:
        return self.snapshot.data is None

    @property
    def content_summary(self) -> str:
        """A description of the new content: size, encoding and line endings."""
        eol = eol_style(self.text)
        return f"{count(len(self.data), 'byte')}, {self.encoding.name}" + (f", {eol}" if eol else "")

    @property
    def state(self) -> str:
        """The file's digest and real path. An answer to the question is valid only for this state."""
        return f"{self.snapshot.sha256 or ABSENT} {self.target.location.path}"

    def is_current(self) -> bool:
        info = self.target.workspace.stat(self.target.location)
        return (identity_of(info) if info is not None else None) == self.snapshot.identity

    def confirmation(self, proposal: str) -> EditConfirmation:
        """Return the question to ask before the file is written. The user may edit `proposal`."""
        location, diff = self.target.location, self.diff
        # A refusal would reveal that a hidden file exists.
        if self.is_new and not is_hidden_target(self.target.workspace, location, agent=True):
            refuse_path_through_file(location)
        is_short = len(proposal) <= EDITABLE_BYTES and len(proposal.encode("utf-8", "surrogatepass")) <= EDITABLE_BYTES
        return EditConfirmation(
            title=f"{self.title}: {location.brief}",
            file_path=location.name,
            file_diff=diff.text(os.path.basename(location.path), PROPOSED),
            added=diff.added,
            removed=diff.removed,
            state=self.state,
            truncated=diff.truncated,
            editable=proposal if is_short else None,
            notes=(
                *self._about_hidden_content,
                *_about_undo(self.target, self.snapshot.data, self.undoes),
                *self.target.warnings,
            ),
        )

    @property
    def _about_hidden_content(self) -> Iterator[str]:
        if self.snapshot.data is not None and self.snapshot.hidden_by is not None:
            yield f"Replaces content that is hidden from the model ({count(len(self.snapshot.data), 'byte')})."


def settled_text(proposal: str, answer: Answer | None) -> tuple[str, bool]:
    """Return the text to write, and whether the user replaced the model's text."""
    edited_text = answer.content if answer is not None else None
    if edited_text and "\r" not in proposal:
        # Forms may send line breaks as CRLF even if the text had LF.
        edited_text = edited_text.replace("\r\n", "\n")
    return (edited_text, True) if edited_text and edited_text != proposal else (proposal, False)


def make_change(
    target: TargetFile,
    plan_now: Callable[[str, bool], FileChange],
    proposal: str,
    *,
    planned: FileChange | None,
    answer: Answer | None,
    confirmed_state: str | None,
) -> ToolResult:
    """Make a change, and record the file as seen by this client. Blocking. After a `ToolError`, nothing has changed.

    `planned` is the plan made for the question, which is reused if it still fits. If not, `plan_now` makes a new plan
    while other writers are locked out. The arguments of `plan_now` are the new text, and whether the user wrote that
    text. `confirmed_state` is the state of the file that the user saw, or in which no question was needed.
    """
    location = target.location
    text, is_users = settled_text(proposal, answer)
    with exclusive(location, target.signal):
        change = planned
        if change is None or is_users or change.target.location != location or not change.is_current():
            change = plan_now(text, is_users)
        target.signal.raise_if_aborted()
        if confirmed_state is not None and confirmed_state != change.state:
            raise ToolError(
                ToolErrorType.FILE_CHANGED_SINCE_READ,
                f"'{location.shown}' was changed in the meantime, so nothing was written. Read the file again and "
                "repeat the change on its current content.",
            )
        sha256 = hashlib.sha256(change.data).hexdigest()
        identity, links_broken, record = change.snapshot.identity, 0, ChangeRecord()
        # Always write a file with hidden content, because skipping the write would reveal that the content is the same.
        snapshot = change.snapshot
        if identity is None or snapshot.hidden_by is not None or change.data != snapshot.data or change.removes:
            with record_change(target, snapshot, change.data, sha256, change.diff, change) as record:
                if change.removes and identity is not None:
                    remove_file(target.workspace, location, identity)
                else:
                    identity, links_broken = replace_file(
                        target.workspace, location, change.data, identity, mode=change.mode
                    )
        if target.reads is not None and not change.removes:
            target.reads.record(location.path, SeenFile(identity, sha256), change.data, snapshot.data)
    return _result(target, change, sha256, record, links_broken=links_broken, is_users=is_users)


def _result(
    target: TargetFile, change: FileChange, sha256: str, record: ChangeRecord, *, links_broken: int, is_users: bool
) -> ToolResult:
    location = target.location
    name, diff = os.path.basename(location.path), change.diff
    diff_text = diff.text(name, change.labels)
    final_diff = truncate(diff_text) if is_users and change.snapshot.hidden_by is None else ""
    result_fields = change.result_fields
    if final_diff and "regions" in result_fields:
        result_fields["regions"] = []  # the diff shows them
    notes = [*change.notes, *record.notes, *target.warnings]
    if change.undoes is not None and record.number is not None and not record.notes:
        notes.append(f"This is change {record.number}, which can also be undone.")
    if links_broken:
        notes.append(about_broken_links(links_broken))
    if is_users:
        notes.append(f"The user edited the {change.proposal_noun} before it was written.")
    content = [" ".join([change.sentence, *notes])]
    content += [
        f"{line_range(part['first'], part['last']).capitalize()} now:\n---\n{part['text']}\n---"
        for part in result_fields.get("regions", ())
    ]
    content += [f"The final change:\n{final_diff}"] if final_diff else []
    display: FileDiff | str = FileDiff(
        sendable_name(name), diff_text, diff.added, diff.removed, is_new_file=change.is_new, truncated=diff.truncated
    )
    if change.snapshot.hidden_by is not None:
        # `display` may be sent to the model, which must not learn hidden content by writing to the file.
        display = (
            f"Replaced {shown_name(name)} ({diff.counts} lines); "
            f"its old content is hidden from agents by {change.snapshot.hidden_by}."
        )
    return ToolResult(
        llm_content="\n".join(content),
        return_display=display,
        structured={
            "path": sendable_name(location.name),
            "created": change.is_new,
            "added": diff.added,
            "removed": diff.removed,
            "bytes": len(change.data),
            "encoding": change.encoding.name,
            "eol": eol_style(change.text),
            "sha256": sha256,
            "links_broken": links_broken,
            "user_modified": is_users,
            "notes": notes,
            "diff": final_diff,
            **result_fields,
        },
    )


def _no_undo(undoes: int | None) -> str:
    return f"This {'change' if undoes is None else 'undo'} cannot be undone."


def _about_undo(target: TargetFile, before: bytes | None, undoes: int | None) -> Iterator[str]:
    if target.author is not None and (reason := target.author.journal.why_not_kept(before)):
        yield f"{_no_undo(undoes)} {reason}"


@dataclass(slots=True)
class ChangeRecord:
    number: int | None = None  # the change's number, by which it can be undone
    notes: tuple[str, ...] = ()  # says why the change cannot be undone


@contextmanager
def record_change(
    target: TargetFile, before: FileSnapshot, after: bytes, sha256: str, diff: Diff, change: FileChange | None = None
) -> Generator[ChangeRecord]:
    """Record a change before it is made, and withdraw the record if the change fails."""
    author, record = target.author, ChangeRecord()
    if author is None:
        yield record
        return
    is_gone, mode, undoes = (change.removes, change.mode, change.undoes) if change is not None else (False, None, None)
    contents = (before.data, None, before.sha256, None) if is_gone else (before.data, after, before.sha256, sha256)
    new = NewChange(target.location.path, *contents, diff.added, diff.removed, mode, undoes)
    try:
        record.number = author.journal.add(new, author.client, author.tool)
        record.notes = tuple(_about_undo(target, before.data, undoes))
    except JournalError as error:
        record.notes = (f"{_no_undo(undoes)} {error.message}",)
    try:
        yield record
    except BaseException:
        if record.number is not None:
            author.journal.withdraw(record.number)
        raise


def about_broken_links(count: int) -> str:
    names = "name (a hard link)" if count == 1 else "names (hard links)"
    return f"The old content is still available under {count} other {names} of the file."


def truncate(text: str, size: int = SHOWN_BYTES) -> str:
    """Truncate `text` to at most `size` bytes, at the end of a line, and mark the cut."""
    head, is_cut = cut_at_line(text, size)
    return f"{head}\n[cut here]" if is_cut else head


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFileWrite(FileChange):
    title: ClassVar[str] = "Confirm Write"

    lines: int  # the number of lines in the new content

    @property
    def changes_file(self) -> bool:
        return self.snapshot.hidden_by is not None or self.snapshot.data != self.data

    @property
    def sentence(self) -> str:
        form = f"{self.lines} {'line' if self.lines == 1 else 'lines'}, {self.content_summary}"
        path, diff = shown_whole_path(self.target.location.name), self.diff
        if self.is_new:
            return f"Created the new file {path}: {form}."
        if self.snapshot.hidden_by is not None:
            return f"Overwrote {path}, whose old content is hidden from agents; now {form}."
        if self.changes_file:
            return f"Overwrote {path}: {diff.counts} lines; now {form}."
        return f"{path} already has exactly this content; nothing was written."

    @property
    def result_fields(self) -> dict[str, Any]:
        return {"changed": self.changes_file, "lines": self.lines}


def plan_write(
    target: TargetFile, content: str, *, expected_sha256: str | None, encoding: str | None, is_users: bool
) -> WholeFileWrite:
    """Plan a write of a whole file. Writes nothing.

    The file keeps its line endings if `content` has only LF, and a known encoding if `encoding` is `None`. The other
    parameters are as in `plan_edit`.
    """
    location = target.location
    snapshot = take_snapshot(target)
    data, is_hidden = snapshot.data, snapshot.hidden_by is not None
    snapshot.check_fresh(expected_sha256)
    if data is None:
        target.refuse_look_alike()
    elif expected_sha256 is None and not is_users:
        snapshot.refuse_undoing_write(content)

    # The current text as shown to people. `None` for a new file, and for hidden content, on which no result may depend.
    old: str | None = None
    decoded: Decoded | None = None
    notes: list[str] = []
    if data is not None and not is_hidden:
        decoded = decode_unless_binary(data)
        is_binary = decoded is None and marked_encoding(data) is None
        is_known = decoded is not None and decoded.encoding.is_known
        best_guess = None if decoded is None or is_known else guess(data)
        present = best_guess.decoded if best_guess is not None else decoded
        old = present.shown() if present is not None else ""
        if is_binary:
            notes.append(f"The file had {count(len(data), 'byte')} of binary data; none of it was kept.")
        elif encoding is None and not is_known:
            note = "The file was not UTF-8 (nor UTF-16 or UTF-32 with a byte order mark). The new content is UTF-8."
            if best_guess is not None:
                name = best_guess.name
                note += f" It was shown as {name}; to write in that encoding, set encoding='{name}'."
            notes.append(note)
    new_encoding = encoding_to_write(encoding, decoded, location.shown)

    may_omit = is_users or data is None
    if not may_omit and (line := first_omission(content, old, path=location.path)) is not None:
        advice = "Give the complete content, or use edit to change only a part."
        raise placeholder_error("write_file", f"'{line}'", advice)
    # The current file's byte order mark is kept, so a mark at the start of the new content would be a second one.
    new = content.removeprefix("\ufeff") if new_encoding.bom else content
    if encoding is not None:
        check_fits(new, new_encoding, "content")
    ending = line_endings(old).majority if old and "\r" in old and "\r" not in new else None
    if ending is not None:
        new = new.replace("\n", ending)
    new_data = encode_or_refuse(new, new_encoding, "content")
    return WholeFileWrite(
        snapshot=snapshot,
        text=new,
        encoding=new_encoding,
        data=new_data,
        diff=unified_diff(old, new, is_old_hidden=is_hidden),
        notes=tuple(notes) if new_data != data else (),
        lines=count_lines(new),
    )
