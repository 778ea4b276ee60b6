"""The product ignores exactly the files that git ignores."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.files import ignore_files
from tools.files.ignore_files import IgnoreScope, RuleList, agent_ignore_file, bytes_text, read_rules, scope_of
from tools.files.workspace import Workspace

NAMES = ["a", "b", "ab", "foo", "foo.txt", "b.log", "dist", "x y", "\u00e9", "[a]", "a\\b", "B", "*", "#x", "!y"]
FRAGMENTS = [
    *[
        "a",
        "b",
        "foo",
        "*",
        "**",
        "?",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-f]",
        ".txt",
        "*.log",
        "dist",
        "\u00e9",
        "x y",
        "#x",
        "!y",
    ],
    *["\\a", "\\*", "\\!", "\\#", "[]a]", "[!]b]", "a]", " ", "\\ "],
]

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "HOME": os.devnull,
}


@st.composite
def rules(draw: st.DrawFn) -> str:
    segment = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join)
    pattern = "/".join(draw(st.lists(segment, min_size=1, max_size=3)))
    prefix = draw(st.sampled_from(["", "", "", "/", "!", "!/", "#"]))
    suffix = draw(st.sampled_from(["", "", "", "/", " ", "\r"]))
    return prefix + pattern + suffix


READ_DIFFERENTLY = re.compile(r"[^/!]\*\*|\*\*[^/]|\*\*/[ \r]?$")
"""Rules with `**` not between slashes. `pathspec` reads some differently from git: see docs/files.md."""


def means_the_same(rule: str) -> bool:
    return read_rules(rule.encode()).odd_line is None and not READ_DIFFERENTLY.search(rule)


RULE_FILES = st.lists(rules().filter(means_the_same), max_size=4).map("\n".join)
Tree = dict[str, "Tree | None"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=4),
    lambda subtrees: st.dictionaries(st.sampled_from(NAMES), st.none() | subtrees, max_size=4),
    max_leaves=12,
)


def build(folder: Path, tree: Tree) -> list[Path]:
    """Create the tree, and return every path in it, folders before their contents."""
    paths: list[Path] = []
    for name, subtree in tree.items():
        path = folder / name
        paths.append(path)
        if subtree is None:
            path.write_text("")
        else:
            path.mkdir()
            paths += build(path, subtree)
    return paths


def ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    process = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        env=ENVIRONMENT,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    assert process.returncode in {0, 1}, process.stderr
    return {os.fsdecode(path) for path in process.stdout.split(b"\0") if path}


def ignored_by_us(root: Path, *, git: bool = True) -> set[str]:
    ignored_paths: set[str] = set()

    def visit(folder: Path, scope: IgnoreScope, *, inside_hidden: bool) -> None:
        for path in folder.iterdir():
            if path.name in {".git", ".gitignore", ".qwenignore"}:
                continue
            is_hidden = inside_hidden or scope.hides(path.name, is_folder=path.is_dir()) is not None
            if is_hidden:
                ignored_paths.add(str(path.relative_to(root)))
            if path.is_dir():
                visit(path, scope.enter(str(path), os.listdir(path)), inside_hidden=is_hidden)

    workspace = Workspace([str(root)])
    visit(root, scope_of(workspace, workspace.locate("."), git=git, agent=True), inside_hidden=False)
    return ignored_paths


@pytest.mark.requirement("ignore.like_git")
@examples(60, database=None)
@given(tree=TREES, top_rules=RULE_FILES, excluded_rules=RULE_FILES, nested_rules=RULE_FILES)
def test_exactly_what_git_ignores_is_ignored(
    tree: Tree, top_rules: str, excluded_rules: str, nested_rules: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs", "info"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / ".git" / "info" / "exclude").write_bytes(excluded_rules.encode())
        (root / ".gitignore").write_bytes(top_rules.encode())
        built_paths = build(root, tree)
        for path in built_paths:
            if path.is_dir() and len(path.name) == 1:
                (path / ".gitignore").write_bytes(nested_rules.encode())
        paths = [str(path.relative_to(root)) for path in built_paths]
        assert ignored_by_us(root) == ignored_by_git(root, paths)


@pytest.mark.requirement("ignore.nested")
@examples(60, database=None)
@given(tree=TREES, top_rules=RULE_FILES, nested_rules=RULE_FILES)
def test_agent_ignore_files_at_every_level_mean_the_same_as_gitignore_files(
    tree: Tree, top_rules: str, nested_rules: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        built_paths = build(root, tree)
        for path in (root, *built_paths):
            if path == root or (path.is_dir() and len(path.name) == 1):
                for name in (".gitignore", ".qwenignore"):
                    (path / name).write_bytes((top_rules if path == root else nested_rules).encode())
        paths = [str(path.relative_to(root)) for path in built_paths]
        ignored_paths = ignored_by_git(root, paths)
        assert ignored_by_us(root, git=False) == ignored_paths
        workspace = Workspace([str(root)])
        assert {path for path in paths if agent_ignore_file(workspace, workspace.at(str(root / path)))} == ignored_paths


@pytest.mark.requirement("ignore.like_git")
@examples(60, database=None)
@given(tree=TREES, top_rules=RULE_FILES)
def test_a_walk_finds_exactly_the_files_that_git_does_not_ignore(tree: Tree, top_rules: str) -> None:
    from tools.contract.call_options import AbortSignal, Deadline
    from tools.files.find.folder_walk import Everything, Filters, Walk

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / ".gitignore").write_bytes(top_rules.encode())
        files = [str(path.relative_to(root)) for path in build(root, tree) if path.is_file()]
        walk = Walk(Workspace([str(root)]), Filters(), Deadline(AbortSignal(), 60))
        walked_files = {item.path for item in walk.files(walk.workspace.locate("."), Everything())}
        assert walked_files - {".gitignore"} == set(files) - ignored_by_git(root, files)


PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map("/".join)
STARS = st.lists(st.sampled_from([*FRAGMENTS, "*", "*a", "?*"]), min_size=1, max_size=6).map("".join)
MANY_STARS = st.lists(STARS | st.just("**"), min_size=1, max_size=6).map("/".join)


@pytest.mark.skipif(find_spec("re2") is None, reason="not run: google-re2 is not installed")
@pytest.mark.requirement("ignore.like_git")
@examples(200, database=None)
@given(lines=st.lists(rules() | MANY_STARS, max_size=4), paths=st.lists(PATHS, max_size=20))
def test_rules_mean_the_same_with_and_without_re2(lines: list[str], paths: list[str]) -> None:
    assert_the_same_with_and_without_re2("\n".join(lines).encode(), paths)


def assert_the_same_with_and_without_re2(content: bytes, paths: list[str]) -> RuleList:
    """Check that the rules hide the same paths with and without re2, and return the rules without it."""
    with pytest.MonkeyPatch.context() as patch:
        rule_lists: list[RuleList] = []
        for limit in (-1, len(content)):
            patch.setattr(ignore_files, "MAX_RULES_FOR_RE", limit)
            rule_lists.append(read_rules(content))
    assert [rules.uses_re2 for rules in rule_lists] == [True, False]
    for path in map(bytes_text, paths):
        for is_folder in (False, True):
            with_re2, without_re2 = (rules.hides(path, is_folder=is_folder) for rules in rule_lists)
            assert with_re2 is without_re2, path
    return rule_lists[1]
