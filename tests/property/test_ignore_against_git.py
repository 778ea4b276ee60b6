"""The ignore engine says what git says."""

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
    before = draw(st.sampled_from(["", "", "", "/", "!", "!/", "#"]))
    after = draw(st.sampled_from(["", "", "", "/", " ", "\r"]))
    return before + pattern + after


DIFFERENT = re.compile(r"[^/!]\*\*|\*\*[^/]|\*\*/[ \r]?$")
"""Where two stars do not stand between slashes, `pathspec` reads some lines otherwise than git: see docs/files.md."""


def means_the_same(rule: str) -> bool:
    return read_rules(rule.encode()).odd_line is None and not DIFFERENT.search(rule)


RULE_FILES = st.lists(rules().filter(means_the_same), max_size=4).map("\n".join)
Tree = dict[str, "Tree | None"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=4),
    lambda below: st.dictionaries(st.sampled_from(NAMES), st.none() | below, max_size=4),
    max_leaves=12,
)


def build(folder: Path, tree: Tree) -> list[Path]:
    """Make the tree; every path in it, folders first."""
    made: list[Path] = []
    for name, below in tree.items():
        path = folder / name
        made.append(path)
        if below is None:
            path.write_text("")
        else:
            path.mkdir()
            made += build(path, below)
    return made


def ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        env=ENVIRONMENT,
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}


def ignored_by_us(root: Path, *, git: bool = True) -> set[str]:
    ignored: set[str] = set()

    def look(folder: Path, scope: IgnoreScope, *, inside_hidden: bool) -> None:
        for path in folder.iterdir():
            if path.name in {".git", ".gitignore", ".qwenignore"}:
                continue
            hidden = inside_hidden or scope.hides(path.name, is_folder=path.is_dir()) is not None
            if hidden:
                ignored.add(str(path.relative_to(root)))
            if path.is_dir():
                look(path, scope.enter(str(path), os.listdir(path)), inside_hidden=hidden)

    workspace = Workspace([str(root)])
    look(root, scope_of(workspace, workspace.locate("."), git=git, agent=True), inside_hidden=False)
    return ignored


@pytest.mark.requirement("ignore.like_git")
@examples(60, database=None)
@given(tree=TREES, top=RULE_FILES, exclude=RULE_FILES, nested=RULE_FILES)
def test_exactly_what_git_ignores_is_ignored(tree: Tree, top: str, exclude: str, nested: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs", "info"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / ".git" / "info" / "exclude").write_bytes(exclude.encode())
        (root / ".gitignore").write_bytes(top.encode())
        made = build(root, tree)
        for path in made:
            if path.is_dir() and len(path.name) == 1:
                (path / ".gitignore").write_bytes(nested.encode())
        paths = [str(path.relative_to(root)) for path in made]
        assert ignored_by_us(root) == ignored_by_git(root, paths)


@pytest.mark.requirement("ignore.nested")
@examples(60, database=None)
@given(tree=TREES, top=RULE_FILES, nested=RULE_FILES)
def test_agent_ignore_files_at_every_level_mean_what_the_same_gitignore_files_mean(
    tree: Tree, top: str, nested: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        made = build(root, tree)
        for path in (root, *made):
            if path == root or (path.is_dir() and len(path.name) == 1):
                for name in (".gitignore", ".qwenignore"):
                    (path / name).write_bytes((top if path == root else nested).encode())
        paths = [str(path.relative_to(root)) for path in made]
        ignored = ignored_by_git(root, paths)
        assert ignored_by_us(root, git=False) == ignored
        workspace = Workspace([str(root)])
        assert {path for path in paths if agent_ignore_file(workspace, workspace.at(str(root / path)))} == ignored


@pytest.mark.requirement("ignore.like_git")
@examples(60, database=None)
@given(tree=TREES, top=RULE_FILES)
def test_a_walk_gives_exactly_the_files_that_git_does_not_ignore(tree: Tree, top: str) -> None:
    from tools.contract.limits import AbortSignal, Deadline
    from tools.files.find.folder_walk import Everything, Filters, Walk

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("objects", "refs"):
            (root / ".git" / name).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / ".gitignore").write_bytes(top.encode())
        files = [str(path.relative_to(root)) for path in build(root, tree) if path.is_file()]
        walk = Walk(Workspace([str(root)]), Filters(), Deadline(AbortSignal(), 60))
        found = {item.path for item in walk.files(walk.workspace.locate("."), Everything())}
        assert found - {".gitignore"} == set(files) - ignored_by_git(root, files)


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
    """The rules in the content of an ignore file; both ways to match them hide the same."""
    with pytest.MonkeyPatch.context() as patch:
        found: list[RuleList] = []
        for most in (-1, len(content)):
            patch.setattr(ignore_files, "MAX_RULES_FOR_RE", most)
            found.append(read_rules(content))
    assert [rules.uses_re2 for rules in found] == [True, False]
    for path in map(bytes_text, paths):
        for is_folder in (False, True):
            with_re2, without = (rules.hides(path, is_folder=is_folder) for rules in found)
            assert with_re2 is without, path
    return found[1]
