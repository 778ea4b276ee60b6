"""Searches made to hang, to run a program, to flood the answer or to walk forever."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest

from tests.harness import text_of
from tests.hostile.watched_server import MEGABYTE, WatchedServer, facts_of, needs_proc, structured, watched_server
from tests.waiting import CEILING

pytestmark = [pytest.mark.anyio, needs_proc]

SOON = 20
"""Seconds: less than the time limit of a search, and many times what an answer usually takes."""

TREE_SIZES = [2_000, pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
DEEP = 1_000


@pytest.fixture
async def server(root: Path, tmp_path: Path) -> AsyncGenerator[WatchedServer]:
    """A server with an environment variable that makes ripgrep read options from a file."""
    options = tmp_path / "ripgreprc"
    options.write_text("--invert-match\n--max-filesize=1\n--hidden\n--pre=sh\n")
    async with watched_server(root, environment={"RIPGREP_CONFIG_PATH": str(options)}) as server:
        yield server


def make_sparse(path: Path, size: int) -> None:
    with path.open("wb") as stream:
        stream.write(b"text\n" * 2_000)
        stream.truncate(size)


@pytest.mark.requirement("grep.budget")
async def test_a_pattern_that_would_backtrack_without_end_is_answered(root: Path, server: WatchedServer) -> None:
    for number in range(50):
        (root / f"{number:02}.txt").write_text("ab" * 1_000 + "a" * 40 + "!\n")
    (root / "a.txt").write_text("aab\n")
    with anyio.fail_after(SOON):
        result = await server.call("grep_search", pattern="^(ab)+(a+)+$|^aab", case_sensitive=True)
    assert "File: a.txt" in text_of(result)
    assert facts_of(result)["complete"] is True


@pytest.mark.requirement("grep.cancelled")
async def test_a_cancelled_search_leaves_no_process(root: Path, server: WatchedServer) -> None:
    for number in range(200):
        make_sparse(root / f"{number}.log", 99_000_000)
    (root / "slow.log").write_text("a" * 60 + "!\n")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: server.call("grep_search", pattern="(x+x+)+[ab]y|(a+)+$"))
        with anyio.fail_after(CEILING):
            await server.wait_for_children(expected=True)
        group.cancel_scope.cancel()
    # The client has now sent notifications/cancelled.
    with anyio.fail_after(CEILING):
        await server.wait_for_children(expected=False)
    with anyio.fail_after(CEILING):
        assert not (await server.call("glob", pattern="slow.*")).is_error


REFUSED_PATTERNS = {
    "(": "unclosed group",
    "[a": "unclosed character class",
    "*a": "repetition operator missing expression",
    "(?<=a)b": "look-around",
    r"(a)\1": "backreferences",
}


@pytest.mark.requirement("grep.refused")
async def test_a_pattern_that_ripgrep_does_not_accept_is_refused_in_ripgreps_words(
    root: Path, server: WatchedServer
) -> None:
    (root / "a.txt").write_text("text\n")
    for pattern, reason in REFUSED_PATTERNS.items():
        with anyio.fail_after(CEILING):
            result = await server.call("grep_search", pattern=pattern)
        assert result.is_error
        assert "[invalid_tool_params]" in text_of(result)
        assert reason in text_of(result)
        assert "fixed_strings" in text_of(result) or "earch without" in text_of(result)


OPTIONS = ["-e", "--pre=sh", "--", "-", "-f/etc/passwd", "--files", "--help", "-A3", "--invert-match"]


@pytest.mark.requirement("grep.no_options")
async def test_patterns_globs_and_names_that_look_like_options_are_literal(root: Path, server: WatchedServer) -> None:
    (root / "ran.sh").write_text(f"touch '{root}/it-ran' # found\n")
    for option in OPTIONS:
        name = option.replace("/", "_")
        (root / name).write_text(f"before\nx {option} y\nfound in {name}\n")
    for option in OPTIONS:
        with anyio.fail_after(CEILING):
            result = await server.call("grep_search", pattern=f"{option} y", case_sensitive=True)
            one_file_result = await server.call("grep_search", pattern="found", glob=option.replace("/", "_"))
        name = option.replace("/", "_")
        matching_names = [text.replace("/", "_") for text in OPTIONS if f"{option} y" in f"x {text} y"]
        assert not result.is_error
        for matching_name in matching_names:
            assert f"File: {matching_name}\nL2: x" in text_of(result)
        assert facts_of(result)["matches"] == len(matching_names)
        assert facts_of(one_file_result)["matches"] == 1
        assert f"File: {name}\nL3: found in {name}" in text_of(one_file_result)
        with anyio.fail_after(CEILING):
            files = await server.call("glob", pattern=option.replace("/", "_"))
        assert structured(files)["files"] == [str(root / name)]
    with anyio.fail_after(CEILING):
        all_files_result = await server.call("grep_search", pattern="found", limit=1_000)
    assert facts_of(all_files_result)["matches"] == len(OPTIONS) + 1
    assert not (root / "it-ran").exists()


@pytest.mark.requirement("grep.no_options")
async def test_the_options_of_a_ripgrep_configuration_file_are_ignored(root: Path, server: WatchedServer) -> None:
    (root / "f007.txt").write_text("one needle\nnothing here\n")
    with anyio.fail_after(CEILING):
        result = await server.call("grep_search", pattern="needle")
    assert "File: f007.txt\nL1: one needle" in text_of(result)
    assert facts_of(result)["matches"] == 1


@pytest.fixture
def deep(root: Path) -> Generator[Path]:
    """A chain of folders as deep as Python's recursion limit; the path of its end has about 2,500 bytes."""
    top = root / "deep"
    top.mkdir()
    _make_chain(top, ["d" if number % 2 else "dd" for number in range(DEEP)])
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.fixture
def too_deep(root: Path) -> Generator[Path]:
    """A chain of folders whose end is too deep for any path."""
    top = root / "too-deep"
    top.mkdir()
    _make_chain(top, ["a-long-name"] * DEEP)
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


