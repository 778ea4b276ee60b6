"""Validates list items against the protocol's schemas, and removes parts that some clients cannot read.

Many clients reject a whole list, including the tools of all other servers, because of one invalid field in one item.
An item may be sent to clients of any revision. Revision 2025-11-25 has every field of the other revisions, with the
same requirements, so items are validated against that revision; only `outputSchema` may differ in the 2026-07-28
revision. The schemas are in a JSON file next to this module. They are compiled to pydantic validators, which are a
hundred times faster than JSON Schema validators.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

from pydantic_core import SchemaValidator, Url, ValidationError, core_schema, to_json

from server.protocol.json_rpc import Json, as_mapping
from tools.discovery.custom_tool_declarations import BY_NAME, IN_LIST, SINGLE, schema_at

STRICTEST = "2025-11-25"  # the revision whose schemas include all requirements of the other revisions
MAX_VALUES = 20_000  # maximum number of values per item; validating more would delay everything else
MAX_PARTS = 4_000  # maximum number of values in an output schema; validating more would delay everything else
MAX_INVALID = 100  # maximum number of invalid places per item; beyond this, the whole item is dropped
MAX_ROUNDS = 5  # maximum number of validation rounds per item; each removes invalid parts, which may hide others
MAX_NAMED = 5  # maximum number of invalid places per item that the log names
MAX_PATTERN_CHARS = 5_000  # maximum total length of the regular expressions in a schema
MAX_GROUPS = 20  # maximum depth of nested groups in a regular expression; limited, because compilers recurse
MAX_REFERENCES = 30  # maximum number of chained references per value; limited, because clients recurse
MAX_VISITED = 10_000  # maximum number of schemas visited in the search for chained references

_BRANCH = "|"  # in error locations, marks a branch of a union

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

_CODE = r"\\(?:x[0-9A-Fa-f]{2}|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4})"
_SIGN = rf"{_CODE}|\\(?:0(?![0-9])|[dDwWsSfnrtv^$\\.*+?()\[\]{{}}|/])"
_END = rf"(?:{_CODE}|[^\\\]-])"
_RANGE = re.compile(rf"({_END})-({_END})")
_TOKEN = re.compile(
    r"(?P<opening>\((?:\?[:=!]|(?!\?)))|(?P<closing>\))|(?P<mark>[|^$]|\\[bB])"
    r"|(?P<repetition>(?:[*+?]|\{(?P<least>[0-9]{1,4})(?:,(?P<most>[0-9]{1,4})?)?\})\??)"
    rf"|\[\^?+(?!\])-?+(?P<set>(?:{_END}-{_END}-?|{_SIGN}|\\[b-]|[^\\\]-])*)-?\]"
    rf"|{_SIGN}|[^\\\[\](){{}}*+?|^$]"
)
"""A token of a regular expression that Python and ECMAScript parse in the same way, with or without the `u` flag."""

_IDENTITY = re.compile(rb'"\$(?:id|anchor|dynamicAnchor)":"')  # keywords that clients look for at any depth
_POINTER = re.compile(
    rf"#(?:/(?:{'|'.join(map(re.escape, sorted(BY_NAME)))})/[A-Za-z0-9_$.+-]+"
    rf"|/(?:{'|'.join(sorted(IN_LIST))})/(?:0|[1-9][0-9]{{0,3}})|/(?:{'|'.join(sorted(SINGLE))}))*"
)
"""A reference to a schema or to one of its subschemas, which are validated as schemas too. The names in the reference
need no escaping, so there is only one way to write it.
"""


class UnfitError(ValueError):
    """An item must be dropped; the message names the invalid required part, or says what the item has too many of."""


@dataclass(slots=True)
class _Schema:
    """A schema that is being validated. Its references and patterns decide whether clients can compile it."""

    root: Json
    references: set[str] = field(default_factory=set[str])
    pattern_chars: int = 0


@cache
def _data() -> Json:
    return json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


@cache
def _validators() -> dict[str, SchemaValidator]:
    """Return validators for each kind of item, for handshake-era output schemas, and for any schema."""
    items, keywords = _data()["revisions"][STRICTEST], _data()["keywords"]
    validators = {name: _validator(schema, items) for name, schema in items.items()}
    validators["output"] = _validator(items["Tool"]["properties"]["outputSchema"], items)
    validators["Schema"] = _validator(keywords["Schema"], keywords)
    # Older drafts allow tuples in `items`; the default dialect does not.
    validators["TupleSchema"] = _validator(keywords["Schema"], {**keywords, "Items": keywords["TupleItems"]})
    return validators


def fitted(name: str, item: Json, json_bytes: bytes = b"") -> tuple[Json, tuple[str, ...]]:
    """Return a list item without its invalid parts, and the places of those parts.

    Args:
        name: The specification's name for the item, such as `Tool`.
        item: The item, which is returned unchanged if it is valid.
        json_bytes: The item as JSON, to count its values.

    Raises:
        UnfitError: A required part is invalid, or the item has too many values or invalid parts.
    """
    # Each value except the first follows a comma or an opening bracket; counting those inside strings does no harm.
    if json_bytes.count(b",") + json_bytes.count(b"[") + json_bytes.count(b"{") > MAX_VALUES:
        raise UnfitError(f"it has more than {MAX_VALUES:,} values")
    removed_places: dict[str, None] = {}
    if name == "Tool" and "outputSchema" in item:
        if problem := _why_not_compiled(item["outputSchema"]):
            removed_places[f"outputSchema ({problem})"] = None
            item = {key: value for key, value in item.items() if key != "outputSchema"}
        elif for_handshake(item) is not item:
            removed_places[f"outputSchema (for clients of revisions up to {STRICTEST})"] = None
    for _ in range(MAX_ROUNDS):
        if not (invalid_places := _invalid_places(name, for_handshake(item))):
            extra = len(removed_places) - MAX_NAMED
            more = [f"{extra} more {'place' if extra == 1 else 'places'}"] if extra > 0 else []
            return item, (*[*removed_places][:MAX_NAMED], *more)
        copies: dict[tuple[int | str, ...], Any] = {(): item.copy()}
        for place in sorted(invalid_places, reverse=True):  # start at the end of each list, so that indexes stay valid
            for end in range(1, len(place)):
                if place[:end] not in copies:
                    parent, step = copies[place[: end - 1]], place[end - 1]
                    copies[place[:end]] = parent[step] = parent[step].copy()
            parent, step = copies[place[:-1]], place[-1]
            if invalid_places[place][0]:  # keep the name of an argument, without its schema
                if isinstance(parent[step], bool):
                    del invalid_places[place]
                parent[step] = {"not": {}} if parent[step] is False else {}
            else:
                del parent[step]
        item = copies[()]
        removed_places.update(dict.fromkeys(location for _, location in invalid_places.values()))
    raise UnfitError("too many of its parts are invalid")


def for_handshake(tool: Json) -> Json:
    """Return a tool in a form that clients of revisions before 2026-07-28 can read."""
    if "outputSchema" not in tool or _validators()["output"].isinstance_python(tool["outputSchema"]):
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def _invalid_places(name: str, item: Json) -> dict[tuple[int | str, ...], tuple[bool, str]]:
    """Return the places to remove, and for each, whether its key is free and the location of its first error.

    A free key is one that the upstream chooses, such as the name of an argument, not a field of the specification.
    """
    try:
        _validators()[name].validate_python(item)
    except ValidationError as error:
        if error.error_count() > MAX_INVALID:
            raise UnfitError(f"{error.error_count()} of its parts are invalid") from None
        errors = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        return {}
    definitions = _data()["revisions"][STRICTEST]
    places: dict[tuple[int | str, ...], tuple[bool, str]] = {}
    for details in errors:
        # Remove the innermost optional value that is at or around the error.
        schema, end, is_free_key = definitions[name], 0, False
        for position, step in enumerate(details["loc"], 1):
            fields: Json = schema.get("properties", {})
            if isinstance(step, int) or step not in fields:
                end, is_free_key = position, not isinstance(step, int)
                schema = schema.get("items" if isinstance(step, int) else "additionalProperties", {})
            else:
                if step not in schema.get("required", ()):
                    end, is_free_key = position, False
                schema = fields[step]
            if "$ref" in schema:
                schema = definitions[_definition_name(schema)]
        location = ".".join(map(str, details["loc"]))
        if not end:
            raise UnfitError(location)
        places.setdefault(details["loc"][:end], (is_free_key, location))
    return {
        place: entry
        for place, entry in places.items()
        if not any(place[:end] in places for end in range(1, len(place)))
    }


def _definition_name(schema: Json) -> str:
    return schema["$ref"].rpartition("/")[2]


def _why_not_compiled(schema: Any) -> str:
    """Return why some clients could not compile a schema, or an empty string if all clients can."""
    if not isinstance(schema, dict):
        return "it is not an object"
    root = cast("Json", schema)
    json_bytes = to_json(root)
    if json_bytes.count(b",") + json_bytes.count(b"{") > MAX_PARTS:
        return f"it has more than {MAX_PARTS:,} parts"
    if _IDENTITY.search(json_bytes):
        return "a schema in it has its own id or anchor"
    name, context = "TupleSchema" if "draft-0" in str(root.get("$schema")) else "Schema", _Schema(root)
    try:
        _validators()[name].validate_python(root, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ".".join(str(step) for step in first["loc"] if step != _BRANCH) or "as a whole"
    # A validator that follows the references for a single value must finish within the limits.
    too_long = "its references form a cycle or a long chain"
    targets: dict[str, list[str]] = {}  # for each reference, the references in its target that apply to the same value
    steps = 0
    for reference in context.references:
        next_references, waiting = targets.setdefault(reference, []), [schema_at(root, reference[1:])]
        while waiting:
            if (steps := steps + 1) > MAX_VISITED:
                return too_long
            fields = as_mapping(waiting.pop())
            next_references += [fields["$ref"]] if "$ref" in fields else []
            waiting += (fields[keyword] for keyword in ("not", "if", "then", "else") if keyword in fields)
            waiting += (subschema for name in ("allOf", "anyOf", "oneOf") for subschema in fields.get(name, ()))
            waiting += (
                subschema
                for name in ("dependentSchemas", "dependencies")
                for subschema in fields.get(name, {}).values()
            )
    length = {"": 0}
    try:
        for node in TopologicalSorter(targets).static_order():
            length[node] = 1 + max((length[target] for target in targets[node]), default=0)
    except CycleError:
        return too_long
    return "" if max(length.values()) <= MAX_REFERENCES else too_long


def _validator(schema: Json, definitions: Json) -> SchemaValidator:
    core_schemas = [{**_to_core(definition), "ref": name} for name, definition in definitions.items()]
    return SchemaValidator(core_schema.definitions_schema(_to_core(schema), cast("Any", core_schemas)))


def _to_core(schema: Any) -> Any:
    """Convert one of the protocol's schemas for pydantic; only the keywords that those schemas use are supported."""
    if isinstance(schema, bool):
        return core_schema.any_schema() if schema else core_schema.is_instance_schema(_Schema)
    if "$ref" in schema:
        return core_schema.definition_reference_schema(_definition_name(schema))
    if "anyOf" in schema or isinstance(schema.get("type"), list):
        options = schema.get("anyOf") or [{**schema, "type": type_name} for type_name in schema["type"]]
        return core_schema.union_schema([(_to_core(option), _BRANCH) for option in options], mode="left_to_right")
    if "enum" in schema or "const" in schema:
        return core_schema.literal_schema(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "string":
            text, check = core_schema.str_schema(strict=True), _FORMATS.get(schema.get("format", ""))
            return text if check is None else _with_check(text, check)
        case "boolean":
            return core_schema.bool_schema(strict=True)
        case "number" | "integer" as kind:
            return core_schema.float_schema(
                strict=True,
                allow_inf_nan=False,
                multiple_of=1 if kind == "integer" else None,
                ge=schema.get("minimum"),
                le=schema.get("maximum"),
                gt=schema.get("exclusiveMinimum"),
            )
        case "array":
            items = core_schema.list_schema(
                _to_core(schema.get("items", True)), min_length=schema.get("minItems"), strict=True
            )
            return (
                _with_check(items, lambda value, _: len(set(value)) == len(value)) if "uniqueItems" in schema else items
            )
        case "object" if "properties" in schema:
            fields = {
                name: core_schema.typed_dict_field(_to_core(field_schema), required=name in schema.get("required", ()))
                for name, field_schema in schema["properties"].items()
            }
            record = core_schema.typed_dict_schema(fields, extra_behavior="allow", strict=True)
            if not (dependent_keys := schema.get("dependentRequired")):
                return record
            return _with_check(
                record,
                lambda value, _: all(value.keys() >= {*dependent_keys[name]} for name in dependent_keys.keys() & value),
            )
        case "object":
            names, values = schema.get("propertyNames", {"type": "string"}), schema.get("additionalProperties", True)
            return core_schema.dict_schema(_to_core(names), _to_core(values), strict=True)
        case _:
            return core_schema.any_schema()


def _with_check(schema: Any, check: Callable[[Any, _Schema], bool]) -> Any:
    def validate(value: Any, info: Any) -> Any:
        if not check(value, info.context):
            raise ValueError
        return value

    return core_schema.with_info_after_validator_function(validate, schema)


def _parses_with(parse: Callable[[str], Any]) -> Callable[[str, _Schema], bool]:
    def check(text: str, _: _Schema) -> bool:
        with suppress(ValueError):
            return parse(text) is not None
        return False

    return check


def _bytes_of(text: str) -> bytes:
    compact = "".join(text.split())
    return a2b_base64(compact + "=" * (-len(compact) % 4), strict_mode=True)


def _is_expression(text: str, schema: _Schema) -> bool:
    """Return whether a text is a regular expression in both Python and ECMAScript.

    The text is not compiled, because that could be slow.
    """
    schema.pattern_chars += len(text)
    position, groups, can_repeat = 0, list[str](), False
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or len(groups) > MAX_GROUPS or schema.pattern_chars > MAX_PATTERN_CHARS:
            return False
        position, kind = token.end(), token.lastgroup
        if kind == "opening":
            groups.append(token[0])
        if (kind == "closing" and not groups) or (kind == "repetition" and not can_repeat):
            return False
        if int(token["least"] or 0) > int(token["most"] or token["least"] or 0):
            return False
        if any(_character(first) > _character(last) for first, last in _RANGE.findall(token["set"] or "")):
            return False
        can_repeat = groups.pop() in ("(", "(?:") if kind == "closing" else kind in ("set", None)
    return not groups


def _character(code: str) -> str:
    return code.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _leads_to_schema(reference: str, schema: _Schema) -> bool:
    schema.references.add(reference)
    return _POINTER.fullmatch(reference) is not None and schema_at(schema.root, reference[1:]) is not None


_FORMATS: Mapping[str, Callable[[str, _Schema], bool]] = {
    "byte": _parses_with(_bytes_of),
    "uri": _parses_with(Url),
    "date-time": _parses_with(lambda text: _TIME.fullmatch(text) and datetime.fromisoformat(text)),
    "regex": _is_expression,
    "schema-reference": _leads_to_schema,
}
