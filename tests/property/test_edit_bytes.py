"""For any text file: an edit changes the text that it matched, and no other byte."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.files.change.text_edit import apply_edit, changed_line
from tools.files.change.text_match import Haystack, Strategy, find_match
from tools.files.text_encodings import decode, encode
from tools.text.look_alikes import fold

MARK = "\u2254MARK\u2254"
ASCII_MARK = "<<MARK>>"
ENDINGS = ("\n", "\r\n", "\r")

FORMS = (
    (b"", "utf-8"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
)

line_text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\ufeff\0"), max_size=12)
replacement = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n"), min_size=1, max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Generate lines with one or several kinds of endings, with or without a last line ending."""
    lines = draw(st.lists(line_text, max_size=8))
    kinds = draw(st.sampled_from([("\n",), ("\r\n",), ("\r",), ENDINGS]))
    text = "".join(line + draw(st.sampled_from(kinds)) for line in lines)
    return text + draw(line_text)


def apply_to_bytes(data: bytes, old: str, new: str) -> bytes:
    decoded_text = decode(data)
    assert decoded_text is not None
    haystack = Haystack(decoded_text.text, decoded_text.encoding)
    match = find_match(haystack, old)
    assert match is not None
    assert match.strategy is Strategy.EXACT
    return encode(apply_edit(haystack, match, old, new)[0], decoded_text.encoding)


@pytest.mark.requirement("edit.bytes")
@examples(150)
@given(texts(), texts(), replacement, st.sampled_from(FORMS))
def test_every_byte_outside_the_span_stays(head: str, tail: str, new: str, form: tuple[bytes, str]) -> None:
    mark, codec = form
    before, after = mark + head.encode(codec), tail.encode(codec)
    data = before + MARK.encode(codec) + after
    assert apply_to_bytes(data, MARK, new) == before + new.encode(codec) + after


@pytest.mark.requirement("edit.bytes")
@examples(150)
@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from(["x", "new text", "()"]))
def test_every_byte_outside_the_span_stays_in_an_unknown_encoding(head: bytes, tail: bytes, new: str) -> None:
    before = b"\xff\x80 \xfe " + head.replace(b"<", b"") + b" "
    data = before + ASCII_MARK.encode() + tail.replace(b"<", b"")
    if decode(data) is not None:
        assert apply_to_bytes(data, ASCII_MARK, new) == data.replace(ASCII_MARK.encode(), new.encode())


@pytest.mark.requirement("edit.bytes")
@examples(150)
@given(st.lists(st.tuples(line_text, st.sampled_from(ENDINGS)), min_size=3, max_size=8), st.data())
def test_replacing_a_line_keeps_the_endings_of_all_others(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(lines) - 2))
    lines = [(f"{index}\u2254{text}", ending) for index, (text, ending) in enumerate(lines)]
    text = "".join(body + ending for body, ending in lines)
    old = "\n".join(body for body, _ in lines[number - 1 : number + 2])
    new = "\n".join([lines[number - 1][0], "put in", lines[number + 1][0]])
    haystack = Haystack(text)
    match = find_match(haystack, old)
    assert match is not None
    assert len(match.spans) == 1
    lines[number] = ("put in", lines[number][1])
    assert apply_edit(haystack, match, old, new)[0] == "".join(body + ending for body, ending in lines)


marked_line = st.text("ab .(-\u2013'\"\u2018\u2019\u201c\u201d\u201e", max_size=12)


@pytest.mark.requirement("edit.relaxed")
@examples(300)
@given(marked_line, st.data(), marked_line, marked_line)
def test_only_look_alikes_of_the_new_text_take_the_form_of_the_file(
    raw: str, data: st.DataObject, start: str, middle: str
) -> None:
    old = "".join(data.draw(st.sampled_from([character, fold(character)])) for character in raw)
    assert fold(changed_line(raw, old, middle)) == fold(middle)
    assert changed_line(old, old, middle) == middle
    # The words around the change are the same in `old` and the new text, so the file's own characters stay.
    line = changed_line(f"{start} a {raw}", f"{fold(start)} a {old}", f"{fold(start)} c {old}")
    assert line == f"{start} c {raw}"


@pytest.mark.requirement("edit.literal")
@examples(150)
@given(st.text("ab \n", max_size=60), st.text("ab ", min_size=1, max_size=3), st.text("abc$\\", min_size=1, max_size=4))
def test_exact_matches_are_counted_and_replaced_as_in_python_strings(text: str, old: str, new: str) -> None:
    haystack = Haystack(text)
    match = find_match(haystack, old)
    if old in text:
        assert match is not None
        assert (match.strategy, len(match.spans)) == (Strategy.EXACT, text.count(old))
        assert apply_edit(haystack, match, old, new)[0] == text.replace(old, new)
    else:
        assert match is None or match.strategy.is_relaxed


@pytest.mark.requirement("edit.bytes")
@examples(200)
@given(st.binary(max_size=80), st.sampled_from(FORMS))
def test_decoding_and_encoding_restore_any_bytes(data: bytes, form: tuple[bytes, str]) -> None:
    decoded_text = decode(form[0] + data)
    if decoded_text is not None:
        assert encode(decoded_text.text, decoded_text.encoding) == form[0] + data
