"""ripgrep's own walk: it counts only where it agrees with ours."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tools.contract.context import AbortSignal
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import Everything, Filters, Walk
from tools.filesystem.ignore_files import AGENT_IGNORE_FILES, HiddenBy
from tools.filesystem.search.dialect import parse_pattern
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.ripgrep_walk import tells_what_it_leaves_out
from tools.filesystem.search.narrowing import LARGE_TREE, Narrowed, Narrower
from tools.filesystem.search.run import FIRST_FILES, Kept, Part, Search
from tools.filesystem.workspace import Workspace

RIPGREP = os.path.join(sys.prefix, "bin", "rg")


def make(root: Path, *paths: str, **contents: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("foo\n")
    for path, text in contents.items():
        (root / path).write_text(text)


def walk(*roots: Path, filters: Filters | None = None) -> Walk:
    return Walk(Workspace([str(root) for root in roots]), filters or Filters(), Deadline(AbortSignal(), 60))


def narrowed(walking: Walk, *, program: str = RIPGREP, pattern: str = "foo") -> Narrowed | None:
    query = Query(parse_pattern(pattern), ignore_case=False)
    return Narrower().narrow(program, walking, walking.workspace.root_locations()[0], query)


def fake(tmp_path: Path, script: str) -> str:
    """A ripgrep that does something of its own in the workspace, and nothing elsewhere."""
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\nif [ -e marked ]; then {script}; fi\nexec {RIPGREP} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.requirement("grep.narrowed")
def test_this_ripgrep_tells_what_it_leaves_out() -> None:
    assert tells_what_it_leaves_out(RIPGREP)


@pytest.mark.requirement("grep.narrowed")
def test_a_program_that_is_no_ripgrep_or_tells_less_is_not_believed(tmp_path: Path, root: Path) -> None:
    make(root, "a.txt")
    silent = tmp_path / "rg"
    silent.write_text(f'#!/bin/sh\nexec {RIPGREP} "$@" 2>/dev/null\n')
    silent.chmod(0o755)
    for program in (str(silent), "/bin/true", "/bin/cat", "/nonexistent"):
        assert not tells_what_it_leaves_out(program)
        assert narrowed(walk(root), program=program) is None


@pytest.mark.requirement("grep.narrowed")
@pytest.mark.parametrize("git", [True, False])
def test_what_is_found_and_left_out_is_what_our_walk_says(root: Path, git: bool) -> None:
    make(root, "a.txt", "b/c.txt", "b/c.log", "dist/d.txt", "b/keep.log", "node_modules/e.txt", ".hidden/f.txt")
    make(root, ".git/HEAD", "b/deep/node_modules/g.txt", "b/deep/h.tmp", "empty.txt", "sub/.git/x", "sub/i.log")
    (root / ".gitignore").write_text("*.log\n!keep.log\n/dist/\n")
    (root / "b" / ".gitignore").write_text("*.tmp\n")
    (root / ".ignore").write_text("a.txt\n")
    (root / "empty.txt").write_text("")
    (root / "link.log").symlink_to(root / "a.txt")
    os.mkfifo(root / "pipe.log")
    filters = Filters(git=git)
    ours = walk(root, filters=filters)
    listed = [
        folder.prefix + name
        for folder in ours.folders(ours.workspace.locate("."), Everything())
        for name in folder.names
    ]
    result = narrowed(walk(root, filters=filters))
    assert result is not None
    assert sorted(result.paths) == [path for path in sorted(listed) if "foo" in (root / path).read_text()]
    assert result.searched == len(listed)
    assert result.left_out == ours.left_out
    assert ours.folders_excluded["node_modules"] == 2
    assert bool(ours.hidden) is git


@pytest.mark.requirement("grep.narrowed")
def test_a_file_that_ripgrep_alone_leaves_out_or_finds_is_a_disagreement(root: Path, tmp_path: Path) -> None:
    make(root, ".git/HEAD", "a.txt", "b/c.txt", "marked", "hidden.txt")
    (root / ".gitignore").write_text("hidden.txt\n")
    assert narrowed(walk(root), program=fake(tmp_path, "true")) is not None
    assert narrowed(walk(root), program=fake(tmp_path, 'set -- --glob=!b "$@"')) is None
    assert narrowed(walk(root), program=fake(tmp_path, 'set -- --glob=!c.txt "$@"')) is None
    assert narrowed(walk(root), program=fake(tmp_path, 'set -- --no-ignore-vcs "$@"')) is None
    assert narrowed(walk(root), program=fake(tmp_path, "echo rg: ./b: Permission denied >&2")) is None
    assert narrowed(walk(root), program=fake(tmp_path, "exit 2")) is None
    assert narrowed(walk(root), program=fake(tmp_path, "kill -9 $$")) is None


@pytest.mark.requirement("grep.narrowed")
@pytest.mark.parametrize("name", ["a\nb", "\udce9", "a: Ignore(b"])
def test_a_name_that_may_be_misread_is_no_ground_to_narrow(root: Path, name: str) -> None:
    make(root, ".git/HEAD", f"x{name}.log", "a.txt")
    (root / ".gitignore").write_text("*.log\n")
    assert narrowed(walk(root)) is None
    (root / ".gitignore").unlink()
    result = narrowed(walk(root))
    assert result is not None
    assert sorted(result.paths) == sorted([f"x{name}.log", "a.txt"])


@pytest.mark.requirement("grep.narrowed")
def test_agent_ignore_files_and_inner_roots_are_left_to_our_own_walk(root: Path) -> None:
    make(root, "a.txt", "inner/b.txt")
    assert narrowed(walk(root)) is not None
    assert narrowed(walk(root, root / "inner")) is None
    (root / ".coretoolsignore").write_text("a.txt\n")
    assert narrowed(walk(root)) is None
    assert narrowed(walk(root, filters=Filters(agent=False))) is not None


@pytest.mark.requirement("ignore.nested_search")
@pytest.mark.parametrize("name", AGENT_IGNORE_FILES)
@pytest.mark.parametrize("folder", ["b", "b/deep", ".c"])
@pytest.mark.parametrize("kind", ["file", "link", "ignored by git", "folder"])
def test_an_agent_ignore_file_anywhere_below_is_left_to_our_own_walk(
    root: Path, name: str, folder: str, kind: str
) -> None:
    make(root, ".git/HEAD", "a.txt", "b/deep/secret.txt", ".c/secret.txt")
    assert narrowed(walk(root)) is not None
    match kind:
        case "link":
            (root / "rules").write_text("secret.txt\n")
            (root / folder / name).symlink_to(root / "rules")
        case "folder":
            (root / folder / name).mkdir()
            (root / folder / name / "x").write_text("foo\n")
        case _:
            (root / folder / name).write_text("secret.txt\n")
            (root / ".gitignore").write_text(".*ignore\n" if kind == "ignored by git" else "")
    assert narrowed(walk(root)) is None
    result = narrowed(walk(root, filters=Filters(agent=False)))
    assert result is not None
    assert {"b/deep/secret.txt", ".c/secret.txt"} <= set(result.paths)


@pytest.mark.requirement("grep.narrowed")
def test_a_repository_above_and_a_worktree_mean_what_they_mean_to_our_walk(root: Path) -> None:
    make(root, "top/.git/HEAD", "top/sub/a.log", "top/sub/b.txt", "tree/c.log", "tree/d.txt")
    (root / "top" / ".gitignore").write_text("*.log\n")
    (root / "top" / ".git" / "info").mkdir()
    (root / "top" / ".git" / "info" / "exclude").write_text("b.*\n")
    (root / "tree" / ".git").write_text(f"gitdir: {root}/top/.git\n")
    for start in ("top/sub", "tree", "top", "."):
        ours = walk(root / start)
        folders = list(ours.folders(ours.workspace.locate("."), Everything()))
        listed = sorted(prefix + name for prefix, names, _ in folders for name in names)
        result = narrowed(walk(root / start))
        if result is not None:
            matching = [path for path in listed if "foo" in (root / start / path).read_text()]
            assert sorted(result.paths) == matching, start
            assert (result.searched, result.left_out) == (len(listed), ours.left_out), start


@pytest.mark.requirement("grep.narrowed")
def test_the_hidden_are_counted_by_whose_rule_hides_them(root: Path) -> None:
    make(root, ".git/HEAD", "a.log", "b.txt", "dist/c.txt")
    (root / ".gitignore").write_text("*.log\ndist\n")
    result = narrowed(walk(root))
    assert result is not None
    assert result.left_out.hidden == {HiddenBy.GIT: 2}


@pytest.mark.requirement("grep.narrowed")
def test_a_search_that_has_enough_before_ripgrep_is_done_ends_it(
    root: Path, tmp_path: Path, no_ripgrep: pytest.MonkeyPatch
) -> None:
    make(root, *(f"b/{number:03}.txt" for number in range(400)), marked="none\n")
    for number in range(FIRST_FILES):
        (root / f"b/{number:03}.txt").write_text("none\n")
    program = fake(tmp_path, f"echo $$ > {tmp_path}/started; exec /bin/sleep 600")
    assert tells_what_it_leaves_out(program)
    walking = walk(root)
    [start] = walking.workspace.root_locations()
    groups = walking.folders(start, Everything())
    no_ripgrep.setenv("PATH", str(tmp_path))
    search = Search(walking.workspace, walking.deadline, Kept())
    query = Query(parse_pattern("foo"), ignore_case=False)
    with closing(search.find([Part(start, groups, walking)], query, None)) as found:
        assert next(found).path == f"b/{FIRST_FILES:03}.txt"
        number = int(wait_for(tmp_path / "started"))
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert next(found, None) is None


@pytest.mark.requirement("grep.narrowed")
def test_searching_a_large_folder_again_finds_what_is_there_by_then(root: Path) -> None:
    make(root, *(f"{number // 100:02}/{number:04}.txt" for number in range(LARGE_TREE + 100)))
    (root / "00" / "0000.txt").write_text("a needle\n")
    (root / "05" / "0500.txt").write_text("a needle\n")
    kept = Kept()

    def searched() -> tuple[list[str], int, set[str]]:
        walking = walk(root)
        [start] = walking.workspace.root_locations()
        search = Search(walking.workspace, walking.deadline, kept)
        part = Part(start, walking.folders(start, Everything()), walking)
        query = Query(parse_pattern("needle"), ignore_case=False)
        paths = [hits.path for hits in search.find([part], query, None)]
        return paths, search.tally.searched, search.used

    both = {"in-process", "ripgrep"}
    first = searched()
    assert first == (["00/0000.txt", "05/0500.txt"], LARGE_TREE + 100, both)
    assert searched() == first
    (root / "10" / "1050.txt").write_text("a needle\n")
    assert searched() == (["00/0000.txt", "05/0500.txt", "10/1050.txt"], LARGE_TREE + 100, both)
    for folder in sorted(root.iterdir())[1:]:
        shutil.rmtree(folder)
    assert searched()[:2] == (["00/0000.txt"], 100)
    assert searched() == (["00/0000.txt"], 100, {"in-process"})


def wait_for(path: Path) -> str:
    """What a process writes into a file."""
    end = Deadline(AbortSignal(), 30)
    while not end.is_over:
        if path.exists() and (text := path.read_text()):
            return text
    raise AssertionError(f"nobody has written {path}")
