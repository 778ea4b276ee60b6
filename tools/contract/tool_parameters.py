"""Turns a model's arguments, under any accepted name, into validated parameters, and explains errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from tools.contract.tool_errors import InvalidToolParamsError
from tools.text.file_names import brief

MAX_INTEGER_DIGITS = 18  # number of digits that always fit into 64 bits; strings with more digits are not converted
MAX_INTEGER = 2**53  # largest absolute value of an integer; many JSON parsers cannot represent larger integers exactly
MAX_SHOWN_VALUE = 80  # maximum length of an invalid value shown in an error
MAX_SHOWN_UNKNOWN = 10  # maximum number of unknown properties listed in an error
MAX_EXPLAINED_UNKNOWN = 5  # maximum number of unknown properties that are explained one by one
# Longest string that is parsed as a list or an object; parsing a million characters takes about 10 milliseconds
MAX_JSON_CHARS = 1_000_000
MAX_ITEMS = 10_000  # maximum number of items of a list whose schema sets no limit; validating them takes milliseconds
MAX_UNKNOWN = 1_000  # maximum number of properties of one object; no model sends more by mistake


class ToolParams(BaseModel):
    """Base class of the parameter models. They are strict, because `coerce` decides which values may be converted."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", strict=True, json_schema_extra={"additionalProperties": False}
    )


ModelT = TypeVar("ModelT", bound=ToolParams)
Schema = Mapping[str, Any]
_TRUTHS = {**dict.fromkeys(("true", "yes", "on", "1"), True), **dict.fromkeys(("false", "no", "off", "0"), False)}
_NAME_WORD = re.compile(r"[^\W_]+?(?=[A-Z\W_]|$)")  # a word in a camelCase, snake_case or kebab-case name

# `json_schema_extra` of a parameter that is accepted but not published
UNPUBLISHED: dict[str, JsonValue] = {"x-unpublished": True}
OTHER_NAME = "x-other-name"  # key in `json_schema_extra`: another name that errors give; it is not published


class ForeignParameter(NamedTuple):
    """A parameter that similar tools in other programs have."""

    own: frozenset[str] | None = None  # lower-case values that request what happens anyway; `None` means any value
    way: str = ""  # a sentence that says what to do instead, for other values


def foreign(*own: str, way: str = "") -> ForeignParameter:
    return ForeignParameter(frozenset(own), way)


