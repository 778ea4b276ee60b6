"""Reading, listing and changing files, compared with the system calls that are indispensable for it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, cycle, islice
from pathlib import Path

from bench.line_client import LineClient, Start, text_of
from bench.rows import MEGABYTE, Opener, Pair, Round, Row, Scene, in_turn, memory_of

WINDOW = 200
"""Number of lines per read."""

SETTLE_SECONDS = 0.15
"""A careful server does not cache a file that was changed more recently than this."""

FILE_COUNT = 500
FILE_BYTES = 2_000
ENTRIES = 10_000
FOLDERS_AMONG_ENTRIES = 500

TIMES_CHANGED = 3
"""Changes per round: the duration of fsync, which the floor leaves out, varies."""

EDITS = 100
"""Edits per round, alternating with and without the journal."""

IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it
"""A folder in memory on Linux."""

M_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 128 * 1024
"""The initial value of this glibc option, which glibc raises with each large block that is freed."""


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A text file whose lines start with their number, from 1.

    Args:
        path: Path of the file.
        lines: Number of lines.
    """

    path: Path
    lines: int


def numbered_file(path: Path, size: int) -> NumberedFile:
    """Write a file of about this many bytes, 79 and the line ending on each line."""
    lines, count = 0, size // 80
    with path.open("wb") as file:
        while lines < count:
            block = min(10_000, count - lines)
            text_lines = (
                f"line {number:08d} of a file that is read in windows, with some text to fill the line up to 79"
                for number in range(lines + 1, lines + block + 1)
            )
            file.write("".join(f"{line[:79]:79}\n" for line in text_lines).encode())
            lines += block
    return NumberedFile(path, lines)


def read_whole(path: Path) -> bytes:
    """The floor of reading: one read(2) of the whole file into memory that is new to the process.

    A program that reads a file once must allocate this memory. Without this precaution, the allocator would reuse the
    block of the last round, which is three times as fast.
    """
    _always_new_memory()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size)
        assert len(data) == size
        return data
    finally:
        os.close(descriptor)


