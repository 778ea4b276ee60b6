"""For any text in a known encoding, and for any bytes: decoding and encoding restore the bytes."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tools.files.text_encodings import Encoding, decode, decode_as, encode, encoding_named, line_endings, split_lines

MARK_BY_ENCODING = {
    "utf-8": b"",
    "utf-8-bom": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
LEGACY = ["latin-1", "windows-1252", "gb18030", "shift_jis", "cp932", "big5", "euc-jp", "cp949", "koi8-r", "cp1251"]
ENDINGS = ["\n", "\r\n", "\r", ""]

SAMPLES = "aZ09 \t~\\|{}caf\u00e9\u4e2d\u6587\u8868\u30bd\u30fc\u80fd\u042f\u0436\uac00\U0001f600\u20ac\u00a0\u2028\x85"
lines = st.lists(
    st.tuples(
        st.text(st.sampled_from(SAMPLES) | st.characters(exclude_categories=("Cs",), exclude_characters="\r\n\0")),
        st.sampled_from(ENDINGS),
    ),
    max_size=8,
)
texts = lines.map(lambda pairs: "".join(body + ending for body, ending in pairs))


def assert_same_bytes(data: bytes) -> None:
    decoded_text = decode(data)
    if decoded_text is not None:
        assert encode(decoded_text.text, decoded_text.encoding) == data


@pytest.mark.requirement("text.round_trip")
@examples(120)
@given(texts, st.sampled_from(list(MARK_BY_ENCODING)))
def test_text_in_unicode_comes_back_with_its_mark_and_every_ending(text: str, name: str) -> None:
    assume(name != "utf-8" or not text.startswith("\ufeff"))
    assume(name != "utf-16-le" or not text.startswith("\0"))
    data = MARK_BY_ENCODING[name] + text.encode(name.removesuffix("-bom"))
    decoded_text = decode(data)
    assert decoded_text is not None
    assert (decoded_text.encoding.name, decoded_text.text) == (name, text)
    assert encode(decoded_text.text, decoded_text.encoding) == data


@pytest.mark.requirement("text.round_trip")
@examples(150)
@given(texts, st.sampled_from(LEGACY))
def test_text_in_an_older_encoding_keeps_its_bytes_whether_the_encoding_is_named_or_not(text: str, name: str) -> None:
    data = text.encode(name, "ignore")
    assert_same_bytes(data)
    encoding = encoding_named(name)
    decoded_text = decode_as(data, encoding)
    assert decoded_text is not None
    assert decoded_text.text == data.decode(name)
    assert encode(decoded_text.text, encoding) == data


@pytest.mark.requirement("text.round_trip")
@examples(200)
@given(st.binary(max_size=80), st.sampled_from([*MARK_BY_ENCODING.values(), b"", b"\xff", b"\xfe", b"\xef\xbb"]))
@example(b"\xff\xfe\x00\x00", b"")
@example(b"\xef\xbb\xbf\xef\xbb\xbf", b"\xef\xbb\xbf")
@example(b"\x00\xd8", codecs.BOM_UTF16_LE)
@example(b"\xed\xa0\x80", b"")
def test_any_bytes_are_restored(data: bytes, mark: bytes) -> None:
    assert_same_bytes(mark + data)
    assert_same_bytes(data + b"\r\n" + data)


@pytest.mark.requirement("text.round_trip")
@examples(150)
@given(texts)
def test_lines_joined_with_their_endings_are_the_text(text: str) -> None:
    bodies, endings = split_lines(text)
    assert "".join(body + ending for body, ending in zip(bodies, endings, strict=True)) == text
    assert not any("\r" in body or "\n" in body for body in bodies)
    counts = line_endings(text)
    assert (counts.lf, counts.crlf, counts.cr) == tuple(endings.count(ending) for ending in ("\n", "\r\n", "\r"))


@pytest.mark.long
@pytest.mark.requirement("text.round_trip")
@settings(max_examples=20_000, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([*MARK_BY_ENCODING.values()]))
def test_any_bytes_are_restored_long(data: bytes, mark: bytes) -> None:
    assert_same_bytes(mark + data)


@pytest.mark.requirement("text.round_trip")
@examples(60)
@given(st.text(max_size=20), st.sampled_from(list(MARK_BY_ENCODING)))
def test_encoding_half_a_surrogate_pair_is_an_error(text: str, name: str) -> None:
    encoding = Encoding(name, name.removesuffix("-bom"), MARK_BY_ENCODING[name])
    with pytest.raises(UnicodeEncodeError):
        encode(f"{text}\ud800{text}", encoding)
