"""Which files count as auto-run files, judged by their paths."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from server.settings.settings_files import LOCK_NAME
from tests.tables import each_of
from tools.permissions.git_repositories import settings_that_run, why_protected_at
from tools.permissions.protected_files import why_protected

PROTECTED = [
    ".git",
    ".git/hooks/pre-commit",
    ".git/config",
    "vendor/x/.git/hooks",
    "vendor/x/.GIT/Config",
    ".git/modules/a/b/hooks/x",
    ".git/worktrees/w/config.worktree",
    ".git/commondir",
    "sub/.git",
    "GIT~1/config",
    ".g\u200cit/config",
    ".git./config",
    ".vscode/tasks.json",
    "deep/.VSCODE/settings.json",
    ".idea/workspace.xml",
    "my.code-workspace",
    ".mcp.json",
    LOCK_NAME,
    "deep/MCP.lock.JSON",
    ".coretools/settings.json",
    ".qwen/settings.json",
    ".gemini/x",
    ".claude",
    ".cursor/mcp.json",
    ".codex/config.toml",
    ".envrc",
    ".bashrc",
    "a/.zshenv",
    ".config/fish/config.fish",
    "..\\x\\.mcp.json",
]
FREE = [
    "",
    "src/main.py",
    ".gitignore",
    ".github/workflows/x.yml",
    ".git/index",
    ".git/refs/heads/config",
    "git/config",
    "hooks/x",
    "config",
    "vscode/tasks.json",
    "mcp.json",
    ".vscodex",
    ".config/other",
]


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize("path", PROTECTED)
def test_auto_run_files_are_protected_with_a_reason(path: str) -> None:
    assert why_protected(path)


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize("path", FREE)
def test_other_files_are_not(path: str) -> None:
    assert why_protected(path) is None


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize(
    "path",
    [
        ".hg/hgrc",
        "sub/.hg/hgrc",
        ".jj/repo/config.toml",
        ".husky/pre-commit",
        ".cargo/config.toml",
        ".cargo/config",
        ".mise.toml",
        "mise.toml",
        ".tool-versions",
        ".envrc",
        ".junie/guidelines.md",
        ".trae/rules",
        ".vs/tasks.vs.json",
        ".pdbrc",
        ".Rprofile",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".bazelrc",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".lefthook.yml",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        "lib/sitecustomize.py",
        ".vimrc",
        ".exrc",
        ".nvimrc",
        ".lvimrc",
        ".emacs",
        ".dir-locals.el",
        ".gdbinit",
        ".lldbinit",
        ".inputrc",
        ".screenrc",
        ".tmux.conf",
        ".NPMRC",
    ],
)
def test_a_file_that_makes_a_program_run_something_is_protected(path: str) -> None:
    assert why_protected(path)


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize(
    "path",
    [
        "Makefile",
        "package.json",
        ".gitmodules",
        ".gitattributes",
        ".gitignore",
        ".Xresources",
        ".hg/store/data",
        ".cargo/registry/x",
        "cargo/config.toml",
        "npmrc",
        "src/config.toml",
        ".github/workflows/ci.yml",
    ],
)
def test_a_file_whose_mere_presence_runs_nothing_is_not_asked_about(path: str) -> None:
    assert why_protected(path) is None


@pytest.mark.requirement("policy.auto_run")
@each_of(
    ("root", "path", "is_protected"),
    [
        ("home/.claude", "settings.json", True),
        ("home/.claude/hooks", "x.sh", True),
        ("home/plain/.git", "config", True),
        ("home/plain/.git/hooks", "pre-commit", True),
        ("home/plain/.vscode", "tasks.json", True),
        ("home/plain/src", "tasks.json", False),
        ("home/.claude/worktrees/own", "src/a.py", False),  # a work tree of its own
        ("home/.claude/worktrees/own/src", "a.py", False),
        ("home/.claude/worktrees/own", ".vscode/tasks.json", True),
    ],
)
def test_the_folders_around_a_workspace_count_as_far_as_its_work_tree(
    tmp_path: Path, root: str, path: str, *, is_protected: bool
) -> None:
    for name in ("plain/.git", ".claude/worktrees/own/.git"):
        (tmp_path / "home" / name).mkdir(parents=True, exist_ok=True)
    folder = tmp_path / root
    assert (why_protected_at(str(folder / path), str(folder)) is not None) is is_protected


@pytest.mark.requirement("policy.auto_run")
@each_of(
    ("path", "is_protected"),
    [
        ("new/HEAD", True),
        ("new/commondir", True),
        ("HEAD", True),
        (".git/HEAD", True),
        ("new/config", False),
        ("new/objects/x", False),
        ("half/objects/x", True),
        ("half/refs/heads/x", True),
        ("half/config", True),
        ("half/hooks/x", True),
        ("half/a.txt", False),
        ("bare.git/refs/heads/x", False),
        ("bare.git/objects/x", False),
        ("bare.git/config", True),
        ("head/a.txt", False),
    ],
)
def test_a_file_that_may_turn_a_folder_into_a_repository_is_protected(
    tmp_path: Path, path: str, *, is_protected: bool
) -> None:
    for name in (".git", "half", "bare.git/objects", "bare.git/refs"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in ("half", "bare.git"):
        (tmp_path / name / "HEAD").touch()
    assert (why_protected_at(str(tmp_path / path), str(tmp_path)) is not None) is is_protected


@pytest.mark.requirement("policy.named_by_settings")
@each_of(
    ("settings", "path", "is_protected"),
    [
        ("[core]\n\thooksPath = .hooks", ".hooks/pre-commit", True),
        ("[core]\n\thooksPath = .hooks", ".Hooks/lib/common.sh", True),
        ("[core]\n\thooksPath = .hooks", "src/pre-commit", False),
        ('[Core] HOOKSPATH = "tools/git hooks" # ours', "tools/git hooks/pre-push", True),
        ("[core]\n\thooksPath = to\\\nols", "tools/pre-push", True),
        ("[core]\n\thooksPath = hooks\u00a0", "hooks\u00a0/pre-push", True),
        ("[core]\n\thooksPath = hooks\\\n\n", "hooks/pre-push", True),
        ("[core]\n\thooksPath = far/../hooks", "src/hooks/pre-push", True),
        ("[core]\n\thooksPath = .husky/_", ".husky/_/pre-commit", True),
        ("[core]\n\thooksPath = ./link", "behind/pre-commit", True),
        ("[include]\n\tpath = ../settings.git", "settings.git", True),
        ("[include]\n\tpath = ../settings.git", "named/by/included/x", True),
        ('[includeIf "gitdir:~/x/"]\n\tpath = ../settings.git', "settings.git", True),
        ('[x "include"]\n\tpath = ../settings.git', "settings.git", False),
        ("[core]\n\thooksPath = .", "pre-commit", True),
        ("[core]\n\thooksPath = .", "README", False),
        ("[core]\n\thooksPath = .", "src/pre-commit", False),
        ("[core]\n\thooksPath = ..", "pre-commit", False),
        ("[core]\n\thooksPath = /dev/null", "pre-commit", False),
    ],
)
def test_a_file_that_git_runs_or_includes_because_of_its_settings_is_protected(
    tmp_path: Path, settings: str, path: str, *, is_protected: bool
) -> None:
    for name in (".git", "behind", "src/deep"):
        (tmp_path / name).mkdir(exist_ok=True, parents=True)
    for link, target in (("link", "behind"), ("far", "src/deep")):
        (tmp_path / link).unlink(missing_ok=True)
        (tmp_path / link).symlink_to(target)
    (tmp_path / ".git/config").write_text(settings)
    (tmp_path / "settings.git").write_text("[core]\nhooksPath = named/by/included")
    assert (why_protected_at(str(tmp_path / path), str(tmp_path), is_written=False) is not None) is is_protected


@pytest.mark.requirement("policy.named_by_settings")
def test_the_settings_of_the_repository_around_a_linked_work_tree_or_a_workspace_name_hooks_too(tmp_path: Path) -> None:
    (tmp_path / "main/.git/worktrees/w").mkdir(parents=True)
    (tmp_path / "main/.git/config").write_text("[core]\nhooksPath = sub/hooks")
    (tmp_path / "main/.git/worktrees/w/commondir").write_text("../..\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    for root, path in (("w", "sub/hooks/x"), ("main/sub", "hooks/x"), ("main", "sub/hooks/x")):
        assert why_protected_at(str(tmp_path / root / path), str(tmp_path / root))
    assert why_protected_at(str(tmp_path / "w/hooks/x"), str(tmp_path / "w")) is None


@pytest.mark.requirement("policy.named_by_settings")
def test_files_that_variables_of_git_name_count_as_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    for variable, name in (("GIT_CONFIG_GLOBAL", "one"), ("GIT_CONFIG_SYSTEM", "two")):
        (tmp_path / f"{name}.txt").write_text(f"[core]\nhooksPath = {name}")
        monkeypatch.setenv(variable, str(tmp_path / f"{name}.txt"))
    assert all(why_protected_at(str(tmp_path / name / "x"), str(tmp_path)) for name in ("one", "two"))


# In the texts of the next test, `/` separates the pieces, and `$` stands for a line feed.
_PIECES = (
    r'$/$/$/\$/ / /[core]/[user]/[remote]/[core "x"]/[remote "a]b"]/[user "a\"\\\tb"]/[user.X]/[ user "x"]/[user/"/]'
    r'/=/=/=/hooksPath/name/url/# x/;/"a b"/"#"/\n/\"/\\/\/ext::x/..y/é/'
    "\u00a0/9/-/_/:"
)


@pytest.mark.requirement("policy.named_by_settings")
def test_settings_are_read_as_git_reads_them(tmp_path: Path) -> None:
    numbers, valid_count = random.Random(1), 0  # noqa: S311 - the same texts in every run
    while valid_count < 60:
        pieces = numbers.choices(_PIECES.split("/"), k=numbers.randint(1, 8))
        text = "".join(("[core]$", numbers.choice(("name=", "hooksPath = ", "")), *pieces)).replace("$", "\n")
        (tmp_path / "config").write_text(text, newline="")
        git = ("git", "config", "--file", str(tmp_path / "config"), "--null", "--list")
        listing = subprocess.run(git, capture_output=True, check=False)
        if listing.returncode != 0:  # git obeys no file that it does not understand
            continue
        valid_count += 1
        expected = [setting.partition("\n")[::2] for setting in listing.stdout.decode().split("\0")[:-1]]
        running = settings_that_run(text, lambda _: False)
        settings = [f"{name}={value}" for name, value in expected]
        is_harmless = re.compile(r"(?:user\.name|remote\.a\]b\.url)=(?!\s*[\w-]*::)")
        assert running == [setting for setting in settings if not is_harmless.match(setting)], text


@pytest.mark.requirement("policy.named_by_settings")
def test_changed_settings_of_git_count_at_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("one", "two"):
        (tmp_path / ".git/config").write_text(f"[core]\nhooksPath = {name}")
        for folder in ("one", "two"):
            reason = why_protected_at(str(tmp_path / folder / "x"), str(tmp_path))
            assert (reason is not None) is (folder == name)
