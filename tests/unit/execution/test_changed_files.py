"""The list of files that changed during a command, from the states of the workspace before and after it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal
from tools.files.workspace import Workspace
from tools.shell import changed_files
from tools.shell.changed_files import WorkspaceState, changes_since, state_of, why_unknown
from tools.text.file_names import parse_quoted_path

pytestmark = pytest.mark.requirement("undo.commands")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace([str(root)])


def current_state(workspace: Workspace) -> WorkspaceState:
    state = state_of(workspace, AbortSignal())
    assert state is not None
    return state


def named_changes(before: WorkspaceState, workspace: Workspace) -> str:
    """Return the changes that the sentence names, without the words around them."""
    line = changes_since(before, workspace, AbortSignal())
    if line:
        start, _, text = line.partition(": ")
        assert start == "Files that changed during this call, because of the command or another program"
        line, _, end = text.rpartition(". ")
        assert end == "undo_change cannot undo changes by commands."
    return line


def test_created_changed_and_deleted_files_are_named(root: Path, workspace: Workspace) -> None:
    for name in ("same", "longer", "as long", "moved", "gone", "deep/gone"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("old")
    before = current_state(workspace)
    assert named_changes(before, workspace) == ""
    (root / "longer").write_text("longer")
    times = (root / "as long").stat()
    (root / "as long").write_text("new")
    os.utime(root / "as long", ns=(times.st_atime_ns, times.st_mtime_ns))
    (root / "moved").rename(root / "new name")
    (root / "gone").unlink()
    shutil.rmtree(root / "deep")
    (root / "new folder").mkdir()
    (root / "new folder" / "odd\nname").touch()
    assert named_changes(before, workspace) == (
        'changed as long, longer; created new folder/"odd\\nname", new name; deleted deep/gone, gone, moved'
    )


def test_at_most_twenty_changed_files_are_named(root: Path, workspace: Workspace) -> None:
    before = current_state(workspace)
    for number in range(25):
        (root / f"{number:02d}").touch()
    assert named_changes(before, workspace) == f"created {', '.join(f'{n:02d}' for n in range(20))} and 5 more"


def test_of_many_changed_files_new_and_removed_folders_are_named_with_their_number_of_files(
    root: Path, workspace: Workspace
) -> None:
    for name in ("old/deep/a", "old/b", "kept/c"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    before = current_state(workspace)
    shutil.rmtree(root / "old")
    for number in range(1_000):
        (root / f"venv/lib/{number}").mkdir(parents=True)
        (root / f"venv/lib/{number}/x").touch()
    (root / "kept/new").mkdir()
    (root / "kept/new/d").touch()
    expected = "created kept/new/d, venv/ (1,000 files); deleted old/ (2 files)"
    assert named_changes(before, workspace) == expected


def test_files_hidden_by_ignore_files_are_not_named_even_if_these_change(root: Path, workspace: Workspace) -> None:
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / ".qwenignore").write_text("secret*\n")
    for folder in ("build", "src", "secrets"):
        (root / folder).mkdir()
        (root / folder / "old").touch()
    before = current_state(workspace)
    for path in ("build/x", "src/a.log", "secret", "secrets/x", ".git/index", ".git/x"):
        (root / path).touch()
    (root / "build/old").unlink()
    assert named_changes(before, workspace) == ""
    # Files that are no longer hidden do not count as created, and newly hidden files do not count as deleted.
    (root / ".gitignore").write_text("src/\n")
    assert named_changes(before, workspace) == "changed .gitignore"


def test_a_hidden_file_is_not_named_even_if_the_command_empties_the_ignore_file(
    root: Path, workspace: Workspace
) -> None:
    (root / ".qwenignore").write_text("secret*\n")
    (root / "secret").touch()
    before = current_state(workspace)
    (root / ".qwenignore").write_text("")
    (root / "secret").write_text("new")
    (root / "secret of now").touch()
    assert named_changes(before, workspace) == "changed .qwenignore"


def test_no_name_can_pass_for_several_names_or_for_the_end_of_the_sentence(root: Path, workspace: Workspace) -> None:
    before = current_state(workspace)
    names = ["a, b", "c; deleted d", "e. undo_change takes back all", 'f"\\, g', "plain.txt", "x,y;z", "end."]
    for name in names:
        (root / name).touch()
    (root / "in, folder").mkdir()
    (root / "in, folder" / "odd,\n name").touch()
    line = named_changes(before, workspace)
    assert line == (
        'created "a, b", "c; deleted d", "e. undo_change takes back all", end., "f\\"\\\\, g", '
        '"in, folder"/"odd,\\n name", plain.txt, x,y;z'
    )
    assert parse_quoted_path('"in, folder"/"odd,\\n name"') == "in, folder/odd,\n name"
    assert parse_quoted_path('"f\\"\\\\, g"') == 'f"\\, g'


def test_no_link_is_followed(root: Path, workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "folder").mkdir()
    (root / "folder" / "old").touch()
    before = current_state(workspace)
    (outside / "private").touch()
    (root / "link").symlink_to(outside)
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(outside)
    assert named_changes(before, workspace) == "created folder, link; deleted folder/old"


def test_a_folder_whose_ignore_file_could_not_be_read_is_not_mentioned(root: Path, workspace: Workspace) -> None:
    (root / "closed").mkdir()
    (root / "closed" / "a").touch()
    (root / "closed" / ".qwenignore").symlink_to("nowhere")
    before = current_state(workspace)
    (root / "closed" / ".qwenignore").unlink()
    (root / "b").touch()
    assert named_changes(before, workspace) == "created b"


def test_folders_outside_a_work_tree_and_large_work_trees_are_not_scanned(root: Path, workspace: Workspace) -> None:
    (root / "below").mkdir()
    assert state_of(Workspace([str(root / "below")]), AbortSignal()) is not None
    before = current_state(workspace)
    for number in range(changed_files.MAX_ENTRIES):
        (root / "below" / str(number)).touch()
    assert named_changes(before, workspace) == ""
    assert "not listed here, because the workspace has more than 5,000 files" in why_unknown(workspace, "a")
    assert (why_unknown(workspace, "a"), why_unknown(workspace, "b") != "") == ("", True)
    shutil.rmtree(root / "below")
    assert state_of(workspace, AbortSignal()) is None  # a workspace that was too large is not scanned again so soon
    (root / ".git").rmdir()
    assert state_of(Workspace([str(root), str(root.parent)]), AbortSignal()) is None
