"""Which folders are the workspace: the operator's, the client's, or the working folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.roots import WorkspacePolicy
from tools.contract.errors import ToolError, ToolErrorType


def policy(*roots: Path, intersect: bool = False) -> WorkspacePolicy:
    return WorkspacePolicy([str(root) for root in roots], intersect=intersect)


@pytest.mark.requirement("roots.default")
def test_without_any_root_the_working_folder_is_the_workspace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert policy().workspace(None).roots == (str(root),)
    assert policy().workspace(()).roots == (str(root),)


@pytest.mark.requirement("roots.default")
@pytest.mark.parametrize("place", ["/", "home", "installation"])
def test_a_home_the_top_and_an_installation_are_never_taken_by_themselves(
    place: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.chdir({"/": "/", "home": str(root), "installation": sys.prefix}[place])
    with pytest.raises(ToolError, match="--workspace") as caught:
        policy().workspace(None).locate("a.txt")
    assert caught.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("roots.intersect")
def test_an_empty_intersection_keeps_nothing_and_says_why(root: Path, tmp_path: Path) -> None:
    narrowed = policy(root, intersect=True)
    with pytest.raises(ToolError, match="intersect") as caught:
        narrowed.workspace((str(tmp_path / "elsewhere"),)).locate("a")
    assert caught.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("roots.intersect")
def test_an_intersection_is_the_smaller_folder_of_each_pair(root: Path) -> None:
    (root / "part").mkdir()
    narrowed = policy(root, intersect=True)
    assert narrowed.workspace((str(root / "part"),)).roots == (str(root / "part"),)
    assert narrowed.workspace((str(root.parent),)).roots == (str(root),)
    assert narrowed.workspace((str(root),)).roots == (str(root),)
