"""The one opener: containment by real path, other readings of a path, regular files only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.contract.errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.filesystem.workspace import Workspace, contains


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


def code_of(workspace: Workspace, spelled: str) -> ToolErrorType:
    with pytest.raises(ToolError) as caught, workspace.open_file(workspace.locate(spelled)):
        pass
    return caught.value.code


@pytest.mark.requirement("paths.contained")
def test_links_and_dots_that_lead_out_are_refused(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "secret.txt")
    workspace = Workspace([str(root)])
    for spelled in ("../outside/secret.txt", "link/secret.txt", "file-link", str(outside / "secret.txt"), "link/new"):
        with pytest.raises(PathNotInWorkspaceError):
            workspace.locate(spelled)


@pytest.mark.requirement("paths.contained")
def test_a_sibling_with_the_same_beginning_is_outside(root: Path) -> None:
    sibling = root.with_name(root.name + "-two")
    sibling.mkdir()
    assert not contains(str(root), str(sibling))
    with pytest.raises(PathNotInWorkspaceError):
        Workspace([str(root)]).locate(str(sibling / "a"))


@pytest.mark.requirement("paths.links_inside")
def test_links_that_stay_inside_are_followed(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "a.txt").write_text("a")
    (root / "link").symlink_to(root / "real")
    (root / "up").symlink_to(Path("real") / ".." / "real")
    workspace = Workspace([str(root)])
    assert workspace.locate("link/a.txt").path == str(root / "real" / "a.txt")
    assert workspace.locate("up/a.txt").path == str(root / "real" / "a.txt")
    assert workspace.locate("link/new.txt").path == str(root / "real" / "new.txt")


@pytest.mark.requirement("paths.linked_root")
def test_a_root_that_is_itself_a_link_is_resolved(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("a")
    (tmp_path / "linked").symlink_to(root)
    workspace = Workspace([str(tmp_path / "linked")])
    assert workspace.locate(str(tmp_path / "linked" / "a.txt")).relative == "a.txt"
    assert workspace.locate(str(root / "a.txt")).relative == "a.txt"


@pytest.mark.requirement("paths.readings")
def test_the_literal_name_comes_before_other_readings(root: Path) -> None:
    workspace = Workspace([str(root)])
    (root / "my file.txt").write_text("spaced")
    assert workspace.locate("my\\ file.txt").path == str(root / "my file.txt")
    (root / "my\\ file.txt").write_text("literal")
    assert workspace.locate("my\\ file.txt").path == str(root / "my\\ file.txt")
    assert workspace.locate("  my file.txt ").path == str(root / "my file.txt")
    assert workspace.locate("100%20done").path == str(root / "100%20done")


@pytest.mark.requirement("paths.nested_roots")
def test_the_innermost_root_owns_a_path(root: Path) -> None:
    (root / "inner").mkdir()
    workspace = Workspace([str(root), str(root / "inner")])
    assert workspace.locate(str(root / "inner" / "a")).root == str(root / "inner")


@pytest.mark.requirement("paths.special")
def test_only_regular_files_are_opened_and_never_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "loop").symlink_to("loop")
    workspace = Workspace([str(root)])
    assert code_of(workspace, "pipe") is ToolErrorType.READ_CONTENT_FAILURE
    assert code_of(workspace, "folder") is ToolErrorType.TARGET_IS_DIRECTORY
    assert code_of(workspace, "nothing") is ToolErrorType.FILE_NOT_FOUND
    assert code_of(workspace, "loop") is ToolErrorType.READ_CONTENT_FAILURE
    assert code_of(workspace, "x" * 5000) is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("paths.special")
@pytest.mark.parametrize("spelled", ["", "  ", "a\0b", "many/../" * 10_000], ids=["empty", "blank", "nul", "long"])
def test_a_path_that_cannot_be_one_is_refused(spelled: str, root: Path) -> None:
    with pytest.raises(ToolError) as caught:
        Workspace([str(root)]).locate(spelled)
    assert caught.value.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("paths.no_root")
def test_without_a_root_the_problem_is_told() -> None:
    with pytest.raises(ToolError, match="set this") as caught:
        Workspace([], "You have to set this.").locate("a")
    assert caught.value.code is ToolErrorType.NO_WORKSPACE