@cache
def _always_new_memory() -> None:
    """Prevent the allocator from keeping large blocks for reuse."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def touch(path: Path) -> None:
    """Make a file look changed, and wait until the change is no longer recent."""
    os.utime(path)
    time.sleep(SETTLE_SECONDS)


def check_window(text: str, first: int) -> None:
    """Check that the window contains exactly its lines."""
    numbers = [int(number) for number in re.findall(r"^line (\d{8}) ", text, re.MULTILINE)]
    assert numbers == list(range(first, first + WINDOW)), (first, numbers[:2], numbers[-2:], len(numbers))


def _window(megabytes: int, line: int | None, *, is_warm: bool) -> Opener:
    """Prepare reads of a window.

    Args:
        megabytes: Size of the file.
        line: The first line, from 1; `None` for a window near the end.
        is_warm: Whether the server has read the file before in its present state.
    """

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder = scene.folder("window")
        file = numbered_file(folder / "lines.txt", megabytes * MEGABYTE)
        first = line or file.lines - WINDOW - 100
        arguments = {"absolute_path": str(file.path), "offset": first - 1, "limit": WINDOW}
        with LineClient(scene.server(folder)) as client:

            def own_time() -> float:
                if not is_warm:
                    touch(file.path)
                duration, result = client.timed_call("read_file", arguments)
                check_window(text_of(result), first)
                return duration

            touch(file.path)
            own_time()
            yield lambda: in_turn(own_time, lambda: read_whole(file.path))

    return open_row


def _end_of_large(offset: int, *, of_memory: bool) -> Opener:
    """Prepare reads of a window at one end of a 100 MB file, and measure the time or the memory.

    Args:
        offset: The tool's offset; negative values count from the end.
        of_memory: Whether memory is measured instead of time.
    """

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder = scene.folder("ends")
        file = numbered_file(folder / "lines.txt", 100 * MEGABYTE)
        (folder / "small.txt").write_text("small\n")
        arguments = {"absolute_path": str(file.path), "offset": offset, "limit": WINDOW}
        first = offset + 1 if offset >= 0 else file.lines + offset + 1

        def one_round() -> Pair:
            touch(file.path)
            with LineClient(scene.server(folder)) as client:
                client.call("read_file", {"absolute_path": str(folder / "small.txt")})
                baseline = 0.0
                if of_memory:
                    baseline = memory_of(client.pid, "VmRSS")  # the peak is reset to this value
                    Path(f"/proc/{client.pid}/clear_refs").write_text("5")
                duration, result = client.timed_call("read_file", arguments)
                check_window(text_of(result), first)
                return Pair(memory_of(client.pid, "VmHWM") - baseline if of_memory else duration)

        yield one_round

    return open_row


@contextmanager
def _read_many(scene: Scene) -> Generator[Round]:
    folder, options = many_files(scene)
    files = sorted((folder / "many").iterdir())
    arguments = {"paths": ["many"]}

    def floor() -> int:
        total = 0
        for path in files:
            with open(path, "rb") as file:
                total += len(file.read())
        return total

    with LineClient(scene.server(folder, *options)) as client:
        text = text_of(client.call("read_many_files", arguments))
        assert len(text) >= floor()
        assert all(f"file {number:03d} " in text for number in range(FILE_COUNT))
        yield lambda: in_turn(lambda: client.timed_call("read_many_files", arguments)[0], floor, 5)


def many_files(scene: Scene) -> tuple[Path, list[str]]:
    """Make a workspace with a folder of small files, and return it with the server options to read them all at once."""
    folder = scene.folder("many-files")
    (folder / "many").mkdir()
    for number in range(FILE_COUNT):
        line = f"file {number:03d} has a line of text like any other, and then one more of the same kind\n"
        (folder / "many" / f"part-{number:03d}.txt").write_text(line * (FILE_BYTES // len(line)))
    settings = folder / "settings.json"
    settings.write_text(json.dumps({"limits": {"readManyFiles": 1_000, "readManyChars": 10_000_000}}))
    return folder, ["--config", str(settings)]


@contextmanager
def _list_directory(scene: Scene) -> Generator[Round]:
    folder = scene.folder("entries")
    for number in range(ENTRIES):
        path = folder / f"entry-{number * 7919 % ENTRIES:05d}.txt"
        if number < FOLDERS_AMONG_ENTRIES:
            path.mkdir()
        else:
            path.touch()

    def floor() -> list[tuple[bool, str]]:
        with os.scandir(folder) as entries:
            return sorted((not entry.is_dir(), entry.name) for entry in entries)

    arguments = {"path": str(folder)}
    with LineClient(scene.server(folder)) as client:
        listing = client.call("list_directory", arguments)["structuredContent"]
        expected = [name for _, name in floor()]
        assert listing["total"] == len(expected)
        assert [entry["name"] for entry in listing["entries"]] == expected[: len(listing["entries"])]
        yield lambda: in_turn(lambda: client.timed_call("list_directory", arguments)[0], floor, 5)


def _replace(path: Path, old: bytes, new: bytes) -> None:
    """The floor of a change: read, replace, write."""
    with open(path, "rb") as file:
        data = file.read()
    data = data.replace(old, new)
    with open(path, "wb") as file:
        file.write(data)


def _versions(number: int) -> Generator[tuple[str, str]]:
    """Yield the old and the new text of one line, change after change."""
    before, version = f"line {number:08d} of a file that is read in windows", 0
    while True:
        version += 1
        after = f"line {number:08d} version {version:06d}"
        yield before, after
        before = after


def _changes(
    tool: str,
    arguments: Callable[[Path, str, str], dict[str, str]],
    versions: Callable[[int], Iterator[tuple[str, str]]],
) -> Opener:
    """Prepare changes of a 5 MB file, one after the other.

    Args:
        tool: The tool that makes the changes.
        arguments: Returns its arguments besides the path, from an unchanged copy of the file, the old and the new text.
        versions: Yields the old and the new text of each change, for the line with this number.
    """

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        folder = scene.folder("changes")
        own_file, floor_file = (numbered_file(folder / name, 5 * MEGABYTE) for name in ("mine.txt", "bare.txt"))
        changes = versions(own_file.lines // 2)
        old = new = ""
        with LineClient(scene.server(folder, "--approval-mode", "auto-edit")) as client:

            def own_time() -> float:
                nonlocal old, new
                old, new = next(changes)
                return client.timed_call(
                    tool, {"file_path": str(own_file.path), **arguments(floor_file.path, old, new)}
                )[0]

            def one_round() -> Pair:
                pair = in_turn(own_time, lambda: _replace(floor_file.path, old.encode(), new.encode()), TIMES_CHANGED)
                assert own_file.path.read_bytes() == floor_file.path.read_bytes()
                return pair

            one_round()
            yield one_round

    return open_row


def _edit_arguments(_: Path, old: str, new: str) -> dict[str, str]:
    return {"old_string": old, "new_string": new}


def _rewrite_arguments(path: Path, old: str, new: str) -> dict[str, str]:
    return {"content": path.read_text().replace(old, new)}


def _versions_of_every_line(_: int) -> Iterator[tuple[str, str]]:
    return cycle([(" of a ", " of_a "), (" of_a ", " of a ")])


@contextmanager
def _journal(scene: Scene) -> Generator[Round]:
    """Measure the cost of the journal for an edit of a 10 kB file.

    The workspace is in memory if possible, because the duration of fsync is several milliseconds and varies.
    """
    scratch = scene.folder("journal")
    (scratch / "off.json").write_text(json.dumps({"undo": {"enabled": False}}))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else scratch) as name:
        folder = Path(name).resolve()
        command = scene.server(folder, "--approval-mode", "auto-edit").command
        environment = {**os.environ, "XDG_STATE_HOME": str(scratch)}
        with (
            LineClient(Start(command, environment)) as recording,
            LineClient(Start([*command, "--config", str(scratch / "off.json")], environment)) as plain,
        ):
            clients = [(recording, folder / "kept.txt"), (plain, folder / "plain.txt")]
            for _, path in clients:
                path.write_text("0\n" + "a line of text that is not changed\n" * 300)
            numbers = count()

            def timed_edit(client: LineClient, path: Path, number: int) -> float:
                new = {"old_string": f"{number}\n", "new_string": f"{number + 1}\n"}
                return client.timed_call("edit", {"file_path": str(path), **new})[0]

            def one_round() -> Pair:
                durations: dict[Path, list[float]] = {path: [] for _, path in clients}
                for number in islice(numbers, EDITS):
                    for client, path in clients:
                        durations[path].append(timed_edit(client, path, number))
                    clients.reverse()
                with_journal, without_journal = (
                    statistics.median(durations[folder / name]) for name in ("kept.txt", "plain.txt")
                )
                return Pair(
                    with_journal - without_journal, note=f"{with_journal:.2f} with, {without_journal:.2f} without"
                )

            one_round()
            yield one_round


ROWS = (
    Row("read at line 100,000 of 10 MB, cold, of read(2) of the whole", 5.0, _window(10, 100_000, is_warm=False)),
    Row("read at line 100,000 of 10 MB, again, of read(2) of the whole", 1.0, _window(10, 100_000, is_warm=True)),
    Row("read near the end of 100 MB, cold, of read(2) of the whole", 3.0, _window(100, None, is_warm=False)),
    Row("read near the end of 100 MB, again, of read(2) of the whole", 0.1, _window(100, None, is_warm=True)),
    Row("read the start of 100 MB", 50.0, _end_of_large(0, of_memory=False)),
    Row("read the last lines of 100 MB", 50.0, _end_of_large(-WINDOW, of_memory=False)),
    Row("memory for the start of 100 MB", 20.0, _end_of_large(0, of_memory=True), unit="MB", most_rounds=3),
    Row("memory for the last lines of 100 MB", 20.0, _end_of_large(-WINDOW, of_memory=True), unit="MB", most_rounds=3),
    Row("read_many_files of 500 files, of open + read", 4.0, _read_many),
    Row("list_directory of 10,000 entries, of scandir + sort", 3.0, _list_directory),
    Row("what it adds to an edit of 10 kB that it can be undone", 0.3, _journal),
    Row("edit of one line in 5 MB, of read, replace, write", 3.0, _changes("edit", _edit_arguments, _versions)),
    Row(
        "write_file of 5 MB, one line new, of read, replace, write",
        5.0,
        _changes("write_file", _rewrite_arguments, _versions),
    ),
    Row(
        "write_file of 5 MB, all lines new, of read, replace, write",
        5.0,
        _changes("write_file", _rewrite_arguments, _versions_of_every_line),
        informative=True,
    ),
)
