"""How `write_file` and `edit` change a file: a change is planned, asked about, held against the file, and made."""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from tools.call.base_tool import BuiltinParamsT
from tools.call.context import ToolContext
from tools.contract.confirmation import EditConfirmation
from tools.contract.display import cut_at_line
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import ExhaustedError, start_thread
from tools.contract.names_on_one_line import sendable_name, shown_name
from tools.contract.results import FileDiff, ToolResult
from tools.contract.threads import run_blocking
from tools.files.change.diff import Diff
from tools.files.change.writer import exclusive, replace_file
from tools.files.line_endings import eol_style
from tools.files.opener import identity_of
from tools.files.read_ledger import FileIdentity, ReadLedger, SeenFile
from tools.files.text_encodings import Encoding, encode
from tools.files.workspace import Location, Workspace, explain

MAX_CHANGED_BYTES = 64_000_000
"""Size of a file that is held in memory to change it."""

ABSENT = "absent"
"""The state of a file that does not exist."""

BESIDE_BYTES = 1 << 18
"""A larger content is worth a thread: hashing and syncing take about as long, and neither holds up the other."""


class Snapshot:
    """A file as it is now.

    Args:
        data: Its content, or `None` if it does not exist.
        identity: Its fingerprint, or `None`.
        digest: Hex digest of the content, where it is known already.
    """

    def __init__(self, data: bytes | None, identity: FileIdentity | None, digest: str | None = None) -> None:
        self.data = data
        self.identity = identity
        self._digest = digest

    @cached_property
    def sha256(self) -> str | None:
        """Hex digest of the content."""
        return self._digest if self._digest or self.data is None else hashlib.sha256(self.data).hexdigest()

    @property
    def state(self) -> str:
        """What an answer is bound to: the digest, or `ABSENT`."""
        return self.sha256 or ABSENT

    def is_current(self, workspace: Workspace, location: Location) -> bool:
        """Whether the file still has this fingerprint."""
        info = workspace.stat(location)
        return (identity_of(info) if info is not None else None) == self.identity


def take_snapshot(location: Location, context: ToolContext) -> Snapshot:
    """Read a file whole, to change it.

    Raises:
        ToolError: It cannot be read, is a directory, or is too large (`file_too_large`).
    """
    if context.workspace.stat(location) is None:
        return Snapshot(None, None)
    with context.workspace.open_file(location) as opened:
        if opened.info.st_size > MAX_CHANGED_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"'{location.shown}' has {opened.info.st_size:,} bytes; files above {MAX_CHANGED_BYTES:,} bytes are "
                "not changed here. Use a stream editor in the shell.",
            )
        try:
            data = opened.whole(context.signal)
        except OSError as error:
            raise explain(error, location.shown) from None
        seen = context.client.reads.get(location.path) if context.client.reads is not None else None
        digest = seen.sha256 if seen is not None and seen.identity == opened.identity else None
        return Snapshot(data, opened.identity, digest)


def shown_state(location: Location, snapshot: Snapshot) -> str:
    """What a question shows, and what its answer is bound to: which file, links resolved, in which state."""
    return f"{snapshot.state} {location.path}"


