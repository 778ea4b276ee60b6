"""The writer: whole or not at all, mode kept, links broken openly."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import exclusive, lock_folder, remove_file, replace_file, try_lock
from tools.files.path_opener import identity_of, open_folder
from tools.files.workspace import Workspace


@pytest.mark.requirement("write.atomic")
def test_mode_is_kept_and_set_id_bits_are_dropped(root: Path) -> None:
    path = root / "tool.sh"
    path.write_text("old")
    path.chmod(0o4751)
    workspace = Workspace([str(root)])
    replace_file(workspace, workspace.locate("tool.sh"), b"new", identity_of(path.stat()))
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


@pytest.mark.requirement("write.atomic")
def test_nothing_is_left_beside_the_file(root: Path) -> None:
    workspace = Workspace([str(root)])
    replace_file(workspace, workspace.locate("deep/er/new.txt"), b"x", None)
    assert os.listdir(root / "deep" / "er") == ["new.txt"]


@pytest.mark.requirement("write.expected_sha256")
@pytest.mark.parametrize("exists", [True, False])
def test_a_file_that_is_not_as_expected_is_not_written(exists: bool, root: Path) -> None:
    path = root / "a.txt"
    path.write_text("old")
    expected = None if exists else identity_of(path.stat())
    if not exists:
        path.unlink()
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError) as caught:
        replace_file(workspace, workspace.locate("a.txt"), b"new", expected)
    assert caught.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert os.listdir(root) == (["a.txt"] if exists else [])


@pytest.mark.requirement("write.links")
def test_another_name_of_the_file_keeps_the_old_content(root: Path) -> None:
    path, other = root / "a.txt", root / "b.txt"
    path.write_text("old")
    os.link(path, other)
    workspace = Workspace([str(root)])
    _, links_broken = replace_file(workspace, workspace.locate("a.txt"), b"new", identity_of(path.stat()))
    assert links_broken == 1
    assert (path.read_text(), other.read_text()) == ("new", "old")


@pytest.mark.requirement("write.errors")
def test_a_folder_in_the_way_is_named(root: Path) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError) as caught:
        replace_file(workspace, workspace.locate("folder"), b"x", None)
    assert caught.value.code is ToolErrorType.TARGET_IS_DIRECTORY
    with pytest.raises(ToolError) as caught:
        replace_file(workspace, workspace.locate("file/below"), b"x", None)
    assert caught.value.code is ToolErrorType.FILE_WRITE_FAILURE


@pytest.mark.requirement("write.turns")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: a descriptor without a lock, of Linux")
def test_where_there_are_no_locks_nobody_is_waited_for(root: Path) -> None:
    for flags, is_locked in ((os.O_RDONLY, True), (os.O_PATH, None)):
        descriptor = os.open(root, flags)
        try:
            assert try_lock(descriptor) is is_locked
        finally:
            os.close(descriptor)


@pytest.mark.requirement("write.turns")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: locks of POSIX")
def test_another_process_is_locked_out_of_a_folder_and_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.files.change.writer.BUSY_SECONDS", 0.02)
    others = os.open(root, os.O_RDONLY)  # a lock belongs to what was opened, so this is as good as another process
    try:
        with open_folder(str(root)) as folder:
            with lock_folder(folder):
                assert try_lock(others) is False
            assert try_lock(others) is True
            with pytest.raises(OSError, match="busy"), lock_folder(folder):
                pass
            fcntl.flock(others, fcntl.LOCK_UN)
            with lock_folder(folder):
                assert try_lock(others) is False
    finally:
        os.close(others)


@pytest.mark.requirement("write.errors")
def test_a_file_that_cannot_be_removed_is_told_of(root: Path) -> None:
    workspace = Workspace([str(root)])
    (root / "folder").mkdir()
    (root / "folder" / "a.txt").write_text("x")
    location, identity = workspace.locate("folder/a.txt"), identity_of((root / "folder" / "a.txt").stat())
    remove_file(workspace, location, identity)
    with pytest.raises(ToolError) as caught:
        remove_file(workspace, location, identity)
    assert caught.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    (root / "folder").rmdir()
    (root / "folder").write_text("a file")
    with pytest.raises(ToolError) as caught:
        remove_file(workspace, location, identity)
    assert caught.value.code is ToolErrorType.FILE_NOT_FOUND


@pytest.mark.requirement("write.turns")
def test_waiting_for_another_writer_ends_when_the_call_is_cancelled(root: Path) -> None:
    location = Workspace([str(root)]).locate("a.txt")
    signal = AbortSignal()
    outcome: list[ToolErrorType] = []

    def wait() -> None:
        try:
            with exclusive(location, signal):
                pass
        except ToolError as error:
            outcome.append(error.code)

    with exclusive(location, AbortSignal()):
        waiting = threading.Thread(target=wait)
        waiting.start()
        signal.abort()
        waiting.join()
    assert outcome == [ToolErrorType.CANCELLED]
    with exclusive(location, AbortSignal()):
        assert outcome == [ToolErrorType.CANCELLED]
