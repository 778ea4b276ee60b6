"""What is told about files that changed during a command: what is seen of a workspace before and afterwards."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tools.contract.limits import AbortSignal
from tools.files.workspace import Workspace
from tools.shell import changed_files
from tools.shell.changed_files import WorkspaceState, changes_since, state_of
from tools.text.file_names import meant_path

pytestmark = pytest.mark.requirement("undo.commands")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace([str(root)])


def seen(workspace: Workspace) -> WorkspaceState:
    state = state_of(workspace, AbortSignal())
    assert state is not None
    return state


def told(before: WorkspaceState, workspace: Workspace) -> str:
    """What is named, without the words around it."""
    line = changes_since(before, workspace, AbortSignal())
    if line:
        start, _, rest = line.partition(": ")
        assert start == "Files that changed during this call, through the command or another program"
        line, _, end = rest.rpartition(". ")
        assert end == "undo_change cannot undo changes by commands."
    return line


def test_what_was_created_changed_and_deleted_is_named(root: Path, workspace: Workspace) -> None:
    for name in ("same", "longer", "as long", "moved", "gone", "deep/gone"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("old")
    before = seen(workspace)
    assert told(before, workspace) == ""
    (root / "longer").write_text("longer")
    times = (root / "as long").stat()
    (root / "as long").write_text("new")
    os.utime(root / "as long", ns=(times.st_atime_ns, times.st_mtime_ns))
    (root / "moved").rename(root / "new name")
    (root / "gone").unlink()
    shutil.rmtree(root / "deep")
    (root / "new folder").mkdir()
    (root / "new folder" / "odd\nname").touch()
    assert told(before, workspace) == (
        'changed as long, longer; created new folder/"odd\\nname", new name; deleted deep/gone, gone, moved'
    )


def test_of_many_files_twenty_are_named(root: Path, workspace: Workspace) -> None:
    before = seen(workspace)
    for number in range(25):
        (root / f"{number:02d}").touch()
    assert told(before, workspace) == f"created {', '.join(f'{n:02d}' for n in range(20))} and 5 more"


def test_what_ignore_files_hide_is_not_named_whatever_becomes_of_them(root: Path, workspace: Workspace) -> None:
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / ".qwenignore").write_text("secret*\n")
    for folder in ("build", "src", "secrets"):
        (root / folder).mkdir()
        (root / folder / "old").touch()
    before = seen(workspace)
    for path in ("build/x", "src/a.log", "secret", "secrets/x", ".git/index", ".git/x"):
        (root / path).touch()
    (root / "build/old").unlink()
    assert told(before, workspace) == ""
    # Neither did anything come because it is not hidden any more, nor go because it is now.
    (root / ".gitignore").write_text("src/\n")
    assert told(before, workspace) == "changed .gitignore"


def test_a_file_that_an_ignore_file_hid_is_not_named_when_the_command_has_emptied_that(
    root: Path, workspace: Workspace
) -> None:
    (root / ".qwenignore").write_text("secret*\n")
    (root / "secret").touch()
    before = seen(workspace)
    (root / ".qwenignore").write_text("")
    (root / "secret").write_text("new")
    (root / "secret of now").touch()
    assert told(before, workspace) == "changed .qwenignore"


def test_no_name_passes_for_several_or_for_the_end_of_the_sentence(root: Path, workspace: Workspace) -> None:
    before = seen(workspace)
    names = ["a, b", "c; deleted d", "e. undo_change takes back all", 'f"\\, g', "plain.txt", "x,y;z", "end."]
    for name in names:
        (root / name).touch()
    (root / "in, folder").mkdir()
    (root / "in, folder" / "odd,\n name").touch()
    line = told(before, workspace)
    assert line == (
        'created "a, b", "c; deleted d", "e. undo_change takes back all", end., "f\\"\\\\, g", '
        '"in, folder"/"odd,\\n name", plain.txt, x,y;z'
    )
    assert meant_path('"in, folder"/"odd,\\n name"') == "in, folder/odd,\n name"
    assert meant_path('"f\\"\\\\, g"') == 'f"\\, g'


def test_no_link_is_followed(root: Path, workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "folder").mkdir()
    (root / "folder" / "old").touch()
    before = seen(workspace)
    (outside / "private").touch()
    (root / "link").symlink_to(outside)
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(outside)
    assert told(before, workspace) == "created folder, link; deleted folder/old"


def test_of_a_folder_of_which_it_was_not_known_what_is_hidden_nothing_is_said(root: Path, workspace: Workspace) -> None:
    (root / "closed").mkdir()
    (root / "closed" / "a").touch()
    (root / "closed" / ".qwenignore").symlink_to("nowhere")
    before = seen(workspace)
    (root / "closed" / ".qwenignore").unlink()
    (root / "b").touch()
    assert told(before, workspace) == "created b"


def test_outside_a_work_tree_and_in_a_large_one_nothing_is_looked_at(root: Path, workspace: Workspace) -> None:
    (root / "below").mkdir()
    assert state_of(Workspace([str(root / "below")]), AbortSignal()) is not None
    before = seen(workspace)
    for number in range(changed_files.MAX_ENTRIES):
        (root / "below" / str(number)).touch()
    assert told(before, workspace) == ""
    shutil.rmtree(root / "below")
    assert state_of(workspace, AbortSignal()) is None  # it is not looked at again so soon
    (root / ".git").rmdir()
    assert state_of(Workspace([str(root), str(root.parent)]), AbortSignal()) is None
