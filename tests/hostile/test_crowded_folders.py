"""Many writers in one folder, and folders with very many files: everybody gets a turn, leftovers go all the same."""

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


def named_like_ours(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if name.startswith(".coretools-")]


@pytest.mark.requirement("write.atomic")
def test_a_small_folder_is_looked_through_at_every_write(root: Path) -> None:
    write = writer_in(root)
    for name in ("one", "two", "three"):
        (root / LEFTOVER).write_bytes(b"half")
        write(name)
        assert named_like_ours(root) == []


@pytest.mark.requirement("write.turns")
def test_a_large_folder_is_looked_through_at_the_first_write_and_not_at_each(root: Path) -> None:
    fill(root, LARGE_FOLDER)
    write = writer_in(root)
    (root / LEFTOVER).write_bytes(b"half")
    write("one")
    assert named_like_ours(root) == []
    (root / LEFTOVER).write_bytes(b"half")
    write("two")
    assert named_like_ours(root) == [LEFTOVER]


@pytest.mark.requirement("write.turns")
def test_a_folder_is_looked_through_while_another_process_may_write_in_it(root: Path) -> None:
    (root / LEFTOVER).write_bytes(b"half")
    free: list[bool | None] = []

    class Watched(Folder):
        """Tells, while it is listed, whether somebody else could lock it."""

        def names(self) -> list[str]:
            with open_folder(str(root)) as other:
                assert other.descriptor is not None
                free.append(try_lock(other.descriptor))
            return super().names()

    with Watched(str(root), os.open(root, os.O_RDONLY)) as folder, temporary_in(folder, 0o600) as temporary:
        assert named_like_ours(root) == [temporary.name]
        temporary.remove()
    assert free == [True]


@pytest.mark.requirement("write.turns")
def test_threads_take_turns_in_a_folder_and_none_is_turned_away(root: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        with open_folder(str(root)) as folder:
            for _ in range(50):
                with lock_folder(folder):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(enter, range(40)))
    assert most == [1] * 2_000
    assert not writer._folder_locks  # pyright: ignore[reportPrivateUsage] - nothing is kept of folders nobody writes in


@pytest.mark.requirement("write.turns")
def test_a_lock_is_given_back_by_whoever_fails(root: Path) -> None:
    with open_folder(str(root)) as one, open_folder(str(root)) as other:
        with suppress(RuntimeError), lock_folder(one):
            raise RuntimeError
        with lock_folder(other):
            pass


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.requirement("write.turns")
def test_sixty_writes_at_once_into_a_folder_of_150_000_files_all_succeed(root: Path) -> None:
    fill(root, 150_000)
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(writer_in(root), [f"new-{number}" for number in range(60)]))
    assert sum(name.startswith("new-") for name in os.listdir(root)) == 60
    assert named_like_ours(root) == []
