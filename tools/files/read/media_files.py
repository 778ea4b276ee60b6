"""Detects the type of a file that is not plain text, and decides how to send it to the model.

The name counts only if the content has no signature. The table of types is fixed, because systems have different ones.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tools.contract.call_options import AbortSignal, MediaHandling
from tools.contract.tool_results import FileDataPart, InlineDataPart, Part, TextPart
from tools.files.find.folder_walk import count
from tools.files.path_opener import OpenedFile
from tools.files.text_encodings import SNIFFED_BYTES, is_utf8, looks_binary, marked_encoding
from tools.files.workspace import Location
from tools.text.file_names import shown_whole_path

# Largest media file inside a result, in bytes (4 MB as base64). Larger files are returned as a resource link
MAX_INLINE_BYTES = 3_000_000
HEAD_BYTES = 1 << 16  # size of the first read: enough to detect the type, and to read most source files completely
PDF_WITHIN = 1024  # bytes allowed before the header of a PDF (as in Acrobat)


class FileKind(StrEnum):
    TEXT = "text"
    SVG = "svg"
    NOTEBOOK = "notebook"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    PDF = "pdf"
    BINARY = "binary"


TEXT_KINDS = (FileKind.TEXT, FileKind.SVG, FileKind.NOTEBOOK)


@dataclass(frozen=True, slots=True)
class FileType:
    kind: FileKind
    mime_type: str


TEXT = FileType(FileKind.TEXT, "text/plain")
BINARY = FileType(FileKind.BINARY, "application/octet-stream")
PDF = FileType(FileKind.PDF, "application/pdf")
# First bytes that no text starts with
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"), (b"II*\0", "image/tiff"), (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"fLaC", "audio/flac"), (b"MThd\0\0\0\x06", "audio/midi"), (b"#!AMR", "audio/amr"),
    (b"FLV\x01", "video/x-flv"), (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "video/x-ms-asf"),
    (b"\0\0\x01\xba", "video/mpeg"), (b"\0\0\x01\xb3", "video/mpeg"),
)  # fmt: skip
# First four bytes, and the four bytes at position 8
_CONTAINERS = {
    (b"RIFF", b"WAVE"): "audio/wav", (b"RIFF", b"WEBP"): "image/webp", (b"RIFF", b"AVI "): "video/x-msvideo",
    (b"FORM", b"AIFF"): "audio/aiff", (b"FORM", b"AIFC"): "audio/aiff",
}  # fmt: skip
# Brands of ISO media files, after `ftyp`. Any other brand is MP4 video
_ISO_BRANDS = {
    b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif",
    b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"qt  ": "video/quicktime",
}  # fmt: skip
_BLANKS = b"\xef\xbb\xbf \t\r\n"  # may precede the header of a PDF saved by a text editor
_PDF_HEADER = re.compile(rb"%PDF-\d\.\d")
_OGG, _ID3, _MATROSKA = b"OggS\0", b"ID3", b"\x1a\x45\xdf\xa3"
_ISO_MARK = b"ftyp"  # at position 4
_BEGINNINGS = (*(beginning for beginning, _ in (*_SIGNATURES, *_CONTAINERS)), _OGG, _ID3, _MATROSKA)
# Media types that the first bytes of a file indicate only weakly. If the content is not text, the name decides
_MIME_TYPE_BY_SUFFIX = {
    ".mp3": "audio/mpeg", ".aac": "audio/aac", ".wma": "audio/x-ms-wma", ".bmp": "image/bmp", ".ico": "image/x-icon",
    ".mpg": "video/mpeg", ".mpeg": "video/mpeg",
}  # fmt: skip
# File name extensions of binary formats other than media, which `read_many_files` leaves out by default
EXCLUDED_SUFFIXES = frozenset(
    (  # noqa: SIM905 - a list would take forty lines
        ".bin .exe .dll .so .dylib .class .jar .war .zip .tar .gz .bz2 .rar .7z .doc .docx .xls .xlsx .ppt .pptx "
        ".odt .ods .odp .pak .rpa .pyc .pyo .dat .obj .o .a .lib .wasm"
    ).split()
)
_MORE_SUFFIXES = ".tgz .xz .zst .lz4 .db .sqlite .woff .woff2 .ttf .otf .png .jpg .jpeg .gif .webp .pdf"
# Files with these extensions are binary if they are not UTF-8; no other encoding is assumed.
_BINARY_SUFFIXES = frozenset((*EXCLUDED_SUFFIXES, *_MORE_SUFFIXES.split(), *_MIME_TYPE_BY_SUFFIX))
_TEXT_TYPE_BY_SUFFIX = {
    ".svg": FileType(FileKind.SVG, "image/svg+xml"),
    ".ipynb": FileType(FileKind.NOTEBOOK, "application/x-ipynb+json"),
}


def detect(head: bytes, path: str) -> FileType:
    """Detect the type of a file by its first `SNIFFED_BYTES` bytes, then by its name."""
    head, suffix = head[:SNIFFED_BYTES], os.path.splitext(path)[1].lower()
    if head[:1] in _BLANKS and _PDF_HEADER.match(head.lstrip(_BLANKS)):
        return PDF
    if marked_encoding(head) is None:
        mime_type = None
        # Most files begin with no signature of a media format, so the signatures need not be compared one by one.
        if head.startswith(_BEGINNINGS) or head[4:8] == _ISO_MARK:
            mime_type = next((mime for signature, mime in _SIGNATURES if head.startswith(signature)), None)
            if head.startswith(_OGG):
                mime_type = "video/ogg" if suffix == ".ogv" else "audio/ogg"
            elif head.startswith(_ID3) and looks_binary(head):
                mime_type = "audio/mpeg"
            elif mime_type is None and head[4:8] == _ISO_MARK:
                mime_type = _ISO_BRANDS.get(head[8:12], "video/mp4")
            elif head.startswith(_MATROSKA):
                mime_type = "video/webm" if b"webm" in head[:64] else "video/x-matroska"
            elif mime_type is None:
                mime_type = _CONTAINERS.get((head[:4], head[8:12]))
        if mime_type is None:
            is_binary = looks_binary(head) or (suffix in _BINARY_SUFFIXES and not is_utf8(head))
            # A file of another format may contain a PDF header.
            may_be_pdf = suffix == ".pdf" or (is_binary and suffix not in _BINARY_SUFFIXES)
            if may_be_pdf and _PDF_HEADER.search(head, 0, PDF_WITHIN):
                mime_type = PDF.mime_type
            elif is_binary:
                mime_type = _MIME_TYPE_BY_SUFFIX.get(suffix)
                if mime_type is None:
                    return BINARY
        if mime_type is not None:
            return PDF if mime_type == PDF.mime_type else FileType(FileKind(mime_type.partition("/")[0]), mime_type)
    return _TEXT_TYPE_BY_SUFFIX.get(suffix, TEXT)


# The image properties that model APIs check. Only types that every API accepts are examined.
MAX_PIXELS = 8_000  # limit per side; APIs reject larger images, which ends the conversation
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # segments that contain the image's size


@dataclass(slots=True)
class Image:
    mime_type: str
    width: int = 0
    height: int = 0  # in pixels; 0 if unknown
    is_whole: bool = False  # whether the file is complete

    @property
    def rejection_reason(self) -> str:
        """The reason why a model API would reject the image; empty if it would not."""
        if self.mime_type not in _READERS:
            return "models accept only PNG, JPEG, GIF and WebP images"
        if not (self.is_whole and self.width and self.height):
            return "part of the image is missing or damaged"
        too_long = max(self.width, self.height) > MAX_PIXELS
        return f"models accept at most {MAX_PIXELS:,} pixels per side" if too_long else ""


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
    image.is_whole = data.rstrip(b"\0\r\n").endswith(b"\0;")  # a block terminator and the trailer


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


def media_parts(
    file: OpenedFile, location: Location, file_type: FileType, handling: MediaHandling, signal: AbortSignal
) -> tuple[Part, ...]:
    """Return the content for the model: the data itself, a link with a line of text, or only a line of text."""
    size = file.info.st_size
    if file_type.kind is FileKind.BINARY:
        return (TextPart(f"Binary file, not shown: {shown_whole_path(location.name)} ({count(size, 'byte')})."),)
    data, pixels = None, ""
    problem = "" if size <= MAX_INLINE_BYTES else "too large to be sent inline"
    if file_type.kind is FileKind.IMAGE:
        data = file.head(HEAD_BYTES) if problem else file.whole(signal)
        image = Image(file_type.mime_type)
        if (reader := _READERS.get(image.mime_type)) is not None:
            with suppress(struct.error, IndexError, ValueError):  # the data ends too early
                reader(data, image)
        pixels = f"{image.width:,} x {image.height:,} pixels" if image.width and image.height else ""
        problem = problem or image.rejection_reason
    details = ", ".join(filter(None, (file_type.mime_type, count(size, "byte"), pixels)))
    kind = "PDF" if file_type.kind is FileKind.PDF else file_type.kind.capitalize()
    label = f"{kind} file {shown_whole_path(location.name)} ({details})"
    uri = Path(location.name).as_uri()
    if handling is MediaHandling.NOTICE:
        return (TextPart(f"{label}: not shown, because this server omits media from results (setting: media)."),)
    if handling is MediaHandling.INLINE and not problem:
        return (InlineDataPart(file_type.mime_type, file.whole(signal) if data is None else data, uri),)
    reason = problem if handling is MediaHandling.INLINE else "setting: media"
    link = FileDataPart(uri, os.path.basename(location.path), file_type.mime_type, size)
    return (TextPart(f"{label}: sent as a link ({reason})."), link)
