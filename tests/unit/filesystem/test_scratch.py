"""The client's own `/tmp`: how the workspace resolves its names and links, and when there is no such folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.change.writer import replace_file
from tools.files.find.path_suggestions import entries_that_start_with, missing_path_error
from tools.files.path_opener import from_memory
from tools.files.workspace import Location, Scratch, Workspace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="not run: there is no /tmp here")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The path of a scratch folder that does not exist yet."""
    return tmp_path.resolve() / "client" / "tmp"


@pytest.fixture
def workspace(outer_root: Path, scratch: Path) -> Workspace:
    scratch_folder = Scratch(str(scratch), partial(os.makedirs, scratch, exist_ok=True))
    return Workspace([str(outer_root)], readable=[str(scratch.parent)], scratch=scratch_folder)


@pytest.fixture
def machine_file(tmp_path: Path) -> Path:
    """A file in the machine's own `/tmp`."""
    file = tmp_path.resolve() / "machines-own.txt"
    if not file.is_relative_to("/tmp"):
        pytest.skip("not run: the files of tests are not below /tmp")
    file.write_text("of somebody else")
    return file


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in the machine's own `/tmp` that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


def content(workspace: Workspace, location: Location) -> bytes:
    with workspace.open_file(location) as file:
        return file.stream.read()


@pytest.mark.requirement("scratch.names")
@pytest.mark.parametrize(
    "spelling",
    ["/tmp/a b.txt", "//tmp/a b.txt", "/tmp/./x/../a b.txt", "/tmp/../tmp/a b.txt", '"/tmp/a b.txt"', r"/tmp/a\ b.txt"],
)
def test_a_name_is_resolved_however_it_is_spelled(workspace: Workspace, scratch: Path, spelling: str) -> None:
    scratch.mkdir(parents=True)
    (scratch / "a b.txt").write_text("here")
    location = workspace.locate(spelling)
    assert (location.path, location.name, location.in_scratch) == (str(scratch / "a b.txt"), "/tmp/a b.txt", True)
    assert content(workspace, location) == b"here"
    assert workspace.at(location.name) == workspace.at(location.path)
    assert workspace.at(location.path).shown == "/tmp/a b.txt"


@pytest.mark.requirement("scratch.names")
def test_the_folder_is_not_a_root_and_can_be_reached_by_a_climbing_path(workspace: Workspace, outer_root: Path) -> None:
    assert [location.path for location in workspace.root_locations()] == [str(outer_root)]
    climbing_path = os.path.join(*[".."] * (len(outer_root.parts) - 1), "tmp", "a.txt")
    assert workspace.locate(climbing_path).name == "/tmp/a.txt"
    for path in ("/tmpfile", "/tmp/../etc/passwd", "/var/tmp/a"):
        with pytest.raises(PathNotInWorkspaceError):
            workspace.locate(path)


@pytest.mark.requirement("scratch.owner")
def test_the_folder_is_created_on_first_use_but_not_during_a_read_from_memory(
    workspace: Workspace, scratch: Path
) -> None:
    assert not scratch.exists()
    assert from_memory(lambda: workspace.locate("/tmp/a.txt")) is None
    assert not scratch.exists()
    location = workspace.locate("/tmp/sub/a.txt")
    replace_file(workspace, location, b"new", None)
    assert (scratch / "sub" / "a.txt").read_bytes() == b"new"


@pytest.mark.requirement("scratch.links")
def test_links_are_followed_as_commands_follow_them(
    workspace: Workspace, scratch: Path, outer_root: Path, machine_file: Path
) -> None:
    (scratch / "sub").mkdir(parents=True)
    (scratch / "a.txt").write_text("here")
    (outer_root / "in-workspace.txt").write_text("x")
    inside_links = {
        "relative": "a.txt",
        "absolute": "/tmp/a.txt",
        "around": "/tmp/../tmp/./a.txt",
        "climbing": "../../../../tmp/a.txt",
        "through-root": "/proc/self/root/tmp/a.txt",
        "twice": "/tmp/absolute",
        "sub/up": "../a.txt",
    }
    for name, target in inside_links.items():
        (scratch / name).symlink_to(target)
        location = workspace.locate(f"/tmp/{name}")
        assert (location.path, content(workspace, location)) == (str(scratch / "a.txt"), b"here"), name
    (scratch / "folder").symlink_to("/tmp/sub")
    assert workspace.locate("/tmp/folder/new.txt").path == str(scratch / "sub" / "new.txt")
    outside_links = {
        "system": "/etc/passwd",
        "above": "../..",
        "root": "/",
        "workspace": str(outer_root / "in-workspace.txt"),
        "real": f"/proc/self/cwd/{'../' * 20}{machine_file.parent.parent}",
    }
    for name, target in outside_links.items():
        (scratch / name).symlink_to(target)
    for name in ("system", "above", "root/etc/passwd", "workspace", "above/x/y"):
        with pytest.raises(PathNotInWorkspaceError) as error_info:
            workspace.locate(f"/tmp/{name}")
        assert str(scratch) not in str(error_info.value)
    # For commands, this link leads into their own /tmp, where the file does not exist. The same is true for tools.
    (scratch / "machines-own.txt").symlink_to(machine_file)
    for name in ("machines-own.txt", f"real/{machine_file.name}"):
        location = workspace.locate(f"/tmp/{name}")
        assert location.path.startswith(f"{scratch}/")
        with pytest.raises(ToolError, match="does not exist"):
            workspace.open_file(location)


