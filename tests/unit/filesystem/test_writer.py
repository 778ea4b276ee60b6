"""The writer: it writes the whole file or nothing, keeps the mode, and reports hard links that it breaks."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal
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
    identity = None if exists else identity_of(path.stat())
    if not exists:
        path.unlink()
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError) as error_info:
        replace_file(workspace, workspace.locate("a.txt"), b"new", identity)
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert os.listdir(root) == (["a.txt"] if exists else [])


@pytest.mark.requirement("write.links")
def test_another_name_of_the_file_keeps_the_old_content(root: Path) -> None:
    path, second_path = root / "a.txt", root / "b.txt"
    path.write_text("old")
    os.link(path, second_path)
    workspace = Workspace([str(root)])
    _, links_broken = replace_file(workspace, workspace.locate("a.txt"), b"new", identity_of(path.stat()))
    assert links_broken == 1
    assert (path.read_text(), second_path.read_text()) == ("new", "old")


@pytest.mark.requirement("write.errors")
def test_a_write_to_a_folder_or_below_a_file_is_refused(root: Path) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError) as error_info:
        replace_file(workspace, workspace.locate("folder"), b"x", None)
    assert error_info.value.code is ToolErrorType.TARGET_IS_DIRECTORY
    with pytest.raises(ToolError) as error_info:
        replace_file(workspace, workspace.locate("file/below"), b"x", None)
    assert error_info.value.code is ToolErrorType.FILE_WRITE_FAILURE


@pytest.mark.requirement("write.turns")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: only Linux has descriptors that cannot be locked")
def test_a_folder_that_cannot_be_locked_is_not_waited_for(root: Path) -> None:
    for flags, is_locked in ((os.O_RDONLY, True), (os.O_PATH, None)):
        descriptor = os.open(root, flags)
        try:
            assert try_lock(descriptor) is is_locked
        finally:
            os.close(descriptor)


@pytest.mark.requirement("write.turns")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: needs the file locks of POSIX")
def test_another_process_is_locked_out_of_a_folder_and_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.files.change.writer.BUSY_SECONDS", 0.02)
    second_descriptor = os.open(
        root, os.O_RDONLY
    )  # a lock belongs to the open file, so a second one acts like another process
    try:
        with open_folder(str(root)) as folder:
            with lock_folder(folder):
                assert try_lock(second_descriptor) is False
            assert try_lock(second_descriptor) is True
            with pytest.raises(OSError, match="busy"), lock_folder(folder):
                pass
            fcntl.flock(second_descriptor, fcntl.LOCK_UN)
            with lock_folder(folder):
                assert try_lock(second_descriptor) is False
    finally:
        os.close(second_descriptor)


@pytest.mark.requirement("write.errors")
def test_a_file_that_cannot_be_removed_raises_an_error(root: Path) -> None:
    workspace = Workspace([str(root)])
    (root / "folder").mkdir()
    (root / "folder" / "a.txt").write_text("x")
    location, identity = workspace.locate("folder/a.txt"), identity_of((root / "folder" / "a.txt").stat())
    remove_file(workspace, location, identity)
    with pytest.raises(ToolError) as error_info:
        remove_file(workspace, location, identity)
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    (root / "folder").rmdir()
    (root / "folder").write_text("a file")
    with pytest.raises(ToolError) as error_info:
        remove_file(workspace, location, identity)
    assert error_info.value.code is ToolErrorType.FILE_NOT_FOUND


@pytest.mark.requirement("write.turns")
def test_waiting_for_another_writer_ends_when_the_call_is_cancelled(root: Path) -> None:
    location = Workspace([str(root)]).locate("a.txt")
    signal = AbortSignal()
    error_codes: list[ToolErrorType] = []

    def wait() -> None:
        try:
            with exclusive(location, signal):
                pass
        except ToolError as error:
            error_codes.append(error.code)

    with exclusive(location, AbortSignal()):
        thread = threading.Thread(target=wait)
        thread.start()
        signal.abort()
        thread.join()
    assert error_codes == [ToolErrorType.CANCELLED]
    with exclusive(location, AbortSignal()):
        assert error_codes == [ToolErrorType.CANCELLED]
