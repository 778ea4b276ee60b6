"""Windows of lines, compared with the lines of the whole text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal, Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.path_opener import identity_of
from tools.files.read import line_window
from tools.files.read.line_window import (
    BLOCK,
    COUNTED_BYTES,
    CUT_MARK,
    STEP,
    LineRequest,
    LineWindow,
    Source,
    window,
)

ROOMY = Limits(read_chars=10_000_000, line_chars=10_000_000)


def take(data: bytes, offset: int, limit: int, limits: Limits = ROOMY) -> LineWindow:
    return window(Source.from_bytes(data), LineRequest(offset, limit, limits, AbortSignal()))


@pytest.mark.requirement("read.window")
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_window_holds_the_lines_it_names(ending: str, is_closed: bool) -> None:
    lines = [f"line {number} \t" for number in range(7)]
    data = (ending.join(lines) + (ending if is_closed else "")).encode()
    for offset in range(7):
        for limit in range(1, 9):
            part = take(data, offset, limit)
            part_lines = lines[offset : offset + limit]
            is_last = offset + limit >= 7
            assert part.text == ending.join(part_lines) + (ending if is_last and is_closed else "")
            assert (part.first, part.count, part.total) == (offset, len(part_lines), 7)
            assert part.reaches_end is is_last


@pytest.mark.requirement("read.lines")
@pytest.mark.parametrize(("data", "total"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"\n", 1), (b"\n\n", 2), (b"a\nb", 2)])
def test_a_final_line_ending_starts_no_line(data: bytes, total: int) -> None:
    assert take(data, 0, 10).total == total


@pytest.mark.requirement("read.lines")
@pytest.mark.parametrize(("offset", "first", "text"), [(-1, 2, "c\n"), (-2, 1, "b\nc\n"), (-9, 0, "a\nb\nc\n")])
def test_a_negative_offset_counts_from_the_end(offset: int, first: int, text: str) -> None:
    part = take(b"a\nb\nc\n", offset, 10)
    assert (part.first, part.text, part.reaches_end) == (first, text, True)


@pytest.mark.requirement("read.window")
@pytest.mark.parametrize("offset", [3, 4, 100])
def test_a_window_past_the_end_has_only_the_total(offset: int) -> None:
    part = take(b"a\nb\nc\n", offset, 10)
    assert (part.text, part.count, part.total) == ("", 0, 3)


@pytest.mark.requirement("read.budget")
def test_a_long_line_is_cut_and_marked_and_keeps_its_ending() -> None:
    part = take(f"{'é' * 50}\r\nshort\r\n".encode(), 0, 10, Limits(line_chars=20))
    assert part.text == f"{'é' * 20}{CUT_MARK}\r\nshort\r\n"
    assert part.first_truncated == 0
    assert part.is_decodable


@pytest.mark.requirement("read.budget")
def test_the_window_ends_before_the_line_that_does_not_fit() -> None:
    part = take(b"12345678\n" * 5, 0, 10, Limits(read_chars=20))
    assert (part.text, part.count, part.reaches_end) == ("12345678\n12345678", 2, False)


@pytest.mark.requirement("read.budget")
def test_a_first_line_beyond_the_whole_budget_is_cut_to_it() -> None:
    part = take(b"x" * 100 + b"\nnext\n", 0, 10, Limits(read_chars=30))
    assert part.text == "x" * 30 + CUT_MARK
    assert part.count == 1
    assert not part.reaches_end


@pytest.mark.requirement("read.large")
def test_the_rest_of_a_line_that_is_longer_than_many_blocks_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * (3 * BLOCK) + b"\nsecond\n")
    with path.open("rb", buffering=0) as stream:
        source = Source(stream, path.stat().st_size)
        part = window(source, LineRequest(0, 10, Limits(), AbortSignal()))
    assert part.text == "x" * 2000 + CUT_MARK + "\nsecond\n"
    assert part.total == 2


@pytest.mark.requirement("read.encodings")
@pytest.mark.parametrize("line", [b"caf\xe9", b"\xff\xfe\xfd", b"gr\xfc\xdfe"])
def test_undecodable_bytes_are_shown_as_replacements(line: bytes) -> None:
    part = take(b"ok\n" + line + b"\nok\n", 0, 10)
    assert not part.is_decodable
    assert part.text.split("\n")[0] == "ok"
    assert "\ufffd" in part.text.split("\n")[1]


@pytest.mark.requirement("read.large")
def test_lines_of_a_large_file_are_found_from_both_ends_and_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    line = "{:09d}" + "." * 1013
    count = (COUNTED_BYTES + 6 * BLOCK) // 1024
    with path.open("w", newline="") as stream:
        stream.writelines(line.format(number) + "\r\n" for number in range(count))
    os.utime(path, (1, 1))
    with path.open("rb", buffering=0) as stream:
        source = Source(stream, path.stat().st_size)
        # Line counts are remembered only for a file that has not changed lately.
        identity = identity_of(os.fstat(stream.fileno()))._replace(ctime_ns=1)

        def numbers(offset: int, limit: int) -> tuple[list[int], LineWindow]:
            part = window(source, LineRequest(offset, limit, ROOMY, AbortSignal()), identity)
            return [int(text[:9]) for text in part.text.splitlines()], part

        first_numbers, part = numbers(0, 3)
        assert first_numbers == [0, 1, 2]
        assert part.total is None
        assert 3 < part.at_least < count
        last_numbers, part = numbers(-3, 2)
        assert last_numbers == [count - 3, count - 2]
        assert (part.first, part.total, part.reaches_end) == (-3, None, False)
        middle_numbers, part = numbers(count // 2, 3)
        assert middle_numbers == [count // 2, count // 2 + 1, count // 2 + 2]
        assert part.total == count
        numbers_past_end, part = numbers(count, 3)
        assert (numbers_past_end, part.total) == ([], count)
        # All lines are counted now, so lines at the end have their numbers from the beginning.
        last_numbers, part = numbers(-1, 5)
        assert (last_numbers, part.first) == ([count - 1], count - 1)


@pytest.mark.requirement("read.large")
def test_counts_of_a_file_that_changed_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "growing.log"

    def last_line() -> str:
        os.utime(path, (1, 1))
        with path.open("rb", buffering=0) as stream:
            info = os.fstat(stream.fileno())
            request = LineRequest(1, 1, ROOMY, AbortSignal())
            return window(Source(stream, info.st_size), request, identity_of(info)._replace(ctime_ns=1)).text

    path.write_bytes(b"a" * BLOCK + b"\nsecond\n")
    assert last_line() == "second\n"
    path.write_bytes(b"a\nother\n" + b"b" * BLOCK + b"longer")
    assert last_line() == "other"


@pytest.mark.requirement("read.large")
def test_a_cancelled_read_stops() -> None:
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        window(Source.from_bytes(b"a\n"), LineRequest(0, 1, ROOMY, signal))
    assert error_info.value.code is ToolErrorType.CANCELLED


@pytest.mark.requirement("read.window")
@pytest.mark.parametrize("length", [STEP - 1, STEP, STEP + 1, BLOCK, BLOCK + 1])
def test_a_line_that_begins_where_a_step_ends_is_found(length: int) -> None:
    data = b"x" * (length - 1) + b"\n" + b"second\n" + b"y" * length + b"\nlast\n"
    assert take(data, 1, 1).text == "second"
    assert take(data, 3, 1).text == "last\n"
    assert take(data, 4, 1).count == 0


@pytest.mark.requirement("read.large")
def test_a_line_too_far_away_is_refused_and_reached_by_calling_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_window, "SOUGHT_BYTES", 2 * BLOCK)
    monkeypatch.setattr(line_window, "COUNTED_BYTES", BLOCK)
    path = tmp_path / "long.txt"
    count = 6 * BLOCK // 8
    path.write_bytes(b"".join(b"%07d\n" % number for number in range(count)))
    os.utime(path, ns=(0, 0))
    with path.open("rb", buffering=0) as stream:
        info = os.fstat(stream.fileno())
        # The file seems not to have changed for a long time, so its line counts are remembered.
        identity = identity_of(info)._replace(ctime_ns=0)
        source = Source(stream, info.st_size)
        request = LineRequest(count - BLOCK // 8, 2, ROOMY, AbortSignal())
        for counted_blocks in (2, 4):
            with pytest.raises(ToolError) as error_info:
                window(source, request, identity)
            assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
            assert f"{2 * BLOCK:,} bytes" in error_info.value.message
            assert f"counted so far: {counted_blocks * BLOCK // 8:,}" in error_info.value.message
        assert window(source, request, identity).text == f"{request.offset:07d}\n{request.offset + 1:07d}"
        with pytest.raises(ToolError) as error_info:
            window(source, LineRequest(-count + 5, 2, ROOMY, AbortSignal()))
        assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
        assert window(source, LineRequest(-2, 2, ROOMY, AbortSignal())).text == f"{count - 2:07d}\n{count - 1:07d}\n"


@pytest.mark.requirement("read.budget")
def test_the_end_of_a_very_long_line_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_window, "SOUGHT_BYTES", 2 * BLOCK)
    data = b"short\n" + b"x" * 4 * BLOCK + b"\nlast\n"
    part = take(data, 0, 10, Limits())
    assert part.text == "short\n" + "x" * 2_000 + CUT_MARK
    assert (part.count, part.reaches_end, part.first_truncated) == (2, False, 1)
