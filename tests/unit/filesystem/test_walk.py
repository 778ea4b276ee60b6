"""The walk that all searches use: which folders it enters, what it leaves out, and what it reports about that."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.folder_walk import Everything, Filters, ReducedSelection, Selection, Walk
from tools.files.find.glob_search import compile_patterns
from tools.files.ignore_files import HiddenBy
from tools.files.workspace import Workspace


def create_walk(*roots: Path, filters: Filters | None = None, seconds: float = 60.0) -> Walk:
    workspace = Workspace([str(root) for root in roots])
    return Walk(workspace, filters or Filters(), Deadline(AbortSignal(), seconds))


def files_of(walk: Walk, start: str = ".", selection: Selection | None = None) -> list[str]:
    location = walk.workspace.locate(start)
    return sorted(item.path for item in walk.files(location, selection or Everything()))


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


@pytest.mark.requirement("ignore.walk")
def test_a_walk_prunes_and_counts_what_is_hidden(root: Path) -> None:
    make(root, "a.py", "a.log", "dist/b.py", "src/c.py", "src/c.log", "src/private/d.py", ".git/config")
    make(root, "node_modules/x/y.js")
    (root / ".gitignore").write_text("*.log\ndist/\n")
    (root / ".coretoolsignore").write_text("private/\n")
    walk = create_walk(root)
    assert files_of(walk) == [".coretoolsignore", ".gitignore", "a.py", "src/c.py"]
    assert walk.hidden_counts == {HiddenBy.GIT: 3, HiddenBy.AGENT: 1}
    assert walk.folders_excluded == {"node_modules": 1, ".git": 1}


@pytest.mark.requirement("ignore.walk")
def test_nested_ignore_files_count_below_their_folder(root: Path) -> None:
    make(root, ".git/HEAD", "a/x.tmp", "a/b/x.tmp", "a/b/keep.tmp", "c/x.tmp")
    (root / "a" / ".gitignore").write_text("*.tmp\n")
    (root / "a" / "b" / ".gitignore").write_text("!keep.tmp\n")
    assert [path for path in files_of(create_walk(root)) if path.endswith(".tmp")] == ["a/b/keep.tmp", "c/x.tmp"]


@pytest.mark.requirement("ignore.walk")
def test_a_hidden_folder_that_is_named_outright_is_walked(root: Path) -> None:
    make(root, ".git/HEAD", "dist/a.js", "dist/a.log")
    (root / ".gitignore").write_text("dist/\n*.log\n")
    assert files_of(create_walk(root), "dist") == ["a.js"]


@pytest.mark.requirement("ignore.walk")
def test_links_are_never_followed(root: Path) -> None:
    make(root, "real/a.txt")
    (root / "loop").symlink_to(root)
    (root / "link.txt").symlink_to(root / "real" / "a.txt")
    assert files_of(create_walk(root)) == ["real/a.txt"]
    assert files_of(create_walk(root, filters=Filters(links=True))) == ["link.txt", "loop", "real/a.txt"]


@pytest.mark.requirement("ignore.walk")
def test_a_walk_leaves_out_named_pipes(root: Path) -> None:
    os.mkfifo(root / "pipe")
    make(root, "a.txt")
    assert files_of(create_walk(root)) == ["a.txt"]


@pytest.mark.requirement("ignore.walk")
def test_a_root_below_a_root_keeps_its_own_agent_ignore_files(root: Path) -> None:
    make(root, "inner/secret.txt", "inner/open.txt", "secret.txt")
    (root / "inner" / ".coretoolsignore").write_text("secret.txt\n")
    walk = create_walk(root, root / "inner")
    assert "inner/secret.txt" not in files_of(walk)
    assert "secret.txt" in files_of(walk)


@pytest.mark.requirement("walk.bounded")
def test_a_walk_without_time_says_so(root: Path) -> None:
    make(root, "a.txt")
    walk = create_walk(root, seconds=0.0)
    assert files_of(walk) == []
    assert walk.timed_out


@pytest.mark.requirement("walk.bounded")
def test_a_cancelled_walk_stops(root: Path) -> None:
    make(root, "a.txt", "b/c.txt")
    walk = create_walk(root)
    items = walk.files(walk.workspace.locate("."), Everything())
    next(items)
    walk.deadline.signal.abort()
    with pytest.raises(ToolError) as error_info:
        list(items)
    assert error_info.value.code is ToolErrorType.CANCELLED


@pytest.mark.requirement("ignore.walk")
def test_a_folder_that_cannot_be_read_is_counted(root: Path) -> None:
    make(root, "a.txt")
    # The innermost path is too long to be opened, even by root.
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=descriptor)
        inner_descriptor = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner_descriptor
    os.close(descriptor)
    walk = create_walk(root)
    assert files_of(walk) == ["a.txt"]
    assert walk.unreadable == 1


@pytest.mark.requirement("ignore.walk")
def test_an_exclusion_prunes_folders_that_it_covers(root: Path) -> None:
    make(root, "a.py", "a_test.py", "gen/b.py", "src/gen/c.py", "src/d.py")
    exclusion = compile_patterns(["gen/**", "*_test.py"], ignore_case=False, at_any_depth=True).start
    assert files_of(create_walk(root), selection=ReducedSelection(Everything(), exclusion)) == [
        "a.py",
        "src/d.py",
        "src/gen/c.py",
    ]


@pytest.mark.requirement("walk.bounded")
def test_a_walk_that_runs_out_of_time_keeps_the_files_that_it_has_found(root: Path) -> None:
    make(root, "a/1.txt", "b/2.txt")
    walk = create_walk(root, seconds=0.05)
    files = walk.files(walk.workspace.locate("."), Everything())
    first_file = next(files)
    while not walk.deadline.is_over:
        pass
    assert [first_file.path, *(file.path for file in files)] == ["a/1.txt"]
    assert walk.timed_out


@pytest.fixture
def innermost_folder(root: Path) -> Generator[Path]:
    """The innermost of 1,000 nested folders. pytest itself could not remove them, because it recurses."""
    folder = root
    for _ in range(1_000):
        folder /= "d"
        folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", str(root / "d")], check=True)


@pytest.mark.requirement("walk.bounded")
def test_a_walk_takes_one_descriptor_however_deep_and_wide_the_tree_is(root: Path, innermost_folder: Path) -> None:
    make(root, *(f"{number % 40}/{number}/a.txt" for number in range(800)))
    (innermost_folder / "end.txt").write_text("end")
    (innermost_folder / "up").symlink_to(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest_descriptor = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest_descriptor + 4, hard))
    try:
        walk = create_walk(root)
        paths = files_of(walk)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(paths) == 801
    assert "d/" * 1_000 + "end.txt" in paths
    assert walk.unreadable == 0
