"""From arguments as a model wrote them to validated parameters: other spellings, gentle coercion, clear errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from tools.contract.errors import InvalidToolParamsError
from tools.contract.file_names_in_text import brief

logger = logging.getLogger(__name__)

MAX_INTEGER_DIGITS = 18  # digits that still fit 64 bits; a longer string is not an integer that anybody meant
MAX_INTEGER = 2**53  # of either sign; beyond it not every reader of JSON keeps a whole number exactly
MAX_SHOWN_VALUE = 80  # characters of a wrong value that an error repeats
MAX_SHOWN_UNKNOWN = 10  # unknown properties that an error names
MAX_TOLD_IGNORED = 5  # unknown properties that a result names
# Characters of a string that is read as a list or an object; parsing a million takes some 10 milliseconds
MAX_JSON_CHARS = 1_000_000
MAX_ITEMS = 10_000  # items of a list whose schema names no limit; validating them takes milliseconds
MAX_UNKNOWN = 1_000  # properties of a call or of an object in it; more are no slip of a model


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
        InvalidToolParamsError: Two spellings of one parameter disagree, or there are very many properties.
    """
    if len(arguments) > MAX_UNKNOWN:
        raise InvalidToolParamsError(
            tool,
            f"{len(arguments):,} properties were given; at most {MAX_UNKNOWN:,} may be. Give only those of the schema.",
        )
    named: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        canonical = aliases.get(name, name)
        if canonical in named and named[canonical] != value:
            raise InvalidToolParamsError(
                tool, f"'{spelled[canonical]}' and '{name}' mean the same and have different values; give one of them."
            )
        if canonical not in named or name == canonical:
            spelled[canonical] = name
        named[canonical] = value
    return named, spelled


def coerce(value: Any, schema: Schema) -> Any:
    """Read a value as the property's type where models commonly write it as a string.

    "true"/"false" become booleans, integral strings and integral floats become integers, JSON text becomes an
    array or an object, each only where the schema wants that type and does not accept the value as it is. What is
    too long to be meant stays as it is, for `bind` to refuse.
    """
    wanted = schema.get("type")
    if isinstance(value, float) and wanted == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, str) and wanted not in (None, "string"):
        return _from_text(value, cast("str", wanted))
    if isinstance(value, list) and wanted == "array" and "items" in schema:
        items = cast("list[Any]", value)
        return [coerce(item, schema["items"]) for item in items] if len(items) <= _most_items(schema) else items
    if isinstance(value, dict) and wanted == "object" and "properties" in schema:
        properties = schema["properties"]
        given = cast("dict[str, Any]", value)
        few = len(given) <= MAX_UNKNOWN
        return {k: coerce(v, properties.get(k, {})) for k, v in given.items() if v is not None} if few else given
    return cast("Any", value)