def rename(
    tool: str, arguments: Mapping[str, Any], spellings: Mapping[str, str], required: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Replace every accepted parameter name with its canonical name.

    `spellings` maps the accepted names, in the form that `folded` returns, to the canonical names. A null counts as
    absent, and so does an empty value of a parameter that is not in `required`. A call may give one parameter under two
    names only if the values are equal.

    Returns the arguments under canonical names, and the canonical names mapped to the names that the call used. Raises
    an `InvalidToolParamsError` if two names of one parameter have different values, or there are too many properties.
    """
    if len(arguments) > MAX_UNKNOWN:
        raise InvalidToolParamsError(
            tool,
            f"{len(arguments):,} properties are too many; the limit is {MAX_UNKNOWN:,}. Give only those in the schema.",
        )
    renamed: dict[str, Any] = {}
    original_names: dict[str, str] = {}
    for name, value in arguments.items():
        canonical = spellings.get(folded(name), name)
        if value is None or (canonical not in required and _is_empty(value, {})):
            continue
        if canonical in renamed and renamed[canonical] != value:
            raise InvalidToolParamsError(
                tool,
                f"'{original_names[canonical]}' and '{name}' are two names for the same parameter but have different "
                "values; give only one.",
            )
        if canonical not in renamed or name == canonical:
            original_names[canonical] = name
        renamed[canonical] = value
    return renamed, original_names


def folded(name: str) -> str:
    """Normalise a name for comparison, so that camelCase, snake_case and kebab-case are equal."""
    return name[:MAX_SHOWN_VALUE].replace("-", "").replace("_", "").lower()


def _is_empty(value: Any, schema: Schema) -> bool:
    """Return True for values that frameworks send for unused parameters."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number:
        return value in ("", [], {})
    is_for_another_type = schema.get("type", "integer") not in ("integer", "number", "boolean")
    return value == 0 and (is_for_another_type or schema.get("minimum", 0) > 0)


def _truth(value: Any) -> bool | None:
    """Read a value as a boolean, or return `None`."""
    if isinstance(value, int):
        return bool(value) if value in (0, 1) else None
    return _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None


def coerce(value: Any, schema: Schema) -> Any:
    """Convert a value to the type of its property, if models often write it as another type.

    Words for yes and no become booleans, strings and floats with an integral value become integers, integers become
    strings, and JSON text becomes an array or an object. A value is converted only if the schema accepts the new type
    but not the old one. Objects lose members that are null, or empty and optional. A value that is too long stays
    unchanged, and `bind` refuses it.
    """
    target_type = schema.get("type")
    if isinstance(value, float) and target_type == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, int) and target_type == "string" and not isinstance(value, bool) and abs(value) <= MAX_INTEGER:
        return str(value)
    if target_type == "boolean":
        return value if (truth := _truth(value)) is None else truth
    if isinstance(value, str) and target_type not in (None, "string"):
        value = _from_text(value, cast("str", target_type))
    if isinstance(value, list) and target_type == "array" and "items" in schema:
        items = cast("list[Any]", value)
        return [coerce(item, schema["items"]) for item in items] if len(items) <= _max_items(schema) else items
    if isinstance(value, dict) and target_type == "object" and "properties" in schema:
        properties, required = schema["properties"], schema.get("required", ())
        members = cast("dict[str, Any]", value)
        if len(members) > MAX_UNKNOWN:
            return members
        coerced = {name: coerce(item, properties.get(name, {})) for name, item in members.items() if item is not None}
        return {
            name: item
            for name, item in coerced.items()
            if name in required or not any(_is_empty(form, properties.get(name, {})) for form in (members[name], item))
        }
    return cast("Any", value)


def _from_text(text: str, target_type: str) -> Any:
    content = text.strip()
    if target_type == "integer":
        digits = content[1:] if content[:1] == "-" else content
        return int(content) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_INTEGER_DIGITS else text
    if target_type in ("array", "object"):
        if len(content) > MAX_JSON_CHARS:
            return text
        try:
            parsed: Any = json.loads(content)
        except (ValueError, RecursionError):
            return text
        fits = isinstance(parsed, list if target_type == "array" else dict)
        return cast("Any", parsed) if fits else text
    return text


def bind(tool: str, model: type[ModelT], schema: Schema, arguments: Mapping[str, Any]) -> ModelT:
    """Validate arguments under canonical names, after converting each to the type in the schema.

    If arguments are invalid, an `InvalidToolParamsError` names up to five of them and the properties that are accepted.
    If there are too many arguments to check, or one is too large, the error says so.
    """
    properties: Mapping[str, Schema] = schema["properties"]
    if (unknown_count := len(arguments.keys() - properties.keys())) > MAX_UNKNOWN:
        raise InvalidToolParamsError(tool, f"{unknown_count:,} properties are unknown. {accepted_in(schema)}")
    _refuse_oversized(tool, arguments, schema, model)
    coerced = coerce(arguments, schema)
    _refuse_oversized(tool, coerced, schema, model)
    try:
        return model.model_validate(coerced)
    except ValidationError as error:
        problems: list[str] = []
        items = error.errors(include_url=False, include_context=False)[:5]
        for item in items:
            path = _dotted(item["loc"])
            if item["type"] == "missing":
                values = ", ".join(map(str, _schema_at(schema, item["loc"]).get("enum", ())))
                problems.append(f"'{path}' is required{values and f' ({values})'}.")
            else:
                value = repr(_sample(item["input"]))
                display_value = value if len(value) <= MAX_SHOWN_VALUE else value[:MAX_SHOWN_VALUE] + "..."
                is_no_object = item["type"] in ("model_type", "model_attributes_type")
                reason = "must be an object" if is_no_object else item["msg"].removeprefix("Value error, ").rstrip(".")
                problems.append(f"'{path}': {reason}, got {display_value}.")
        place = items[0]["loc"]
        while place and "properties" not in _schema_at(schema, place):
            place = place[:-1]
        accepted = accepted_in(_schema_at(schema, place))
        problems.append(accepted.replace(":", f" in '{_dotted(place)}':", 1) if place else accepted)
        if unknown := [name for name in arguments if name not in properties]:
            problems.append(f"Unknown: {', '.join(map(brief, unknown[:MAX_SHOWN_UNKNOWN]))}.")
        raise InvalidToolParamsError(tool, " ".join(problems)) from None


