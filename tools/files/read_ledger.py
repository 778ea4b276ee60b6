"""Records what a client has read, so that a later write can detect that the file has changed since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

MAX_FILES = 10_000  # maximum number of files per client; the oldest reads are dropped first
MAX_CONTENT_BYTES = 2_000_000  # maximum bytes of file contents kept per client, to show what has changed

MAX_REPLACED = 20  # maximum number of overwritten contents kept per client


class FileIdentity(NamedTuple):
    """A file's fingerprint, taken without reading the file. It is a tuple to save memory, because there may be many."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


class SeenFile(NamedTuple):
    identity: FileIdentity
    sha256: str | None  # hex digest of the whole content, if known


class ReadLedger:
    """A record of the files that a client has seen, keyed by real path. Thread-safe."""

    __slots__ = ("_contents", "_held", "_lock", "_noticed", "_replaced", "_seen", "is_shared")

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared  # whether several clients that cannot be told apart may use the ledger
        self._replaced: OrderedDict[str, bytes] = OrderedDict()  # what the latest write to a path replaced
        self._seen: OrderedDict[str, SeenFile] = OrderedDict()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0  # total bytes in `_contents`
        self._noticed: set[str] = set()
        self._lock = threading.Lock()

    def record(
        self, real_path: str, seen: SeenFile, content: bytes | None = None, replaced: bytes | None = None
    ) -> None:
        """Record a file as seen.

        `content`, the whole content if it is known, is kept for a while. `replaced`, the content that a write replaced,
        is kept only if the ledger is shared.
        """
        with self._lock:
            if self.is_shared and replaced is not None and len(replaced) <= MAX_CONTENT_BYTES // MAX_REPLACED:
                self._replaced[real_path] = replaced
                if len(self._replaced) > MAX_REPLACED:
                    self._replaced.popitem(last=False)
            self._held -= len(self._contents.pop(real_path, b""))
            if content is not None and len(content) <= MAX_CONTENT_BYTES:
                self._contents[real_path] = content
                self._held += len(content)
            while self._held > MAX_CONTENT_BYTES:
                self._held -= len(self._contents.popitem(last=False)[1])
            self._seen[real_path] = seen
            self._seen.move_to_end(real_path)
            if len(self._seen) > MAX_FILES:
                self._seen.popitem(last=False)

    def content(self, real_path: str) -> bytes | None:
        """Return the content that the client has seen, if it is still kept."""
        with self._lock:
            return self._contents.get(real_path)

    def replaced(self, real_path: str) -> bytes | None:
        """Return the content that the client's latest write replaced, if it is still kept."""
        with self._lock:
            return self._replaced.get(real_path)

    def is_first_notice(self, real_path: str) -> bool:
        """Return True on the first call with this key, usually a path. Used to give each warning only once."""
        with self._lock:
            is_first = real_path not in self._noticed
            if len(self._noticed) >= MAX_FILES:
                self._noticed.clear()
            self._noticed.add(real_path)
        return is_first

    def get(self, real_path: str) -> SeenFile | None:
        with self._lock:
            return self._seen.get(real_path)
