"""Saving rules to the user's settings file: what else is in it stays as it is, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.settings.errors import Findings
from server.settings.files import parse
from server.settings.saved_rules import SavedRules, with_rules
from tools.contract.errors import ToolError

pytestmark = pytest.mark.requirement("rules.saved")

RULES = ["Bash(git push *)", "Edit(//ws)"]


def read(text: str) -> dict[str, Any]:
    return parse(text.encode(), "test", Findings())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{ }\n",
        '{"log": {"level": "info"}}',
        '{\n  "log": {"level": "info"} // why\n}\n',
        '{"permissions": {}}',
        '{"permissions": {"deny": ["Read(.env)"]}}',
        '{"permissions": {"allow": []}}',
        '{"permissions": {"allow": ["Read"]}, "media": "notice"}',
        '{\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"Read" // reading\n\t\t]\n\t}\n}',
        '\ufeff{"a": "}{][\\"", /* { */ "permissions": {"allow": ["x"]}}',
        '{"permissions": {"allow": ["old"]}, "permissions": {"allow": ["new"]}}',
    ],
)
def test_rules_are_added_and_everything_else_stays(text: str) -> None:
    before = read(text) if text.strip() else {}
    after_text = with_rules(text, RULES)
    after = read(after_text)
    kept: list[str] = before.get("permissions", {}).pop("allow", []) if "permissions" in before else []
    assert after["permissions"].pop("allow") == [*kept, *RULES]
    before.setdefault("permissions", {})
    assert after == before
    assert all(line in after_text for line in ("// why", "// reading", "/* { */") if line in text)
    assert with_rules(after_text, RULES) == after_text


@pytest.mark.parametrize("text", ["[]", "{", '{"permissions": []}', '{"permissions": {"allow": "x"}}'])
def test_what_is_no_settings_file_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(ToolError):
        anyio.run(SavedRules(str(file)).keep, RULES)
    assert file.read_text() == text


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


async def _save_many(keeper: SavedRules) -> None:
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(keeper.keep, [f"Bash(command{number} *)"])


def test_rules_saved_at_once_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    anyio.run(_save_many, SavedRules(str(file)))
    assert len(json.loads(file.read_text())["permissions"]["allow"]) == 20