@pytest.mark.requirement("scratch.links")
def test_a_link_created_meanwhile_is_not_followed_to_the_machines_own_tmp(
    workspace: Workspace, scratch: Path, machine_file: Path
) -> None:
    (scratch / "sub").mkdir(parents=True)
    (scratch / "sub" / machine_file.name).write_text("here")
    location = workspace.locate(f"/tmp/sub/{machine_file.name}")
    (scratch / "sub").rename(scratch / "moved")
    (scratch / "sub").symlink_to(machine_file.parent)
    with pytest.raises(PathNotInWorkspaceError) as error_info:
        workspace.open_file(location)
    assert str(scratch) not in str(error_info.value)
    assert workspace.kind_of(location) is None
    assert not workspace.has(workspace.locate("/tmp"), f"sub/{machine_file.name}")
    with pytest.raises(ToolError):
        replace_file(workspace, location, b"changed", None)
    assert machine_file.read_text() == "of somebody else"


@pytest.mark.requirement("scratch.links")
def test_a_link_in_the_workspace_does_not_lead_into_the_scratch_folder(
    workspace: Workspace, outer_root: Path, scratch: Path
) -> None:
    scratch.mkdir(parents=True)
    (scratch / "a.txt").write_text("here")
    (outer_root / "link").symlink_to("/tmp/a.txt")
    with pytest.raises(PathNotInWorkspaceError):
        workspace.locate("link")


@pytest.mark.requirement("scratch.links")
def test_the_error_for_a_missing_file_says_whether_the_machines_tmp_has_it(
    workspace: Workspace, scratch: Path, open_folder: Path
) -> None:
    machine_file = open_folder / "machines-own.txt"
    machine_file.write_text("of somebody else")
    with pytest.raises(ToolError) as error_info:
        workspace.open_file(workspace.locate(str(machine_file)))
    assert error_info.value.code is ToolErrorType.FILE_NOT_FOUND
    assert error_info.value.message == (
        f"'{machine_file}' does not exist. It exists in the machine's own /tmp, which tools cannot see. The user can "
        "copy it into the workspace."
    )
    (scratch / "link").symlink_to(
        machine_file
    )  # the error mentions the machine's /tmp only if the caller named the file directly
    for name in ("/tmp/link", "/tmp/nowhere-at-all"):
        with pytest.raises(ToolError) as error_info:
            workspace.open_file(workspace.locate(name))
        assert "machine" not in error_info.value.message


@pytest.mark.requirement("scratch.links")
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed to others", "the server's own"])
def test_the_error_for_a_file_in_a_private_folder_is_the_one_for_a_missing_file(
    outer_root: Path, scratch: Path, open_folder: Path, is_closed: bool
) -> None:
    private = open_folder / "private"
    (private / "client").mkdir(parents=True, mode=0o755)
    private.chmod(0o700 if is_closed else 0o755)
    (private / "client" / "output").write_text("of another client")
    (open_folder / "link").symlink_to(private)
    scratch_folder = Scratch(str(scratch), partial(os.makedirs, scratch, exist_ok=True))
    workspace = Workspace([str(outer_root)], private=[] if is_closed else [str(private)], scratch=scratch_folder)
    assert content_error(workspace, open_folder / "link" / "client") == content_error(workspace, private / "absent")
    for name in ("", "client", "client/output"):
        assert content_error(workspace, private / name) == content_error(workspace, private / "absent"), name


def content_error(workspace: Workspace, path: Path) -> str:
    """Return the whole error for a missing file, with the path replaced."""
    location = workspace.locate(str(path))
    with pytest.raises(ToolError) as error_info:
        workspace.open_file(location)
    whole = error_info.value.message + str(missing_path_error(workspace, location, AbortSignal()).message)
    return whole.replace(str(path), "PATH")


