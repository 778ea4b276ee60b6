"""File systems on which `.ENV` opens `.env`: one file keeps one name."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

from tools.files.ignore_files import agent_ignore_file, names_of_ignore_files
from tools.files.workspace import Workspace, ignores_case


@pytest.mark.requirement("paths.case")
@pytest.mark.parametrize("spelling", [".ENV", ".Env", ".env"])
def test_a_protected_name_is_protected_in_any_case(spelling: str, root: Path) -> None:
    (root / ".env").write_text("secret")
    (root / ".geminiignore").write_text(".env\n")
    workspace = Workspace([str(root)], ignore_case=True)
    location = workspace.locate(spelling)
    assert location.path == str(root / ".env")
    assert agent_ignore_file(workspace, location) == ".geminiignore"


@pytest.mark.requirement("paths.case")
def test_existing_parts_of_a_path_get_their_true_names_and_missing_parts_keep_the_given_ones(root: Path) -> None:
    name = unicodedata.normalize("NFD", "Café")
    (root / "Source" / name).mkdir(parents=True)
    (root / "Source" / name / "A.txt").write_text("a")
    workspace = Workspace([str(root)], ignore_case=True)
    composed_name = unicodedata.normalize("NFC", "café")
    assert workspace.locate(f"source/{composed_name}/a.TXT").path == str(root / "Source" / name / "A.txt")
    assert workspace.locate("SOURCE/New/b.txt").path == str(root / "Source" / "New" / "b.txt")
    assert workspace.locate(".").path == str(root)


@pytest.mark.requirement("paths.case")
def test_names_are_used_as_given_on_a_case_sensitive_file_system(root: Path) -> None:
    (root / ".env").write_text("secret")
    (root / ".ENV").write_text("another")
    assert not ignores_case(str(root))
    assert ignores_case("/") is (sys.platform in ("win32", "darwin"))
    workspace = Workspace([str(root)])
    assert workspace.locate(".ENV").path == str(root / ".ENV")
    assert workspace.locate(".Env").path == str(root / ".Env")


@pytest.mark.requirement("paths.case")
def test_an_ignore_file_is_looked_for_in_whatever_case_its_name_is_found() -> None:
    assert names_of_ignore_files([".GeminiIgnore", "Readme", ".GIT"]) == {".geminiignore", ".git"}