def check_fresh(
    location: Location,
    snapshot: Snapshot,
    reads: ReadLedger | None,
    expected_sha256: str | None,
    *,
    is_hidden: bool = False,
) -> None:
    """Refuse to change a file that is not what the model has seen.

    A file that was never read may be changed. An expected digest counts more than what was read before. For a file
    hidden from agents only the digest of what this client knows of it is accepted, since any other one is a guess,
    and whether it is right would tell what the file holds.

    Raises:
        ToolError: `file_changed_since_read`.
    """
    seen = reads.get(location.path) if reads is not None else None
    if expected_sha256 is not None and is_hidden:
        if seen is not None and seen.sha256 == expected_sha256.lower() == snapshot.sha256:
            return
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.shown}' is hidden from agents, and expected_sha256 is not the digest of what you wrote there "
            "last, or somebody else has changed it since; which of the two is not told. Nothing was written. Leave "
            "expected_sha256 out to replace the file whatever it holds.",
        )
    if expected_sha256 is not None:
        if snapshot.sha256 == expected_sha256.lower():
            return
        now = f"its SHA-256 is {snapshot.sha256}" if snapshot.data is not None else "it does not exist"
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.shown}' is not as expected_sha256 says: {now}. Nothing was written. "
            "Read the file again and repeat the change on what it holds now.",
        )
    if seen is None or snapshot.data is None or seen.identity == snapshot.identity:
        return
    if seen.sha256 is None or seen.sha256 != snapshot.sha256:
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.shown}' was changed by somebody else since you last read or wrote it. Nothing was written. "
            "Read it again and repeat the change on what it holds now.",
        )


class Digest:
    """The SHA-256 of a content.

    Args:
        content: What is hashed, from now on.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._found = ""
        self._turn = threading.Lock()
        if len(content) > BESIDE_BYTES:
            with suppress(ExhaustedError):  # without a thread it is done when it is asked for
                start_thread(self._hash)

    def hex(self) -> str:
        """The hex digest, as soon as it is known."""
        self._hash()
        return self._found

    def _hash(self) -> None:
        with self._turn:
            self._found = self._found or hashlib.sha256(self._content).hexdigest()


EDITABLE_BYTES = 16_000
"""Size of a text that a person may change in the question."""

SHOWN_BYTES = 5_000
"""Size of what a result repeats of a change; with its sentences it stays under 8 kB."""

KEPT_BYTES = 4_000_000
"""Content, old and new, that is kept while a person is asked; a larger change is planned again after the answer."""

PLAN = "plan"
"""Under this key a call's memo holds what was planned for the question, with the parameters it was planned for."""

PROPOSED = ("Current", "Proposed")
"""What the two sides of a diff are called in a question (both seeds' words)."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a call wants, whatever its parameters are called.

    Args:
        file_path: As given.
        text: The text that a person may put another one in place of.
        expected_sha256: What the present content must be, or `None`.
    """

    file_path: str
    text: str
    expected_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that is ready to be made.

    Args:
        location: The file.
        snapshot: What it is now.
        text: Its text afterwards.
        encoding: Of the bytes afterwards.
        data: Its bytes afterwards.
        diff: The change for people.
        hidden_by: The agent-ignore file that hides the file, or `None`; also `None` for a new file.
    """

    location: Location
    snapshot: Snapshot
    text: str
    encoding: Encoding
    data: bytes
    diff: Diff
    hidden_by: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether the file does not exist yet."""
        return self.snapshot.data is None

    @property
    def form(self) -> str:
        """Size, encoding and line endings afterwards."""
        eol = eol_style(self.text)
        return f"{len(self.data):,} bytes, {self.encoding.name}" + (f", {eol}" if eol else "")

    @property
    def kept_bytes(self) -> int:
        """What it costs to keep it."""
        return len(self.data) + len(self.snapshot.data or b"")


ChangeT = TypeVar("ChangeT", bound=Change)


@dataclass(frozen=True, slots=True)
class Committed:
    """What is in the file now.

    Args:
        sha256: Digest of the content.
        links_broken: Other names (hard links) that keep the old content.
    """

    sha256: str
    links_broken: int = 0

    @property
    def notes(self) -> list[str]:
        """What has to be told of it."""
        if not self.links_broken:
            return []
        noun = "name" if self.links_broken == 1 else "names"
        return [f"The file had {self.links_broken} other {noun} (hard links); they keep the old content."]


