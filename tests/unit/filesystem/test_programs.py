"""Programs that the settings name: how they are found, whichever feature runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.files.child_process import find_configured

SYSTEM_PATH = os.defpath


def program_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.requirement("programs.configured")
def test_a_name_is_searched_for_on_the_path_outside_the_workspace(tmp_path: Path) -> None:
    root = str(tmp_path / "workspace")
    workspace_program, program = program_at(tmp_path / "workspace" / "tool"), program_at(tmp_path / "bin" / "tool")
    search_path = os.pathsep.join((str(workspace_program.parent), str(program.parent)))
    assert find_configured("tool", search_path, root, [root]) == str(program)
    assert find_configured("tool", str(workspace_program.parent), root, [root]) is None
    assert find_configured("", search_path, root, [root]) is None


@pytest.mark.requirement("programs.configured")
def test_a_relative_path_is_relative_to_the_folder_of_the_operator(tmp_path: Path) -> None:
    program = program_at(tmp_path / "bin" / "tool")
    for spelling in ("bin/tool", "./bin/tool", f".{os.sep}.{os.sep}bin{os.sep}tool"):
        assert find_configured(spelling, SYSTEM_PATH, str(tmp_path), [str(tmp_path)]) == str(program)
        assert find_configured(spelling, SYSTEM_PATH, None, [str(tmp_path)]) is None


@pytest.mark.requirement("programs.configured")
def test_absolute_paths_and_paths_in_the_home_folder_are_used_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_at(tmp_path / "bin" / "tool")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for spelling in (str(program), "~/bin/tool"):
        assert find_configured(spelling, SYSTEM_PATH, None, [str(tmp_path)]) == str(program)


@pytest.mark.requirement("programs.configured")
def test_what_cannot_be_run_is_not_found(tmp_path: Path) -> None:
    file = program_at(tmp_path / "plain")
    file.chmod(0o644)
    assert find_configured(str(file), SYSTEM_PATH, None, []) is None
    assert find_configured(str(tmp_path), SYSTEM_PATH, None, []) is None
    assert find_configured(str(tmp_path / "nothing"), SYSTEM_PATH, None, []) is None
