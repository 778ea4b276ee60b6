"""Encodings, byte order marks and line endings."""

from __future__ import annotations

import codecs

import pytest

from tools.files.text_encodings import (
    UNKNOWN_8BIT,
    UTF_8,
    decode,
    encode,
    eol_style,
    line_endings,
    looks_binary,
    marked_encoding,
    split_lines,
    to_lf,
)


@pytest.mark.requirement("read.encodings")
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (b"", "utf-8", "utf-8"),
        (codecs.BOM_UTF8, "utf-8", "utf-8-bom"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be"),
    ],
)
def test_decoding_and_encoding_a_file_gives_the_same_bytes(mark: bytes, codec: str, name: str) -> None:
    data = mark + "Grüße, 世界 🎈\r\n".encode(codec)
    decoded_text = decode(data)
    assert decoded_text is not None
    assert decoded_text.encoding.name == name
    assert decoded_text.text == "Grüße, 世界 🎈\r\n"
    assert encode(decoded_text.text, decoded_text.encoding) == data


@pytest.mark.requirement("read.encodings")
def test_utf_32_is_not_taken_for_utf_16() -> None:
    head = codecs.BOM_UTF32_LE + "a".encode("utf-32-le")
    encoding = marked_encoding(head)
    assert encoding is not None
    assert encoding.name == "utf-32-le"


@pytest.mark.requirement("read.encodings")
def test_a_second_byte_order_mark_is_kept_as_text() -> None:
    data = codecs.BOM_UTF8 * 2 + b"a"
    decoded_text = decode(data)
    assert decoded_text is not None
    assert decoded_text.text == "\ufeffa"
    assert encode(decoded_text.text, decoded_text.encoding) == data


@pytest.mark.requirement("read.encodings")
@pytest.mark.parametrize("text", ["café", "naïve = 1\n"])
def test_bytes_that_are_not_utf_8_are_kept_unchanged(text: str) -> None:
    data = text.encode("latin-1")
    decoded_text = decode(data)
    assert decoded_text is not None
    assert decoded_text.encoding.name == UNKNOWN_8BIT
    assert encode(decoded_text.text, decoded_text.encoding) == data
    assert "\ufffd" in decoded_text.shown()


@pytest.mark.requirement("read.encodings")
def test_a_replacement_character_in_valid_text_is_no_sign_of_failure() -> None:
    decoded_text = decode("a\ufffdb".encode())
    assert decoded_text is not None
    assert decoded_text.encoding is UTF_8


@pytest.mark.requirement("read.encodings")
def test_damaged_utf_16_is_not_decoded() -> None:
    assert decode(codecs.BOM_UTF16_LE + b"a\0\0\xd8") is None


@pytest.mark.requirement("read.type")
@pytest.mark.parametrize(
    ("head", "is_binary"),
    [
        (b"", False),
        (b"plain\ttext\r\n", False),
        (b"\x1b[31mred\x1b[0m text", False),
        (b"a.py\0b.py\0", False),
        (b"a\0\0\0b", True),
        (b"a\0\1b", True),
        (b"\0", True),
        (b"caf\xe9\0", True),
        (bytes(range(1, 9)) + b"abc", True),
        ("Grüße".encode("latin-1"), False),
    ],
)
def test_nul_bytes_beside_bytes_that_are_not_text_and_many_control_characters_mean_binary(
    head: bytes, is_binary: bool
) -> None:
    assert looks_binary(head) is is_binary


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize(
    ("text", "style", "majority"),
    [
        ("", None, None),
        ("one line", None, None),
        ("a\nb\n", "lf", "\n"),
        ("a\r\nb", "crlf", "\r\n"),
        ("a\rb\r", "cr", "\r"),
        ("a\r\nb\r\nc\n", "mixed", "\r\n"),
        ("a\nb\r\n", "mixed", "\n"),
    ],
)
def test_line_endings_are_counted(text: str, style: str | None, majority: str | None) -> None:
    assert line_endings(text).style == style
    assert eol_style(text) == style
    assert line_endings(text).majority == majority


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize("text", ["", "a", "a\n", "\n\n", "a\r\nb\r\n", "a\rb", "a\r\n\rb\nc\r", "\r\n\n\r"])
def test_split_lines_join_to_the_text_again(text: str) -> None:
    bodies, endings = split_lines(text)
    assert "".join(body + ending for body, ending in zip(bodies, endings, strict=True)) == text
    assert "\n".join(bodies) == to_lf(text)
    assert not any("\r" in body or "\n" in body for body in bodies)
