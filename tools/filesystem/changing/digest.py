"""The digest of a content that is being written meanwhile."""

from __future__ import annotations

import hashlib
import threading

BESIDE_BYTES = 1 << 18
"""A larger content is worth a thread: hashing and syncing take about as long, and neither holds up the other."""


class Digest:
    """The SHA-256 of a content.

    Args:
        content: What is hashed, from now on.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._found = ""
        self._thread: threading.Thread | None = None
        if len(content) > BESIDE_BYTES:
            self._thread = threading.Thread(target=self._hash, name="digest", daemon=True)
            self._thread.start()

    def hex(self) -> str:
        """The hex digest, as soon as it is known."""
        if self._thread is None:
            self._hash()
        else:
            self._thread.join()
        return self._found

    def _hash(self) -> None:
        self._found = hashlib.sha256(self._content).hexdigest()