def _from_text(text: str, wanted: str) -> Any:
    stripped = text.strip()
    if wanted == "boolean":
        return {"true": True, "false": False}.get(stripped.lower(), text)
    if wanted == "integer":
        digits = stripped[1:] if stripped[:1] == "-" else stripped
        return int(stripped) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_INTEGER_DIGITS else text
    if wanted in ("array", "object"):
        if len(stripped) > MAX_JSON_CHARS:
            return text
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
        InvalidToolParamsError: They do not fit, or are too many to be looked at closely. The sentence
            names every wrong property, and what is accepted.
    """
    properties: Mapping[str, Schema] = schema["properties"]
    unknown = arguments.keys() - properties.keys()
    if len(unknown) > MAX_UNKNOWN:
        raise InvalidToolParamsError(
            tool, f"{len(unknown):,} properties are not known here. Accepted: {', '.join(properties)}."
        )
    if unknown:
        # Their names may be secrets; the record of the call has them, and the result tells them to the model.
        logger.info("%s: ignored %d unknown properties", tool, len(unknown))
    _refuse_oversized(tool, arguments, schema, model)
    try:
        return model.model_validate(arguments)
    except ValidationError:
        coerced = {name: coerce(value, properties.get(name, {})) for name, value in arguments.items()}
    _refuse_oversized(tool, coerced, schema, model)
    try:
        return model.model_validate(coerced)
    except ValidationError as error:
        problems: list[str] = []
        for item in error.errors(include_url=False, include_context=False)[:5]:
            where = ".".join(brief(str(step)) for step in item["loc"])
            if item["type"] == "missing":
                problems.append(f"'{where}' is required.")
            else:
                value = repr(_sample(item["input"]))
                shown = value if len(value) <= MAX_SHOWN_VALUE else value[:MAX_SHOWN_VALUE] + "..."
                reason = item["msg"].removeprefix("Value error, ").rstrip(".")
                problems.append(f"'{where}': {reason}, got {shown}.")
        problems.append(f"Accepted: {', '.join(properties)}.")
        if unknown:
            # What is accepted without being listed, an older name, is known all the same.
            names = [brief(name) for name in arguments if name in unknown and name not in model.model_fields]
            problems += [f"Not known here: {', '.join(names[:MAX_SHOWN_UNKNOWN])}."] if names else []
        raise InvalidToolParamsError(tool, " ".join(problems)) from None


def about_ignored(tool: str, unknown: Sequence[str], known: Mapping[str, str], given: Container[str]) -> str:
    """A line for the model about properties that a tool does not have, with what each may have been meant to be.

    `known` has every accepted spelling, with the name that it stands for; `given` the names that were given and used.
    """
    told = [
        f"'{brief(name)}' is not a parameter of {tool} and was ignored{_proposal(name, known, given)}"
        for name in unknown[:MAX_TOLD_IGNORED]
    ]
    if len(unknown) > len(told):
        told.append(f"{len(unknown) - len(told):,} more unknown parameters were ignored.")
    return " ".join(told)


def about_ignored_within(tool: str, arguments: Mapping[str, Any], schema: Schema) -> list[str]:
    """The same of properties of objects in the arguments, by the way to each: `todos[0].prioritty`."""
    told: list[str] = []
    for at, name, properties, given in islice(_unknown_within(arguments, schema), MAX_TOLD_IGNORED + 1):
        if len(told) == MAX_TOLD_IGNORED:
            told.append("More unknown parameters within others were ignored.")
            break
        proposal = _proposal(name, {each: at + each for each in properties}, {at + each for each in given})
        told.append(f"'{brief(at + name)}' is not a parameter of {tool} and was ignored{proposal}")
    return told


def _unknown_within(value: Any, schema: Schema, at: str = "") -> Iterator[tuple[str, str, Schema, Collection[str]]]:
    """Where an object is that has an unknown property, the property, and what it may have and has."""
    if isinstance(value, str) and schema.get("type") in ("array", "object"):
        value = _from_text(value, schema["type"])
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(cast("list[Any]", value)[: _most_items(schema)]):
            yield from _unknown_within(item, schema["items"], f"{at.removesuffix('.')}[{number}].")
    if not isinstance(value, dict) or not (properties := cast("Mapping[str, Schema]", schema.get("properties", {}))):
        return
    given = cast("dict[str, Any]", value)
    for name, item in islice(given.items(), MAX_UNKNOWN):
        if name in properties:
            yield from _unknown_within(item, properties[name], f"{at}{name}.")
        elif at and item is not None and "additionalProperties" not in schema:
            yield at, name, properties, given.keys()


def _proposal(name: str, known: Mapping[str, str], given: Container[str]) -> str:
    import difflib  # noqa: PLC0415 - most calls are right

    spelled = name[:MAX_SHOWN_VALUE].lower().replace("-", "_")
    near = [known[spelling] for spelling in difflib.get_close_matches(spelled, known, len(known) or 1)]
    free = next((name for name in near if name not in given), None)
    if free is not None:
        return f"; did you mean '{free}'?"
    return f"; '{near[0]}' is one, and its value was used." if near else "."


def _refuse_oversized(tool: str, arguments: Mapping[str, Any], schema: Schema, model: type[ToolParams]) -> None:
    """Refuse what would take long to validate or to repeat in a sentence, before it is looked at any closer."""
    for name, value in arguments.items():
        if isinstance(value, int) and abs(value) > MAX_INTEGER and name in model.model_fields:
            raise InvalidToolParamsError(
                tool,
                f"'{name}' is too large to be represented exactly; give one from -{MAX_INTEGER:,} to {MAX_INTEGER:,}.",
            )
        if (wanted := schema["properties"].get(name)) is None:
            continue
        if isinstance(value, list):
            count, most, what = len(cast("list[Any]", value)), _most_items(wanted), "items"
        elif isinstance(value, dict):
            count, most, what = len(cast("dict[str, Any]", value)), MAX_UNKNOWN, "properties"
        elif isinstance(value, str) and wanted.get("type") in ("array", "object"):
            count, most, what = len(value), MAX_JSON_CHARS, f"characters, and should be an {wanted['type']}"
        else:
            continue
        if count > most:
            raise InvalidToolParamsError(
                tool, f"'{name}' has {count:,} {what}; at most {most:,} are accepted. Give fewer, in several calls."
            )


def _most_items(schema: Schema) -> int:
    return schema.get("maxItems", MAX_ITEMS)


def _sample(value: Any, depth: int = 2) -> Any:
    """As much of a value as an error shows: a wrong one may have any size."""
    if isinstance(value, str):
        return value[: MAX_SHOWN_VALUE + 1]
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return "..."
    few = MAX_SHOWN_VALUE // 2
    if isinstance(value, list):
        return [_sample(item, depth - 1) for item in cast("list[Any]", value)[:few]]
    given = cast("dict[str, Any]", value)
    return {name[: MAX_SHOWN_VALUE + 1]: _sample(given[name], depth - 1) for name in islice(given, few)}


def full_schema(model: type[ToolParams]) -> dict[str, Any]:
    """The model's JSON Schema as clients like it: no titles, no `$ref`, optional instead of nullable."""
    raw = model.model_json_schema()
    definitions: Mapping[str, Any] = raw.pop("$defs", {})
    schema = cast("dict[str, Any]", _simplify(raw, definitions))
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


# Bounds that a model keeps to anyway or reads in a description; an error tells them to the one that does not
_BOUNDS = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"})


def published_schema(schema: Schema) -> dict[str, Any]:
    """What of a full schema is told to models, which pay for every character: no bounds, no empty defaults."""
    published: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            published[key] = {name: published_schema(each) for name, each in value.items()}
        elif key == "items":
            published[key] = published_schema(value)
        elif key not in _BOUNDS and (key != "default" or value):
            published[key] = value
    return published


def object_schema(properties: Mapping[str, Any], *, is_closed: bool = True) -> dict[str, Any]:
    """The JSON Schema of an object that has all of these properties, and no others if it is closed."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**schema, "additionalProperties": False} if is_closed else schema


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
        target.pop("description", None)  # a class says what it is to us; to models its field does
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
