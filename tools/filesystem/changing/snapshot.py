"""A file as it is now, whether it is still what somebody has seen of it, and the digest of what is written there."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from functools import cached_property

from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import FileIdentity, ReadLedger
from tools.contract.resources import ExhaustedError, start_thread
from tools.filesystem.descriptors import identity_of
from tools.filesystem.workspace import Location, Workspace, explain

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
