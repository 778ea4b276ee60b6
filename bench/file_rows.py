"""Reading, listing and changing files, beside the system calls that cannot be done without."""

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
"""Lines of one read."""

SETTLED_SECONDS = 0.15
"""A file changed more recently than this may not be remembered by a server that is careful."""

MANY = 500
MANY_BYTES = 2_000
ENTRIES = 10_000
FOLDERS_AMONG_ENTRIES = 500

TIMES_CHANGED = 3
"""Changes of one round: how long the disk takes to keep one (fsync, which the floor leaves out) varies."""

EDITS = 100
"""Of one round, with and without the journal in turn."""

IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it
"""A folder in memory, on Linux."""

M_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 128 * 1024
"""Glibc's name for it and its first value, which it raises with each large block that is given back."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A text file whose lines begin with their number, from 1.

    Args:
        path: Where it is.
        lines: How many it has.
    """

    path: Path
    lines: int


def numbered_file(path: Path, size: int) -> Numbered:
    """Write a file of about this many bytes, 79 and the line ending on each line."""
    lines, wanted = 0, size // 80
    with path.open("wb") as file:
        while lines < wanted:
            block = min(10_000, wanted - lines)
            written = (
                f"line {number:08d} of a file that is read in windows, with some text to fill the line up to 79"
                for number in range(lines + 1, lines + block + 1)
            )
            file.write("".join(f"{line[:79]:79}\n" for line in written).encode())
            lines += block
    return Numbered(path, lines)


def read_whole(path: Path) -> bytes:
    """The floor of reading: one read(2) of everything, into memory that is new to the process.

    Anyone who reads a file once has to get that memory. Left alone, the allocator would hand out the block of the last
    round again, which is three times as quick.
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
    """Keep the allocator from learning to keep large blocks for the next time."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def touch(path: Path) -> None:
    """Make a file look changed, and wait until that is no news."""
    os.utime(path)
    time.sleep(SETTLED_SECONDS)


def check_window(text: str, first: int) -> None:
    """The window must hold its lines, and only them."""
    numbers = [int(number) for number in re.findall(r"^line (\d{8}) ", text, re.MULTILINE)]
    assert numbers == list(range(first, first + WINDOW)), (first, numbers[:2], numbers[-2:], len(numbers))


def _window(megabytes: int, line: int | None, *, again: bool) -> Opener:
    """A read of a window.

    Args:
        megabytes: Size of the file.
        line: The first line, from 1; `None` for one near the end.
        again: Whether the server has read the file before in its present state.
    """

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        folder = scene.folder("window")
        file = numbered_file(folder / "lines.txt", megabytes * MEGABYTE)
        first = line or file.lines - WINDOW - 100
        arguments = {"absolute_path": str(file.path), "offset": first - 1, "limit": WINDOW}
        with LineClient(scene.server(folder)) as client:

            def ours() -> float:
                if not again:
                    touch(file.path)
                taken, result = client.timed_call("read_file", arguments)
                check_window(text_of(result), first)
                return taken

            touch(file.path)
            ours()
            yield lambda: in_turn(ours, lambda: read_whole(file.path))

    return opened


def _end_of_large(offset: int, *, of_memory: bool) -> Opener:
    """A window of a 100 MB file at one of its ends: how long it takes, or how much memory.

    Args:
        offset: As the tool takes it; negative from the end.
        of_memory: Whether memory is the figure.
    """

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        folder = scene.folder("ends")
        file = numbered_file(folder / "lines.txt", 100 * MEGABYTE)
        (folder / "small.txt").write_text("small\n")
        arguments = {"absolute_path": str(file.path), "offset": offset, "limit": WINDOW}
        first = offset + 1 if offset >= 0 else file.lines + offset + 1

        def one_round() -> Pair:
            touch(file.path)
            with LineClient(scene.server(folder)) as client:
                client.call("read_file", {"absolute_path": str(folder / "small.txt")})
                before = 0.0
                if of_memory:
                    before = memory_of(client.pid, "VmRSS")  # what the peak is reset to
                    Path(f"/proc/{client.pid}/clear_refs").write_text("5")
                taken, result = client.timed_call("read_file", arguments)
                check_window(text_of(result), first)
                return Pair(memory_of(client.pid, "VmHWM") - before if of_memory else taken)

        yield one_round

    return opened


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
        assert all(f"file {number:03d} " in text for number in range(MANY))
        yield lambda: in_turn(lambda: client.timed_call("read_many_files", arguments)[0], floor, 5)


