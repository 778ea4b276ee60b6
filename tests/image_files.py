"""Small images, built byte by byte."""

from __future__ import annotations

import struct
import zlib


def png(width: int = 1, height: int = 1) -> bytes:
    """Return a PNG image of one colour that claims this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def jpeg(width: int = 1, height: int = 1) -> bytes:
    """Return a JPEG image with a valid header and meaningless pixels."""
    thumbnail = b"\xff\xe1\0\x06\xff\xd9\xff\xd9"
    frame = b"\xff\xc0\0\x0b\x08" + struct.pack(">HH", height, width) + b"\x01\x01\x11\0"
    return b"\xff\xd8" + thumbnail + frame + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + b"\x12\x34\xff\0\x56" + b"\xff\xd9"


def gif(width: int = 1, height: int = 1) -> bytes:
    """Return a GIF image with two colours and an extension block."""
    sides = struct.pack("<HH", width, height)
    extension = b"\x21\xf9\x04\0\0\0\0\0"
    return b"GIF89a" + sides + b"\x80\0\0" + bytes(6) + extension + b",\0\0\0\0" + sides + b"\0\x02\x02\x44\x01\0;"


def webp(width: int = 1, height: int = 1) -> bytes:
    """Return a WebP image in the extended format, whose header contains the size."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sides
    return b"RIFF" + struct.pack("<I", len(body)) + body
