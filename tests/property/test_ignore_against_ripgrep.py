"""A walk gives the files that ripgrep lists, in generated trees with ignore files and in real ones.

Rules are made of what git and ripgrep read alike. Where the two differ (malformed brackets, POSIX classes, a tree
wildcard right after a literal beginning, trailing white space) git is followed; see the comparison with git.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.harness import ROOT
from tests.property.ripgrep import listed
from tools.contract.limits import AbortSignal, Deadline
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.workspace import Workspace

NAMES = ["a", "b", "ab", "foo", "foo.txt", "b.log", "dist", ".hidden", "x y", "B"]
SEGMENTS = ["a", "b", "foo", "dist", "*", "?", "a*", "*b", "*.txt", "*.log", "[ab]", "[!a]", "f?o", ".h*", "x y", "B"]
CORPORA = [ROOT, Path(sys.prefix).resolve() / "lib"]
"""This checkout, and everything that is installed for it."""


@st.composite
def rules(draw: st.DrawFn) -> str:
    """One rule: negated or not, anchored or not, for folders only or not, with or without `**`."""
    parts = draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3))
    before = draw(st.sampled_from(["", "", "", "/", "!", "!/", "**/", "#"]))
    after = draw(st.sampled_from(["", "", "", "/", "/**"]))
    middle = draw(st.sampled_from(["/", "/", "/**/"]))
    return before + middle.join(parts) + after


RULE_FILES = st.lists(rules(), max_size=4).map("\n".join)
Tree = dict[str, "Tree | None"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=4),
    lambda below: st.dictionaries(st.sampled_from(NAMES), st.none() | below, max_size=4),
    max_leaves=14,
)


def build(folder: Path, tree: Tree, nested: str, *, is_repository: bool) -> None:
    """Make the tree; folders with short names have rules of their own, perhaps as repositories of their own."""
    for name, below in tree.items():
        path = folder / name
        if below is None:
            path.write_text("")
            continue
        path.mkdir()
        if len(name) == 1:
            (path / ".gitignore").write_text(nested)
            if is_repository:
                make_repository(path, "")
        build(path, below, nested, is_repository=is_repository)


def make_repository(folder: Path, exclude: str) -> None:
    for name in ("objects", "refs", "info"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "info" / "exclude").write_text(exclude)


def walked(root: Path) -> set[str]:
    """What our walk gives, with no folder left out but git's own."""
    workspace = Workspace([str(root)])
    walk = Walk(workspace, Filters(agent=False, folders=frozenset({".git"})), Deadline(AbortSignal(), 60))
    found = {item.path for item in walk.files(workspace.locate("."), Everything())}
    assert not walk.timed_out
    return found


@pytest.mark.requirement("walk.like_ripgrep")
@examples(70, database=None)
@given(tree=TREES, top=RULE_FILES, exclude=RULE_FILES, nested=RULE_FILES, is_repository=st.booleans())
def test_a_walk_gives_the_files_that_ripgrep_lists(
    tree: Tree, top: str, exclude: str, nested: str, is_repository: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        make_repository(root, exclude)
        (root / ".gitignore").write_text(top)
        build(root, tree, nested, is_repository=is_repository)
        assert walked(root) == listed(root)


@pytest.mark.requirement("walk.like_ripgrep")
@examples(50, database=None)
@given(tree=TREES, top=RULE_FILES, middle=RULE_FILES, exclude=RULE_FILES)
def test_rules_above_the_root_count_as_they_do_for_ripgrep(tree: Tree, top: str, middle: str, exclude: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder).resolve()
        root = repository / "foo" / "a"
        root.mkdir(parents=True)
        make_repository(repository, exclude)
        (repository / ".gitignore").write_text(top)
        (repository / "foo" / ".gitignore").write_text(middle)
        build(root, tree, "", is_repository=False)
        assert walked(root) == listed(root)


@pytest.mark.requirement("walk.like_ripgrep")
@pytest.mark.parametrize("corpus", CORPORA, ids=["checkout", "installed"])
def test_a_real_tree_is_walked_as_ripgrep_lists_it(corpus: Path) -> None:
    before = walked(corpus)
    theirs = listed(corpus)
    after = walked(corpus)
    assert theirs is not None
    assert len(theirs) > 100
    # Somebody may work in it meanwhile; what was there all the time has to be the same.
    assert before & after <= theirs <= before | after


@pytest.mark.requirement("ignore.like_git")
def test_the_checkout_is_walked_as_git_lists_it() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not run: this copy of the project is no git repository")
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    before = walked(ROOT)
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    after = walked(ROOT)
    theirs = {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}
    present = {path for path in theirs if os.path.lexists(ROOT / path)}
    assert before & after <= theirs
    assert present <= before | after
