"""Writers that are killed, disks that fail, folders that are read-only: a file has its whole old or new content."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import PEERS
from tools.builtin.edit import WriteFileTool
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.builtin.search_tools import GlobTool, GrepTool, LSTool
from tools.call.base_tool import BaseTool, ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import REAL_DISK, Disk, replace_file
from tools.files.path_opener import Folder, identity_of
from tools.files.workspace import Workspace

WRITERS = 240
"""At least 200 are killed; a few survive on purpose."""
LENGTH = 8 * 4096


@pytest.fixture
def workspace(root: Path) -> Workspace:
    (root / "file.txt").write_bytes(b"old")
    return Workspace([str(root)])


def write(workspace: Workspace, path: str, content: bytes, disk: Disk = REAL_DISK) -> None:
    location = workspace.locate(path)
    info = workspace.stat(location)
    replace_file(workspace, location, content, identity_of(info) if info else None, disk)


@pytest.mark.long
@pytest.mark.requirement("write.atomic")
def test_a_writer_killed_at_any_step_leaves_whole_content_and_the_next_one_removes_its_leftovers(
    root: Path, workspace: Workspace
) -> None:
    (root / "file.txt").write_bytes(b"a" * LENGTH)
    command = [sys.executable, "-P", str(PEERS / "killed_writer.py"), str(root), str(WRITERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        outcomes: list[bytes] = []
        for outcome in process.stdout:
            outcomes.append(outcome.strip())
            content = (root / "file.txt").read_bytes()
            assert len(content) == LENGTH
            assert len(set(content)) == 1
    assert len(outcomes) == WRITERS
    assert outcomes.count(b"killed") >= 200
    assert outcomes.count(b"wrote") > 0
    write(workspace, "file.txt", b"last")
    assert os.listdir(root) == ["file.txt"]


@pytest.mark.requirement("write.atomic")
def test_a_leftover_is_removed_by_the_next_write_in_its_folder_only(root: Path, workspace: Workspace) -> None:
    (root / "other").mkdir()
    leftover = ".coretools-0123456789abcdef.tmp"
    for folder in (root, root / "other"):
        (folder / leftover).write_bytes(b"half")
    (root / ".coretools-mine.tmp").write_bytes(b"not ours")
    write(workspace, "file.txt", b"new")
    assert sorted(os.listdir(root)) == [".coretools-mine.tmp", "file.txt", "other"]
    assert os.listdir(root / "other") == [leftover]


@pytest.mark.requirement("write.atomic")
def test_the_temporary_file_of_a_living_writer_is_left_alone(root: Path, workspace: Workspace) -> None:
    counts: list[int] = []

    def write_another(descriptor: int, data: memoryview) -> int:
        write(workspace, f"other-{len(counts)}.txt", b"meanwhile")
        counts.append(len([name for name in os.listdir(root) if name.startswith(".coretools-")]))
        return os.write(descriptor, data)

    write(workspace, "file.txt", b"new", Disk(write=write_another))
    assert counts == [1]
    assert (root / "file.txt").read_bytes() == b"new"


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(number, "made up")

    return fail


def full_after(room: int) -> Callable[[int, memoryview], int]:
    """Return a `write` for a disk with room for only so many bytes."""
    remaining = [room]

    def write_some(descriptor: int, data: memoryview) -> int:
        if not remaining[0]:
            raise OSError(errno.ENOSPC, "made up")
        count = os.write(descriptor, data[: remaining[0]])
        remaining[0] -= count
        return count

    return write_some


def no_rename(folder: Folder, source: str, target: str, replacing: bool) -> None:
    del folder, source, target, replacing
    raise OSError(errno.EIO, "made up")


@pytest.mark.requirement("write.errors")
@pytest.mark.parametrize("path", ["file.txt", "new.txt", "made/for/it.txt"])
@pytest.mark.parametrize(
    ("disk", "code"),
    [
        pytest.param(Disk(write=failing(errno.ENOSPC)), ToolErrorType.NO_SPACE_LEFT, id="full"),
        pytest.param(Disk(write=failing(errno.EDQUOT)), ToolErrorType.NO_SPACE_LEFT, id="quota"),
        pytest.param(Disk(write=failing(errno.EFBIG)), ToolErrorType.FILE_WRITE_FAILURE, id="size limit"),
        pytest.param(Disk(write=failing(errno.EIO)), ToolErrorType.FILE_WRITE_FAILURE, id="error in writing"),
        pytest.param(Disk(sync=failing(errno.EIO)), ToolErrorType.FILE_WRITE_FAILURE, id="error in syncing"),
        pytest.param(Disk(rename=no_rename), ToolErrorType.FILE_WRITE_FAILURE, id="error in renaming"),
        pytest.param(Disk(write=failing(errno.EROFS)), ToolErrorType.PERMISSION_DENIED, id="read-only"),
    ],
)
def test_a_disk_error_leaves_the_old_content_and_nothing_else(
    path: str, disk: Disk, code: ToolErrorType, root: Path, workspace: Workspace
) -> None:
    with pytest.raises(ToolError) as error_info:
        write(workspace, path, b"new content", disk)
    assert error_info.value.code is code
    assert "made up" not in error_info.value.message
    assert os.listdir(root) == ["file.txt"]
    assert (root / "file.txt").read_bytes() == b"old"


@pytest.mark.requirement("write.errors")
def test_a_disk_that_fills_up_half_way_leaves_the_old_content_and_nothing_else(
    root: Path, workspace: Workspace
) -> None:
    with pytest.raises(ToolError) as error_info:
        write(workspace, "file.txt", b"x" * 1000, Disk(write=full_after(400)))
    assert error_info.value.code is ToolErrorType.NO_SPACE_LEFT
    assert os.listdir(root) == ["file.txt"]
    assert (root / "file.txt").read_bytes() == b"old"


@pytest.mark.requirement("write.errors")
def test_a_disk_that_accepts_few_bytes_at_a_time_gets_all_of_them(root: Path, workspace: Workspace) -> None:
    write(workspace, "file.txt", bytes(range(256)), Disk(write=lambda to, data: os.write(to, data[:7])))
    assert (root / "file.txt").read_bytes() == bytes(range(256))


@pytest.mark.requirement("write.expected_sha256")
def test_a_file_that_appears_while_a_new_one_is_written_is_not_replaced(root: Path, workspace: Workspace) -> None:
    def rename_late(folder: Folder, source: str, target: str, replacing: bool) -> None:
        (root / target).write_bytes(b"somebody else's")
        REAL_DISK.rename(folder, source, target, replacing)

    with pytest.raises(ToolError) as error_info:
        write(workspace, "new.txt", b"ours", Disk(rename=rename_late))
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert (root / "new.txt").read_bytes() == b"somebody else's"
    assert sorted(os.listdir(root)) == ["file.txt", "new.txt"]


@pytest.mark.requirement("write.mode")
def test_extended_attributes_are_kept(root: Path, workspace: Workspace) -> None:
    os.setxattr(root / "file.txt", "user.note", b"kept")
    write(workspace, "file.txt", b"new")
    assert os.getxattr(root / "file.txt", "user.note") == b"kept"


@pytest.mark.requirement("write.mode")
def test_if_the_group_cannot_be_kept_its_rights_are_removed() -> None:
    # Not in pytest's folder, which other users cannot enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "shared.txt"
        path.write_text("one")
        path.chmod(0o664)
        command = [sys.executable, "-P", str(PEERS / "member_of_none.py"), str(path)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert process.stdout == "644\n"


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """Return a POSIX access list in the kernel's format, from (tag, rights, ID of the user or group)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NO_ID = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHERS = 1, 2, 4, 16, 32


