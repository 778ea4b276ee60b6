"""Adding to a list in a settings file: what else is in it stays as it is, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from server.settings.errors import Findings, SettingsError
from server.settings.files import parse
from server.settings.settings_writer import with_added

pytestmark = pytest.mark.requirement("rules.saved")

RULES = ["Bash(git push *)", "Edit(//wé)"]


def read(text: str) -> dict[str, Any]:
    return parse(text.encode(), "test", Findings())


def edited(text: str) -> str:
    return with_added(text.encode(), "permissions", "allow", RULES).decode()


def is_kept(before: str, after: str) -> bool:
    """Whether everything but blanks is still there, in its order."""
    left = iter(after)
    return all(character in left for character in before if not character.isspace())


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
    before = read(text) if text.strip("\ufeff") else {}
    after_text = edited(text)
    after = read(after_text)
    kept: list[str] = before.get("permissions", {}).pop("allow", []) if "permissions" in before else []
    assert after["permissions"].pop("allow") == [*kept, *RULES]
    before.setdefault("permissions", {})
    assert after == before
    assert is_kept(text, after_text)
    assert edited(after_text) == after_text


def test_a_text_that_is_there_is_not_added_again() -> None:
    text = f'{{"permissions": {{"allow": ["{RULES[1]}"]}}}}'
    assert read(edited(text))["permissions"]["allow"] == [RULES[1], RULES[0]]


@pytest.mark.parametrize("text", ["[]", "{", '{"permissions": []}', '{"permissions": {"allow": "x"}}', "// alone"])
def test_what_holds_no_such_list_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        edited(text)
