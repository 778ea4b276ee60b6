"""Many writers in one folder, and folders with very many files: all get a turn, and leftovers are removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tools.files.change import writer
from tools.files.change.writer import LARGE_FOLDER, REAL_DISK, lock_folder, replace_file, temporary_in, try_lock
from tools.files.path_opener import Folder, open_folder
from tools.files.workspace import Workspace

LEFTOVER = ".coretools-0123456789abcdef.tmp"


def writer_in(root: Path) -> Callable[[str], None]:
    workspace = Workspace([str(root)])

    def write(name: str) -> None:
        replace_file(workspace, workspace.locate(name), b"new", None, REAL_DISK)

    return write


def fill(root: Path, count: int) -> None:
    for number in range(count):
        os.close(os.open(root / f"file-{number:06}", os.O_CREAT | os.O_WRONLY))


def temporary_files(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if name.startswith(".coretools-")]


@pytest.mark.requirement("write.atomic")
def test_a_small_folder_is_cleaned_at_every_write(root: Path) -> None:
    write = writer_in(root)
    for name in ("one", "two", "three"):
        (root / LEFTOVER).write_bytes(b"half")
        write(name)
        assert temporary_files(root) == []


@pytest.mark.requirement("write.turns")
def test_a_large_folder_is_cleaned_at_the_first_write_but_not_at_every_write(root: Path) -> None:
    fill(root, LARGE_FOLDER)
    write = writer_in(root)
    (root / LEFTOVER).write_bytes(b"half")
    write("one")
    assert temporary_files(root) == []
    (root / LEFTOVER).write_bytes(b"half")
    write("two")
    assert temporary_files(root) == [LEFTOVER]


@pytest.mark.requirement("write.turns")
def test_a_folder_is_not_locked_while_it_is_searched_for_leftovers(root: Path) -> None:
    (root / LEFTOVER).write_bytes(b"half")
    free: list[bool | None] = []

    class Watched(Folder):
        """Records whether somebody else could lock the folder while it is listed."""

        def names(self) -> list[str]:
            with open_folder(str(root)) as second:
                assert second.descriptor is not None
                free.append(try_lock(second.descriptor))
            return super().names()

    with Watched(str(root), os.open(root, os.O_RDONLY)) as folder, temporary_in(folder, 0o600) as temporary:
        assert temporary_files(root) == [temporary.name]
        temporary.remove()
    assert free == [True]


@pytest.mark.requirement("write.turns")
def test_threads_take_turns_in_a_folder_and_none_is_refused(root: Path) -> None:
    inside: list[int] = []
    counts: list[int] = []

    def enter(number: int) -> None:
        with open_folder(str(root)) as folder:
            for _ in range(50):
                with lock_folder(folder):
                    inside.append(number)
                    counts.append(len(inside))
                    inside.remove(number)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(enter, range(40)))
    assert counts == [1] * 2_000
    assert not writer._folder_locks  # pyright: ignore[reportPrivateUsage] - unused folders leave no lock


@pytest.mark.requirement("write.turns")
def test_a_lock_is_released_after_an_error(root: Path) -> None:
    with open_folder(str(root)) as first, open_folder(str(root)) as second:
        with suppress(RuntimeError), lock_folder(first):
            raise RuntimeError
        with lock_folder(second):
            pass


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.requirement("write.turns")
def test_sixty_writes_at_once_into_a_folder_of_150_000_files_all_succeed(root: Path) -> None:
    fill(root, 150_000)
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(writer_in(root), [f"new-{number}" for number in range(60)]))
    assert sum(name.startswith("new-") for name in os.listdir(root)) == 60
    assert temporary_files(root) == []
