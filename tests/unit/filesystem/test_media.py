"""How the type of a file is detected, and how media reach the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.image_files import gif, jpeg, png, webp
from tests.pdf_files import lines, page_objects, pdf, stream
from tests.readings import read_file, text_of
from tests.tables import each_of
from tools.call.base_tool import ToolContext
from tools.contract.call_options import MediaHandling
from tools.contract.tool_results import FileDataPart, InlineDataPart, TextPart
from tools.files.read.media_files import MAX_INLINE_BYTES, FileKind, detect

PNG = png()


@pytest.mark.requirement("read.type")
@pytest.mark.parametrize(
    ("name", "head", "kind", "mime_type"),
    [
        ("a.png", PNG, FileKind.IMAGE, "image/png"),
        ("a.txt", PNG, FileKind.IMAGE, "image/png"),
        ("a.png", b"RIFF\x10\0\0\0WEBPVP8 ", FileKind.IMAGE, "image/webp"),
        ("a.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", FileKind.IMAGE, "image/jpeg"),
        ("a.gif", b"GIF89a\x01\0\x01\0", FileKind.IMAGE, "image/gif"),
        ("a.avif", b"\0\0\0\x1cftypavif", FileKind.IMAGE, "image/avif"),
        ("a.bmp", b"BM\x36\0\0\0\0\0\0\0", FileKind.IMAGE, "image/bmp"),
        ("a.wav", b"RIFF\x10\0\0\0WAVEfmt ", FileKind.AUDIO, "audio/wav"),
        ("a.mp3", b"ID3\x03\0\0\0\0\0\0", FileKind.AUDIO, "audio/mpeg"),
        ("a.mp3", b"\xff\xfb\x90\x64" + b"\xaa" * 20, FileKind.AUDIO, "audio/mpeg"),
        ("a.ogg", b"OggS\0\x02", FileKind.AUDIO, "audio/ogg"),
        ("a.flac", b"fLaC\0\0\0\x22", FileKind.AUDIO, "audio/flac"),
        ("a.m4a", b"\0\0\0\x20ftypM4A ", FileKind.AUDIO, "audio/mp4"),
        ("a.mp4", b"\0\0\0\x20ftypisom", FileKind.VIDEO, "video/mp4"),
        ("a.webm", b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm", FileKind.VIDEO, "video/webm"),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", FileKind.PDF, "application/pdf"),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", FileKind.SVG, "image/svg+xml"),
        ("a.ipynb", b"{}", FileKind.NOTEBOOK, "application/x-ipynb+json"),
        ("a.zip", b"PK\x03\x04\x14\0", FileKind.BINARY, "application/octet-stream"),
        ("a.bz2", b"BZh91AY&SY\xe2\x9a\x99\xff", FileKind.BINARY, "application/octet-stream"),
    ],
)
def test_the_content_says_what_a_file_is(name: str, head: bytes, kind: FileKind, mime_type: str) -> None:
    file_type = detect(head, name)
    assert (file_type.kind, file_type.mime_type) == (kind, mime_type)


@pytest.mark.requirement("read.type")
@pytest.mark.parametrize("name", ["a.ts", "a.mts", "a.cts", "a.tsx", "a.obj", "a.dat", "a.png", "a.mp3", "Makefile"])
def test_text_is_text_whatever_its_name_says(name: str) -> None:
    assert detect(b"const a = 1;\n", name).kind is FileKind.TEXT


@pytest.mark.requirement("read.type")
def test_utf_16_text_is_not_taken_for_binary() -> None:
    assert detect(b"\xff\xfeh\0i\0", "a.txt").kind is FileKind.TEXT


@pytest.mark.requirement("read.type")
def test_a_file_that_only_has_the_name_of_a_picture_is_not_sent_as_one() -> None:
    assert detect(b"\0\x01\x02\x03garbage", "a.png").kind is FileKind.BINARY


@pytest.mark.requirement("read.media")
def test_a_picture_comes_with_its_bytes_type_and_uri(root: Path, context: ToolContext) -> None:
    (root / "a b.png").write_bytes(PNG)
    reading = read_file(context, "a b.png")
    assert reading.parts == (InlineDataPart("image/png", PNG, (root / "a b.png").as_uri()),)
    assert (reading.kind, reading.chars, reading.encoding) == (FileKind.IMAGE, 0, None)


@pytest.mark.requirement("read.media")
@each_of("make_image", [png, jpeg, gif, webp])
def test_an_image_is_sent_if_it_is_complete_and_not_too_large(
    make_image: Any, root: Path, context: ToolContext
) -> None:
    path = root / "a.image"
    path.write_bytes(make_image(8_000, 1))
    (part,) = read_file(context, "a.image").parts
    assert isinstance(part, InlineDataPart)
    path.write_bytes(make_image(8_001, 7))
    note, link = read_file(context, "a.image").parts
    assert isinstance(note, TextPart)
    assert isinstance(link, FileDataPart)
    assert "8,001 x 7 pixels" in note.text
    for size in range(12, len(make_image())):
        path.write_bytes(make_image()[:size])
        note, link = read_file(context, "a.image").parts
        assert isinstance(note, TextPart), size
        assert f"{size} bytes" in note.text
        assert isinstance(link, FileDataPart), size


@pytest.mark.requirement("read.media")
@each_of(
    "name, data, note",
    [
        ("a.heic", b"\0\0\0\x18ftypheic", "image/heic, 12 bytes"),
        ("a.tif", b"MM\0*\0\0\0\x08\0\0", "image/tiff, 10 bytes"),
        ("a.bmp", b"BM" + bytes(16), "image/bmp, 18 bytes"),
    ],
)
def test_image_types_that_some_models_do_not_accept_are_named_and_linked(
    name: str, data: bytes, note: str, root: Path, context: ToolContext
) -> None:
    (root / name).write_bytes(data)
    note_part, link = read_file(context, name).parts
    assert isinstance(note_part, TextPart)
    assert note in note_part.text
    assert isinstance(link, FileDataPart)
    assert link.size == len(data)


@pytest.mark.requirement("read.type")
def test_a_pdf_after_other_bytes_is_recognised(root: Path, context: ToolContext) -> None:
    document = pdf(page_objects(stream(lines("Hello"))))
    for name, data in (
        ("a.pdf", b"\0junk\r\n" * 100 + document),
        ("b.pdf", b"From: somebody\n\n" + document.replace(b"\xe2\xe3\xcf\xd3", b"abcd")),
        ("c", b"\1\0\0" + document),
    ):
        (root / name).write_bytes(data)
        assert "Hello" in text_of(read_file(context, name)), name
    assert detect(b"x = '%PDF-1.7'\n", "a.py").kind is FileKind.TEXT
    for prefix in (b"\xef\xbb\xbf", b"\n", b"\r\n \t"):
        assert {detect(prefix + document, name).kind for name in ("a", "a.txt", "a.pdf")} == {FileKind.PDF}
    assert detect(b"\0" * 512 + document, "a.tar").kind is FileKind.BINARY
    assert detect(b"\0" * 1024 + document, "a.pdf").kind is FileKind.BINARY


@pytest.mark.requirement("read.media")
def test_large_media_become_a_link(root: Path, context: ToolContext) -> None:
    (root / "a.png").write_bytes(PNG + b"\0" * MAX_INLINE_BYTES)
    text, link = read_file(context, "a.png").parts
    assert link == FileDataPart((root / "a.png").as_uri(), "a.png", "image/png", MAX_INLINE_BYTES + len(PNG))
    assert isinstance(text, TextPart)
    assert "too large" in text.text


@pytest.mark.requirement("read.media")
def test_the_operator_can_have_links_instead_of_media(root: Path, context: ToolContext) -> None:
    (root / "a.png").write_bytes(PNG)
    parts = read_file(context, "a.png", media=MediaHandling.RESOURCE_LINK).parts
    assert isinstance(parts[1], FileDataPart)
    assert parts[1].mime_type == "image/png"


@pytest.mark.requirement("read.media")
def test_the_operator_can_have_a_notice_instead_of_media(root: Path, context: ToolContext) -> None:
    (root / "a.png").write_bytes(PNG)
    (part,) = read_file(context, "a.png", media=MediaHandling.NOTICE).parts
    assert isinstance(part, TextPart)
    assert str(root / "a.png") in part.text
    assert "image/png" in part.text


@pytest.mark.requirement("read.type")
def test_a_binary_file_is_described_in_one_line(root: Path, context: ToolContext) -> None:
    (root / "a.bin").write_bytes(b"\0" * 12)
    reading = read_file(context, "a.bin")
    (part,) = reading.parts
    assert reading.kind is FileKind.BINARY
    assert isinstance(part, TextPart)
    assert "\n" not in part.text
    assert "12 bytes" in part.text