def commit(
    location: Location, content: bytes, snapshot: Snapshot, context: ToolContext, *, is_hidden: bool = False
) -> Committed:
    """Write the new content, unless the file holds it already, and remember it as seen by this client.

    A file hidden from agents is written in any case: that nothing was written would tell what it holds.

    Raises:
        ToolError: The file is no longer as in the snapshot, or cannot be written; the old content is whole.
    """
    context.signal.raise_if_aborted()
    if context.confirmed is not None and context.confirmed.state != shown_state(location, snapshot):
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.shown}' was changed by somebody else while the user was asked, so their answer no "
            "longer holds. Nothing was written. Read it again and repeat the change on what it holds now.",
        )
    links_broken = 0
    identity = snapshot.identity
    digest = Digest(content)
    if identity is None or is_hidden or content != snapshot.data:
        written = replace_file(context.workspace, location, content, identity)
        identity, links_broken = written.identity, written.links_broken
    sha256 = digest.hex()
    if context.client.reads is not None:
        context.client.reads.record(location.path, SeenFile(identity, sha256))
    return Committed(sha256, links_broken)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The text that will be written, and whose it is.

    Args:
        text: To be used in place of the parameter.
        is_users: A person put it there instead of the model's.
    """

    text: str
    is_users: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What one tool has to say of a change beside what both say.

    Args:
        sentence: What was done.
        notes: What else to know.
        shown: Pieces of the file as it is now, for the model.
        structured: Its own part of the structured result.
    """

    sentence: str
    notes: list[str]
    structured: Mapping[str, Any]
    shown: list[str] = field(default_factory=list[str])


class Changer(ABC, Generic[BuiltinParamsT, ChangeT]):
    """Does the work of a tool that writes one file.

    Subclasses say what a call aims at, plan the change and report it. Here is, once: that other writers are kept
    away, that the file is what the model and the person have seen, and that the change is made and remembered.
    """

    question: str
    """The first words of the question's title."""

    labels: tuple[str, str]
    """What the two sides of the diff in a result are called."""

    proposal_noun: str
    """What a person may have changed."""

    @abstractmethod
    def aim(self, params: BuiltinParamsT) -> Aim:
        """What a call wants."""

    @abstractmethod
    def plan(self, params: BuiltinParamsT, location: Location, proposal: Proposal, context: ToolContext) -> ChangeT:
        """The change against what the file is now. Called with other writers kept away; writes nothing.

        Raises:
            ToolError: The change cannot be made.
        """

    @abstractmethod
    def report(self, change: ChangeT, committed: Committed, final_diff: str) -> Report:
        """What is told of a change that was made.

        Args:
            change: The change.
            committed: What is in the file now.
            final_diff: The diff that the result shows because a person changed the text, or nothing.
        """

    async def ask(self, params: BuiltinParamsT, context: ToolContext) -> EditConfirmation:
        """The change as a diff against what is there now; a change that cannot be made is not asked about."""
        aim = self.aim(params)

        def preview() -> ChangeT:
            location = context.workspace.locate(aim.file_path)
            with exclusive(location, context.signal):
                return self.plan(params, location, Proposal(aim.text), context)

        change = await run_blocking(context.signal, preview)
        if change.kept_bytes <= KEPT_BYTES:
            context.memo[PLAN] = (params, change)
        return edit_confirmation(self.question, change, aim.text)

    async def change(self, params: BuiltinParamsT, context: ToolContext) -> ToolResult:
        """Change the file in one thread hop, with other writers kept away."""
        planned_for, previewed = cast("tuple[object, ChangeT | None]", context.memo.pop(PLAN, (None, None)))
        aim = self.aim(params)

        def make() -> ToolResult:
            proposal = settled_text(context, aim.text)
            location = context.workspace.locate(aim.file_path)
            with exclusive(location, context.signal):
                change = previewed if planned_for is params and not proposal.is_users else None
                if change is None or not _still_fits(change, location, context):
                    change = self.plan(params, location, proposal, context)
                is_hidden = change.hidden_by is not None
                check_fresh(location, change.snapshot, context.client.reads, aim.expected_sha256, is_hidden=is_hidden)
                committed = commit(location, change.data, change.snapshot, context, is_hidden=is_hidden)
            return self._result(change, proposal, committed)

        return await run_blocking(context.signal, make)

    def _result(self, change: ChangeT, proposal: Proposal, committed: Committed) -> ToolResult:
        diff = change.diff
        final_diff = ""
        if proposal.is_users and change.hidden_by is None:
            final_diff = clipped(diff.text(os.path.basename(change.location.path), self.labels))
        report = self.report(change, committed, final_diff)
        notes = list(report.notes)
        if proposal.is_users:
            notes.append(f"The user changed the {self.proposal_noun} before it was written.")
        text = [" ".join([report.sentence, *notes]), *report.shown]
        text += [f"The final change:\n{final_diff}"] if final_diff else []
        return ToolResult(
            llm_content="\n".join(text),
            return_display=change_display(change, self.labels),
            structured={
                "path": sendable_name(change.location.path),
                "created": change.is_new,
                "added": diff.added,
                "removed": diff.removed,
                "bytes": len(change.data),
                "encoding": change.encoding.name,
                "eol": eol_style(change.text),
                "sha256": committed.sha256,
                "links_broken": committed.links_broken,
                "user_modified": proposal.is_users,
                "notes": notes,
                "diff": final_diff,
                **report.structured,
            },
        )


