"""What a terminal would show of an output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.shell.program_output import from_whole_character, plain_text, whole_characters


@pytest.mark.requirement("shell.text.sequences")
@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b[38;2;1;2;3mtrue colour\x1b[m", "true colour"),
        (b"\x1b[?25l\x1b[2J\x1b[1;1Htop", "top"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq#0;2;0;0;0\x1b\\picture", "picture"),
        (b"\x1b_G=1;AAAA\x1b\\picture", "picture"),
        (b"\x1b(B\x1b7\x1b8\x1b=plain", "plain"),
        ("\x9b1mone character\x9bm".encode(), "one character"),
        (b"the end \x1b[3", "the end "),
        (b"the end \x1b", "the end "),
    ],
    ids=repr,
)
def test_escape_sequences_are_left_out(output: bytes, text: str) -> None:
    assert plain_text(output) == text


@pytest.mark.requirement("shell.text.sequences")
def test_a_control_string_without_an_end_hides_no_more_than_its_line() -> None:
    assert plain_text(b"\x1b]0;no end\nsecond\n\x1bPno end\nthird") == "\nsecond\n\nthird"


@pytest.mark.requirement("shell.text.visible")
@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        (b"a\r\nb\r\r\nc\n", "a\nb\nc\n"),
        (b"abcdef\rXY\n", "XYcdef\n"),
        (b"100%\r", "100%"),
        (b"long old text\r\x1b[Kok\n", "ok\n"),
        (b"counting: 1%\x1b[K\rcounting: 100%, done.\x1b[K\n", "counting: 100%, done.\n"),
        (b"spinner\x1b[2K\rn\n", "n\n"),
        (b"gone\r\x1b[K\nstays\n", "\nstays\n"),
        (b"Work |\x08/\x08-\x08done\n", "Work done\n"),
        (b"N\x08NA\x08AM\x08ME\x08E\n", "NAME\n"),
        (b"ab\n\x08\x08c\n", "ab\nc\n"),
        (b"one 1%\ntwo 1%\n\x1b[2Aone 50%\ntwo 9%\n\x1b[2A\x1b[2Kone ok\n\x1b[2Ktwo ok\n", "one ok\ntwo ok\n"),
        (b"begun\na\nb\nc\n\x1b[3A\x1b[Jdone\n", "begun\ndone\n"),
        (b"a\nb\n\x1b[1F\x1b[0KB\x1b[1E", "a\nB\n"),
        (b"down 10%\x1b[8D\x1b[0Kdone\nx\x1b[1Gy", "done\ny"),
        (b"a\nb\x1b[9999A\rA\x1b[9999B\rB", "A\nB"),
        ("\x9b1Aé\n\x9b1Aè\n".encode(), "è\n"),
    ],
    ids=repr,
)
def test_overwritten_and_erased_text_is_left_out(output: bytes, text: str) -> None:
    assert plain_text(output) == text


@pytest.mark.requirement("shell.text.visible")
def test_other_characters_that_cannot_be_seen_become_marks() -> None:
    assert plain_text("bell \x07 nul \0 rtl \u202e zero \u200b".encode()) == ("bell ␇ nul ␀ rtl <U+202E> zero <U+200B>")


@pytest.mark.requirement("shell.text.visible")
def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert plain_text(b"caf\xe9 \xf0\x9f\x98\x80 \xc3") == "caf\ufffd \U0001f600 \ufffd"


@pytest.mark.requirement("shell.text.visible")
@examples(100)
@given(st.binary(max_size=200))
def test_no_control_character_is_left_whatever_was_printed(output: bytes) -> None:
    text = plain_text(output)
    assert not [character for character in text if ord(character) < 32 and character not in "\t\n"]
    assert not {"\x7f", "\x9b", "\u202e", "\ud800"} & set(text)
    text.encode()


@pytest.mark.requirement("shell.text.visible")
@examples(100)
@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x7E)))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert plain_text(text.encode()) == text


@pytest.mark.requirement("shell.output.order")
@pytest.mark.parametrize(
    ("data", "complete"),
    [
        ("aé".encode(), "aé".encode()),
        ("aé".encode()[:-1], b"a"),
        ("a\U0001f600".encode()[:-1], b"a"),
        ("a\U0001f600".encode()[:-3], b"a"),
        (b"a\x1b[31m", b"a\x1b[31m"),
        (b"a\x1b[3", b"a"),
        (b"a\x1b]0;titl", b"a"),
        (b"\x80\x80\x80\x80\x80", b"\x80\x80\x80\x80\x80"),
        (b"", b""),
    ],
    ids=repr,
)
def test_an_incomplete_character_or_sequence_at_the_end_is_left_for_the_next_piece(
    data: bytes, complete: bytes
) -> None:
    assert whole_characters(data) == complete


@pytest.mark.requirement("shell.output.order")
@examples(100)
@given(st.text(min_size=1, max_size=20), st.integers(min_value=0))
def test_a_text_cut_anywhere_is_joined_again(text: str, position: int) -> None:
    data = text.encode()
    split_at = position % (len(data) + 1)
    complete = whole_characters(data[:split_at])
    if "\x1b" not in text:
        assert complete.decode() + data[len(complete) :].decode() == text
    assert from_whole_character(data[split_at:]).decode() in text


@pytest.mark.requirement("shell.output.order")
def test_a_character_without_its_beginning_is_left_out() -> None:
    assert from_whole_character("\U0001f600b".encode()[1:]) == b"b"
    assert from_whole_character(b"\x80\x80\x80\x80b") == b"\x80b"
