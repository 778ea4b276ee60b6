"""Every schema that is published is valid JSON Schema and can check arguments, whatever its declaration contains."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.examples import examples
from tools.discovery.custom_tool_declarations import (
    BY_NAME,
    COUNTS,
    IDENTITY,
    IN_LIST,
    OUTDATED,
    REFERENCES,
    SINGLE,
    TEXTS,
    ArgumentCheck,
    readable_schema,
)
from tools.discovery.discovery_commands import UnusableError

SIMPLE: list[Any] = [None, True, 0, 2, -1, 1.5, "", "2", "string", "OBJECT", "#", [], ["a"], ["a", "a"], {}]
OTHERS = ("type", "enum", "const", "required", "nullable", "default", "minimum", "multipleOf", "uniqueItems", "any_of")
NAMED = BY_NAME | IN_LIST | SINGLE | COUNTS | REFERENCES | IDENTITY | OUTDATED | TEXTS
KEYWORDS = st.sampled_from([*sorted(NAMED), *OTHERS, "pattern", "format", "dependentRequired", "additionalItems", "x"])
VALUES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.sampled_from("ab"), inner, max_size=4),
    max_leaves=12,
)
VALID = st.recursive(
    st.sampled_from([{}, {"type": "STRING"}, {"type": "INTEGER", "nullable": True}, {"enum": [1, "a"]}, True]),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("ab"), inner)}),
        st.fixed_dictionaries({"items": inner, "minItems": st.sampled_from([0, "1"])}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3), "nullable": st.booleans()}),
        st.fixed_dictionaries({"items": st.lists(inner, min_size=1, max_size=2), "additionalItems": inner}),
    ),
    max_leaves=8,
)
ARGUMENTS: dict[str, Any] = {"a": 1, "b": [{}, "x", None, {"a": {"b": []}}]}


@pytest.mark.requirement("discovered.declarations")
@examples(100)
@given(st.dictionaries(KEYWORDS, VALUES, max_size=6))
def test_every_schema_that_is_published_is_valid(declaration: dict[str, Any]) -> None:
    try:
        schema = readable_schema({**declaration, "type": "OBJECT"})
    except UnusableError:
        return
    Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False).encode()
    ArgumentCheck(schema).problem_of(ARGUMENTS)


@pytest.mark.requirement("discovered.declarations.gemini")
@examples(100)
@given(st.dictionaries(st.sampled_from("ab"), VALID, max_size=2))
def test_every_valid_declaration_of_either_dialect_is_published(properties: dict[str, Any]) -> None:
    schema = readable_schema({"type": "OBJECT", "properties": properties})
    Draft202012Validator.check_schema(schema)
    assert schema["properties"].keys() == properties.keys()
    assert readable_schema(schema) == schema
