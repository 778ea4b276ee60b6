"""Texts of upstreams for people, in tools and in forms, shown so that nothing hides in them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, cast

from tools.contract.display import visible

DEEPEST = 64
"""How deep a schema is looked into (ours)."""

_TEXTS = frozenset({"title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage"})
_LISTS_OF_TEXTS = frozenset({"enumNames", "enumDescriptions", "markdownEnumDescriptions"})
"""The names and descriptions of values, in the order of `enum`."""

_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords of JSON Schema whose values are data."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords of JSON Schema with a schema for each name."""


def with_visible_texts(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition in which every character of its titles and descriptions is seen; values stay as they are."""
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


def with_visible_form(schema: Any) -> Any:
    """The schema of a form in which every character of what a person reads is seen; names and choices stay as they are.

    Args:
        schema: As the upstream gave it.
    """
    shown = _schema(schema, DEEPEST)
    fields: Any = cast("dict[str, Any]", shown).get("properties") if isinstance(shown, dict) else None
    if isinstance(fields, dict):
        named = cast("dict[str, Any]", fields)
        # A new one: what nothing hides in is still the upstream's own.
        shown = {**cast("dict[str, Any]", shown), "properties": {name: _field(name, named[name]) for name in named}}
    return cast("Any", shown)


def _field(name: str, given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    shown = dict(cast("dict[str, Any]", given))
    if visible(name) != name:
        shown.setdefault("title", visible(name))
    if isinstance(default := shown.get("default"), str) and not shown.keys() & {"enum", "oneOf", "anyOf"}:
        shown["default"] = visible(default)
    return shown


def _schema(schema: Any, depth: int) -> Any:
    if depth == 0:
        return schema
    if isinstance(schema, list):
        items = cast("list[Any]", schema)
        return _itself(items, [_schema(item, depth - 1) for item in items])
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    return _itself(keywords, {key: _keyword(key, value, depth) for key, value in keywords.items()})


def _itself(before: dict[str, Any] | list[Any], shown: dict[str, Any] | list[Any]) -> Any:
    """What nothing hides in stays the very same object: ten thousand tools are not there twice."""
    olds = before.values() if isinstance(before, dict) else before
    news = shown.values() if isinstance(shown, dict) else shown
    return before if all(map(operator.is_, olds, news)) else shown


def _keyword(key: str, value: Any, depth: int) -> Any:
    if key in _TEXTS and isinstance(value, str):
        return visible(value)
    if key in _LISTS_OF_TEXTS and isinstance(value, list):
        return [visible(text) if isinstance(text, str) else text for text in cast("list[Any]", value)]
    if key in _VALUES:
        return value
    if key in _MAPS and isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        return _itself(named, {name: _schema(each, depth - 1) for name, each in named.items()})
    return _schema(value, depth - 1)
