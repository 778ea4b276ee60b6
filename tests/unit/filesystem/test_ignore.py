"""Ignore files: which there are, where they count, and which of them hides a path."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding import rule_matcher
from tools.filesystem.ignore_files import (
    MAX_IGNORE_FILE_BYTES,
    HiddenBy,
    Scope,
    agent_ignore_file,
    refuse_hidden,
    scope_of,
)
from tools.filesystem.ignore_rules import as_bytes_text, read_rules
from tools.filesystem.workspace import Workspace


def scope(root: Path, folder: str = ".", *, git: bool = True, agent: bool = True) -> Scope:
    workspace = Workspace([str(root)])
    return scope_of(workspace, workspace.locate(folder), git=git, agent=agent)


def repository(folder: Path, rules: str = "") -> None:
    (folder / ".git" / "info").mkdir(parents=True)
    (folder / ".gitignore").write_text(rules)


@pytest.mark.requirement("ignore.repository")
def test_gitignore_counts_only_in_a_repository(root: Path) -> None:
    (root / ".gitignore").write_text("*.log\n")
    assert scope(root).hides("a.log", is_folder=False) is None
    (root / ".git").mkdir()
    assert scope(root).hides("a.log", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.repository")
def test_rules_above_the_root_count_as_far_as_the_repository_goes(tmp_path: Path) -> None:
    outer = tmp_path.resolve()
    repository(outer / "repo", "*.log\n/sub/gen/\n")
    (outer / ".gitignore").write_text("*.py\n")
    root = outer / "repo" / "sub"
    (root / "gen").mkdir(parents=True)
    here = scope(root)
    assert here.hides("a.log", is_folder=False) is HiddenBy.GIT
    assert here.hides("gen", is_folder=True) is HiddenBy.GIT
    assert here.hides("a.py", is_folder=False) is None


@pytest.mark.requirement("ignore.repository")
def test_an_inner_repository_has_its_own_rules_only(root: Path) -> None:
    repository(root, "*.log\n")
    inner = root / "inner"
    repository(inner, "*.tmp\n")
    (inner / ".git" / "info" / "exclude").write_text("secret\n")
    here = scope(root, "inner")
    assert here.hides("a.log", is_folder=False) is None
    assert here.hides("a.tmp", is_folder=False) is HiddenBy.GIT
    assert here.hides("secret", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.repository")
def test_a_linked_worktree_uses_the_excludes_of_its_repository(root: Path, tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    (main / "info").mkdir(parents=True)
    (main / "info" / "exclude").write_text("local.txt\n")
    (main / "worktrees" / "w").mkdir(parents=True)
    (main / "worktrees" / "w" / "commondir").write_text("../..\n")
    (root / ".git").write_text(f"gitdir: {main}/worktrees/w\n")
    assert scope(root).hides("local.txt", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.git_folder")
def test_the_git_folder_is_hidden_and_nothing_brings_it_back(root: Path) -> None:
    repository(root, "!.git\n")
    (root / ".coretoolsignore").write_text("!.git\n")
    assert scope(root).hides(".git", is_folder=True) is HiddenBy.GIT
    assert scope(root, git=False).hides(".git", is_folder=True) is None


@pytest.mark.requirement("ignore.folders")
def test_a_rule_with_a_slash_at_its_end_hides_folders_only(root: Path) -> None:
    repository(root, "dist/\n")
    assert scope(root).hides("dist", is_folder=True) is HiddenBy.GIT
    assert scope(root).hides("dist", is_folder=False) is None


@pytest.mark.requirement("ignore.agent")
@pytest.mark.parametrize("name", [".coretoolsignore", ".qwenignore", ".geminiignore"])
def test_each_agent_ignore_file_of_the_root_counts_without_a_repository(root: Path, name: str) -> None:
    (root / name).write_text("private/\n*.key\n")
    assert scope(root).hides("private", is_folder=True) is HiddenBy.AGENT
    assert scope(root).hides("a.key", is_folder=False) is HiddenBy.AGENT
    assert scope(root, agent=False).hides("a.key", is_folder=False) is None


@pytest.mark.requirement("ignore.agent_negation")
def test_a_negation_in_an_agent_ignore_file_brings_back_what_git_hides(root: Path) -> None:
    repository(root, "*.log\nbuild/\n")
    (root / ".qwenignore").write_text("!keep.log\n!build/\n")
    here = scope(root)
    assert here.hides("keep.log", is_folder=False) is None
    assert here.hides("other.log", is_folder=False) is HiddenBy.GIT
    assert here.hides("build", is_folder=True) is None


@pytest.mark.requirement("ignore.fresh")
def test_a_changed_ignore_file_counts_at_once(root: Path) -> None:
    (root / ".coretoolsignore").write_text("a.txt\n")
    assert scope(root).hides("a.txt", is_folder=False) is HiddenBy.AGENT
    (root / ".coretoolsignore").write_text("b.txt\n")
    assert scope(root).hides("a.txt", is_folder=False) is None
    assert scope(root).hides("b.txt", is_folder=False) is HiddenBy.AGENT


@pytest.mark.requirement("ignore.regular_files")
def test_an_ignore_file_that_is_a_pipe_or_a_link_never_blocks(root: Path, tmp_path: Path) -> None:
    (root / ".git" / "info").mkdir(parents=True)
    os.mkfifo(root / ".git" / "info" / "exclude")
    (tmp_path / "rules").write_text("a.txt\n")
    (root / ".gitignore").symlink_to(tmp_path / "rules")
    assert scope(root).hides("a.txt", is_folder=False) is None, "git does not follow a linked .gitignore either"


@pytest.mark.requirement("ignore.fail_closed")
@pytest.mark.parametrize("kind", ["pipe", "folder", "circle", "nowhere", "too large"])
def test_an_agent_ignore_file_that_cannot_be_understood_hides_everything(kind: str, root: Path) -> None:
    file = root / ".qwenignore"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "circle":
            file.symlink_to(".qwenignore")
        case "nowhere":
            file.symlink_to("missing")
        case _:
            file.write_text("#" * (MAX_IGNORE_FILE_BYTES + 1))
    (root / "a.txt").write_text("a")
    workspace = Workspace([str(root)])
    for look in (agent_ignore_file, partial(refuse_hidden, done="read")):
        with pytest.raises(ToolError, match="not known what it hides") as caught:
            look(workspace, workspace.locate("a.txt"))
        assert caught.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("ignore.linear")
def test_a_hostile_rule_does_not_take_forever(root: Path) -> None:
    repository(root, "a*" * 60 + "b\n" + "**/a" * 40 + "\n" + "/x/" + "**/*a*/" * 40 + "b\n")
    name = "a" * 250
    assert scope(root).hides(name, is_folder=False) is None


@pytest.mark.requirement("ignore.agent_file")
def test_the_file_that_hides_a_path_or_a_folder_above_it_is_named(root: Path) -> None:
    (root / ".qwenignore").write_text("secret.txt\n")
    (root / ".coretoolsignore").write_text("private/\n!secret-not.txt\n")
    (root / "private" / "deep").mkdir(parents=True)
    (root / "private" / "deep" / "a.txt").write_text("a")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("private/deep/a.txt")) == ".coretoolsignore"
    assert agent_ignore_file(workspace, workspace.locate("private")) == ".coretoolsignore"
    assert agent_ignore_file(workspace, workspace.locate("x/secret.txt")) == ".qwenignore"
    assert agent_ignore_file(workspace, workspace.locate("open.txt")) is None


@pytest.mark.requirement("ignore.agent_file")
def test_git_rules_and_a_workspace_that_does_not_respect_agent_ignore_block_no_read(root: Path) -> None:
    repository(root, "*.log\n")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("a.log")) is None
    (root / ".coretoolsignore").write_text("*.log\n")
    assert agent_ignore_file(workspace, workspace.locate("a.log")) == ".coretoolsignore"
    careless = Workspace([str(root)], respect_agent_ignore=False)
    assert agent_ignore_file(careless, careless.locate("a.log")) is None


@pytest.mark.requirement("ignore.agent_file")
def test_a_later_agent_file_overrules_an_earlier_one(root: Path) -> None:
    (root / ".geminiignore").write_text("*.md\n")
    (root / ".coretoolsignore").write_text("!README.md\n")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("README.md")) is None
    assert agent_ignore_file(workspace, workspace.locate("notes.md")) == ".geminiignore"


@pytest.mark.requirement("ignore.bytes")
def test_names_are_compared_byte_by_byte_as_git_does(root: Path) -> None:
    repository(root, "caf?\ncaf\u00e9.txt\n")
    here = scope(root)
    assert here.hides("cafe", is_folder=False) is HiddenBy.GIT
    assert here.hides("caf\u00e9", is_folder=False) is None
    assert here.hides("caf\u00e9.txt", is_folder=False) is HiddenBy.GIT


PARTS = ["a", "B", "ab", ".log", "*", "?", "**", "[ab]", "[!a]", "\\*", "\u00e9", "sub", "deep"]
RULES = st.tuples(
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "", "/", "sub/", "sub/deep/", "s*/", "**/", "foo/"]),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("".join),
    st.sampled_from(["", "", "", "/", "/**"]),
).map("".join)
NAMES = [
    "a",
    "b",
    "B",
    "ab",
    "aB",
    "a.log",
    "B.log",
    "sub",
    "deep",
    "\u00e9",
    "\u00e9.log",
    "*",
    "sub.log",
    "other.txt",
]


@pytest.mark.requirement("ignore.bulk")
@pytest.mark.parametrize("ignore_case", [False, True])
@given(rules=st.lists(RULES, max_size=6), folder=st.sampled_from(["", "sub/", "sub/deep/", "foo/", "SUB/"]))
@settings(max_examples=300, deadline=None, database=None)
def test_names_judged_at_once_are_judged_as_each_by_itself(ignore_case: bool, rules: list[str], folder: str) -> None:
    names = [as_bytes_text(name) for name in NAMES]
    before = rule_matcher.IGNORE_CASE
    rule_matcher.IGNORE_CASE = ignore_case
    try:
        found = read_rules("\n".join(rules).encode())
        for is_folder in (False, True):
            single = {name: found.hides(name, folder + name, is_folder=is_folder) for name in names}
            expected = {name: hidden for name, hidden in single.items() if hidden is not None}
            assert found.verdicts(names, folder, is_folder=is_folder) == expected
    finally:
        rule_matcher.IGNORE_CASE = before


@pytest.mark.requirement("ignore.bulk")
def test_all_ignore_files_are_weighed_for_names_at_once_as_for_each_by_itself(root: Path) -> None:
    repository(root, "*.log\nsub\n!b.log\n/x/caf\u00e9\n")
    (root / "x").mkdir()
    (root / "x" / ".gitignore").write_text("!a.log\nb*\nsecret\n")
    (root / ".qwenignore").write_text("*.key\n!secret\n")
    (root / ".coretoolsignore").write_text("!open.key\nx/z\n")
    names = ["a.log", "b.log", "c.log", "bc", "sub", "caf\u00e9", "a.key", "open.key", "secret", "z", ".git", "plain"]
    for git, agent in ((True, True), (True, False), (False, True), (False, False)):
        for folder in (".", "x"):
            here = scope(root, folder, git=git, agent=agent)
            for is_folder in (False, True):
                single = {name: here.hides(name, is_folder=is_folder) for name in names}
                hidden = {name: by for name, by in single.items() if by is not None}
                assert here.hidden_among(names, is_folder=is_folder) == hidden
                assert here.hidden_among([], is_folder=is_folder) == {}
