"""The keywords of JSON Schema (2020-12): which hold schemas, and what the values of the others have to be.

One wrong keyword would make some clients refuse the whole list of tools. A general check against the metaschema takes
ten milliseconds for a tool; this one takes a hundredth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Each holds an object of schemas."""

IN_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Each holds an array of schemas."""

SINGLE = frozenset(
    {
        "items",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contains",
        "propertyNames",
        "contentSchema",
        "not",
        "if",
        "then",
        "else",
    }
)
"""Each holds one schema."""

COUNTS = frozenset(
    {"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties", "maxContains", "minContains"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef"})
IDENTITY = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary"})
"""What a schema is called. References here are paths from its root, so no other name is needed."""

OUTDATED = frozenset({"dependencies", "$recursiveRef", "$recursiveAnchor"})
"""What older drafts have; leaving it out allows more, and the tool decides."""

TEXTS = frozenset({"title", "description"})
"""What people and models read."""

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and value != []


def _is_list_of_names(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    names = cast("list[Any]", value)
    return all(isinstance(each, str) for each in names) and len(set(names)) == len(names)


def _is_type(value: Any) -> bool:
    named: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(named) and _is_list_of_names(named) and TYPES.issuperset(named)


def _is_step(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_object_of_lists(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_list_of_names, cast("dict[str, Any]", value).values()))


_RULES: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(BY_NAME, _is_object),
    **dict.fromkeys(IN_LIST, _is_filled_list),
    **dict.fromkeys(COUNTS, _is_count),
    **dict.fromkeys(REFERENCES, _is_text),
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"), _is_number),
    **dict.fromkeys(("format", "pattern", "$comment", *TEXTS), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("enum", "examples"), _is_list),
    "type": _is_type,
    "required": _is_list_of_names,
    "multipleOf": _is_step,
    "dependentRequired": _is_object_of_lists,
}


def wrong_keyword(fields: Mapping[str, Any]) -> str | None:
    """A keyword whose value cannot stand there, or `None`. Schemas in it are not looked at."""
    return next((key for key, value in fields.items() if key in _RULES and not _RULES[key](value)), None)


def with_children(fields: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A schema with each schema in it changed; what only looks like one, such as a default, stays."""
    changed = dict(fields)
    for key, value in fields.items():
        if key in BY_NAME:
            changed[key] = {name: change(child) for name, child in value.items()}
        elif key in IN_LIST:
            changed[key] = [change(child) for child in value]
        elif key in SINGLE:
            changed[key] = change(value)
    return changed
