"""If any single field of a tool or a server changes, the difference names that field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.settings import UpstreamSettings
from server.upstreams.catalog.lock_file import differences, server_entry
from tests.examples import examples

TEXTS = st.text(max_size=20)
SCHEMAS = st.recursive(
    st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS, max_size=3),
    lambda inner: st.dictionaries(TEXTS, inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=5,
)
HINTS = st.dictionaries(
    st.sampled_from(["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]), st.booleans()
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "title": TEXTS,
    "description": TEXTS,
    "inputSchema": SCHEMAS,
    "outputSchema": SCHEMAS,
    "annotations": HINTS,
    "icons": st.lists(SCHEMAS, max_size=2),
    "execution": SCHEMAS,
    "_meta": SCHEMAS.map(lambda ui: {"ui": ui}),
}
FIELD_NAMES = {"execution": "other", "_meta": "ui"}
TOOLS = st.fixed_dictionaries({"name": st.just("t")}, optional=VALUES)
SERVER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "command": TEXTS,
    "version": TEXTS,
    "instructions": TEXTS,
    "prompts": SCHEMAS,
    "templates": SCHEMAS,
}


def entry(server: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    lists = {
        "tools": tools,
        "prompts": [{"name": "p", "more": server.get("prompts")}],
        "resourceTemplates": [{"uriTemplate": "u", "more": server.get("templates")}],
    }
    settings = UpstreamSettings(command="x", args=(server.get("command", ""),))
    return server_entry(settings, {"version": server.get("version", "")}, server.get("instructions", ""), lists)


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(TOOLS, st.data())
def test_every_changed_field_of_a_tool_is_named(tool: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(st.just(None) | VALUES[field])
    changed_tool = {key: item_value for key, item_value in tool.items() if key != field} | (
        {} if value is None else {field: value}
    )
    assume(repr(changed_tool.get(field)) != repr(tool.get(field)) and changed_tool.get(field) != tool.get(field))
    changes = list(differences("a", entry({}, [tool]), entry({}, [changed_tool])))
    assert {change.tool for change in changes} == {"t"}
    assert FIELD_NAMES.get(field, field) in {change.field for change in changes}
    assert {change.field.partition(".")[0] for change in changes} == {FIELD_NAMES.get(field, field)}


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(st.fixed_dictionaries(SERVER_VALUES), st.data())
def test_every_changed_field_of_a_server_is_named(server: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(SERVER_VALUES)))
    changed_server = {**server, field: data.draw(SERVER_VALUES[field])}
    assume(changed_server[field] != server[field])
    old_entry, new_entry = entry(server, []), entry(changed_server, [])
    assume(
        field != "command" or old_entry["command"] != new_entry["command"]
    )  # values that look like secrets are left out of the lock
    assert [change.field.partition(".")[0] for change in differences("a", old_entry, new_entry)] == [field]


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(st.lists(TEXTS, unique=True, max_size=5), st.lists(TEXTS, unique=True, max_size=5))
def test_added_and_removed_tools_are_named(old_names: list[str], new_names: list[str]) -> None:
    listed_changes = differences(
        "a", *(entry({}, [{"name": name} for name in names]) for names in (old_names, new_names))
    )
    changes = {(difference.tool, difference.change, difference.stops) for difference in listed_changes}
    additions = {(name, "new", True) for name in {*new_names} - {*old_names}}
    assert changes == additions | {(name, "gone", False) for name in {*old_names} - {*new_names}}
