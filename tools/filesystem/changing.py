"""What `write_file` and `edit` have in common: the file as it is, whether it may be changed, and the change itself."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tools.contract.confirmation import EditConfirmation
from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import FileIdentity, ReadLedger, SeenFile
from tools.contract.parameters import ToolParams
from tools.contract.result import FileDiff
from tools.filesystem.diff import Diff
from tools.filesystem.text import Encoding, encode
from tools.filesystem.windows import BLOCK
from tools.filesystem.workspace import Location, Workspace, explain, identity_of
from tools.filesystem.writer import replace_file

ParamsT = TypeVar("ParamsT", bound=ToolParams)
PlanT = TypeVar("PlanT")

MAX_CHANGED_BYTES = 64_000_000
"""Size of a file that is held in memory to change it."""

EDITABLE_BYTES = 16_000
"""Size of a text that a person may change in the question."""

SHOWN_BYTES = 5_000
"""Size of what a result repeats of a change; with its sentences it stays under 8 kB."""

PLAN = "plan"
"""Under this key a call's memo holds what was planned for the question."""

ABSENT = "absent"
"""The state of a file that does not exist."""

PROPOSED = ("Current", "Proposed")
"""What the two sides of a diff are called in a question (both seeds' words)."""

SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"


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
                f"'{location.spelled}' has {opened.info.st_size:,} bytes; files above {MAX_CHANGED_BYTES:,} bytes are "
                "not changed here. Use a stream editor in the shell.",
            )
        try:
            blocks: list[bytes] = []
            while block := opened.stream.read(BLOCK):
                context.signal.raise_if_aborted()
                blocks.append(block)
        except OSError as error:
            raise explain(error, location.spelled) from None
        seen = context.client.reads.get(location.path) if context.client.reads is not None else None
        digest = seen.sha256 if seen is not None and seen.identity == opened.identity else None
        return Snapshot(b"".join(blocks), opened.identity, digest)


def shown_state(location: Location, snapshot: Snapshot) -> str:
    """What a question shows, and what its answer is bound to: which file, links resolved, in which state."""
    return f"{snapshot.state} {location.path}"


def check_fresh(location: Location, snapshot: Snapshot, reads: ReadLedger | None, expected_sha256: str | None) -> None:
    """Refuse to change a file that is not what the model has seen.

    A file that was never read may be changed. An expected digest counts more than what was read before.

    Raises:
        ToolError: `file_changed_since_read`.
    """
    if expected_sha256 is not None:
        if snapshot.sha256 == expected_sha256.lower():
            return
        now = f"its SHA-256 is {snapshot.sha256}" if snapshot.data is not None else "it does not exist"
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.spelled}' is not as expected_sha256 says: {now}. Nothing was written. "
            "Read the file again and repeat the change on what it holds now.",
        )
    seen = reads.get(location.path) if reads is not None else None
    if seen is None or snapshot.data is None or seen.identity == snapshot.identity:
        return
    if seen.sha256 is None or seen.sha256 != snapshot.sha256:
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.spelled}' was changed by somebody else since you last read or wrote it. Nothing was written. "
            "Read it again and repeat the change on what it holds now.",
        )


def encoded(text: str, encoding: Encoding, parameter: str) -> bytes:
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


def commit(location: Location, content: bytes, snapshot: Snapshot, context: ToolContext) -> Committed:
    """Write the new content, unless the file holds it already, and remember it as seen by this client.

    Raises:
        ToolError: The file is no longer as in the snapshot, or cannot be written; the old content is whole.
    """
    context.signal.raise_if_aborted()
    if context.confirmed is not None and context.confirmed.state != shown_state(location, snapshot):
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.spelled}' was changed by somebody else while the user was asked, so their answer no "
            "longer holds. Nothing was written. Read it again and repeat the change on what it holds now.",
        )
    digest = hashlib.sha256(content).hexdigest()
    links_broken = 0
    identity = snapshot.identity
    if identity is None or content != snapshot.data:
        written = replace_file(location, content, identity)
        identity, links_broken = written.identity, written.links_broken
    if context.client.reads is not None:
        context.client.reads.record(location.path, SeenFile(identity, digest))
    return Committed(digest, links_broken)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The text that will be written, and whose it is.

    Args:
        text: To be used in place of the parameter.
        is_users: A person put it there instead of the model's.
    """

    text: str
    is_users: bool = False


def settled_text(context: ToolContext, proposed: str) -> Proposal:
    """The model's text, or the one that a person put in its place in the answer to the question."""
    answered = context.answer.content if context.answer is not None else None
    if answered and "\r" not in proposed:
        # Forms may send line breaks as CRLF whatever they were given.
        answered = answered.replace("\r\n", "\n")
    return Proposal(answered, is_users=True) if answered and answered != proposed else Proposal(proposed)


def confirmation(title: str, location: Location, diff: Diff, snapshot: Snapshot, text: str) -> EditConfirmation:
    """The question before a file is written."""
    is_short = len(text) <= EDITABLE_BYTES and len(text.encode("utf-8", "surrogatepass")) <= EDITABLE_BYTES
    return EditConfirmation(
        title=f"{title}: {location.relative}",
        file_path=location.path,
        file_diff=diff.text(os.path.basename(location.path), PROPOSED),
        added=diff.added,
        removed=diff.removed,
        state=shown_state(location, snapshot),
        editable=text if is_short else None,
    )


def display(
    location: Location, diff: Diff, labels: tuple[str, str], *, is_new: bool, hidden_by: str | None
) -> FileDiff | str:
    """The change for a person; of a file that is hidden from agents only that it was changed.

    A display may reach the model, which must not read by writing what it may not read.
    """
    name = os.path.basename(location.path)
    if hidden_by is not None and not is_new:
        return (
            f"Changed {name} (+{diff.added} -{diff.removed} lines); its content is hidden from agents by {hidden_by}."
        )
    return FileDiff(name, diff.text(name, labels), diff.added, diff.removed, is_new_file=is_new)


def clipped(text: str, size: int = SHOWN_BYTES) -> str:
    """A text cut at a line's end so that it has at most `size` bytes; the cut is told."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text
    head = data[:size].decode("utf-8", "ignore")
    return f"{head.rpartition(chr(10))[0] or head}\n[cut here]"


def output_schema(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A schema in which every property is always there."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


COMMON_OUTPUT: dict[str, dict[str, Any]] = {
    "path": {"type": "string", "description": "Real path of the file."},
    "created": {"type": "boolean", "description": "The file did not exist before."},
    "added": {"type": "integer", "description": "Lines added."},
    "removed": {"type": "integer", "description": "Lines removed."},
    "bytes": {"type": "integer", "description": "Size of the file now."},
    "encoding": {"type": "string"},
    "eol": {"type": ["string", "null"], "description": "lf, crlf, cr or mixed; null without any line ending."},
    "sha256": {"type": "string", "description": "Digest of the file now; usable as expected_sha256."},
    "links_broken": {"type": "integer", "description": "Other names (hard links) that keep the old content."},
    "user_modified": {"type": "boolean", "description": "The user changed the text before it was written."},
    "notes": {"type": "array", "items": {"type": "string"}, "description": "What else to know."},
    "diff": {"type": "string", "description": "The final change where the user modified it, else empty."},
}
"""What the results of both tools have in common."""
