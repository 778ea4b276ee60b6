"""Entries put into a settings file: every other byte of it stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.settings import SettingsError
from server.settings.errors import Findings
from server.settings.files import parse
from server.settings.settings_writer import with_entries

NEW: dict[str, Any] = {"new": {"command": "x", "args": ["a", "ü"]}}


def servers(content: bytes) -> dict[str, Any]:
    return parse(content, "test", Findings())["mcpServers"]


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
    # What was there is there still, in its order: taking the new bytes away gives the old ones.
    position = 0
    for byte in before:
        position = after.index(byte, position) + 1


@pytest.mark.requirement("settings.editing.entries")
def test_an_entry_that_is_there_is_replaced_in_its_place() -> None:
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
def test_what_is_no_settings_file_is_left_alone(content: bytes) -> None:
    with pytest.raises(SettingsError):
        with_entries(content, "mcpServers", NEW)
