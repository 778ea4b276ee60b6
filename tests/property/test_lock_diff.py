"""Whatever single field of a tool or a server changes, the difference names it."""

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
NAMED = {"execution": "other", "_meta": "ui"}
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
    written = UpstreamSettings(command="x", args=(server.get("command", ""),))
    return server_entry(written, {"version": server.get("version", "")}, server.get("instructions", ""), lists)


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(TOOLS, st.data())
def test_every_changed_field_of_a_tool_is_named(tool: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(st.just(None) | VALUES[field])
    other = {key: each for key, each in tool.items() if key != field} | ({} if value is None else {field: value})
    assume(repr(other.get(field)) != repr(tool.get(field)) and other.get(field) != tool.get(field))
    found = list(differences("a", entry({}, [tool]), entry({}, [other])))
    assert {each.tool for each in found} == {"t"}
    assert NAMED.get(field, field) in {each.field for each in found}
    assert {each.field.partition(".")[0] for each in found} == {NAMED.get(field, field)}


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(st.fixed_dictionaries(SERVER_VALUES), st.data())
def test_every_changed_field_of_a_server_is_named(server: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(SERVER_VALUES)))
    other = {**server, field: data.draw(SERVER_VALUES[field])}
    assume(other[field] != server[field])
    before, now = entry(server, []), entry(other, [])
    assume(field != "command" or before["command"] != now["command"])  # what looks like a secret is left out
    assert [each.field.partition(".")[0] for each in differences("a", before, now)] == [field]


@pytest.mark.requirement("lock.diff")
@examples(100)
@given(st.lists(TEXTS, unique=True, max_size=5), st.lists(TEXTS, unique=True, max_size=5))
def test_added_and_removed_tools_are_named(before: list[str], now: list[str]) -> None:
    found = differences("a", *(entry({}, [{"name": name} for name in names]) for names in (before, now)))
    changes = {(each.tool, each.change, each.stops) for each in found}
    added = {(name, "new", True) for name in {*now} - {*before}}
    assert changes == added | {(name, "gone", False) for name in {*before} - {*now}}
