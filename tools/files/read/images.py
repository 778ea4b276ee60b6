"""Reads the image properties that model APIs check: type, size in pixels, and completeness.

Only types that every API accepts are examined.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass

MAX_PIXELS = 8_000  # limit per side; APIs reject larger images, which ends the conversation
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # segments that contain the image's size


@dataclass(slots=True)
class Image:
    mime_type: str
    width: int = 0
    height: int = 0  # in pixels; 0 if unknown
    is_whole: bool = False  # whether the file is complete

    @property
    def why_not_sent(self) -> str:
        """The reason why a model API would reject the image; empty if it would not."""
        if self.mime_type not in _READERS:
            return "models accept only PNG, JPEG, GIF and WebP images"
        if not (self.is_whole and self.width and self.height):
            return "part of the image is missing or damaged"
        too_long = max(self.width, self.height) > MAX_PIXELS
        return f"models accept at most {MAX_PIXELS:,} pixels per side" if too_long else ""

    @property
    def size(self) -> str:
        return f"{self.width:,} x {self.height:,} pixels" if self.width and self.height else ""


def measure(data: bytes, mime_type: str) -> Image:
    """Examine an image. `data` may be only its beginning."""
    image = Image(mime_type)
    reader = _READERS.get(mime_type)
    if reader is not None:
        with suppress(struct.error, IndexError, ValueError):  # the data ends too early
            reader(data, image)
    return image


def _png(data: bytes, image: Image) -> None:
    at, has_pixels = 8, False
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR":
            image.width, image.height = struct.unpack_from(">II", data, at + 8)
        if zlib.crc32(data[at + 4 : at + 8 + length]) != struct.unpack_from(">I", data, at + 8 + length)[0]:
            return
        has_pixels = has_pixels or kind == b"IDAT"
        if kind == b"IEND":
            image.is_whole = has_pixels
            return
        at += 12 + length


def _jpeg(data: bytes, image: Image) -> None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker in _JPEG_FRAMES:
            image.height, image.width = struct.unpack_from(">HH", data, at + 5)
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
        if marker == 0xDA:  # the pixels follow
            image.is_whole = data.rfind(b"\xff\xd9") >= at
            return


def _gif(data: bytes, image: Image) -> None:
    image.width, image.height = struct.unpack_from("<HH", data, 6)
    image.is_whole = data.rstrip(b"\0\r\n").endswith(b"\0;")  # the end of the last frame and of the file


def _webp(data: bytes, image: Image) -> None:
    size, _, kind = struct.unpack_from("<I4s4s", data, 4)
    image.is_whole = len(data) >= size + 8
    if kind == b"VP8X":
        image.width, image.height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        image.width, image.height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        image.width, image.height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))


_READERS = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
