"""Makes invisible characters visible in what upstreams send for people to read, such as titles and descriptions."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, cast

from tools.contract.display import visible, visible_line

DEEPEST = 64  # maximum depth to which schemas are searched

_TEXTS = frozenset({"title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage"})
_LISTS_OF_TEXTS = frozenset({"enumNames", "enumDescriptions", "markdownEnumDescriptions"})
"""Keywords whose value is a list of names or descriptions, one for each value of `enum`."""

_VALUES = frozenset({"const", "default", "enum", "examples"})  # JSON Schema keywords whose values are data

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""JSON Schema keywords that map names to schemas."""


def tool_with_visible_texts(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with every character of its titles and descriptions visible; default values are unchanged."""
    shown = dict(definition)
    for key in ("title", "description"):
        if isinstance(text := shown.get(key), str):
            shown[key] = visible(text)
    annotations: Any = shown.get("annotations")
    if isinstance(annotations, dict) and isinstance(title := cast("dict[str, Any]", annotations).get("title"), str):
        shown["annotations"] = {**cast("dict[str, Any]", annotations), "title": visible(title)}
    for key in ("inputSchema", "outputSchema"):
        if key in shown:
            shown[key] = _schema(shown[key], DEEPEST)
    return shown


def prompt_with_visible_texts(prompt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prompt with every character visible, except in its name and its arguments' names."""
    shown = _item(prompt)
    if isinstance(arguments := shown.get("arguments"), list):
        shown["arguments"] = [_item(each) for each in cast("list[dict[str, Any]]", arguments)]
    return shown


def resource_with_visible_texts(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource or template with every character visible, except in its URI.

    Its name is changed too, which is safe because requests identify resources by URI.
    """
    shown = _item(resource)
    shown["name"] = visible_line(shown["name"])
    return shown


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(item)
    if isinstance(title := shown.get("title"), str):
        shown["title"] = visible_line(title)
    if isinstance(description := shown.get("description"), str):
        shown["description"] = visible(description)
    return shown


def with_visible_form(schema: Any) -> Any:
    """Return a form's schema with every character visible, except in the names of fields and in choices."""
    shown = _schema(schema, DEEPEST)
    fields: Any = cast("dict[str, Any]", shown).get("properties") if isinstance(shown, dict) else None
    if not isinstance(fields, dict):
        return cast("Any", shown)
    # Copy the fields, because `_schema` may return objects from the upstream's message, which must not change.
    named = dict(cast("dict[str, Any]", fields))
    for name, given in named.items():
        if isinstance(given, dict):
            field = named[name] = dict(cast("dict[str, Any]", given))
            if visible(name) != name:
                field.setdefault("title", visible(name))
            if isinstance(default := field.get("default"), str) and not field.keys() & {"enum", "oneOf", "anyOf"}:
                field["default"] = visible(default)
    return {**cast("dict[str, Any]", shown), "properties": named}


def _schema(schema: Any, depth: int) -> Any:
    """Return a schema with every character of its texts visible.

    Unchanged parts stay the same objects, so that 10,000 tools are not stored twice.
    """
    if depth == 0:
        return schema
    if isinstance(schema, list):
        items = cast("list[Any]", schema)
        shown_items = [_schema(item, depth - 1) for item in items]
        return items if all(map(operator.is_, items, shown_items)) else shown_items
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    shown: dict[str, Any] = {}
    for key, value in keywords.items():
        if key in _TEXTS and isinstance(value, str):
            shown[key] = visible(value)
        elif key in _LISTS_OF_TEXTS and isinstance(value, list):
            shown[key] = [visible(text) if isinstance(text, str) else text for text in cast("list[Any]", value)]
        elif key in _VALUES:
            shown[key] = value
        elif key in _MAPS and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            schemas = {name: _schema(each, depth - 1) for name, each in named.items()}
            shown[key] = named if all(map(operator.is_, named.values(), schemas.values())) else schemas
        else:
            shown[key] = _schema(value, depth - 1)
    return keywords if all(map(operator.is_, keywords.values(), shown.values())) else shown