def _still_fits(change: Change, location: Location, context: ToolContext) -> bool:
    return change.location == location and change.snapshot.is_current(context.workspace, location)


def encode_or_refuse(text: str, encoding: Encoding, parameter: str) -> bytes:
    """The bytes of a text, in an encoding that holds all of Unicode or only what is known to fit.

    Raises:
        ToolError: `invalid_tool_params`: the text holds half of a surrogate pair, which no encoding can hold.
    """
    try:
        return encode(text, encoding)
    except UnicodeEncodeError as error:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{parameter}' holds U+{ord(text[error.start]):04X}, half of a surrogate pair, which {encoding.name} "
            "cannot hold; nothing was written. Give the character itself.",
        ) from None


def settled_text(context: ToolContext, proposed: str) -> Proposal:
    """The model's text, or the one that a person put in its place in the answer to the question."""
    answered = context.answer.content if context.answer is not None else None
    if answered and "\r" not in proposed:
        # Forms may send line breaks as CRLF whatever they were given.
        answered = answered.replace("\r\n", "\n")
    return Proposal(answered, is_users=True) if answered and answered != proposed else Proposal(proposed)


def edit_confirmation(title: str, change: Change, text: str) -> EditConfirmation:
    """The question before a file is written; `text` is what a person may change."""
    location, diff = change.location, change.diff
    is_short = len(text) <= EDITABLE_BYTES and len(text.encode("utf-8", "surrogatepass")) <= EDITABLE_BYTES
    return EditConfirmation(
        title=f"{title}: {location.relative}",
        file_path=location.path,
        file_diff=diff.text(os.path.basename(location.path), PROPOSED),
        added=diff.added,
        removed=diff.removed,
        state=shown_state(location, change.snapshot),
        truncated=diff.truncated,
        editable=text if is_short else None,
    )


def change_display(change: Change, labels: tuple[str, str]) -> FileDiff | str:
    """The change for a person; of a file that is hidden from agents only that it was changed.

    A display may reach the model, which must not read by writing what it may not read.
    """
    name, diff = os.path.basename(change.location.path), change.diff
    if change.hidden_by is not None:
        return (
            f"Changed {shown_name(name)} (+{diff.added} -{diff.removed} lines); "
            f"its content is hidden from agents by {change.hidden_by}."
        )
    text = diff.text(name, labels)
    return FileDiff(
        sendable_name(name), text, diff.added, diff.removed, is_new_file=change.is_new, truncated=diff.truncated
    )


def clipped(text: str, size: int = SHOWN_BYTES) -> str:
    """A text cut at a line's end so that it has at most `size` bytes; the cut is told."""
    shown, is_cut = cut_at_line(text, size)
    return f"{shown}\n[cut here]" if is_cut else shown
