"""Unpacks what a server sends, piece by piece, within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

ACCEPTED = "gzip, deflate"
"""What is announced; the standard library unpacks it by bounded pieces."""

PIECE_BYTES = 1 << 16
"""Unpacked at a time, so that others have their turn and a limit is noticed soon."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_NAMES = ("gzip", "x-gzip")
_ZLIB_METHOD = 0x08


class UnknownEncodingError(Exception):
    """The body is packed in a way that was not announced; the text is its name."""


class DamagedBodyError(Exception):
    """The body is not what its encoding says."""


class Unpacker:
    """Turns raw bytes of a body into its content.

    Args:
        encoding: The header `Content-Encoding`.

    Raises:
        UnknownEncodingError: It is none of `ACCEPTED`, or several on top of each other.
    """

    def __init__(self, encoding: str) -> None:
        self._name = encoding.strip().lower()
        if self._name not in ("", "identity", "deflate", *_GZIP_NAMES):
            raise UnknownEncodingError(encoding)
        self.taken = 0
        """Raw bytes that what has come out so far is made of."""
        self._stream: Any = None
        """Made with the first bytes, since an answer may have none."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing at the end of what was given."""
        return self._stream is None or self._stream.eof

    def unpack(self, raw: bytes) -> Iterator[bytes]:
        """The content of these bytes, in pieces of at most `PIECE_BYTES`; an empty one is work that gave no content.

        Raises:
            DamagedBodyError: They cannot be unpacked.
        """
        if self._name in ("", "identity"):
            self.taken += len(raw)
            yield from (raw[start : start + PIECE_BYTES] for start in range(0, len(raw), PIECE_BYTES))
            return
        try:
            yield from self._inflate(raw)
        except zlib.error:
            raise DamagedBodyError from None

    def _inflate(self, raw: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window(raw))
        while raw:
            if self._stream.eof:
                # gzip may consist of several members.
                if not raw.startswith(b"\x1f"):
                    return  # what follows the last member is padding
                self._stream = zlib.decompressobj(_GZIP_WINDOW)
            piece = self._stream.decompress(raw, PIECE_BYTES)
            left: bytes = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self.taken += len(raw) - len(left)
            raw = left
            yield piece

    def _window(self, raw: bytes) -> int:
        """How zlib is told which format comes."""
        if self._name in _GZIP_NAMES:
            return _GZIP_WINDOW
        # `deflate` means the format of zlib, and many servers send it without that format's header.
        has_header = raw[0] & 0x0F == _ZLIB_METHOD and (len(raw) == 1 or int.from_bytes(raw[:2]) % 31 == 0)
        return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
