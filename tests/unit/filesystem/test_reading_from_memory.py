"""Reads on the event loop: only files that the kernel can deliver without waiting."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files import path_opener
from tools.files.path_opener import from_memory, open_regular
from tools.files.workspace import Workspace

pytestmark = [
    pytest.mark.requirement("read.from_memory"),
    pytest.mark.skipif(sys.platform != "linux", reason="these system calls exist only on Linux"),
]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try the kernel's cache always, even right after a miss."""
    monkeypatch.setattr(path_opener, "PAUSE_SECONDS", 0.0)
    kernel_opener = path_opener._kernel_opener()  # pyright: ignore[reportPrivateUsage]
    if kernel_opener is not None:
        monkeypatch.setattr(kernel_opener, "memory_pause", 0.0)  # another test may have missed the cache just now


def reader_of(path: Path) -> Callable[[], bytes]:
    """Return a function that reads the beginning of a file."""

    def read_head() -> bytes:
        with open_regular(str(path)) as file:
            return file.head(1000)

    return read_head


def write_known(path: Path, content: bytes = b"text\n") -> Path:
    """Write a file, and read it once so that the kind of its file system is known."""
    path.write_bytes(content)
    reader_of(path)()
    return path


def is_local(path: Path) -> bool:
    """Return whether the file system of this path is one on which files are read from memory."""
    kernel_opener = path_opener._kernel_opener()  # pyright: ignore[reportPrivateUsage]
    return kernel_opener is not None and kernel_opener._is_local.get(path.stat().st_dev, False)  # pyright: ignore[reportPrivateUsage]


def kernel_answer(path: Path) -> bytes | None:
    """Return what the kernel delivers without waiting, or `None` if it would wait or must not be asked."""
    buffer = bytearray(5)
    if not is_local(path):
        return None
    with path.open("rb") as file:
        try:
            return bytes(buffer[: os.preadv(file.fileno(), (buffer,), 0, os.RWF_NOWAIT)])
        except OSError:
            return None


def test_a_small_file_is_read_at_once_if_it_is_in_memory_and_left_to_a_thread_if_not(tmp_path: Path) -> None:
    path = write_known(tmp_path / "a.txt")
    assert from_memory(reader_of(path)) == kernel_answer(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    content = from_memory(reader_of(path))
    assert content == kernel_answer(path) or content is None
    assert reader_of(path)() == b"text\n"
    assert from_memory(reader_of(path)) == kernel_answer(path)


@pytest.mark.parametrize("content", [b"", b"x" * (path_opener.MEMORY_BYTES + 1)])
def test_empty_and_larger_files_are_left_to_a_thread(tmp_path: Path, content: bytes) -> None:
    assert from_memory(reader_of(write_known(tmp_path / "a.txt", content))) is None


def test_files_that_the_kernel_generates_are_left_to_a_thread() -> None:
    path = Path("/proc/meminfo")
    reader_of(path)()
    assert from_memory(reader_of(path)) is None


def test_a_pipe_is_not_opened_from_memory(tmp_path: Path) -> None:
    write_known(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    assert from_memory(reader_of(tmp_path / "pipe")) is None
    with pytest.raises(path_opener.NotRegularError):
        reader_of(tmp_path / "pipe")()


@pytest.mark.parametrize("kind", [0x794C7630, 0x01021994, 0x65735546, 0x6969])
def test_overlay_tmpfs_fuse_and_nfs_files_are_not_read_on_the_event_loop(
    tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"text\n")
    kernel_opener = vars(path_opener)["_KernelOpener"]()

    def report_kind(_: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
        struct.pack_into("@l", buffer, 0, kind)
        return 0

    monkeypatch.setattr(kernel_opener, "_fstatfs", report_kind)
    monkeypatch.setattr(path_opener, "_kernel_opener", lambda: kernel_opener)
    reader_of(path)()
    assert from_memory(reader_of(path)) is None


def test_a_name_with_a_link_in_it_is_left_to_a_thread(tmp_path: Path) -> None:
    path = write_known(tmp_path / "a.txt")
    (tmp_path / "link").symlink_to(path)
    workspace = Workspace((str(tmp_path),))
    location = workspace.locate(str(path))
    assert from_memory(lambda: workspace.locate(str(path))) == location or not is_local(path)
    assert from_memory(lambda: workspace.locate(str(tmp_path / "link"))) is None


@pytest.mark.parametrize("listing", [path_opener.Folder.entries, path_opener.Folder.names])
def test_no_folder_is_listed_from_memory(tmp_path: Path, listing: Callable[[path_opener.Folder], object]) -> None:
    write_known(tmp_path / "a.txt")

    def list_folder() -> object:
        with path_opener.open_folder(str(tmp_path)) as folder:
            return listing(folder)

    assert list_folder()
    assert from_memory(list_folder) is None


def test_reads_may_block_again_after_a_failure(tmp_path: Path) -> None:
    write_known(tmp_path / "a.txt")

    def fail() -> None:
        raise ToolError(ToolErrorType.FILE_NOT_FOUND, "nothing")

    try:
        assert from_memory(fail) is None
        assert not is_local(tmp_path)
    except ToolError:
        pass
    path_opener.may_block()
