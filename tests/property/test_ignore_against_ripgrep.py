"""A walk finds the files that ripgrep lists, in generated trees with ignore files and in real ones.

The rules use only syntax that git and ripgrep read alike. They differ in malformed brackets, POSIX classes, `**` right
after a literal beginning, and trailing white space. There, the product follows git: see the comparison with git.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.harness import ROOT
from tests.property.ripgrep import listed_files
from tools.contract.call_options import AbortSignal, Deadline
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.workspace import Workspace

NAMES = ["a", "b", "ab", "foo", "foo.txt", "b.log", "dist", ".hidden", "x y", "B"]
SEGMENTS = ["a", "b", "foo", "dist", "*", "?", "a*", "*b", "*.txt", "*.log", "[ab]", "[!a]", "f?o", ".h*", "x y", "B"]
CORPORA = [ROOT, Path(sysconfig.get_path("stdlib")).resolve()]
"""This checkout, and the standard library."""


@st.composite
def rules(draw: st.DrawFn) -> str:
    """Generate a rule: negated or not, anchored or not, for folders only or not, with or without `**`."""
    parts = draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3))
    prefix = draw(st.sampled_from(["", "", "", "/", "!", "!/", "**/", "#"]))
    suffix = draw(st.sampled_from(["", "", "", "/", "/**"]))
    middle = draw(st.sampled_from(["/", "/", "/**/"]))
    return prefix + middle.join(parts) + suffix


RULE_FILES = st.lists(rules(), max_size=4).map("\n".join)
Tree = dict[str, "Tree | None"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=4),
    lambda subtrees: st.dictionaries(st.sampled_from(NAMES), st.none() | subtrees, max_size=4),
    max_leaves=14,
)


def build(folder: Path, tree: Tree, nested_rules: str, *, is_repository: bool) -> None:
    """Create the tree. Folders with names of one character get rules of their own, and can be repositories."""
    for name, subtree in tree.items():
        path = folder / name
        if subtree is None:
            path.write_text("")
            continue
        path.mkdir()
        if len(name) == 1:
            (path / ".gitignore").write_text(nested_rules)
            if is_repository:
                make_repository(path, "")
        build(path, subtree, nested_rules, is_repository=is_repository)


def make_repository(folder: Path, exclude: str) -> None:
    for name in ("objects", "refs", "info"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "info" / "exclude").write_text(exclude)


def walked_files(root: Path) -> set[str]:
    """Return the files that the product's walk finds. It skips only git's own folder."""
    workspace = Workspace([str(root)])
    walk = Walk(workspace, Filters(agent=False, folders=frozenset({".git"})), Deadline(AbortSignal(), 60))
    paths = {item.path for item in walk.files(workspace.locate("."), Everything())}
    assert not walk.timed_out
    return paths


@pytest.mark.requirement("walk.like_ripgrep")
@examples(70, database=None)
@given(tree=TREES, top_rules=RULE_FILES, exclude=RULE_FILES, nested_rules=RULE_FILES, is_repository=st.booleans())
def test_a_walk_finds_the_files_that_ripgrep_lists(
    tree: Tree, top_rules: str, exclude: str, nested_rules: str, is_repository: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        make_repository(root, exclude)
        (root / ".gitignore").write_text(top_rules)
        build(root, tree, nested_rules, is_repository=is_repository)
        assert walked_files(root) == listed_files(root)


@pytest.mark.requirement("walk.like_ripgrep")
@examples(50, database=None)
@given(tree=TREES, top_rules=RULE_FILES, middle_rules=RULE_FILES, exclude=RULE_FILES)
def test_rules_above_the_root_apply_as_they_do_for_ripgrep(
    tree: Tree, top_rules: str, middle_rules: str, exclude: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder).resolve()
        root = repository / "foo" / "a"
        root.mkdir(parents=True)
        make_repository(repository, exclude)
        (repository / ".gitignore").write_text(top_rules)
        (repository / "foo" / ".gitignore").write_text(middle_rules)
        build(root, tree, "", is_repository=False)
        assert walked_files(root) == listed_files(root)


@pytest.mark.requirement("walk.like_ripgrep")
@pytest.mark.parametrize("corpus", CORPORA, ids=["checkout", "standard library"])
def test_a_real_tree_is_walked_as_ripgrep_lists_it(corpus: Path) -> None:
    earlier_files = walked_files(corpus)
    ripgrep_files = listed_files(corpus)
    later_files = walked_files(corpus)
    assert ripgrep_files is not None
    assert len(ripgrep_files) > 100
    # Files may change during the test. Those that exist the whole time must be listed.
    assert earlier_files & later_files <= ripgrep_files <= earlier_files | later_files


@pytest.mark.requirement("ignore.like_git")
def test_the_checkout_is_walked_as_git_lists_it() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not run: this copy of the project is not a git repository")
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    earlier_files = walked_files(ROOT)
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    later_files = walked_files(ROOT)
    git_files = {os.fsdecode(path) for path in process.stdout.split(b"\0") if path}
    present = {path for path in git_files if os.path.lexists(ROOT / path)}
    assert earlier_files & later_files <= git_files
    assert present <= earlier_files | later_files
