"""Schemas of custom tools, published as clients understand them.

Declarations come in two dialects. JSON Schema stays as it is. The one of the Gemini API writes types in upper case,
says `nullable`, and its Python library writes all keys with underscores and nulls for what is not set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from tools.contract.display import visible
from tools.contract.file_names_in_text import brief

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

# Keywords that hold an object of schemas.
BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
IN_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})  # keywords that hold an array of schemas

# Keywords that hold one schema.
SINGLE = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains", "propertyNames"}
    | {"contentSchema", "not", "if", "then", "else"}
)

COUNTS = frozenset(
    {"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties", "maxContains", "minContains"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef"})
# What a schema is called. References here are paths from its root, so no other name is needed.
IDENTITY = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary"})
# What older drafts have; leaving it out allows more, and the tool decides.
OUTDATED = frozenset({"dependencies", "$recursiveRef", "$recursiveAnchor"})
TEXTS = frozenset({"title", "description"})  # what people and models read
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}  # the schema of a tool that declares none

_UNDERSCORED = {
    "any_of": "anyOf",
    "additional_properties": "additionalProperties",
    "max_items": "maxItems",
    "min_items": "minItems",
    "max_length": "maxLength",
    "min_length": "minLength",
    "max_properties": "maxProperties",
    "min_properties": "minProperties",
}


class SchemaError(ValueError):
    """A schema cannot be used; the message says why, as the end of a sentence."""


def readable_schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A declared schema as it is published: JSON Schema (2020-12) of an object; a `SchemaError` if it is none."""
    schema = _normal({**raw, "nullable": None})
    if schema.setdefault("type", "object") != "object":
        raise SchemaError(f"its parameters are of type {brief(json.dumps(schema['type']))}, and have to be an object")
    schema.setdefault("properties", {})
    wrong = next(_metaschema().iter_errors(schema), None)
    if wrong is not None:
        where, value = wrong.absolute_path, brief(json.dumps(wrong.instance, default=str))
        raise SchemaError(f"its {where[-1] if where else 'schema'} is {value}, which JSON Schema does not have")
    references: list[str] = []

    def note(node: Any) -> Any:
        if isinstance(node, dict):
            fields = cast("dict[str, Any]", node)
            references.extend(str(fields[key]) for key in REFERENCES & fields.keys())
            with_children(fields, note)
        return cast("Any", node)

    note(schema)
    for reference in references:
        if not reference.startswith("#") or not _leads_to_schema(schema, reference[1:]):
            raise SchemaError(f"the reference '{brief(reference)}' leads to nothing in its schema")
    return schema


def _normal(node: Any) -> Any:
    """A schema in the dialect of JSON Schema, those in it included."""
    if isinstance(node, bool):
        return node
    if not isinstance(node, dict):
        raise SchemaError(f"where a schema should be, {brief(json.dumps(node))} is")
    fields: dict[str, Any] = {}
    for written, value in cast("dict[str, Any]", node).items():
        key = _UNDERSCORED.get(written, written)
        if (value is None and key != "const") or key in IDENTITY | OUTDATED:
            continue
        if key in COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
            fields[key] = int(value)  # the Gemini API writes counts as strings, since they have 64 bits
        else:
            fields[key] = visible(value) if key in TEXTS and isinstance(value, str) else value
    wanted = fields.get("type")
    if isinstance(wanted, str):
        fields["type"] = wanted.lower()
    elif isinstance(wanted, list):
        fields["type"] = [each.lower() if isinstance(each, str) else each for each in cast("list[Any]", wanted)]
    if fields.get("type") == "type_unspecified":
        del fields["type"]
    if isinstance(fields.get("items"), list):  # older drafts say so for what is `prefixItems` now
        fields["prefixItems"] = fields.pop("items")
        if "additionalItems" in fields:
            fields["items"] = fields.pop("additionalItems")
    if fields.pop("nullable", False) is True:
        if isinstance(fields.get("type"), str) and fields["type"] != "null":
            fields["type"] = [fields["type"], "null"]
        elif "type" not in fields and isinstance(fields.get("anyOf"), list):
            fields["anyOf"] = [*fields["anyOf"], {"type": "null"}]
        if isinstance(fields.get("enum"), list) and None not in fields["enum"]:
            fields["enum"] = [*fields["enum"], None]
    return with_children(fields, _normal)


@cache
def _metaschema() -> Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes some 70 milliseconds

    return Draft202012Validator(Draft202012Validator.META_SCHEMA)


def with_children(fields: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A schema with each schema in it changed; what only looks like one, such as a default, stays."""
    changed = dict(fields)
    for key, value in fields.items():
        if key in BY_NAME and isinstance(value, dict):
            changed[key] = {name: change(child) for name, child in cast("dict[str, Any]", value).items()}
        elif key in IN_LIST and isinstance(value, list):
            changed[key] = [change(child) for child in cast("list[Any]", value)]
        elif key in SINGLE:
            changed[key] = change(value)
    return changed


def _leads_to_schema(schema: dict[str, Any], pointer: str) -> bool:
    if pointer and not pointer.startswith("/"):
        return False  # names of places are not looked up
    node: Any = schema
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isascii() and name.isdigit():
            items = cast("list[Any]", node)
            node = items[int(name)] if int(name) < len(items) else None
        else:
            node = cast("dict[str, Any]", node).get(name) if isinstance(node, dict) else None
    return isinstance(node, dict | bool)