def _dotted(place: Sequence[int | str]) -> str:
    return ".".join(brief(str(step)) for step in place)


def _schema_at(schema: Schema, place: Sequence[int | str]) -> Schema:
    """Return the schema of a nested value; empty if it is unknown."""
    for step in place:
        schema = schema.get("items", {}) if isinstance(step, int) else schema.get("properties", {}).get(step, {})
    return schema


def accepted_in(schema: Schema) -> str:
    names = [
        f"{name} (or {other})" if (other := schema["properties"][name].get(OTHER_NAME)) else name
        for name in published_schema(schema)["properties"]
    ]
    return f"Accepted: {', '.join(names) or 'nothing'}."


def _unknown_in(value: Any, schema: Schema, at: str = "") -> Iterator[tuple[str, str, Any, Schema, Collection[str]]]:
    """Find the unknown properties of a value, at any depth.

    Yields, for each property: the path of the enclosing object, such as `todos[0].`; the property's name and value; and
    the properties that the enclosing object may have and does have.
    """
    if isinstance(value, str) and schema.get("type") in ("array", "object"):
        value = _from_text(value, schema["type"])
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(cast("list[Any]", value)[: _max_items(schema)]):
            yield from _unknown_in(item, schema["items"], f"{at.removesuffix('.')}[{number}].")
    if not isinstance(value, dict) or (properties := schema.get("properties")) is None:
        return
    members = cast("dict[str, Any]", value)
    for name, item in islice(members.items(), MAX_UNKNOWN):
        if name in properties:
            yield from _unknown_in(item, properties[name], f"{at}{name}.")
        elif item is not None and not _is_empty(item, {}):
            yield at, name, item, properties, members.keys()


def about_unknown(
    tool: str,
    arguments: Mapping[str, Any],
    schema: Schema,
    spellings: Mapping[str, str],
    foreign_parameters: Mapping[str, ForeignParameter],
    *,
    is_refused: bool,
) -> str:
    """Tell the model which arguments are unknown, including nested ones, and what to use instead.

    `spellings` is as in `rename`, and `foreign_parameters` has parameters of other programs' tools, keyed by `folded`
    name. `is_refused` says whether the call is refused because of unknown arguments, or runs without them.
    """
    notes: list[str] = []
    for at, name, value, properties, present in _unknown_in(arguments, schema):
        # Look up the name, or else a part of it (one word or several consecutive ones) for which there is advice.
        words = [word.lower() for word in _NAME_WORD.findall(name[:MAX_SHOWN_VALUE])]
        parts = ["".join(words[i:j]) for i in range(len(words)) for j in range(len(words), i, -1)]
        candidates = (
            candidate for candidate in map(foreign_parameters.get, parts) if candidate is not None and candidate.way
        )
        parameter, truth = foreign_parameters.get(folded(name)) or next(candidates, None), _truth(value)
        if parameter is not None and (
            parameter.own is None or (str(value) if truth is None else str(truth)).lower() in parameter.own
        ):
            continue
        if is_refused and parameter is None and truth is False and value != "0":
            continue  # an argument that requests nothing does not cause the refusal
        if len(notes) == MAX_EXPLAINED_UNKNOWN:
            notes.append(
                "There are more unknown parameters." if is_refused else "More unknown parameters were ignored."
            )
            break
        if parameter is not None and parameter.way:
            hint = f". {parameter.way}"
        else:
            import difflib  # noqa: PLC0415 - loaded only after a mistake

            known = {folded(property_name): property_name for property_name in properties} if at else spellings
            matches = [known[match] for match in difflib.get_close_matches(folded(name), known, len(known) or 1)]
            hint = f"; the parameter '{at}{matches[0]}' was given too." if matches else "."
            if (unused := next((match for match in matches if match not in present), None)) is not None:
                hint = f"; did you mean '{at}{unused}'?"
        effect = "" if is_refused else " and was ignored"
        notes.append(f"'{brief(at + name)}' is not a parameter of {tool}{effect}{hint}")
    return " ".join([*notes, accepted_in(schema)] if notes and is_refused else notes)


