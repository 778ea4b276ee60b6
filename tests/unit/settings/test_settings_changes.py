"""Edits of a settings file: everything else in it stays unchanged, and it is written completely or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.settings import SettingsError
from server.settings.document_editor import SavedRules, with_entries, with_items
from server.settings.section_model import Diagnostics
from server.settings.settings_files import parse
from tools.contract.tool_errors import ToolError, ToolErrorType

RULES = ["Bash(git push *)", "Edit(//wé)"]

NEW: dict[str, Any] = {"new": {"command": "x", "args": ["a", "ü"]}}


def read(text: str) -> dict[str, Any]:
    return parse(text.encode(), "test", Diagnostics())


def with_rules(text: str) -> str:
    return with_items(text.encode(), "permissions", "allow", RULES).decode()


def is_kept(before: str, after: str) -> bool:
    """Return whether all characters except blanks are still there, in the same order."""
    characters = iter(after)
    return all(character in characters for character in before if not character.isspace())


@pytest.mark.requirement("rules.saved")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeff",
        "{}",
        "{ }\n",
        "{ // nothing yet\n}",
        '{"log": {"level": "info"}}',
        '{\n  "log": {"level": "info"} // why\n}\n',
        '{"permissions": {}}',
        '{"permissions": { /* nothing yet */ }}',
        '{"permissions": {"deny": ["Read(.env)"]}}',
        '{"permissions": {"allow": []}}',
        '{"permissions": {"allow": [\n  // nothing yet\n]}}',
        '{"permissions": {"allow": ["Read"]}, "media": "notice"}',
        '{\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"Read" // reading\n\t\t]\n\t}\n}',
        '\ufeff{"a": "}{][\\"", /* { */ "permissions": {"allow": ["x"]}}',
        '{"permissions": {"allow": ["old"]}, "permissions": {"allow": ["new"]}}',
    ],
)
def test_texts_are_added_and_everything_else_stays(text: str) -> None:
    before = read(text)
    after_text = with_rules(text)
    after = read(after_text)
    old_rules: list[str] = before.get("permissions", {}).pop("allow", []) if "permissions" in before else []
    assert after["permissions"].pop("allow") == [*old_rules, *RULES]
    before.setdefault("permissions", {})
    assert after == before
    assert is_kept(text, after_text)
    assert with_rules(after_text) == after_text


@pytest.mark.requirement("rules.saved")
def test_an_existing_text_is_not_added_again() -> None:
    text = f'{{"permissions": {{"allow": ["{RULES[1]}"]}}}}'
    assert read(with_rules(text))["permissions"]["allow"] == [RULES[1], RULES[0]]


@pytest.mark.requirement("rules.saved")
@pytest.mark.parametrize("text", ["[]", "{", '{"permissions": []}', '{"permissions": {"allow": "x"}}', "// alone"])
def test_a_file_to_which_the_list_cannot_be_added_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        with_rules(text)


def servers(content: bytes) -> dict[str, Any]:
    return parse(content, "test", Diagnostics())["mcpServers"]


@pytest.mark.requirement("settings.editing.entries")
@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"{}",
        b'{"media": "inline"}',
        b'{"mcpServers": {}}',
        b'{\n  // why\n  "mcpServers": {\n    "a": {"command": "a"} // a comment\n  },\n  "media": "inline"\n}\n',
        b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "a"}}}',
    ],
    ids=["no file", "empty", "other keys", "no servers", "comments", "byte order mark"],
)
def test_an_entry_is_added_and_everything_else_stays(before: bytes) -> None:
    after = with_entries(before, "mcpServers", NEW)
    assert servers(after)["new"] == NEW["new"]
    # The old content is a subsequence of the new content: removing the added bytes gives the old file.
    position = 0
    for byte in before:
        position = after.index(byte, position) + 1


@pytest.mark.requirement("settings.editing.entries")
@pytest.mark.parametrize("before", ["\u2028", "\xa0\n", "\ufeff\ufeff"], ids=ascii)
def test_an_entry_is_added_to_a_file_with_nothing_but_blanks_and_byte_order_marks(before: str) -> None:
    assert servers(with_entries(before.encode(), "mcpServers", NEW))["new"] == NEW["new"]


@pytest.mark.requirement("settings.editing.entries")
def test_an_existing_entry_is_replaced_in_its_place() -> None:
    before = b'{"mcpServers": {"a": {"command": "a"}, /* old */ "new": {"url": "u"}, "z": {"command": "z"}}} // end'
    after = with_entries(before, "mcpServers", NEW)
    assert list(servers(after)) == ["a", "new", "z"]
    assert servers(after)["new"] == NEW["new"]
    assert after.startswith(before[: before.index(b'{"url"')])
    assert after.endswith(b', "z": {"command": "z"}}} // end')


@pytest.mark.requirement("settings.editing.entries")
def test_several_entries_and_names_that_json_has_to_escape() -> None:
    entries = {'quo"te': {"command": "1"}, "b": {"command": "2"}}
    assert servers(with_entries(b"{}", "mcpServers", entries)) == entries
    assert with_entries(b"{ }", "mcpServers", {}) == b"{ }"


@pytest.mark.requirement("settings.editing.entries")
@pytest.mark.parametrize("content", [b"[]", b"{", json.dumps({"mcpServers": []}).encode()])
def test_entries_are_not_added_to_a_file_that_is_not_a_valid_settings_file(content: bytes) -> None:
    with pytest.raises(SettingsError):
        with_entries(content, "mcpServers", NEW)


@pytest.mark.requirement("rules.saved")
@pytest.mark.parametrize("text", ["[]", "{", "\xff", '{"permissions": []}', '{"permissions": {"allow": "x"}}'])
def test_rules_are_not_saved_in_a_file_that_is_not_a_valid_settings_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text, "latin-1")
    with pytest.raises(ToolError):
        anyio.run(SavedRules(str(file)).save, RULES)
    assert file.read_text("latin-1") == text


@pytest.mark.requirement("rules.saved")
def test_the_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    real_file = tmp_path / "dotfiles.json"
    real_file.write_text("{}")
    real_file.chmod(0o600)
    link = tmp_path / "settings.json"
    link.symlink_to(real_file)
    assert anyio.run(SavedRules(str(link)).save, RULES) == "permissions.allow"
    assert link.is_symlink()
    assert json.loads(real_file.read_text())["permissions"]["allow"] == RULES
    assert real_file.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["dotfiles.json", "settings.json"]


@pytest.mark.requirement("rules.saved")
def test_a_file_that_has_to_be_created_is_private_and_so_is_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "made" / "settings.json"
    anyio.run(SavedRules(str(file)).save, RULES)
    assert json.loads(file.read_text()) == {"permissions": {"allow": RULES}}
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(file.parent) == ["settings.json"]


@pytest.mark.requirement("rules.saved")
@pytest.mark.parametrize("obstacle", ["a folder", "a file above it", "a folder that cannot be made", "no settings"])
def test_the_message_about_a_failed_save_names_no_path_and_a_way_out(tmp_path: Path, obstacle: str) -> None:
    file = tmp_path / "above" / "settings.json"
    if obstacle == "a folder":
        file.mkdir(parents=True)
    elif obstacle == "a file above it":
        file.parent.write_text("x")
    elif obstacle == "no settings":
        file.parent.mkdir()
        file.write_text("{")
    else:
        file = tmp_path / ("x" * 300) / "settings.json"
    with pytest.raises(ToolError) as error_info:
        anyio.run(SavedRules(str(file)).save, RULES)
    assert error_info.value.code is ToolErrorType.FILE_WRITE_FAILURE
    assert str(tmp_path) not in error_info.value.message
    assert "settings.json" not in error_info.value.message
    assert "permissions.allow there by hand" in error_info.value.message


async def _save_many(rule_store: SavedRules) -> None:
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(rule_store.save, [f"Bash(command{number} *)"])


@pytest.mark.requirement("rules.saved")
def test_rules_that_are_saved_concurrently_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    anyio.run(_save_many, SavedRules(str(file)))
    assert len(json.loads(file.read_text())["permissions"]["allow"]) == 20
