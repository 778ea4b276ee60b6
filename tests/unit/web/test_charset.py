"""The encoding in which a text from the web is decoded."""

from __future__ import annotations

import codecs

import pytest

from tests.tables import each_of
from tools.web.page_text import DECODE_STEP_BYTES, decode


@pytest.mark.requirement("web.open")
@pytest.mark.parametrize(
    ("body", "header_encoding", "expected_end"),
    [
        (codecs.BOM_UTF8 + b"\xc3\xa9", "koi8-r", "\u00e9"),
        (codecs.BOM_UTF16_LE + "\u00e9".encode("utf-16-le"), None, "\u00e9"),
        (codecs.BOM_UTF32_LE + "\u00e9".encode("utf-32-le"), None, "\u00e9"),
        (b"\xe9", "iso-8859-1", "\u00e9"),
        (b"\x80", "iso-8859-1", "\u20ac"),
        (b"\xff", "utf-8", "\ufffd"),
        (b"<meta charset=koi8-r>\xc1", "utf-8", "<meta charset=koi8-r>\ufffd"),
        (b"<META http-equiv=x content='text/html; charset=koi8-r'>\xc1", None, "\u0430"),
        (b"<?xml version='1.0' encoding='gbk'?>\xc4\xe3", None, "\u4f60"),
        (b"<meta charset=utf-16>\xc3\xa9", None, "\u00e9"),
        (b"<meta charset=unicode_escape>\\x41", None, "\\x41"),
        (b"\xc3\xa9", None, "\u00e9"),
        (b"\xe9 ", None, "\u00e9 "),
    ],
)
def test_the_byte_order_mark_comes_before_the_header_and_the_header_before_the_page(
    body: bytes, header_encoding: str | None, expected_end: str
) -> None:
    text = decode(body, header_encoding, is_markup=True, is_cut=False)[0]
    assert text == expected_end or text.endswith(f">{expected_end}")


@pytest.mark.requirement("web.charset")
@each_of(
    ("codec", "text"),
    [
        ("euc-kr", "<p>안녕하세요 한국어 텍스트 파일입니다"),
        ("windows-1251", "<p>Съешь же ещё этих мягких французских булок"),
        ("windows-1252", "<p>Le café était fermé à cause de la grève"),
        ("gb18030", "<p>这是一个中文文本文件用来测试"),
    ],
)
def test_an_encoding_that_is_not_stated_is_guessed_and_reported(codec: str, text: str) -> None:
    for is_markup in (True, False):
        decoded_text, note = decode(text.encode(codec), None, is_markup=is_markup, is_cut=False)
        assert decoded_text == text
        assert "It states no known encoding. It is shown as" in note
    assert decode(text.encode(codec), codec, is_markup=True, is_cut=False) == (text, "")
    assert decode(text.encode(), None, is_markup=True, is_cut=False) == (text, "")


@pytest.mark.requirement("web.open")
def test_only_markup_names_its_own_encoding() -> None:
    assert decode(b"<meta charset=koi8-r>\xc3\xa9", None, is_markup=False, is_cut=False)[0].endswith("\u00e9")


@pytest.mark.requirement("web.open")
@pytest.mark.parametrize("name", ["unicode_escape", "idna", "utf-7", "hex", "rot13", "mbcs", "undefined", "punycode"])
def test_a_codec_that_is_not_a_web_encoding_is_not_used(name: str) -> None:
    assert decode(b"+ADw-\\x41", name, is_markup=True, is_cut=False)[0] == "+ADw-\\x41"


@pytest.mark.requirement("web.open")
def test_a_text_that_was_cut_within_a_character_is_still_utf_8() -> None:
    whole_body = "a\u00e9\u65e5".encode()
    assert decode(whole_body[:-1], None, is_markup=False, is_cut=True)[0] == "a\u00e9\ufffd"
    assert decode(whole_body[:-1], None, is_markup=False, is_cut=False)[0] != "a\u00e9\ufffd"


@pytest.mark.requirement("web.open")
@pytest.mark.parametrize("name", ["windows-1252", "koi8-r", "cp874", "windows-1255", "utf-16", "gbk", "big5", "euc-jp"])
def test_decoding_in_pieces_gives_the_same_text_as_decoding_the_whole(name: str) -> None:
    body = bytes(range(256)) * (3 * DECODE_STEP_BYTES // 256 + 1) + b"\x81"
    codec = {"cp874": "cp874", "utf-16": "utf-16-le", "gbk": "gb18030", "big5": "big5hkscs"}.get(name, name)
    header_encoding = "tis-620" if name == "cp874" else name
    assert decode(body, header_encoding, is_markup=False, is_cut=False)[0] == body.decode(codec, "replace")


@pytest.mark.requirement("web.open")
def test_a_body_with_too_many_errors_is_decoded_as_ascii() -> None:
    text = decode(b"\xff" * (10 << 20) + b"end", "euc-kr", is_markup=False, is_cut=False)[0]
    assert text.startswith("\ufffd")
    assert text.endswith("end")