@pytest.mark.requirement("write.mode")
def test_a_default_access_list_of_the_folder_gives_nobody_rights_to_a_file_that_is_rewritten(
    root: Path, workspace: Workspace
) -> None:
    path = root / "file.txt"
    path.chmod(0o640)
    entries = [(OWNER, 7, NO_ID), (USER, 6, 1234), (GROUP, 5, NO_ID), (MASK, 7, NO_ID), (OTHERS, 0, NO_ID)]
    os.setxattr(root, "system.posix_acl_default", access_list(*entries))
    write(workspace, "file.txt", b"two")
    assert "system.posix_acl_access" not in os.listxattr(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.anyio
@pytest.mark.requirement("write.atomic")
async def test_a_temporary_file_is_hidden_from_every_tool(root: Path, context: ToolContext) -> None:
    leftover = ".coretools-0123456789abcdef.tmp"
    (root / leftover).write_text("needle SECRET")
    (root / "a.txt").write_text("needle")
    calls: list[tuple[BaseTool[Any], dict[str, Any]]] = [
        (LSTool(), {"path": "."}),
        (GlobTool(), {"pattern": "**"}),
        (GrepTool(), {"pattern": "needle"}),
        (ReadManyFilesTool(), {"paths": ["."]}),
    ]
    for tool, arguments in calls:
        result = await tool.execute(tool.validate_tool_params(arguments), context)
        assert "a.txt" in str(result.llm_content), tool.name
        assert leftover not in f"{result.llm_content}{result.structured}", tool.name
        assert "SECRET" not in str(result.llm_content), tool.name
    refused_calls: list[tuple[BaseTool[Any], dict[str, Any]]] = [
        (ReadFileTool(), {"file_path": leftover}),
        (WriteFileTool(), {"file_path": leftover, "content": "x"}),
    ]
    for tool, arguments in refused_calls:
        with pytest.raises(ToolError) as error_info:
            await tool.execute(tool.validate_tool_params(arguments), context)
        assert error_info.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.anyio
@pytest.mark.requirement("write.atomic")
async def test_nothing_can_be_put_into_a_folder_that_is_hidden_by_its_name(root: Path, context: ToolContext) -> None:
    folder = ".coretools-0123456789abcdef.tmp"
    (root / "inner").mkdir()
    (root / folder).mkdir()
    (root / folder / "old.txt").write_text("SECRET")
    (root / "link").symlink_to(folder)
    for path in (f"{folder}/new.txt", f"inner/{folder}/deep/new.txt", f"{folder}/old.txt", "link/old.txt", "link/n"):
        calls: list[tuple[BaseTool[Any], dict[str, Any]]] = [
            (WriteFileTool(), {"file_path": path, "content": "x"}),
            (ReadFileTool(), {"file_path": path}),
            (LSTool(), {"path": os.path.dirname(path)}),
        ]
        for tool, arguments in calls:
            with pytest.raises(ToolError) as error_info:
                await tool.execute(tool.validate_tool_params(arguments), context)
            assert error_info.value.code is ToolErrorType.PATH_IGNORED, (tool.name, path)
    assert os.listdir(root / "inner") == []
    assert os.listdir(root / folder) == ["old.txt"]
