"""Validates list items against the protocol's schemas, and removes parts that some clients cannot read.

Many clients reject a whole list, including the tools of all other servers, because of one invalid field in one item.
Items may be sent in any revision. Revision 2025-11-25 has every field of the other revisions, with the same
requirements, so items are validated against that revision; only `outputSchema` may differ in the 2026-07-28 revision.
The schemas are in a JSON file next to this module. They are compiled to pydantic validators, which are a hundred times
faster than JSON Schema validators.
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
MAX_VALUES = 20_000  # values per item; validating more would delay everything else
MAX_PARTS = 4_000  # values in an output schema; validating more would delay everything else
MAX_WRONG = 100  # invalid places per item; beyond this, the whole item is dropped
MAX_ROUNDS = 5  # validation rounds per item; each removes all errors found, which may have hidden others
MAX_NAMED = 5  # invalid places per item that are named in the log
MAX_PATTERN_CHARS = 5_000  # characters of regular expressions that are examined per schema
MAX_GROUPS = 20  # nested groups in a regular expression; limited, because compilers recurse
MAX_REFERRED = 30  # chained references per value; limited, because clients recurse
MAX_APPLIED = 10_000  # schemas visited in the search for chained references

_WAY = "|"  # in error locations, marks a branch of a union

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

_IDENTITY = re.compile(rb'"\$(?:id|anchor|dynamicAnchor)":"')  # clients look for these at any depth of a schema
_POINTER = re.compile(
    rf"#(?:/(?:{'|'.join(map(re.escape, sorted(BY_NAME)))})/[A-Za-z0-9_$.+-]+"
    rf"|/(?:{'|'.join(sorted(IN_LIST))})/(?:0|[1-9][0-9]{{0,3}})|/(?:{'|'.join(sorted(SINGLE))}))*"
)
"""A reference to a place that is validated as a schema. Its names need no escaping, so each has only one spelling."""


class UnfitError(ValueError):
    """A required part is invalid; the message says where."""


@dataclass(slots=True)
class _Schema:
    """The root of a schema that is being validated, and facts that decide whether clients can compile the schema."""

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
    found = {name: _validator(schema, items) for name, schema in items.items()}
    found["output"] = _validator(items["Tool"]["properties"]["outputSchema"], items)
    found["Schema"] = _validator(keywords["Schema"], keywords)
    # Older drafts allow tuples in `items`; the default dialect does not.
    found["TupleSchema"] = _validator(keywords["Schema"], {**keywords, "Items": keywords["TupleItems"]})
    return found


def fitted(name: str, item: Json, encoded: bytes = b"") -> tuple[Json, tuple[str, ...]]:
    """Return a list item without its invalid parts, and the places of those parts.

    Args:
        name: The specification's name for the item, such as `Tool`.
        item: The item, which is returned unchanged if it is valid.
        encoded: The item as JSON, to count its values.

    Raises:
        UnfitError: A required part is invalid.
    """
    # Each value except the first follows a comma or an opening bracket; counting those inside strings does no harm.
    if encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{") > MAX_VALUES:
        raise UnfitError(f"it has more than {MAX_VALUES:,} values")
    dropped: dict[str, None] = {}
    if name == "Tool" and "outputSchema" in item:
        if problem := _why_not_compiled(item["outputSchema"]):
            dropped[f"outputSchema ({problem})"] = None
            item = {key: value for key, value in item.items() if key != "outputSchema"}
        elif for_handshake(item) is not item:
            dropped[f"outputSchema (for clients of revisions up to {STRICTEST})"] = None
    for _ in range(MAX_ROUNDS):
        if not (wrong := _wrong_places(name, for_handshake(item))):
            more = [f"{len(dropped) - MAX_NAMED} more places"] if len(dropped) > MAX_NAMED else []
            return item, (*[*dropped][:MAX_NAMED], *more)
        copies: dict[tuple[int | str, ...], Any] = {(): item.copy()}
        for place in sorted(wrong, reverse=True):  # from the end of a list, so that indexes stay valid
            for end in range(1, len(place)):
                if place[:end] not in copies:
                    within, step = copies[place[: end - 1]], place[end - 1]
                    copies[place[:end]] = within[step] = within[step].copy()
            within, step = copies[place[:-1]], place[-1]
            if wrong[place][0]:  # keep the name of an argument, without its schema
                if isinstance(within[step], bool):
                    del wrong[place]
                within[step] = {"not": {}} if within[step] is False else {}
            else:
                del within[step]
        item = copies[()]
        dropped.update(dict.fromkeys(what for _, what in wrong.values()))
    raise UnfitError("too many of its parts are invalid")


def for_handshake(tool: Json) -> Json:
    """Return a tool as clients of revisions before 2026-07-28 can read it."""
    if "outputSchema" not in tool or _validators()["output"].isinstance_python(tool["outputSchema"]):
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def _wrong_places(name: str, item: Json) -> dict[tuple[int | str, ...], tuple[bool, str]]:
    """Return the places to remove, each with its error and whether its name is free (not from the specification)."""
    found: dict[tuple[int | str, ...], tuple[bool, str]] = {}
    try:
        _validators()[name].validate_python(item)
    except ValidationError as error:
        if error.error_count() > MAX_WRONG:
            raise UnfitError(f"{error.error_count()} places") from None
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            what = ".".join(map(str, each["loc"]))
            place, is_named = _optional(each["loc"], _data()["revisions"][STRICTEST], name)
            if not place:
                raise UnfitError(what) from None
            found.setdefault(place, (is_named, what))
    else:
        return {}
    return {
        place: what for place, what in found.items() if not any(place[:end] in found for end in range(1, len(place)))
    }


def _optional(place: tuple[int | str, ...], definitions: Json, name: str) -> tuple[tuple[int | str, ...], bool]:
    """Return the innermost optional value around a place, and whether its name is free (not from the specification)."""
    schema, end, is_named = definitions[name], 0, False
    for at, step in enumerate(place, 1):
        fields: Json = schema.get("properties", {})
        if isinstance(step, int) or step not in fields:
            end, is_named = at, not isinstance(step, int)
            schema = schema.get("items" if isinstance(step, int) else "additionalProperties", {})
        else:
            if step not in schema.get("required", ()):
                end, is_named = at, False
            schema = fields[step]
        if "$ref" in schema:
            schema = definitions[_referred(schema)]
    return place[:end], is_named


def _referred(schema: Json) -> str:
    return schema["$ref"].rpartition("/")[2]


def _why_not_compiled(schema: Any) -> str:
    """Return why some clients could not compile a schema, or an empty string if all clients can."""
    if not isinstance(schema, dict):
        return "it is not an object"
    root = cast("Json", schema)
    encoded = to_json(root)
    if encoded.count(b",") + encoded.count(b"{") > MAX_PARTS:
        return f"it has more than {MAX_PARTS:,} parts"
    if _IDENTITY.search(encoded):
        return "a schema in it has its own id or anchor"
    name, context = "TupleSchema" if "draft-0" in str(root.get("$schema")) else "Schema", _Schema(root)
    try:
        _validators()[name].validate_python(root, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ".".join(str(step) for step in first["loc"] if step != _WAY) or "as a whole"
    return "" if _ends(context) else "its references form a cycle or a long chain"


def _ends(schema: _Schema) -> bool:
    """Return whether following the references that apply to a single value terminates within the limits."""
    applied: dict[str, list[str]] = {}  # for each reference, the references that apply to the same value
    steps = 0
    for reference in schema.references:
        found, waiting = applied.setdefault(reference, []), [schema_at(schema.root, reference[1:])]
        while waiting:
            if (steps := steps + 1) > MAX_APPLIED:
                return False
            fields = as_mapping(waiting.pop())
            found += [fields["$ref"]] if "$ref" in fields else []
            waiting += (fields[each] for each in ("not", "if", "then", "else") if each in fields)
            waiting += (each for name in ("allOf", "anyOf", "oneOf") for each in fields.get(name, ()))
            waiting += (each for name in ("dependentSchemas", "dependencies") for each in fields.get(name, {}).values())
    length = {"": 0}
    with suppress(CycleError):
        for each in TopologicalSorter(applied).static_order():
            length[each] = 1 + max((length[other] for other in applied[each]), default=0)
        return max(length.values()) <= MAX_REFERRED
    return False


def _validator(schema: Json, definitions: Json) -> SchemaValidator:
    known = [{**_core(each), "ref": name} for name, each in definitions.items()]
    return SchemaValidator(core_schema.definitions_schema(_core(schema), cast("Any", known)))


def _core(schema: Any) -> Any:
    """Convert one of the protocol's schemas for pydantic; only the keywords that those schemas use are supported."""
    if isinstance(schema, bool):
        return core_schema.any_schema() if schema else core_schema.is_instance_schema(_Schema)
    if "$ref" in schema:
        return core_schema.definition_reference_schema(_referred(schema))
    if "anyOf" in schema or isinstance(schema.get("type"), list):
        among = schema.get("anyOf") or [{**schema, "type": each} for each in schema["type"]]
        return core_schema.union_schema([(_core(each), _WAY) for each in among], mode="left_to_right")
    if "enum" in schema or "const" in schema:
        return core_schema.literal_schema(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "string":
            text, check = core_schema.str_schema(strict=True), _FORMATS.get(schema.get("format", ""))
            return text if check is None else _if(text, check)
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
                _core(schema.get("items", True)), min_length=schema.get("minItems"), strict=True
            )
            return _if(items, lambda each, _: len(set(each)) == len(each)) if "uniqueItems" in schema else items
        case "object" if "properties" in schema:
            fields = {
                name: core_schema.typed_dict_field(_core(each), required=name in schema.get("required", ()))
                for name, each in schema["properties"].items()
            }
            known = core_schema.typed_dict_schema(fields, extra_behavior="allow", strict=True)
            if not (needs := schema.get("dependentRequired")):
                return known
            return _if(known, lambda each, _: all(each.keys() >= {*needs[name]} for name in needs.keys() & each))
        case "object":
            names, values = schema.get("propertyNames", {"type": "string"}), schema.get("additionalProperties", True)
            return core_schema.dict_schema(_core(names), _core(values), strict=True)
        case _:
            return core_schema.any_schema()


