"""Reads of files and trees that are far too large: bounded time, bounded memory, and an answer that says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.harness import text_of
from tests.hostile.watched_server import MEGABYTE, WatchedServer, facts_of, needs_proc, watched_server
from tests.waiting import CEILING
from tools.files.read.line_window import SOUGHT_BYTES

pytestmark = [pytest.mark.anyio, needs_proc]

TEN_GIGABYTES = 10_000_000_000
HALF_A_GIGABYTE = 500_000_000
MAX_MEMORY = 50 * MEGABYTE
TREE_SIZES = [3_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])]


@pytest.fixture
async def server(root: Path) -> AsyncGenerator[WatchedServer]:
    (root / "small.txt").write_text("small\n")
    async with watched_server(root) as server:
        await server.call("read_file", file_path="small.txt")
        await server.call("read_many_files", paths=["small.txt"])
        yield server


def sparse(path: Path, head: bytes, size: int, tail: bytes = b"") -> None:
    """Make a sparse file with a head and a tail, which uses almost no disk space."""
    with path.open("wb") as stream:
        stream.write(head)
        stream.seek(size - len(tail))
        stream.write(tail)
        stream.truncate(size)


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


@pytest.mark.long
@pytest.mark.requirement("read.large")
@pytest.mark.parametrize("offset", [5_000_000_000, -5_000_000_000])
async def test_a_request_for_a_line_far_away_in_ten_gigabytes_is_refused_with_the_limit(
    offset: int, root: Path, server: WatchedServer
) -> None:
    sparse(root / "huge.log", lines(20_000), TEN_GIGABYTES)
    memory_before = server.reset_peak()
    with anyio.fail_after(CEILING):
        result = await server.call("read_file", file_path="huge.log", offset=offset, limit=10)
    assert result.is_error
    assert "[file_too_large]" in text_of(result)
    assert f"{SOUGHT_BYTES:,} bytes" in text_of(result)
    assert server.peak() - memory_before < MAX_MEMORY


@pytest.mark.requirement("read.large")
async def test_both_ends_of_ten_gigabytes_are_shown(root: Path, server: WatchedServer) -> None:
    sparse(root / "huge.log", lines(20_000), TEN_GIGABYTES, b"\n" + lines(100))
    memory_before = server.reset_peak()
    with anyio.fail_after(CEILING):
        first = await server.call("read_file", file_path="huge.log", offset=15_000, limit=2)
        last = await server.call("read_file", file_path="huge.log", offset=-2)
    assert "\nline 15000\nline 15001" in text_of(first)
    assert "total" in text_of(first)
    assert "\nline 98\nline 99\n" in text_of(last)
    assert server.peak() - memory_before < MAX_MEMORY


@pytest.mark.requirement("read.large")
async def test_ten_gigabytes_of_nul_bytes_are_a_binary_file(root: Path, server: WatchedServer) -> None:
    sparse(root / "nothing.log", b"", TEN_GIGABYTES)
    memory_before = server.reset_peak()
    with anyio.fail_after(CEILING):
        result = await server.call("read_file", file_path="nothing.log", offset=5_000_000_000, limit=10)
    assert text_of(result).startswith("Binary file, not shown")
    assert server.peak() - memory_before < MAX_MEMORY


@pytest.mark.long
@pytest.mark.requirement("read.budget")
async def test_a_line_of_half_a_gigabyte_is_cut_with_a_notice_and_the_next_one_is_shown(
    root: Path, server: WatchedServer
) -> None:
    sparse(root / "line.json", b"x" * 70_000, HALF_A_GIGABYTE, b"\nthe next one\n")
    memory_before = server.reset_peak()
    with anyio.fail_after(CEILING):
        result = await server.call("read_file", file_path="line.json")
        second_result = await server.call("read_file", file_path="line.json", offset=1)
        many_files_result = await server.call("read_many_files", paths=["line.json", "small.txt"])
    assert "x" * 2_000 + "... [truncated]\nthe next one\n" in text_of(result)
    assert "were cut" in text_of(result)
    assert len(text_of(result)) < 3_000
    assert "the next one\n" in text_of(second_result)
    assert "x" * 10 not in text_of(second_result)
    assert "only part of this file is shown" in text_of(many_files_result)
    assert "\nsmall\n" in text_of(many_files_result)
    assert server.peak() - memory_before < MAX_MEMORY


@pytest.mark.requirement("many.budget")
@pytest.mark.parametrize("count", TREE_SIZES)
async def test_of_very_many_files_some_are_read_and_the_rest_are_counted(
    count: int, root: Path, server: WatchedServer
) -> None:
    for number in range(count):
        folder = root / f"d{number // 500:03d}"
        if number % 500 == 0:
            folder.mkdir()
        (folder / f"f{number:06d}.txt").write_text(f"text {number}\n")
    with anyio.fail_after(300):
        result = await server.call("read_many_files", paths=["**/*"])
    text = text_of(result)
    assert len(facts_of(result)["files"]) == 100
    assert f"[{count + 1 - 100:,} more files not read" in text
    assert "\ntext 0\n" in text
    assert len(result.model_dump_json()) < 100_000


@pytest.mark.requirement("many.none")
async def test_very_many_skipped_files_give_a_small_answer(root: Path, server: WatchedServer) -> None:
    for number in range(3_000):
        (root / f"{'long-name-' * 20}{number}.dump").write_bytes(b"\0\1\2")
    with anyio.fail_after(CEILING):
        result = await server.call("read_many_files", paths=["**"])
    assert "[3,000 entries skipped:" in text_of(result)
    assert "binary file" in text_of(result)
    assert facts_of(result)["files"] == [str(root / "small.txt")]
    assert len(text_of(result)) < 15_000
    assert len(result.model_dump_json()) < 60_000


@pytest.mark.requirement("many.none")
async def test_very_many_missing_paths_are_reported_as_missing_and_the_others_are_read(
    root: Path, server: WatchedServer
) -> None:
    missing = [f"sub/{'missing-' * 20}{number}.txt" for number in range(999)]
    with anyio.fail_after(CEILING):
        result = await server.call("read_many_files", paths=[*missing, "small.txt"])
    assert not result.is_error
    assert facts_of(result)["files"] == [str(root / "small.txt")]
    assert "[999 entries skipped:" in text_of(result)
    assert f"- {missing[0]}: does not exist" in text_of(result)
    assert len(text_of(result)) < 15_000


@pytest.mark.requirement("many.none")
async def test_more_paths_than_one_call_takes_are_refused_with_the_number(server: WatchedServer) -> None:
    result = await server.call("read_many_files", paths=[f"missing-{number}.txt" for number in range(5_000)])
    assert result.is_error
    assert "[invalid_tool_params]" in text_of(result)
    assert "1000" in text_of(result).replace(",", "")
    assert "braces" not in text_of(result)
    assert len(text_of(result)) < 2_000
