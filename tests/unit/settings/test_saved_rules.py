"""Saving rules in the user's settings file: written as a whole, and why where they are not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest

from server.settings.settings_writer import SavedRules
from tools.contract.errors import ToolError, ToolErrorType

RULES = ["Bash(git push *)", "Edit(//ws)"]


@pytest.mark.requirement("rules.saved")
@pytest.mark.parametrize("text", ["[]", "{", "\xff", '{"permissions": []}', '{"permissions": {"allow": "x"}}'])
def test_what_is_no_settings_file_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text, "latin-1")
    with pytest.raises(ToolError):
        anyio.run(SavedRules(str(file)).keep, RULES)
    assert file.read_text("latin-1") == text


@pytest.mark.requirement("rules.saved")
def test_the_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o600)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    assert anyio.run(SavedRules(str(link)).keep, RULES) == "permissions.allow"
    assert link.is_symlink()
    assert json.loads(real.read_text())["permissions"]["allow"] == RULES
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["dotfiles.json", "settings.json"]


@pytest.mark.requirement("rules.not_saved")
@pytest.mark.parametrize("in_the_way", ["a folder", "a file above it", "a folder that cannot be made", "no settings"])
def test_why_nothing_was_saved_is_told_without_a_path_and_with_a_way_out(tmp_path: Path, in_the_way: str) -> None:
    file = tmp_path / "above" / "settings.json"
    if in_the_way == "a folder":
        file.mkdir(parents=True)
    elif in_the_way == "a file above it":
        file.parent.write_text("x")
    elif in_the_way == "no settings":
        file.parent.mkdir()
        file.write_text("{")
    else:
        file = tmp_path / ("x" * 300) / "settings.json"
    with pytest.raises(ToolError) as caught:
        anyio.run(SavedRules(str(file)).keep, RULES)
    assert caught.value.code is ToolErrorType.FILE_WRITE_FAILURE
    assert str(tmp_path) not in caught.value.message
    assert "settings.json" not in caught.value.message
    assert "permissions.allow there by hand" in caught.value.message


async def _save_many(keeper: SavedRules) -> None:
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(keeper.keep, [f"Bash(command{number} *)"])


@pytest.mark.requirement("rules.saved")
def test_rules_saved_at_once_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    anyio.run(_save_many, SavedRules(str(file)))
    assert len(json.loads(file.read_text())["permissions"]["allow"]) == 20
