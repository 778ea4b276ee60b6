"""From arguments as a model wrote them to validated parameters: other spellings, gentle coercion, clear errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from tools.contract.errors import InvalidToolParamsError

logger = logging.getLogger(__name__)

MAX_INTEGER_DIGITS = 18
"""Digits that still fit 64 bits; a longer string is no integer anybody meant."""

MAX_SHOWN_VALUE = 80
"""Characters of a wrong value that an error repeats."""


class ToolParams(BaseModel):
    """Base of the parameter models. Strict: what may be coerced is decided by `coerce`, not by pydantic."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


ModelT = TypeVar("ModelT", bound=ToolParams)
Schema = Mapping[str, Any]


def rename(
    tool: str, arguments: Mapping[str, Any], aliases: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Map every accepted spelling to its canonical name.

    A null counts as absent. A canonical name and an alias (or two aliases) may stand side by side only with
    equal values.

    Returns:
        The arguments under canonical names, and for each canonical name the spelling that was used.

    Raises:
        InvalidToolParamsError: Two spellings of one parameter disagree.
    """
    named: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        canonical = aliases.get(name, name)
        if canonical in named and named[canonical] != value:
            raise InvalidToolParamsError(
                tool,
                f"'{spelled[canonical]}' and '{name}' mean the same and have different values; give one of them.",
            )
        if canonical not in named or name == canonical:
            spelled[canonical] = name
        named[canonical] = value
    return named, spelled


def coerce(value: Any, schema: Schema) -> Any:
    """Read a value as the property's type where models commonly write it as a string.

    "true"/"false" become booleans, integral strings and integral floats become integers, JSON text becomes an
    array or an object, each only where the schema wants that type and does not accept the value as it is.
    """
    wanted = schema.get("type")
    if isinstance(value, float) and wanted == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, str) and wanted not in (None, "string"):
        return _from_text(value, cast("str", wanted))
    if isinstance(value, list) and wanted == "array" and "items" in schema:
        return [coerce(item, schema["items"]) for item in cast("list[Any]", value)]
    if isinstance(value, dict) and wanted == "object" and "properties" in schema:
        properties = schema["properties"]
        given = cast("dict[str, Any]", value)
        return {key: coerce(item, properties.get(key, {})) for key, item in given.items() if item is not None}
    return cast("Any", value)


def _from_text(text: str, wanted: str) -> Any:
    stripped = text.strip()
    if wanted == "boolean":
        return {"true": True, "false": False}.get(stripped.lower(), text)
    if wanted == "integer":
        digits = stripped[1:] if stripped[:1] == "-" else stripped
        return int(stripped) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_INTEGER_DIGITS else text
    if wanted in ("array", "object"):
        try:
            parsed: Any = json.loads(stripped)
        except (ValueError, RecursionError):
            return text
        fits = isinstance(parsed, list if wanted == "array" else dict)
        return cast("Any", parsed) if fits else text
    return text


def bind(tool: str, model: type[ModelT], schema: Schema, arguments: Mapping[str, Any]) -> ModelT:
    """Validate arguments under canonical names; coerce only what fails as it is.

    Raises:
        InvalidToolParamsError: They do not fit. The sentence names every wrong property, and what is accepted.
    """
    properties: Mapping[str, Schema] = schema["properties"]
    unknown = [name for name in arguments if name not in properties]
    if unknown:
        logger.info("%s: ignored unknown properties %s", tool, unknown)
    try:
        return model.model_validate(arguments)
    except ValidationError:
        coerced = {name: coerce(value, properties.get(name, {})) for name, value in arguments.items()}
    try:
        return model.model_validate(coerced)
    except ValidationError as error:
        raise InvalidToolParamsError(tool, _explain(error, properties, unknown)) from None


def _explain(error: ValidationError, properties: Mapping[str, Schema], unknown: list[str]) -> str:
    problems: list[str] = []
    for item in error.errors(include_url=False, include_context=False)[:5]:
        where = ".".join(str(step) for step in item["loc"])
        if item["type"] == "missing":
            problems.append(f"'{where}' is required.")
        else:
            value = repr(item["input"])
            shown = value if len(value) <= MAX_SHOWN_VALUE else value[:MAX_SHOWN_VALUE] + "..."
            reason = item["msg"].removeprefix("Value error, ").rstrip(".")
            problems.append(f"'{where}': {reason}, got {shown}.")
    problems.append(f"Accepted: {', '.join(properties)}.")
    if unknown:
        problems.append(f"Not known here: {', '.join(name[:MAX_SHOWN_VALUE] for name in unknown[:10])}.")
    return " ".join(problems)


def published_schema(model: type[ToolParams]) -> dict[str, Any]:
    """The model's JSON Schema as clients like it: no titles, no `$ref`, optional instead of nullable."""
    raw = model.model_json_schema()
    definitions: Mapping[str, Any] = raw.pop("$defs", {})
    schema = cast("dict[str, Any]", _simplify(raw, definitions))
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


def _simplify(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_simplify(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = dict(cast("dict[str, Any]", node))
    variants = [item for item in fields.get("anyOf", ()) if item != {"type": "null"}]
    if len(variants) == 1:
        del fields["anyOf"]
        fields = {**variants[0], **fields}
    if "$ref" in fields:
        target = definitions[fields.pop("$ref").rpartition("/")[2]]
        fields = {**target, **fields}
    if fields.get("default", ...) is None:
        del fields["default"]
    if isinstance(fields.get("title"), str):
        del fields["title"]
    return {
        key: {name: _simplify(item, definitions) for name, item in value.items()}
        if key == "properties"
        else _simplify(value, definitions)
        for key, value in fields.items()
    }
