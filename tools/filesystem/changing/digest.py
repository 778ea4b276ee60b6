"""The digest of a content that is being written meanwhile."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress

from tools.contract.resources import ExhaustedError, start_thread

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