def many_files(scene: Scene) -> tuple[Path, list[str]]:
    """A workspace with a folder of small files, and the server's options to read all of them at once."""
    folder = scene.folder("many-files")
    (folder / "many").mkdir()
    for number in range(MANY):
        line = f"file {number:03d} has a line of text like any other, and then one more of the same kind\n"
        (folder / "many" / f"part-{number:03d}.txt").write_text(line * (MANY_BYTES // len(line)))
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
        listed = client.call("list_directory", arguments)["structuredContent"]
        expected = [name for _, name in floor()]
        assert listed["total"] == len(expected)
        assert [entry["name"] for entry in listed["entries"]] == expected[: len(listed["entries"])]
        yield lambda: in_turn(lambda: client.timed_call("list_directory", arguments)[0], floor, 5)


def _replace(path: Path, old: bytes, new: bytes) -> None:
    """The floor of changing: read, replace, write."""
    with open(path, "rb") as file:
        data = file.read()
    data = data.replace(old, new)
    with open(path, "wb") as file:
        file.write(data)


def _versions(number: int) -> Generator[tuple[str, str]]:
    """What one line becomes, change after change: its text before and after, never the same length as another's."""
    before, version = f"line {number:08d} of a file that is read in windows", 0
    while True:
        version += 1
        after = f"line {number:08d} version {version:06d}"
        yield before, after
        before = after


def _changes(
    tool: str, told: Callable[[Path, str, str], dict[str, str]], versions: Callable[[int], Iterator[tuple[str, str]]]
) -> Opener:
    """Changes of a file of 5 MB, one after the other.

    Args:
        tool: What makes them.
        told: What it is given besides the path: from a file that is still as before, the old text and the new one.
        versions: What each change makes of what, for the line with this number.
    """

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        folder = scene.folder("changes")
        mine, bare = (numbered_file(folder / name, 5 * MEGABYTE) for name in ("mine.txt", "bare.txt"))
        changes = versions(mine.lines // 2)
        old = new = ""
        with LineClient(scene.server(folder, "--approval-mode", "auto-edit")) as client:

            def ours() -> float:
                nonlocal old, new
                old, new = next(changes)
                return client.timed_call(tool, {"file_path": str(mine.path), **told(bare.path, old, new)})[0]

            def one_round() -> Pair:
                pair = in_turn(ours, lambda: _replace(bare.path, old.encode(), new.encode()), TIMES_CHANGED)
                assert mine.path.read_bytes() == bare.path.read_bytes()
                return pair

            one_round()
            yield one_round

    return opened


def _edited(_: Path, old: str, new: str) -> dict[str, str]:
    return {"old_string": old, "new_string": new}


def _rewritten(path: Path, old: str, new: str) -> dict[str, str]:
    return {"content": path.read_text().replace(old, new)}


def _on_every_line(_: int) -> Iterator[tuple[str, str]]:
    return cycle([(" of a ", " of_a "), (" of_a ", " of a ")])


@contextmanager
def _journal(scene: Scene) -> Generator[Round]:
    """What it adds to an edit of 10 kB that it can be undone.

    The workspace is in memory where it can be: keeping a file (fsync) takes milliseconds, and never the same.
    """
    scratch = scene.folder("journal")
    (scratch / "off.json").write_text(json.dumps({"undo": {"enabled": False}}))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else scratch) as name:
        folder = Path(name).resolve()
        command = scene.server(folder, "--approval-mode", "auto-edit").command
        environment = {**os.environ, "XDG_STATE_HOME": str(scratch)}
        with (
            LineClient(Start(command, environment)) as keeping,
            LineClient(Start([*command, "--config", str(scratch / "off.json")], environment)) as plain,
        ):
            clients = [(keeping, folder / "kept.txt"), (plain, folder / "plain.txt")]
            for _, path in clients:
                path.write_text("0\n" + "a line of text that is not changed\n" * 300)
            numbers = count()

            def edited(client: LineClient, path: Path, number: int) -> float:
                new = {"old_string": f"{number}\n", "new_string": f"{number + 1}\n"}
                return client.timed_call("edit", {"file_path": str(path), **new})[0]

            def one_round() -> Pair:
                taken: dict[Path, list[float]] = {path: [] for _, path in clients}
                for number in islice(numbers, EDITS):
                    for client, path in clients:
                        taken[path].append(edited(client, path, number))
                    clients.reverse()
                kept, bare = (statistics.median(taken[folder / name]) for name in ("kept.txt", "plain.txt"))
                return Pair(kept - bare, note=f"{kept:.2f} with, {bare:.2f} without")

            one_round()
            yield one_round


ROWS = (
    Row("read at line 100,000 of 10 MB, cold, of read(2) of the whole", 5.0, _window(10, 100_000, again=False)),
    Row("read at line 100,000 of 10 MB, again, of read(2) of the whole", 1.0, _window(10, 100_000, again=True)),
    Row("read near the end of 100 MB, cold, of read(2) of the whole", 3.0, _window(100, None, again=False)),
    Row("read near the end of 100 MB, again, of read(2) of the whole", 0.1, _window(100, None, again=True)),
    Row("read the start of 100 MB", 50.0, _end_of_large(0, of_memory=False)),
    Row("read the last lines of 100 MB", 50.0, _end_of_large(-WINDOW, of_memory=False)),
    Row("memory for the start of 100 MB", 20.0, _end_of_large(0, of_memory=True), unit="MB", most_rounds=3),
    Row("memory for the last lines of 100 MB", 20.0, _end_of_large(-WINDOW, of_memory=True), unit="MB", most_rounds=3),
    Row("read_many_files of 500 files, of open + read", 4.0, _read_many),
    Row("list_directory of 10,000 entries, of scandir + sort", 3.0, _list_directory),
    Row("what it adds to an edit of 10 kB that it can be undone", 0.3, _journal),
    Row("edit of one line in 5 MB, of read, replace, write", 3.0, _changes("edit", _edited, _versions)),
    Row(
        "write_file of 5 MB, one line new, of read, replace, write", 5.0, _changes("write_file", _rewritten, _versions)
    ),
    Row(
        "write_file of 5 MB, all lines new, of read, replace, write",
        5.0,
        _changes("write_file", _rewritten, _on_every_line),
        informative=True,
    ),
)
