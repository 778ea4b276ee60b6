"""Reading tool declarations: which shapes are accepted, and which declarations are left out with a warning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, SchemaError

from tools.discovery.custom_tool_declarations import (
    MAX_NAME,
    MAX_TOOLS,
    Declarations,
    DiscoveryError,
    read_declarations,
)

RESERVED = frozenset({"read_file", "replace"})
DEEP: Any = json.loads("[" * 60 + "]" * 60)
HUGE = 123.25
"""A placeholder for 1e999, which Python reads as infinity, although JSON has no such number."""


def read(*declarations: Any) -> Declarations:
    """Read an array of these declarations."""
    return read_declarations(json.dumps(declarations).encode(), RESERVED)


def schema_of(declaration: Any) -> Any:
    """Return the published schema of a tool that is declared with these fields."""
    result = read({"name": "t", **declaration})
    assert result.warnings == []
    return result.tools["t"].schema


def warning_of(*declarations: Any) -> str:
    """Return the only warning about these declarations."""
    (warning,) = read(*declarations).warnings
    return warning


@pytest.mark.parametrize("wrapper", ["function_declarations", "functionDeclarations"])
@pytest.mark.requirement("discovered.declarations")
def test_declarations_stand_alone_or_in_wrapper_objects(wrapper: str) -> None:
    result = read({"name": "a"}, {wrapper: [{"name": "b"}, {"name": "c"}]}, {"name": "d"})
    assert list(result.tools) == ["a", "b", "c", "d"]
    lone_wrapper = read_declarations(json.dumps({wrapper: [{"name": "b"}]}).encode(), RESERVED)
    assert list(lone_wrapper.tools) == ["b"]


@pytest.mark.parametrize(
    "key", ["parametersJsonSchema", "parameters_json_schema", "parameters", "inputSchema", "input_schema"]
)
@pytest.mark.requirement("discovered.declarations")
def test_the_schema_is_found_under_each_of_its_names(key: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert schema_of({key: schema}) == schema


@pytest.mark.requirement("discovered.declarations")
def test_a_tool_without_parameters_has_the_schema_of_an_empty_object() -> None:
    empty_schema: Any = {"type": "object", "properties": {}}
    assert schema_of({}) == empty_schema
    assert schema_of({"parameters": None}) == empty_schema
    assert schema_of({"parameters": {}}) == empty_schema


@pytest.mark.requirement("discovered.declarations.gemini")
def test_the_dialect_of_the_gemini_api_becomes_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "nullable": None,
        "properties": {
            "type": {"type": "STRING", "enum": ["STRING", "x"], "nullable": True, "format": "enum"},
            "rows": {"type": "ARRAY", "min_items": "2", "maxItems": "5", "items": {"type": "INTEGER"}},
            "any": {"any_of": [{"type": "NUMBER"}], "nullable": True, "default": None},
            "rest": {"type": "TYPE_UNSPECIFIED", "description": "Anything"},
        },
        "required": ["type"],
    }
    assert schema_of({"parameters": schema}) == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["STRING", "x", None], "format": "enum"},
            "rows": {"type": "array", "minItems": 2, "maxItems": 5, "items": {"type": "integer"}},
            "any": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "rest": {"description": "Anything"},
        },
        "required": ["type"],
    }


@pytest.mark.requirement("discovered.declarations")
def test_a_schema_of_an_older_draft_is_converted_to_the_draft_of_mcp() -> None:
    pair = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"pair": pair}}
    published_schema = schema_of({"parameters": schema})
    assert published_schema == {
        "type": "object",
        "properties": {"pair": {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}},
    }
    check = read({"name": "t", "parameters": schema}).tools["t"].check
    assert check.problem_of({"pair": ["a", 1]}) is None
    assert check.problem_of({"pair": ["a", "b"]}) is not None
    assert check.problem_of({"pair": ["a", 1, 2]}) is not None


WRONG: tuple[dict[str, Any], ...] = (
    {"type": ["string", 1]},
    {"type": []},
    {"required": "a"},
    {"properties": []},
    {"anyOf": []},
    {"anyOf": {}},
    {"items": "string"},
    {"enum": "a"},
    {"maxLength": -1},
    {"maxLength": "many"},
    {"minimum": "1"},
    {"exclusiveMinimum": True},
    {"multipleOf": 0},
    {"uniqueItems": 1},
    {"pattern": 1},
    {"description": ["a"]},
    {"$ref": {}},
    {"additionalProperties": "no"},
    {"not": None, "if": 1},
    {"dependentRequired": {"a": "b"}},
)


@pytest.mark.parametrize("wrong_schema", WRONG)
@pytest.mark.requirement("discovered.declarations")
def test_a_wrong_keyword_anywhere_in_a_schema_leaves_the_tool_out(wrong_schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(wrong_schema)
    nesting_schema = {"properties": {"a": {"anyOf": [{"items": {"properties": {"b": wrong_schema}}}]}}}
    assert list(read({"name": "t", "parameters": nesting_schema}, {"name": "last"}).tools) == ["last"]


@pytest.mark.requirement("discovered.declarations.gemini")
def test_values_in_a_schema_that_look_like_schemas_stay() -> None:
    literals = {
        "const": {"type": "STRING"},
        "default": {"type": "STRING", "nullable": True},
        "x-note": {"type": "OBJECT"},
    }
    assert schema_of({"parameters": {"properties": {"pattern": literals}}})["properties"] == {"pattern": literals}


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("a string", "was left out: it is not an object."),
        ({"description": "nameless"}, "was left out: it has no name."),
        ({"name": ["a"]}, "was left out: it has no name."),
        ({"name": "--help"}, "('--help') was left out: the call command would read its name as an option."),
        ({"name": "a\u202eb"}, "was left out: its name has invisible characters."),
        ({"name": "a\x00"}, "was left out: its name has invisible characters."),
        ({"name": "replace"}, "('replace') was left out: built-in tools, rules or other coding agents use this name"),
        ({"name": "b", "parameters": "none"}, "was left out: its 'parameters' is not an object."),
        ({"name": "b", "parameters": {"type": "STRING"}}, 'its parameters are of type "string", but must be an'),
        ({"name": "b", "parameters": {"properties": {"a": 1}}}, "1 is not a schema."),
        (
            {"name": "b", "parameters": {"properties": {"a": {"type": "text"}}}},
            'its type is "text", which JSON Schema does not define',
        ),
        ({"name": "b", "parameters": {"properties": {"a": {"$ref": "http://x/y"}}}}, "has no target"),
        ({"name": "b", "parameters": {"properties": {"a": {"$ref": "#/$defs/no"}}}}, "has no target"),
        ({"name": "b", "parameters": {"default": DEEP}}, "was left out: it is nested more than 50 levels deep."),
        ({"name": "b", "parameters": {"default": "\ud800"}}, "was left out: it contains a lone surrogate"),
        ({"name": "b", "parameters": {"default": HUGE}}, "was left out: it contains a number that is too large."),
        ({"name": "b", "description": "x" * 64_000}, "it has more than 64,000 characters."),
    ],
)
@pytest.mark.requirement("discovered.declarations")
def test_a_declaration_that_cannot_be_used_is_left_out_and_the_others_stay(declaration: Any, reason: str) -> None:
    output = json.dumps([{"name": "first"}, declaration, {"name": "last"}]).replace(str(HUGE), "1e999")
    result = read_declarations(output.encode(), RESERVED)
    assert list(result.tools) == ["first", "last"]
    (warning,) = result.warnings
    assert warning.startswith("Declaration 2")
    assert reason in warning


@pytest.mark.requirement("discovered.declarations")
def test_the_first_of_two_tools_with_the_same_name_counts() -> None:
    result = read({"name": "a", "description": "one"}, {"name": "a", "description": "two"})
    assert result.tools["a"].description == "one"
    assert "an earlier declaration has this name" in result.warnings[0]


@pytest.mark.requirement("discovered.declarations")
def test_a_wrapper_without_an_array_is_left_out() -> None:
    assert warning_of({"function_declarations": {"name": "a"}}) == (
        "Entry 1 was left out: its 'function_declarations' is not an array."
    )


@pytest.mark.requirement("discovered.names")
def test_a_name_that_clients_do_not_accept_is_changed_with_a_warning() -> None:
    result = read({"name": "get weather/now"}, {"name": "get-weather-now"}, {"name": "x" * 65})
    weather_name, plain_name, long_name = result.tools
    assert weather_name.startswith("get-weather-now-")
    assert plain_name == "get-weather-now"
    assert len(long_name) == MAX_NAME
    assert result.tools[weather_name].declared_name == "get weather/now"
    assert result.tools[long_name].declared_name == "x" * 65
    assert [warning.partition(":")[0] for warning in result.warnings] == [
        f"'get weather/now' is published as '{weather_name}'",
        f"'{'x' * 65}' is published as '{long_name}'",
    ]
    assert list(read({"name": "get weather/now"}).tools) == [weather_name]


@pytest.mark.requirement("discovered.declarations")
def test_invisible_characters_are_made_visible_in_descriptions() -> None:
    result = read(
        {
            "name": "a",
            "description": "line\nnext\x1b[2J\u202e\ud800",
            "parameters": {"properties": {"p": {"description": "\x07!"}}},
        }
    )
    assert result.tools["a"].description == "line\nnext␛[2J<U+202E><U+D800>"
    assert result.tools["a"].schema["properties"]["p"]["description"] == "␇!"


@pytest.mark.requirement("discovered.start")
def test_at_most_a_thousand_tools_are_taken_and_few_warnings_kept() -> None:
    result = read(*({"name": f"t{number}"} for number in range(MAX_TOOLS + 100)))
    assert len(result.tools) == MAX_TOOLS
    assert len(result.warnings) == 21
    assert result.warnings[-1] == "Further declarations that were left out or changed: 80."


@pytest.mark.requirement("discovered.start")
def test_all_tools_together_are_limited() -> None:
    result = read(*({"name": f"t{number}", "description": "x" * 60_000} for number in range(40)))
    assert len(result.tools) == 33
    assert "2,000,000 characters are accepted" in result.warnings[0]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "printed nothing"),
        ("  \n", "printed nothing"),
        ("Loading...\n[]", "it is not JSON: Expecting value in line 1, column 1"),
        ('"text"', "printed JSON that is not an array"),
        ('{"name": "a"}', "printed JSON that is not an array"),
        ("[" * 100_000, "it has more than 100,000 values"),
        ("[" * 90_000 + "]" * 90_000, "it is nested"),
        ('[{"name": "a", "x": NaN}]', "NaN is not JSON"),
        ("[" + "9" * 5_000 + "]", "it contains a number with thousands of digits"),
    ],
)
@pytest.mark.requirement("discovered.failed")
def test_output_that_is_no_list_of_declarations_is_an_error_with_advice(output: str, reason: str) -> None:
    with pytest.raises(DiscoveryError) as error_info:
        read_declarations(output.encode(), RESERVED)
    assert reason in str(error_info.value)
    assert "Make it print" in str(error_info.value)


@pytest.mark.requirement("discovered.declarations")
def test_a_byte_order_mark_and_bytes_that_are_not_utf_8_do_no_harm() -> None:
    result = read_declarations(b'\xef\xbb\xbf[{"name": "a", "description": "caf\xe9"}]', RESERVED)
    assert result.tools["a"].description == "caf\ufffd"


@pytest.mark.requirement("discovered.arguments")
def test_patterns_that_could_take_forever_are_left_to_the_tool() -> None:
    slow_schema = {"type": "string", "pattern": "^(a+)+$"}
    schema: Any = {
        "properties": {"a": slow_schema, "b": {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}},
        "required": ["a"],
    }
    tool = read({"name": "t", "parameters": schema}).tools["t"]
    assert tool.schema["properties"]["a"] == slow_schema
    assert tool.check.problem_of({"a": "a" * 40 + "!", "b": {"a" * 40 + "!": 1}}) is None
    assert tool.check.problem_of({"a": 1}) is not None


@pytest.mark.requirement("discovered.arguments")
def test_a_recursive_schema_is_followed_as_deep_as_the_arguments_go() -> None:
    schema = {"properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}}
    tool = read({"name": "t", "parameters": schema}).tools["t"]
    assert tool.check.problem_of({"child": {"child": {"n": 1}}}) is None
    problem = tool.check.problem_of({"child": {"child": {"n": "x"}}})
    assert problem is not None
    assert problem.startswith("'child.child.n' must satisfy type")


@pytest.mark.requirement("discovered.arguments")
def test_a_schema_that_only_refers_to_itself_causes_no_endless_loop() -> None:
    tool = read({"name": "t", "parameters": {"properties": {"a": {"$ref": "#/properties/a"}}}}).tools["t"]
    assert tool.check.problem_of({"a": 1}) == "they are nested too deeply."
