"""What is kept of an output, whatever its size and the sizes of its pieces."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.files.text_encodings import SNIFFED_BYTES
from tools.shell.private_folders import PrivateFolders
from tools.shell.program_output import CUT_MARK, HEAD_BYTES, OUTPUT_CHARS, TAIL_BYTES, Output, newest_text, plain_text

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[PrivateFolders]:
    store = PrivateFolders(str(tmp_path))
    yield store
    await store.aclose()


def output_from(store: PrivateFolders | None, *pieces: bytes) -> Output:
    output = Output(store.folder("test") if store is not None else None)
    for piece in pieces:
        output.feed(piece)
    return output


def pieces_of(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


@pytest.mark.requirement("shell.output.order")
@examples(100)
@given(st.binary(max_size=400), st.lists(st.integers(min_value=1, max_value=50), max_size=30))
def test_the_sizes_of_the_pieces_make_no_difference(data: bytes, sizes: list[int]) -> None:
    output = output_from(None, *pieces_of(data, sizes))
    assert output.total == len(data)
    assert output.tail() == data
    assert output.snapshot().text() == (plain_text(data).strip("\n"), False)


@pytest.mark.requirement("shell.output.order")
def test_characters_split_between_pieces_are_whole() -> None:
    data = "Grüße \U0001f600\n".encode() * 100
    output = output_from(None, *(data[index : index + 1] for index in range(len(data))))
    assert output.snapshot().text()[0] == data.decode().strip("\n")


@pytest.mark.requirement("shell.cut")
def test_a_text_within_the_budget_is_shown_whole() -> None:
    text, is_cut = output_from(None, b"x" * OUTPUT_CHARS).snapshot().text()
    assert (len(text), is_cut) == (OUTPUT_CHARS, False)


@pytest.mark.requirement("shell.cut")
@pytest.mark.parametrize("lines", [6_000, 600_000], ids=["in memory", "mostly in the file"])
async def test_a_longer_text_is_cut_to_one_fifth_at_its_start_and_four_fifths_at_its_end(
    store: PrivateFolders, lines: int
) -> None:
    output = output_from(
        store, *(b"".join(b"line %d\n" % n for n in range(at, at + 1000)) for at in range(0, lines, 1000))
    )
    text, is_cut = output.snapshot().text()
    head, mark, tail = text.partition(f"\n{CUT_MARK}\n")
    assert is_cut
    assert mark
    assert head.startswith("line 0\nline 1\n")
    assert OUTPUT_CHARS // 5 - 20 < len(head) <= OUTPUT_CHARS // 5
    assert tail.endswith(f"line {lines - 1}")
    assert OUTPUT_CHARS * 4 // 5 - 20 < len(tail) <= OUTPUT_CHARS * 4 // 5
    assert all(line.startswith("line ") for line in (head + "\n" + tail).split("\n"))


@pytest.mark.requirement("shell.cut")
async def test_a_long_output_without_a_line_ending_is_cut_within_its_line(store: PrivateFolders) -> None:
    output = output_from(store, *(["é".encode() * 100_000] * 5))
    text, is_cut = output.snapshot().text()
    assert is_cut
    assert len(text) == OUTPUT_CHARS + len(CUT_MARK) + 2
    assert set(text.replace(CUT_MARK, "")) == {"é", "\n"}


@pytest.mark.requirement("shell.cut")
async def test_colours_do_not_count(store: PrivateFolders) -> None:
    output = output_from(store, *([b"\x1b[38;2;100;100;100mx\x1b[0m" * 1000] * 20))
    text, is_cut = output.snapshot().text()
    assert is_cut
    assert text.count("x") > OUTPUT_CHARS // 5


@pytest.mark.requirement("shell.output.file")
@pytest.mark.parametrize("size", [TAIL_BYTES, TAIL_BYTES + 1, 3 * TAIL_BYTES])
async def test_the_file_of_a_long_output_holds_every_byte_from_the_first_on(store: PrivateFolders, size: int) -> None:
    data = random.Random(size).randbytes(size)  # noqa: S311 - repeatable
    output = output_from(store, *(data[at : at + 10_007] for at in range(0, size, 10_007)))
    assert (output.file is None) is (size <= TAIL_BYTES)
    output.keep_all()
    assert output.file is not None
    await output.file.close()
    assert Path(output.file.path).read_bytes() == data
    assert data.startswith(output.snapshot().head)
    assert data.endswith(output.tail())
    assert len(output.tail()) >= TAIL_BYTES


@pytest.mark.requirement("shell.output.memory")
def test_memory_stays_bounded_by_any_number_of_tiny_pieces() -> None:
    output = output_from(None)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            output.feed(b"x")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output.total == 100_000
    assert size < 2 * (HEAD_BYTES + TAIL_BYTES)


@pytest.mark.requirement("shell.cut")
@pytest.mark.parametrize(("position", "is_binary"), [(0, True), (SNIFFED_BYTES - 2, True), (SNIFFED_BYTES - 1, False)])
@pytest.mark.parametrize("piece", [1, 1000, 10_000])
def test_a_nul_with_other_controls_near_the_beginning_is_binary(position: int, piece: int, *, is_binary: bool) -> None:
    data = b"x" * position + b"\1\0" + b"x" * 100
    output = output_from(None, *(data[at : at + piece] for at in range(0, len(data), piece)))
    assert output.is_binary is is_binary


@pytest.mark.requirement("shell.text.visible")
@pytest.mark.parametrize("piece", [1, 3, 10_000])
def test_nuls_between_names_are_shown_as_marks(piece: int) -> None:
    data = "a.py\0b c.py\0é.py\0".encode()
    output = output_from(None, *(data[at : at + piece] for at in range(0, len(data), piece)))
    assert not output.is_binary
    assert output.snapshot().text()[0] == "a.py␀b c.py␀é.py␀"


@pytest.mark.requirement("shell.cut")
def test_a_later_nul_is_a_character_like_others() -> None:
    output = output_from(None, b"x" * 10_000, b"\0" * 20_000)
    assert not output.is_binary
    assert "x␀" in output.snapshot().text()[0]


@pytest.mark.requirement("shell.live")
def test_progress_shows_the_last_whole_lines() -> None:
    short_output = output_from(None, b"one\n\x1b[1mtwo\x1b[0m\n10%\r20%")
    assert newest_text(short_output) == "one\ntwo\n20%"
    long_text = newest_text(output_from(None, b"".join(b"line %d\n" % n for n in range(10_000))))
    assert len(long_text) <= 1_000
    assert long_text.startswith("line ")
    assert long_text.endswith("line 9999")
    assert len(newest_text(output_from(None, b"x" * 10_000))) == 1_000
    assert newest_text(output_from(None, b"\0" * 10_000)) == "(binary output, 10,000 bytes so far)"


@pytest.mark.requirement("shell.output.memory")
def test_a_job_that_has_ended_keeps_little_in_memory() -> None:
    output = output_from(None, b"x" * 100_000, b"end")
    output.keep_only_end(10)
    assert output.tail() == b"xxxxxxxend"
    assert output.tail_start == output.total - 10
    assert output.snapshot().head == b""
