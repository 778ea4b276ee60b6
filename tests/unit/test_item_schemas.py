"""Items of upstreams' lists are made to fit the schemas of the specification, whatever they contain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from server.protocol import item_schemas
from server.protocol.item_schemas import UnfitError, fitted, for_handshake
from server.protocol.revisions import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS
from server.upstreams.relay.upstream_resources import with_alias, without_alias
from tests.tables import each_of

Json = dict[str, Any]

DATA: Json = json.loads(Path(item_schemas.__file__).with_suffix(".json").read_text("utf-8"))
ICON = {"src": "https://a.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
ABOUT = {"title": "T", "description": "D", "icons": [ICON], "_meta": {"a": None}, "x-more": None}
HINTS = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"}
OUTPUT: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
ITEMS: dict[str, Json] = {
    "Tool": {
        "name": "t",
        "inputSchema": {"$schema": "x", "type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]},
        "outputSchema": OUTPUT,
        "annotations": {"title": "T", "readOnlyHint": True, "idempotentHint": False},
        "execution": {"taskSupport": "optional"},
        **ABOUT,
    },
    "Prompt": {"name": "p", "arguments": [{"name": "a", "title": "A", "description": "D", "required": True}], **ABOUT},
    "Resource": {"uri": "memo://a", "name": "r", "mimeType": "a/b", "size": 5, "annotations": HINTS, **ABOUT},
    "ResourceTemplate": {"uriTemplate": "memo://{a}", "name": "r", "mimeType": "a/b", "annotations": HINTS, **ABOUT},
}
WRONG: list[Any] = [None, 5, -1.5, True, False, "x", [], [None], {}, {"a": None}, float("nan"), 10**400]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        entries = list(cast("Json", value).items())
    else:
        entries = list(enumerate(cast("list[Any]", value))) if isinstance(value, list) else []
    for key, child in entries:
        yield from places(child, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], new_value: Any) -> Any:
    copy = value.copy()
    copy[path[0]] = new_value if len(path) == 1 else with_value(value[path[0]], path[1:], new_value)
    return copy


def validators(name: str) -> Iterator[tuple[str, Any]]:
    for revision in KNOWN_PROTOCOL_VERSIONS:
        definitions = DATA["revisions"][revision]
        schema = {"$defs": definitions, "definitions": definitions, **definitions[name]}
        yield revision, Draft202012Validator(schema, format_checker=FormatChecker())


@pytest.mark.requirement("proxy.items")
@each_of("name", ITEMS)
def test_an_item_with_a_wrong_value_anywhere_becomes_valid_in_every_revision(name: str) -> None:
    item, checks = ITEMS[name], list(validators(name))
    assert fitted(name, item) == (item, ())
    assert fitted(name, item)[0] is item
    for place in places(item):
        for value in WRONG:
            try:
                item_kept, dropped_paths = fitted(name, with_value(item, place, value))
            except UnfitError:
                # A required value is wrong: a name, a URI, or the input schema.
                assert set(place) & {"name", "uri", "uriTemplate", "inputSchema"}
                continue
            for revision, check in checks:
                wire_item = for_handshake(item_kept) if revision in HANDSHAKE_PROTOCOL_VERSIONS else item_kept
                assert check.is_valid(wire_item), (revision, place, value, item_kept)
            assert item_kept.keys() | {place[0]} >= item.keys(), (place, value, dropped_paths)


@pytest.mark.requirement("proxy.items")
@each_of(
    "name, wrong, expected_changes, expected_paths",
    [
        ("Tool", {"title": None}, {}, ["title"]),
        ("Tool", {"icons": [ICON, {"src": 3}]}, {"icons": [ICON]}, ["icons.1.src"]),
        (
            "Tool",
            {"icons": [{"src": 3, "sizes": 4}, {**ICON, "theme": 5}]},
            {"icons": [{key: ICON[key] for key in ("src", "mimeType", "sizes")}]},
            None,
        ),
        ("Tool", {"annotations": {"title": "T", "readOnlyHint": None}}, {"annotations": {"title": "T"}}, None),
        ("Tool", {"inputSchema": {"type": "object", "required": None, "properties": None}}, None, None),
        (
            "Tool",
            {"inputSchema": {"type": "object", "properties": {"a": True, "b": False, "c": None}}},
            {"inputSchema": {"type": "object", "properties": {"a": {}, "b": {"not": {}}, "c": {}}}},
            ["inputSchema.properties.c"],
        ),
        ("Prompt", {"arguments": None}, {}, ["arguments"]),
        ("Prompt", {"arguments": [{"name": "a", "description": None}]}, {"arguments": [{"name": "a"}]}, None),
        ("Resource", {"annotations": {"lastModified": "yesterday"}}, {"annotations": {}}, None),
        ("Resource", {"size": 5.0}, {"size": 5.0}, []),
    ],
)
def test_only_the_innermost_optional_value_is_dropped(
    name: str, wrong: Json, expected_changes: Json | None, expected_paths: list[str] | None
) -> None:
    least = {"Tool": {"name": "t", "inputSchema": {"type": "object"}}, "Resource": {"uri": "m://a", "name": "r"}}
    item = least.get(name, {"name": "p"})
    item_kept, dropped_paths = fitted(name, {**item, **wrong})
    assert item_kept == {**item, **(expected_changes or {})}
    assert expected_paths is None or list(dropped_paths) == expected_paths


@pytest.mark.requirement("proxy.items")
@each_of(
    "name, item",
    [
        ("Tool", {"name": "t", "inputSchema": None}),
        ("Tool", {"name": "t", "inputSchema": {"type": "string"}}),
        ("Resource", {"uri": "no scheme", "name": "r"}),
        ("Resource", {"uri": "m://a", "name": None}),
        ("Tool", {"name": "t", "inputSchema": {"type": "object", "properties": dict.fromkeys(map(str, range(200)))}}),
    ],
)
def test_an_item_with_a_wrong_required_value_is_dropped(name: str, item: Json) -> None:
    with pytest.raises(UnfitError):
        fitted(name, item)


@pytest.mark.requirement("proxy.items")
@pytest.mark.requirement("proxy.items.told")
def test_all_wrong_values_are_dropped_at_once_and_summarised() -> None:
    icons = [dict(ICON), {"src": 1}, *([ICON, {**ICON, "theme": 5}] * 45), *([{"src": 2}] * 40)]
    item, dropped_paths = fitted("Tool", {"name": "t", "inputSchema": {"type": "object"}, "icons": icons})
    assert item["icons"] == [ICON, *([ICON, {key: ICON[key] for key in ("src", "mimeType", "sizes")}] * 45)]
    assert dropped_paths == (
        *(f"icons.{at}" for at in ("1.src", "3.theme", "5.theme", "7.theme", "9.theme")),
        "81 more places",
    )


@pytest.mark.requirement("proxy.items")
def test_an_item_that_is_too_large_to_check_is_dropped() -> None:
    item = {"name": "t", "inputSchema": {"type": "object"}, "icons": [ICON] * 20_000}
    with pytest.raises(UnfitError, match="values"):
        fitted("Tool", item, json.dumps(item).encode())


@pytest.mark.requirement("proxy.items")
@each_of("alias", ["a", "a_b", "9p", "-x_y", "Files-2"])
def test_a_resource_uri_with_an_alias_prefix_is_valid(alias: str) -> None:
    for uri in ("memo://a", "file:///a_b.c", "ui://a/b"):
        item = {"uri": with_alias(alias, uri), "name": "r"}
        assert fitted("Resource", item) == (item, ())
        assert without_alias(item["uri"]) == (alias, uri)
        assert without_alias(f"{alias}+memo://a") == (alias, "memo://a")


def tool(output: Any) -> Json:
    return {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output}


def chain(length: int) -> Json:
    definitions = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(length)}
    return {"$ref": "#/$defs/0", "$defs": {**definitions, str(length): {}}}


def object_with(schema: Any, **keywords: Any) -> Json:
    return {"type": "object", "properties": {"a": schema}, **keywords}


@pytest.mark.requirement("proxy.items.output")
@each_of(
    "output",
    [
        *(
            None,
            "x",
            7,
            [],
            object_with({"type": "text"}),
            object_with({"type": []}),
            object_with(None),
            {"type": "object", "required": "a"},
        ),
        *(
            object_with({"$ref": "#/$defs/N"}),
            object_with({"$ref": "https://a.example/b"}),
            object_with({"$ref": "#/x"}, x={"type": "y"}),
        ),
        *(
            object_with({"minimum": 0, "exclusiveMinimum": True}),
            object_with({"id": "x"}),
            object_with({"nullable": True}),
        ),
        *(
            object_with({"enum": []}),
            object_with({"allOf": {}}),
            object_with({"maxLength": "3"}),
            object_with({"items": [{}]}),
        ),
        *(
            object_with({"pattern": value})
            for value in (
                *(
                    "[",
                    "(?i)a",
                    r"\Z",
                    r"\-",
                    "^{.*}$",
                    "a++",
                    "(?P<n>a)",
                    r"(?<=a)b",
                    r"(a)\1",
                    "[z-a]",
                    "[^]",
                    "a{3,2}",
                ),
                *("(?=a)*", ")", "(" * 30 + ")" * 30, r"[\d-z]", r"[\ud800\udc00-\ud800\udfff]"),
                *("a" * 20_000, "[^a]" * 40 + "{", "[" * 4_000, "(a" * 2_000, "[a-" + "a-" * 2_000),
            )
        ),
        object_with({"patternProperties": {"*": {}}}),
        *(
            object_with({"$ref": value}, x={"y": {}})
            for value in ("#/x/y", "#/properties/%61", "#a", "#/properties", "##", "")
        ),
        *({"type": "object", **value} for value in ({"$ref": "#"}, {"allOf": [{"not": {"$ref": "#"}}]}, chain(2_000))),
        {"type": "object", "$ref": "#/$defs/0", "$defs": {"0": {"$ref": "#/$defs/1"}, "1": {"$ref": "#/$defs/0"}}},
        *(object_with({"x-more": {"deep": [{name: "a"}]}}) for name in ("$id", "$anchor", "$dynamicAnchor")),
        *(
            object_with({"type": "string", name: value})
            for name, value in (("nullable", False), ("formatMinimum", "1"))
        ),
        {"type": "object", "properties": {str(number): {} for number in range(5_000)}},
    ],
)
def test_an_output_schema_that_a_client_cannot_compile_is_dropped_and_its_tool_stays(output: Any) -> None:
    item, (reason,) = fitted("Tool", tool(output))
    assert "outputSchema" not in item
    assert reason.startswith("outputSchema (")


@pytest.mark.requirement("proxy.items.output")
@each_of(
    "output",
    [
        object_with({"$ref": "#/$defs/A"}, **{"$defs": {"A": object_with({"$ref": "#"})}}),
        object_with({"anyOf": [{"type": "string"}, {"$ref": "#/properties/a/anyOf/0"}]}),
        {"type": "object", **chain(20), "properties": {"$id": {"type": "string"}, "default": {"default": None}}},
        object_with(
            {"oneOf": [{"$ref": "#/$defs/A"}], "discriminator": {"propertyName": "k"}},
            **{"$defs": {"A": object_with({"$ref": "#/$defs/A"})}},
        ),
        object_with({"items": [{}]}, **{"$schema": "http://json-schema.org/draft-07/schema#"}),
        *(
            object_with({"pattern": value})
            for value in (
                r"^[\w\-.]+@x$",
                r"^\+?\d{3,}(?:a|b)*?$",
                r"https?:\/\/",
                r"(?!a)(?=b)\u0041[\x41-\x5a-]$",
                "[a-zA-Z0-9-_]",
            )
        ),
        object_with({"type": ["string", "null"], "nullable": True, "format": "unheard-of", "x-more": 5}),
    ],
)
def test_an_output_schema_that_all_clients_can_compile_stays_unchanged(output: Json) -> None:
    item = tool(output)
    assert fitted("Tool", item) == (item, ())


@pytest.mark.requirement("proxy.items.output")
@each_of("output", [{"type": "array"}, {"oneOf": [{"type": "object"}]}, object_with(True)])
def test_an_output_schema_that_only_the_newest_revision_allows_stays_for_its_clients(output: Json) -> None:
    item, (reason,) = fitted("Tool", tool(output))
    assert item["outputSchema"] == output
    assert "outputSchema" not in for_handshake(item)
    assert "2025-11-25" in reason