def _if(schema: Any, check: Callable[[Any, _Schema], bool]) -> Any:
    """Return a schema whose values must also pass a check."""

    def checked(value: Any, info: Any) -> Any:
        if not check(value, info.context):
            raise ValueError
        return value

    return core_schema.with_info_after_validator_function(checked, schema)


def _read_by(read: Callable[[str], Any]) -> Callable[[str, _Schema], bool]:
    def check(text: str, _: _Schema) -> bool:
        with suppress(ValueError):
            return read(text) is not None
        return False

    return check


def _bytes_of(text: str) -> bytes:
    compact = "".join(text.split())
    return a2b_base64(compact + "=" * (-len(compact) % 4), strict_mode=True)


def _is_expression(text: str, schema: _Schema) -> bool:
    """Return whether a string is a regular expression in both Python and ECMAScript.

    The string is checked in one pass, because compiling may be slow.
    """
    schema.pattern_chars += len(text)
    at, groups, can_repeat = 0, list[str](), False
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or len(groups) > MAX_GROUPS or schema.pattern_chars > MAX_PATTERN_CHARS:
            return False
        at, kind = token.end(), token.lastgroup
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
    "byte": _read_by(_bytes_of),
    "uri": _read_by(Url),
    "date-time": _read_by(lambda text: _TIME.fullmatch(text) and datetime.fromisoformat(text)),
    "regex": _is_expression,
    "schema-reference": _leads_to_schema,
}