def _make_chain(top: Path, names: list[str]) -> None:
    descriptor = os.open(top, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=descriptor)
        child = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    leaf = os.open("leaf.txt", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor)
    os.write(leaf, b"needle at the end\n")
    os.close(leaf)
    os.close(descriptor)


@pytest.mark.requirement("walk.bounded")
async def test_a_tree_a_thousand_folders_deep_is_searched_to_the_end(deep: Path, server: WatchedServer) -> None:
    with anyio.fail_after(CEILING):
        files = await server.call("glob", pattern="**/leaf.txt")
        lines = await server.call("grep_search", pattern="needle")
        contents = await server.call("read_many_files", paths=["**/leaf.txt"])
        folder = await server.call("list_directory", path=str(deep))
    [path] = structured(files)["files"]
    assert path.count("/d") >= DEEP
    assert facts_of(lines)["matches"] == 1
    assert "needle at the end" in text_of(contents)
    assert not folder.is_error
    with anyio.fail_after(CEILING):
        assert "needle at the end" in text_of(await server.call("read_file", absolute_path=path))


@pytest.mark.requirement("walk.bounded")
async def test_folders_too_deep_for_a_path_are_left_out_and_counted(
    too_deep: Path, root: Path, server: WatchedServer
) -> None:
    (root / "near.txt").write_text("needle nearby\n")
    with anyio.fail_after(CEILING):
        results = [
            await server.call("glob", pattern="**/*.txt"),
            await server.call("grep_search", pattern="needle"),
            await server.call("read_many_files", paths=["**/*.txt"]),
        ]
    notes = ("1 folder could not be read", "Some files or folders could not be read", "1 folder could not be read")
    for result, note in zip(results, notes, strict=True):
        assert not result.is_error
        assert "near.txt" in text_of(result)
        assert "leaf.txt" not in text_of(result)
        assert note in text_of(result)


@pytest.mark.requirement("walk.bounded")
async def test_loops_of_links_are_not_followed(root: Path, server: WatchedServer) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file.txt").write_text("needle\n")
    (root / "a" / "b" / "up").symlink_to(root / "a")
    (root / "a" / "b" / "top").symlink_to(root)
    (root / "a" / "self").symlink_to("self")
    with anyio.fail_after(CEILING):
        files = await server.call("glob", pattern="**")
        lines = await server.call("grep_search", pattern="needle")
        contents = await server.call("read_many_files", paths=["**"])
    assert structured(files)["files"] == [str(root / "a" / "b" / "file.txt")]
    assert facts_of(lines)["matches"] == 1
    assert facts_of(contents)["files"] == [str(root / "a" / "b" / "file.txt")]