def _refuse_oversized(tool: str, arguments: Mapping[str, Any], schema: Schema, model: type[ToolParams]) -> None:
    """Refuse integers beyond `MAX_INTEGER`, and values that would be slow to validate or to quote in an error."""
    for name, value in arguments.items():
        if isinstance(value, int) and abs(value) > MAX_INTEGER and name in model.model_fields:
            raise InvalidToolParamsError(
                tool,
                f"'{name}' is too large to be represented exactly; give a number from -{MAX_INTEGER:,} to "
                f"{MAX_INTEGER:,}.",
            )
        if (property_schema := schema["properties"].get(name)) is None:
            continue
        if isinstance(value, list):
            count, limit, unit = len(cast("list[Any]", value)), _max_items(property_schema), "items"
        elif isinstance(value, dict):
            count, limit, unit = len(cast("dict[str, Any]", value)), MAX_UNKNOWN, "properties"
        elif isinstance(value, str) and property_schema.get("type") in ("array", "object"):
            count, limit, unit = len(value), MAX_JSON_CHARS, f"characters and should be an {property_schema['type']}"
        else:
            continue
        if count > limit:
            raise InvalidToolParamsError(
                tool, f"'{name}' has {count:,} {unit}; the limit is {limit:,}. Split it over several calls."
            )


def _max_items(schema: Schema) -> int:
    return schema.get("maxItems", MAX_ITEMS)


def _sample(value: Any, depth: int = 2) -> Any:
    """Return the part of an invalid value that an error message shows. The whole value may be huge."""
    if isinstance(value, str):
        return value[: MAX_SHOWN_VALUE + 1]
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return "..."
    few = MAX_SHOWN_VALUE // 2
    if isinstance(value, list):
        return [_sample(item, depth - 1) for item in cast("list[Any]", value)[:few]]
    members = cast("dict[str, Any]", value)
    return {name[: MAX_SHOWN_VALUE + 1]: _sample(members[name], depth - 1) for name in islice(members, few)}


def full_schema(model: type[ToolParams]) -> dict[str, Any]:
    """Return the model's JSON Schema in the form that clients prefer, without titles, `$ref` or nullable types."""
    raw = model.model_json_schema()
    definitions: Mapping[str, Any] = raw.pop("$defs", {})
    schema = cast("dict[str, Any]", _simplify(raw, definitions))
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


# Keywords that are not published. Models rarely exceed these bounds and learn them from a description or an error.
_BOUNDS = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", OTHER_NAME})


def published_schema(schema: Schema) -> dict[str, Any]:
    """Return the published part of a schema, without bounds and empty defaults, to save tokens."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {
                name: published_schema(property_schema)
                for name, property_schema in value.items()
                if not UNPUBLISHED.items() <= property_schema.items()
            }
        elif key == "items":
            result[key] = published_schema(value)
        elif key not in _BOUNDS and (key != "default" or value):
            result[key] = value
    return result


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object that has all of these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


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
        target = dict(definitions[fields.pop("$ref").rpartition("/")[2]])
        target.pop("description", None)  # a class docstring is for maintainers; models read the field's description
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
