"""Arguments as models write them: spellings, conversions, errors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from tests.tables import each_of
from tools.builtin.read_file import ReadFileTool
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import UNPUBLISHED, ToolParams, bind, full_schema, published_schema, rename


class Options(ToolParams):
    """A nested object."""

    respect: bool = True


class Params(ToolParams):
    """Parameters of every kind."""

    path: str
    offset: int | None = Field(None, ge=0, description="The first line.")
    all: bool = False
    names: list[str] = Field(default=[])
    options: Options | None = None
    old: int | None = Field(None, ge=1, json_schema_extra=UNPUBLISHED)


SCHEMA = full_schema(Params)


def bind_params(**arguments: Any) -> Params:
    return bind("tool", Params, SCHEMA, arguments)


@pytest.mark.requirement("params.schema")
def test_the_schema_has_no_references_titles_or_nulls() -> None:
    assert SCHEMA == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first line."},
            "all": {"type": "boolean", "default": False},
            "names": {"type": "array", "items": {"type": "string"}, "default": []},
            "options": {
                "type": "object",
                "properties": {"respect": {"type": "boolean", "default": True}},
                "additionalProperties": False,
            },
            "old": {"type": "integer", "minimum": 1, **UNPUBLISHED},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.requirement("params.schema")
def test_models_see_neither_bounds_nor_empty_defaults_nor_older_parameters() -> None:
    assert published_schema(SCHEMA) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "description": "The first line."},
            "all": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "options": {
                "type": "object",
                "properties": {"respect": {"type": "boolean", "default": True}},
                "additionalProperties": False,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.requirement("params.coercion")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"offset": "5"}, ("offset", 5)),
        ({"offset": " 7 "}, ("offset", 7)),
        ({"offset": 5.0}, ("offset", 5)),
        ({"all": "true"}, ("all", True)),
        ({"all": "FALSE"}, ("all", False)),
        ({"names": '["a", "b"]'}, ("names", ["a", "b"])),
        ({"options": '{"respect": false}'}, ("options", Options(respect=False))),
        ({"options": {"respect": "False"}}, ("options", Options(respect=False))),
        ({"path": 5}, ("path", "5")),
        ({"names": "[1, -2]"}, ("names", ["1", "-2"])),
    ],
)
def test_values_are_converted_to_the_type_of_the_property(arguments: dict[str, Any], expected: tuple[str, Any]) -> None:
    assert getattr(bind_params(**{"path": "p", **arguments}), expected[0]) == expected[1]


@pytest.mark.requirement("params.coercion")
@pytest.mark.parametrize("value", ["true", "5", "[]", "{}", "null"])
def test_a_string_stays_a_string_if_the_property_is_a_string(value: str) -> None:
    assert bind_params(path=value, offset="5").path == value


@pytest.mark.requirement("params.coercion")
@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": 1.5},
        {"offset": "1.5"},
        {"offset": True},
        {"offset": "9" * 5000},
        {"all": 2},
        {"all": "maybe"},
        {"names": "a"},
        {"names": [1.5]},
        {"names": "[" * 100_000},
        {"options": "[]"},
        {"path": 5.5},
        {"path": True},
        {"path": ["p"]},
    ],
)
def test_a_value_that_cannot_be_converted_safely_is_refused_with_the_accepted_names(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(InvalidToolParamsError) as error:
        bind_params(**{"path": "p", **arguments})
    name = next(iter(arguments))
    assert f"'{name}" in error.value.message
    accepted = (
        "Accepted in 'options': respect." if name == "options" else "Accepted: path, offset, all, names, options."
    )
    assert accepted in error.value.message
    assert len(error.value.message) < 1000


@pytest.mark.requirement("params.coercion")
def test_the_error_about_a_missing_path_names_the_other_name_of_the_parameter_which_the_schema_does_not() -> None:
    tool = ReadFileTool()
    assert tool.parameter_aliases["file_path"] == "absolute_path"
    with pytest.raises(InvalidToolParamsError, match=r"Accepted: absolute_path \(or file_path\), offset"):
        tool.validate_tool_params({"limit": 5})
    assert "x-other-name" not in str(tool.parameter_schema)


@pytest.mark.requirement("params.bounds")
@pytest.mark.parametrize(
    "number",
    [10**4299, 2**53 + 1, -(10**4299), -(2**53) - 1, 1e300],
    ids=["4,300 digits", "too large", "4,300 digits below", "too small", "float"],
)
@pytest.mark.parametrize("name", ["offset", "path"])
def test_a_number_of_thousands_of_digits_is_refused_in_a_short_sentence(name: str, number: float) -> None:
    with pytest.raises(InvalidToolParamsError) as error:
        bind_params(**{"path": "p", name: number})
    assert f"'{name}" in error.value.message
    assert len(error.value.message) < 300


@pytest.mark.requirement("params.bounds")
def test_the_largest_number_that_every_json_reader_preserves_is_accepted() -> None:
    assert bind_params(path="p", offset=2**53).offset == 2**53
    assert bind_params(path="p", offset=str(2**53)).offset == 2**53


@pytest.mark.requirement("params.coercion")
def test_a_missing_and_an_unknown_property_are_both_named() -> None:
    with pytest.raises(InvalidToolParamsError) as error:
        bind_params(file="x")
    assert "'path' is required." in error.value.message
    assert "Unknown: file." in error.value.message


@pytest.mark.requirement("params.empty")
@each_of("empty", ["", [], {}, None])
def test_an_empty_value_counts_as_omitted_if_it_is_not_required(empty: Any) -> None:
    arguments: dict[str, Any] = dict.fromkeys(("offset", "all", "names", "options", "old"), empty)
    assert bind_params(path="p", **arguments) == bind_params(path="p")
    assert bind_params(path="p", options={"respect": empty}) == bind_params(path="p", options={})
    assert rename("tool", {"other": empty, "path": ""}, {}, {"path"}) == ({"path": ""}, {"path": "path"})


@pytest.mark.requirement("params.empty")
def test_zero_counts_as_omitted_if_it_is_out_of_bounds() -> None:
    params = bind_params(path="", offset=0, old=0)
    assert (params.path, params.offset, params.old) == ("", 0, None)


@pytest.mark.requirement("params.schema")
def test_an_alias_is_mapped_and_its_spelling_is_kept() -> None:
    for spelling in ("file_path", "filePath", "file-path", "FILE_PATH"):
        arguments, spellings = rename("tool", {spelling: "a", "limit": None}, {"filepath": "path"})
        assert arguments == {"path": "a"}
        assert spellings == {"path": spelling}


@pytest.mark.requirement("params.schema")
def test_alias_and_name_may_agree_but_not_differ() -> None:
    aliases = {"filepath": "path"}
    assert rename("tool", {"filePath": "a", "path": "a"}, aliases) == ({"path": "a"}, {"path": "path"})
    with pytest.raises(InvalidToolParamsError, match="different values"):
        rename("tool", {"file_path": "a", "path": "b"}, aliases)
