"""Reading one opened file: what is shown, what is left out, and what the header says about it."""

from __future__ import annotations

import codecs
import hashlib
import json
from pathlib import Path

import pytest

from tests.readings import read_file, text_of
from tools.call.base_tool import ToolContext
from tools.contract.call_options import Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.read.file_reader import HASHED_BYTES, MAX_WIDE_BYTES
from tools.files.read.media_files import FileKind

RULE = "\n\n---\n\n"


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.requirement("read.whole")
@pytest.mark.parametrize("content", [b"", b"a", b"a  \t\n\n", b"a\r\nb \r\n", b"a\rb\r", "Grüße\n".encode()])
def test_a_whole_file_is_shown_exactly_as_it_is(content: bytes, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(content)
    reading = read_file(context, "a.txt")
    assert text_of(reading) == content.decode()
    assert not reading.truncated
    assert not reading.shortened
    assert reading.next_offset is None
    assert reading.sha256 == hashlib.sha256(content).hexdigest()
    assert reading.chars == len(content.decode())


@pytest.mark.requirement("read.window")
def test_a_window_says_which_lines_it_has_and_how_to_go_on(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(numbered(20))
    reading = read_file(context, "a.txt", 5, 3)
    assert text_of(reading) == (
        f"Showing lines 6-8 of 20 total lines. To read more, continue with offset=8.{RULE}line 6\nline 7\nline 8"
    )
    assert (reading.start, reading.end, reading.total) == (6, 8, 20)
    assert (reading.truncated, reading.next_offset) == (True, 8)


@pytest.mark.requirement("read.window")
def test_a_window_up_to_the_end_is_not_called_truncated(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(numbered(5))
    reading = read_file(context, "a.txt", 3)
    assert text_of(reading) == f"Showing lines 4-5 of 5 total lines.{RULE}line 4\nline 5\n"
    assert not reading.truncated
    assert reading.next_offset is None


@pytest.mark.requirement("read.window")
def test_following_the_next_offsets_gives_every_line_once(root: Path, context: ToolContext) -> None:
    content = "".join(f"{'word ' * (number % 40)}{number}\n" for number in range(500))
    (root / "a.txt").write_text(content)
    limits = Limits(read_lines=90, read_chars=4000)
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        reading = read_file(context, "a.txt", offset, limits=limits)
        pieces += text_of(reading).partition(RULE)[2].splitlines()
        offset = reading.next_offset
    assert pieces == content.splitlines()


@pytest.mark.requirement("read.lines")
def test_a_negative_offset_shows_the_end(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(numbered(5))
    reading = read_file(context, "a.txt", -2)
    assert text_of(reading).startswith("Showing lines 4-5 of 5 total lines.")
    assert text_of(read_file(context, "a.txt", -9)) == numbered(5)


@pytest.mark.requirement("read.window")
def test_an_offset_past_the_end_says_how_many_lines_there_are(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(numbered(5))
    (root / "empty.txt").write_text("")
    reading = read_file(context, "a.txt", 5)
    assert "The file has 5 lines" in text_of(reading)
    assert (reading.start, reading.end, reading.total, reading.chars) == (0, 0, 5, 0)
    assert "empty" in text_of(read_file(context, "empty.txt", 1))


@pytest.mark.requirement("read.budget")
def test_the_default_number_of_lines_is_limited(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x\n" * 2500)
    reading = read_file(context, "a.txt")
    assert (reading.start, reading.end, reading.next_offset) == (1, 2000, 2000)
    assert text_of(reading).startswith("Showing lines 1-2000 of 2500 total lines.")


@pytest.mark.requirement("read.budget")
def test_an_explicit_limit_may_exceed_the_default_but_not_the_character_limit(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x\n" * 2500)
    assert read_file(context, "a.txt", 0, 2400).end == 2400
    assert read_file(context, "a.txt", 0, 2400, Limits(read_chars=100)).end == 50


@pytest.mark.requirement("read.budget")
def test_a_line_that_was_cut_is_reported(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x" * 2500 + "\nshort\n")
    reading = read_file(context, "a.txt")
    assert reading.shortened
    assert not reading.truncated
    header, _, body = text_of(reading).partition(RULE)
    assert header.startswith("Showing lines 1-2 of 2 total lines.")
    assert "2000 characters" in header
    assert body == "x" * 2000 + "... [truncated]\nshort\n"


@pytest.mark.requirement("read.encodings")
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "utf-8-bom"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be"),
    ],
)
def test_the_byte_order_mark_is_not_part_of_the_text(
    mark: bytes, codec: str, name: str, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(mark + "Ünï\r\n世界\r\n".encode(codec))
    reading = read_file(context, "a.txt")
    assert text_of(reading) == "Ünï\r\n世界\r\n"
    assert (reading.encoding, reading.eol, reading.total) == (name, "crlf", 2)
    assert text_of(read_file(context, "a.txt", 1)).endswith(f"{RULE}世界\r\n")


@pytest.mark.requirement("read.encodings")
def test_bytes_that_cannot_be_decoded_are_marked_and_reported(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes("Grüße, 世界\n".encode() + b"caf\xe9\n")
    reading = read_file(context, "a.txt")
    header, _, body = text_of(reading).partition(RULE)
    assert reading.encoding == "unknown-8bit"
    assert "UTF-8" in header
    assert body == "Grüße, 世界\ncaf\ufffd\n"


@pytest.mark.requirement("read.encodings")
def test_damaged_utf_16_is_shown_as_far_as_possible(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(codecs.BOM_UTF16_LE + "ok\n".encode("utf-16-le") + b"\0\xd8!")
    reading = read_file(context, "a.txt")
    assert reading.encoding == "unknown-8bit"
    header, _, body = text_of(reading).partition(RULE)
    assert "nor valid UTF-16 or UTF-32 with a byte order mark" in header
    assert body.startswith("ok\n")


@pytest.mark.requirement("read.type")
def test_svg_is_shown_as_text(root: Path, context: ToolContext) -> None:
    (root / "a.svg").write_text("<svg/>")
    reading = read_file(context, "a.svg")
    assert (reading.kind, text_of(reading)) == (FileKind.SVG, "<svg/>")


@pytest.mark.requirement("read.notebook")
def test_a_notebook_is_rendered_and_can_be_paged(root: Path, context: ToolContext) -> None:
    cell = {"cell_type": "code", "source": "a = 1"}
    (root / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}}))
    reading = read_file(context, "a.ipynb")
    assert reading.kind is FileKind.NOTEBOOK
    assert text_of(reading).startswith("Jupyter notebook: language unknown, 1 cell\n")
    assert text_of(read_file(context, "a.ipynb", 2, 1)).endswith(f"{RULE}--- Cell 1: code, id cell-0 ---")


@pytest.mark.requirement("read.notebook")
def test_an_invalid_notebook_is_shown_as_text(root: Path, context: ToolContext) -> None:
    (root / "a.ipynb").write_text("{broken")
    assert text_of(read_file(context, "a.ipynb")) == "{broken"


@pytest.mark.requirement("read.large")
def test_a_large_file_is_read_from_its_middle_without_a_digest(root: Path, context: ToolContext) -> None:
    line = "x" * 999 + "\n"
    count = HASHED_BYTES // 1000 + 10
    (root / "a.log").write_bytes(codecs.BOM_UTF8 + line.encode() * count)
    reading = read_file(context, "a.log", count - 2)
    assert (reading.start, reading.end, reading.total) == (count - 1, count, count)
    assert (reading.encoding, reading.eol, reading.sha256) == ("utf-8-bom", "lf", None)
    first_line = read_file(context, "a.log", 0, 1)
    assert text_of(first_line).endswith(f"{RULE}{'x' * 999}")


@pytest.mark.requirement("read.large")
def test_a_large_file_that_is_shown_whole_has_a_digest(root: Path, context: ToolContext) -> None:
    content = ("x" * 999_999 + "\n").encode() * 9
    (root / "a.log").write_bytes(content)
    reading = read_file(context, "a.log", limits=Limits(read_chars=20_000_000, line_chars=2_000_000))
    assert reading.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.requirement("read.large")
def test_very_large_utf_16_is_refused_with_a_way_out(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_bytes(codecs.BOM_UTF16_LE + "a\n".encode("utf-16-le"))
    with path.open("r+b") as stream:
        stream.truncate(MAX_WIDE_BYTES + 2)
    with pytest.raises(ToolError) as error_info:
        read_file(context, "a.txt")
    assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
    assert "iconv" in error_info.value.message


@pytest.mark.requirement("read.notebook")
def test_a_notebook_keeps_to_the_limits_of_any_text(root: Path, context: ToolContext) -> None:
    cell = {"cell_type": "markdown", "source": [f"line {number}\n" for number in range(500)]}
    (root / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    whole_text = text_of(read_file(context, "a.ipynb"))
    by_chars = read_file(context, "a.ipynb", limits=Limits(read_chars=1_000))
    assert by_chars.truncated
    assert by_chars.chars <= 1_000
    by_lines = read_file(context, "a.ipynb", limits=Limits(read_lines=10))
    assert (by_lines.start, by_lines.end, by_lines.next_offset) == (1, 10, 10)
    assert text_of(by_lines).partition(RULE)[2] == "\n".join(whole_text.split("\n")[:10])
