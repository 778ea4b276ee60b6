"""What a client has read: enough to notice that a file changed under it before it writes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

MAX_FILES = 10_000  # files remembered for one client; the oldest reads are forgotten first
MAX_CONTENT_BYTES = 2_000_000  # of contents kept for one client, to tell what has changed: more than a model remembers

MOST_REPLACED = 20  # contents kept that were written over


class FileIdentity(NamedTuple):
    """A file's fingerprint without its content, in a plain tuple: there may be very many."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


class SeenFile(NamedTuple):
    identity: FileIdentity
    sha256: str | None  # hex digest of the whole content, where it is known


class ReadLedger:
    """Remembers files by real path. Safe to use from worker threads.

    Args:
        is_shared: Whether several clients may use it that cannot be told apart.
    """

    __slots__ = ("_contents", "_held", "_lock", "_noticed", "_replaced", "_seen", "is_shared")

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._replaced: OrderedDict[str, bytes] = OrderedDict()  # what the latest writes found there
        self._seen: OrderedDict[str, SeenFile] = OrderedDict()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0  # bytes of these contents
        self._noticed: set[str] = set()
        self._lock = threading.Lock()

    def record(
        self, real_path: str, seen: SeenFile, content: bytes | None = None, replaced: bytes | None = None
    ) -> None:
        """Remember a file as seen, and for a while its whole content, where that was read, and what it replaced."""
        with self._lock:
            if self.is_shared and replaced is not None and len(replaced) <= MAX_CONTENT_BYTES // MOST_REPLACED:
                self._replaced[real_path] = replaced
                if len(self._replaced) > MOST_REPLACED:
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
        """What the file held when it was seen, where that is kept."""
        with self._lock:
            return self._contents.get(real_path)

    def replaced(self, real_path: str) -> bytes | None:
        """What the latest write of a client found in the file, where that is kept."""
        with self._lock:
            return self._replaced.get(real_path)

    def is_first_notice(self, real_path: str) -> bool:
        """Whether the client has not been told yet of what looks like this path; it counts as told from now on."""
        with self._lock:
            is_first = real_path not in self._noticed
            if len(self._noticed) >= MAX_FILES:
                self._noticed.clear()
            self._noticed.add(real_path)
        return is_first

    def get(self, real_path: str) -> SeenFile | None:
        with self._lock:
            return self._seen.get(real_path)