@pytest.mark.requirement("scratch.work")
def test_temporary_files_of_commands_in_var_tmp_can_be_read_but_not_written(outer_root: Path, scratch: Path) -> None:
    work = scratch.parent / "work"
    scratch_folder = Scratch(str(scratch), partial(os.makedirs, scratch, exist_ok=True), str(work))
    forbidden_paths = {"/var/tmp/logs/key"}
    workspace = Workspace(
        [str(outer_root)],
        readable=[str(scratch.parent)],
        scratch=scratch_folder,
        forbidden=lambda path: path if path in forbidden_paths else None,
    )
    with pytest.raises(PathNotInWorkspaceError):
        workspace.locate("/var/tmp/logs/a.log")
    (work / "logs").mkdir(parents=True)
    (work / "logs/a.log").write_text("here")
    (work / "logs/out").symlink_to("/etc")
    for path in ("/var/tmp/logs/a.log", "//var/tmp/./logs/a.log", "/var/../var/tmp/logs/a.log"):
        location = workspace.locate(path)
        assert content(workspace, location) == b"here"
        with pytest.raises(PathNotInWorkspaceError):
            workspace.refuse_to_write(location)
    for path in ("/var/tmp/../lib", "/var/tmp/logs/out/passwd", "/var/tmpx"):
        with pytest.raises(PathNotInWorkspaceError):
            workspace.locate(path)
    assert workspace.rule_about_reading(workspace.locate("/var/tmp/logs/key")) == "the /var/tmp/logs/key"


@pytest.mark.requirement("scratch.absent")
def test_a_workspace_below_tmp_has_no_scratch_folder_and_the_error_says_why(
    root: Path, outer_root: Path, scratch: Path
) -> None:
    if not root.is_relative_to("/tmp"):
        pytest.skip("not run: the files of tests are not below /tmp")
    workspace = Workspace([str(outer_root), str(root)], scratch=Scratch(str(scratch), partial(os.makedirs, scratch)))
    (root / "a.txt").write_text("in the workspace")
    assert content(workspace, workspace.locate(str(root / "a.txt"))) == b"in the workspace"
    with pytest.raises(PathNotInWorkspaceError, match="This workspace is in /tmp, so files that commands put"):
        workspace.locate("/tmp/a.txt")
    with pytest.raises(PathNotInWorkspaceError) as error_info:
        workspace.locate("/etc/passwd")
    assert "/tmp, so" not in error_info.value.message
    assert not scratch.exists()


@pytest.mark.requirement("scratch.names")
def test_rules_about_reading_get_the_names_below_tmp(outer_root: Path, scratch: Path) -> None:
    checked_paths: list[str] = []
    scratch_folder = Scratch(str(scratch), partial(os.makedirs, scratch, exist_ok=True))
    workspace = Workspace([str(outer_root)], scratch=scratch_folder, forbidden=checked_paths.append)
    assert workspace.forbidden is not None
    for path in (str(scratch), str(scratch / "a"), str(outer_root / "a"), f"{scratch}-other"):
        workspace.forbidden(path)
    assert checked_paths == ["/tmp", "/tmp/a", str(outer_root / "a"), f"{scratch}-other"]


@pytest.mark.requirement("scratch.names")
def test_names_in_the_scratch_folder_are_completed(workspace: Workspace, scratch: Path) -> None:
    scratch.mkdir(parents=True)
    for name in ("apple.txt", "other.txt"):
        (scratch / name).touch()
    (scratch / "a-link").symlink_to("/tmp/apple.txt")
    (scratch / "a-way-out").symlink_to("/etc/passwd")
    completions = entries_that_start_with(workspace, workspace.locate("/tmp"), "a", 10, AbortSignal())
    assert completions.names == ("a-link", "apple.txt")


@pytest.mark.requirement("scratch.names")
def test_a_uri_means_exactly_one_file_of_the_scratch_folder(workspace: Workspace, scratch: Path) -> None:
    scratch.mkdir(parents=True)
    (scratch / "a.txt").touch()
    (scratch / "link").symlink_to("/tmp/a.txt")
    (scratch / "z.txt").touch()
    for path in ("/tmp", "/tmp/a.txt", "/tmp/link"):
        assert workspace.locate_exactly(path).in_scratch
    for path in ("/tmp/b.txt", "/tmp/a.txt ", '"/tmp/a.txt"', '"/tmp/z.txt"', " /tmp/z.txt", "/tmp/z\\.txt"):
        with pytest.raises(ToolError, match="does not exist"):
            workspace.locate_exactly(path)