@pytest.mark.requirement("walk.bounded")
@pytest.mark.parametrize("count", TREE_SIZES)
async def test_very_many_folders_are_walked_within_the_time_limit_or_the_result_is_marked_partial(
    count: int, root: Path, server: WatchedServer
) -> None:
    for number in range(count):
        folder = root / f"d{number // 400:04d}" / f"e{number % 400:03d}"
        folder.mkdir(parents=True)
        if number % 100 == 0:
            (folder / "file.txt").write_text("needle\n")
    with anyio.fail_after(200):
        glob_result = await server.call("glob", pattern="**/*.txt")
        lines = await server.call("grep_search", pattern="needle")
        absent_result = await server.call("grep_search", pattern="absent")
    glob_facts = structured(glob_result)
    absent_facts = facts_of(absent_result)
    assert glob_facts["partial"] == ("PARTIAL RESULT" in text_of(glob_result))
    assert glob_facts["partial"] or glob_facts["total"] == count // 100
    assert absent_facts["timed_out"] == ("PARTIAL RESULT" in text_of(absent_result))
    assert absent_facts["timed_out"] or absent_facts["searched"] == count // 100
    assert facts_of(lines)["timed_out"] or facts_of(lines)["matches"] == min(100, count // 100)
    if count == 2_000:
        assert not glob_facts["partial"]
        assert not absent_facts["timed_out"]


@pytest.mark.long
@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("pattern", ["needle", "n[e]+dle(,|$)"])
async def test_a_million_matches_on_one_line_give_one_cut_line_and_take_little_memory(
    pattern: str, root: Path, server: WatchedServer
) -> None:
    (root / "bundle.min.js").write_bytes(b"needle,".ljust(50) * 1_000_000)
    (root / "small.txt").write_text("a needle, in a small file\n")
    with anyio.fail_after(CEILING):
        await server.call("grep_search", pattern=pattern, glob="*.txt")
        memory_before = server.reset_peak()
        result = await server.call("grep_search", pattern=pattern)
    assert "File: bundle.min.js\nL1[0-2000]: needle," in text_of(result)
    assert "L1: a needle, in a small file" in text_of(result)
    assert facts_of(result)["matches"] == 2
    assert len(text_of(result)) < 5_000
    assert server.peak() - memory_before < 50 * MEGABYTE


@pytest.mark.requirement("grep.long_lines")
async def test_a_million_matching_lines_are_cut_at_the_limit(root: Path, server: WatchedServer) -> None:
    (root / "many.log").write_bytes(b"a needle\n" * 1_000_000)
    with anyio.fail_after(CEILING):
        await server.call("grep_search", pattern="needle", names_only=True)
        memory_before = server.reset_peak()
        result = await server.call("grep_search", pattern="needle")
    assert facts_of(result)["matches"] == 100
    assert "[Limited to 100 matches" in text_of(result)
    assert len(text_of(result)) < 5_000
    assert server.peak() - memory_before < 50 * MEGABYTE


@pytest.mark.requirement("grep.binary")
async def test_utf_16_text_is_found_and_binary_files_are_counted(root: Path, server: WatchedServer) -> None:
    text = "first\nthe n\u00e9edle\nlast\n"
    (root / "le.txt").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    (root / "be.txt").write_bytes(b"\xfe\xff" + text.encode("utf-16-be"))
    (root / "u8.txt").write_bytes(text.encode())
    (root / "program.o").write_bytes(b"\0\1\2\n" + text.encode())
    (root / "late.bin").write_bytes(b"\0" * 100 + b"\nn\xc3\xa9edle\n")
    with anyio.fail_after(CEILING):
        result = await server.call("grep_search", pattern="n\u00e9edle")
    for name in ("be.txt", "le.txt", "u8.txt"):
        assert f"File: {name}\nL2: the n\u00e9edle" in text_of(result)
    assert facts_of(result)["matches"] == 3
    assert facts_of(result)["skipped"]["binary"] == 2
    assert "2 binary files with matches" in text_of(result)
    assert "program.o" not in text_of(result)
