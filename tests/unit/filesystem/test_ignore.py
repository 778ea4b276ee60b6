"""Ignore files: which ones exist, where they apply, and which one hides a path."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.ignore_files import (
    MAX_IGNORE_FILE_BYTES,
    HiddenBy,
    IgnoreScope,
    agent_ignore_file,
    read_rules,
    refuse_hidden,
    scope_of,
)
from tools.files.workspace import Workspace


def scope(root: Path, folder: str = ".", *, git: bool = True, agent: bool = True) -> IgnoreScope:
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
    outer_folder = tmp_path.resolve()
    repository(outer_folder / "repo", "*.log\n/sub/gen/\n")
    (outer_folder / ".gitignore").write_text("*.py\n")
    root = outer_folder / "repo" / "sub"
    (root / "gen").mkdir(parents=True)
    rules = scope(root)
    assert rules.hides("a.log", is_folder=False) is HiddenBy.GIT
    assert rules.hides("gen", is_folder=True) is HiddenBy.GIT
    assert rules.hides("a.py", is_folder=False) is None


@pytest.mark.requirement("ignore.repository")
def test_an_inner_repository_has_its_own_rules_only(root: Path) -> None:
    repository(root, "*.log\n")
    inner_folder = root / "inner"
    repository(inner_folder, "*.tmp\n")
    (inner_folder / ".git" / "info" / "exclude").write_text("secret\n")
    rules = scope(root, "inner")
    assert rules.hides("a.log", is_folder=False) is None
    assert rules.hides("a.tmp", is_folder=False) is HiddenBy.GIT
    assert rules.hides("secret", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.repository")
def test_a_linked_worktree_uses_the_excludes_of_its_repository(root: Path, tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    (main / "info").mkdir(parents=True)
    (main / "info" / "exclude").write_text("local.txt\n")
    (main / "worktrees" / "w").mkdir(parents=True)
    (main / "worktrees" / "w" / "commondir").write_text("../..\n")
    (root / ".git").write_text(f"gitdir: {main}/worktrees/w\n")
    assert scope(root).hides("local.txt", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.repository")
def test_the_git_folder_is_hidden_and_nothing_brings_it_back(root: Path) -> None:
    repository(root, "!.git\n")
    (root / ".coretoolsignore").write_text("!.git\n")
    assert scope(root).hides(".git", is_folder=True) is HiddenBy.GIT
    assert scope(root, git=False).hides(".git", is_folder=True) is None


@pytest.mark.requirement("ignore.like_git")
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


@pytest.mark.requirement("ignore.agent")
def test_a_negation_in_an_agent_ignore_file_brings_back_what_git_hides(root: Path) -> None:
    repository(root, "*.log\nbuild/\n")
    (root / ".qwenignore").write_text("!keep.log\n!build/\n")
    rules = scope(root)
    assert rules.hides("keep.log", is_folder=False) is None
    assert rules.hides("other.log", is_folder=False) is HiddenBy.GIT
    assert rules.hides("build", is_folder=True) is None


@pytest.mark.requirement("ignore.files")
def test_a_changed_ignore_file_counts_at_once(root: Path) -> None:
    (root / ".coretoolsignore").write_text("a.txt\n")
    assert scope(root).hides("a.txt", is_folder=False) is HiddenBy.AGENT
    (root / ".coretoolsignore").write_text("b.txt\n")
    assert scope(root).hides("a.txt", is_folder=False) is None
    assert scope(root).hides("b.txt", is_folder=False) is HiddenBy.AGENT


@pytest.mark.requirement("ignore.files")
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
    for check in (agent_ignore_file, partial(refuse_hidden, participle="read")):
        with pytest.raises(ToolError, match="unknown what it hides") as error_info:
            check(workspace, workspace.locate("a.txt"))
        assert error_info.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("ignore.bounded")
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
    permissive_workspace = Workspace([str(root)], respect_agent_ignore=False)
    assert agent_ignore_file(permissive_workspace, permissive_workspace.locate("a.log")) is None


@pytest.mark.requirement("ignore.agent_file")
def test_a_later_agent_file_overrules_an_earlier_one(root: Path) -> None:
    (root / ".geminiignore").write_text("*.md\n")
    (root / ".coretoolsignore").write_text("!README.md\n")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("README.md")) is None
    assert agent_ignore_file(workspace, workspace.locate("notes.md")) == ".geminiignore"


@pytest.mark.requirement("ignore.like_git")
def test_names_are_compared_byte_by_byte_as_git_does(root: Path) -> None:
    repository(root, "caf?\ncaf\u00e9.txt\n")
    rules = scope(root)
    assert rules.hides("cafe", is_folder=False) is HiddenBy.GIT
    assert rules.hides("caf\u00e9", is_folder=False) is None
    assert rules.hides("caf\u00e9.txt", is_folder=False) is HiddenBy.GIT


@pytest.mark.requirement("ignore.like_git")
@pytest.mark.parametrize("name", ["voil\u00e0", "\u2026", "tab\t", "line\nfeed", "\x85", "a\xa0b", "no\udcfftext"])
def test_a_name_of_any_characters_is_hidden_by_itself_and_beneath_its_folder(root: Path, name: str) -> None:
    folder = root / name
    folder.mkdir()
    name_rules = "" if "\n" in name else f"{name}\n/{name}/{name}\n"
    (root / ".qwenignore").write_bytes(os.fsencode(f"secret\n{name_rules}"))
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.at(str(folder / "secret"))) == ".qwenignore"
    assert (scope(root).hides(name, is_folder=True) is HiddenBy.AGENT) is bool(name_rules)
    assert scope(root).hides(f"{name}x", is_folder=False) is None


@pytest.mark.requirement("ignore.agent_file")
def test_a_folder_that_is_brought_back_does_not_bring_back_what_other_files_hide_in_it(root: Path) -> None:
    (root / ".geminiignore").write_text("*.key\ndocs/\n")
    (root / ".qwenignore").write_text("!docs/\n")
    (root / "docs").mkdir()
    (root / "docs" / "id.key").write_text("")
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("docs")) is None
    assert agent_ignore_file(workspace, workspace.locate("docs/a.md")) is None
    assert agent_ignore_file(workspace, workspace.locate("docs/id.key")) == ".geminiignore"


@pytest.mark.requirement("ignore.agent_file")
def test_a_file_in_a_hidden_folder_is_not_brought_back_by_its_name(root: Path) -> None:
    (root / ".qwenignore").write_text("secret/\n!*.md\n")
    (root / "secret").mkdir()
    workspace = Workspace([str(root)])
    assert agent_ignore_file(workspace, workspace.locate("secret/notes.md")) == ".qwenignore"


ODD_PATTERNS = [
    "[[:alpha:]]",
    "[[]",
    "[z-a]",
    "[a",
    "[!]",
    "[a\\]b]",
    "[ -~]",
    "[a&&b]",
    "a\\",
    "!a\\",
    "x/\\/y",
    "?" * 5_000,
]
"""Patterns that `pathspec` refuses, silently drops, or reads differently from git."""


@pytest.mark.requirement("ignore.odd_lines")
@pytest.mark.parametrize("pattern", ODD_PATTERNS)
def test_a_pattern_that_is_not_understood_hides_the_folder_of_an_agent_ignore_file(root: Path, pattern: str) -> None:
    (root / "sub").mkdir()
    (root / "sub" / ".geminiignore").write_text(f"# first\n*.key\n{pattern}\n")
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError, match="has a pattern on line 3 that is not understood") as error_info:
        agent_ignore_file(workspace, workspace.locate("sub/open.txt"))
    assert error_info.value.code is ToolErrorType.PATH_IGNORED
    assert agent_ignore_file(workspace, workspace.locate("open.txt")) is None


@pytest.mark.requirement("ignore.odd_lines")
@pytest.mark.parametrize("pattern", ODD_PATTERNS)
def test_a_pattern_that_is_not_understood_in_a_gitignore_file_is_logged_and_does_not_count(
    root: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    repository(root, f"{pattern}\n*.log\n")
    rules = scope(root)
    assert rules.hides("a.log", is_folder=False) is HiddenBy.GIT
    assert rules.hides("a", is_folder=False) is None
    assert "the pattern on line 1 of an ignore file is not understood" in caplog.text


@pytest.mark.requirement("ignore.odd_lines")
@pytest.mark.parametrize(
    "pattern", ["[a-z0-9_]", "[!a-f]x", "[^a]", "[]a]", "[!]a]", "[a-]", "*.py[co]", "~$*", "x[~#]"]
)
def test_usual_bracket_expressions_are_understood(pattern: str) -> None:
    assert read_rules(pattern.encode()).odd_line is None


@pytest.mark.requirement("ignore.odd_lines")
@pytest.mark.parametrize("pattern", ["a[!b]c", "a[^b]c", "a[!]b]c", "a?c", "a*c"])
def test_no_wildcard_matches_a_slash(pattern: str) -> None:
    rules = read_rules(pattern.encode())
    assert rules.hides("a/c", is_folder=False) is None
    assert rules.hides("axc", is_folder=False) is True
