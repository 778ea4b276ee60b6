"""What the protocol's own schemas say of an item of a list, and what of it goes so that every client can read it.

Many clients refuse a whole list, the tools of all other servers with it, for one wrong field of one item. An item may
go out in any revision. Each field that one of them knows, 2025-11-25 knows too, and asks as much of it, so an item is
held against that; only an `outputSchema` may be another thing in 2026-07-28. The schemas are data beside this, and
become validators of pydantic: those of JSON Schema itself take a hundred times as long.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic_core import SchemaValidator, Url, ValidationError, core_schema

from server.protocol.json_rpc import Json
from tools.discovery.declarations import schema_at

STRICTEST = "2025-11-25"  # the revision whose schemas ask all that those of others ask
MOST_WRONG = 100  # places of one item that go before all of it goes (ours)
MOST_PATTERN_CHARS = 10_000  # of one schema that are compiled; expressions that are longer take too long (ours)

_WAY = "|"  # in places of errors, for each choice that there was

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_ESCAPED = r"c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[dDwWsSfnrtv^$\\.*+?()\[\]{}|/"
_ECMASCRIPT = re.compile(
    rf"(?:[^\\\[\](){{}}*+?]|\\(?:{_ESCAPED}bB1-9]|0(?!\d))|\[\^?(?:[^\\\]]|\\(?:{_ESCAPED}b-]|0(?!\d)))*\]"
    r"|\((?:\?(?:[:=!]|<[=!])|(?!\?))|\)|(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{]))*"
)
"""Of the regular expressions of Python those that are some in ECMAScript, too."""


class UnfitError(ValueError):
    """Something that has to be there is not as it has to be; the message says where."""


@dataclass(slots=True)
class _Schema:
    """A schema that is checked as a value: what else than itself decides whether it can be compiled."""

    root: Json
    references: set[str] = field(default_factory=set[str])  # that were followed
    pattern_chars: int = 0


@cache
def _data() -> Json:
    return json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


@cache
def _validators() -> dict[str, SchemaValidator]:
    """One for each item; `output` for its schema in revisions with a handshake, `Schema` and `TupleSchema` for any."""
    items, keywords = _data()["revisions"][STRICTEST], _data()["keywords"]
    found = {name: _validator(schema, items) for name, schema in items.items()}
    found["output"] = _validator(items["Tool"]["properties"]["outputSchema"], items)
    found["Schema"] = _validator(keywords["Schema"], keywords)
    # Drafts have tuples in `items`, and the dialect that counts where none is named has not.
    found["TupleSchema"] = _validator(keywords["Schema"], {**keywords, "Items": keywords["TupleItems"]})
    return found


def fitted(name: str, item: Json) -> tuple[Json, tuple[str, ...]]:
    """An item of a list without what does not fit, and where that was.

    Args:
        name: What the specification calls such an item, such as `Tool`.
        item: The very same comes back if all of it fits.

    Raises:
        UnfitError: What does not fit has to be there.
    """
    dropped: list[str] = []
    if name == "Tool" and "outputSchema" in item:
        if problem := _why_not_compiled(item["outputSchema"]):
            dropped.append(f"outputSchema ({problem})")
            item = _changed(item, ["outputSchema"])
        elif for_handshake(item) is not item:
            dropped.append(f"outputSchema (for clients of revisions up to {STRICTEST})")
    kept = for_handshake(item)
    while places := _wrong_places(name, kept):
        for place, is_named, what in places:
            value: Any = kept
            for step in place:
                value = value[step]
            # A name of an argument stays, though nothing is known of what it takes.
            stand_in: Json | None = ({"not": {}} if value is False else {}) if is_named else None
            item, kept = _changed(item, place, stand_in), _changed(kept, place, stand_in)
            if not (is_named and isinstance(value, bool)):
                dropped.append(what)
        if len(dropped) > MOST_WRONG:
            raise UnfitError(f"{len(dropped)} places")
    return item, tuple(dropped)


def for_handshake(tool: Json) -> Json:
    """A tool as clients of revisions before 2026-07-28 can read it."""
    if "outputSchema" not in tool or _validators()["output"].isinstance_python(tool["outputSchema"]):
        return tool
    return _changed(tool, ["outputSchema"])


def _changed(value: Any, place: Sequence[int | str], stand_in: Any = None) -> Any:
    """A copy of a value without what is at a place in it, or with something else there."""
    step, *rest = place
    copied = value.copy()
    if rest or stand_in is not None:
        copied[step] = _changed(value[step], rest, stand_in) if rest else stand_in
    else:
        del copied[step]
    return copied


def _wrong_places(name: str, item: Json) -> list[tuple[Sequence[int | str], bool, str]]:
    """What may go of an item and has to: where it is, whether it is under a name of no meaning, and what was wrong."""
    try:
        _validators()[name].validate_python(item)
    except ValidationError as error:
        if error.error_count() > MOST_WRONG:
            raise UnfitError(f"{error.error_count()} places") from None
        found: dict[Sequence[int | str], tuple[bool, str]] = {}
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            what = ".".join(map(str, each["loc"]))
            place, is_named = _optional(each["loc"], _data()["revisions"][STRICTEST], name)
            if not place:
                raise UnfitError(what) from None
            found.setdefault(place, (is_named, what))
        within = (place for place in found if any(place[:end] in found for end in range(1, len(place))))
        return [(place, *found[place]) for place in sorted(found.keys() - {*within}, key=str)]
    return []


def _optional(place: Sequence[int | str], definitions: Json, name: str) -> tuple[Sequence[int | str], bool]:
    """The innermost thing around a place that need not be there, and whether its name is one of no meaning."""
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
    """Why some clients could not compile a schema; empty if all can."""
    if not isinstance(schema, dict):
        return "it is no object"
    root = cast("Json", schema)
    name = "TupleSchema" if "draft-0" in str(root.get("$schema")) else "Schema"
    try:
        _validators()[name].validate_python(root, context=_Schema(root))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ".".join(str(step) for step in first["loc"] if step != _WAY) or "as a whole"
    return ""


def _validator(schema: Json, definitions: Json) -> SchemaValidator:
    known = [{**_core(each), "ref": name} for name, each in definitions.items()]
    return SchemaValidator(core_schema.definitions_schema(_core(schema), cast("Any", known)))


def _core(schema: Any) -> Any:
    """A schema of the data as pydantic takes it; of the keywords of JSON Schema, those that stand there."""
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
                _core(schema.get("items", True)), min_length=schema.get("minItems"), fail_fast=True, strict=True
            )
            return _if(items, lambda each, _: len(set(each)) == len(each)) if "uniqueItems" in schema else items
        case "object" if "properties" in schema:
            fields = {
                name: core_schema.typed_dict_field(_core(each), required=name in schema.get("required", ()))
                for name, each in schema["properties"].items()
            }
            known = core_schema.typed_dict_schema(fields, extra_behavior="allow", strict=True)
            needs = schema.get("dependentRequired", {})
            return _if(known, lambda each, _: all(each.keys() >= {*needs[name]} for name in needs.keys() & each))
        case "object":
            names, values = schema.get("propertyNames", {"type": "string"}), schema.get("additionalProperties", True)
            return core_schema.dict_schema(_core(names), _core(values), strict=True)
        case _:
            return core_schema.any_schema()


def _if(schema: Any, check: Callable[[Any, _Schema], bool]) -> Any:
    """A schema whose values have to pass a check, too."""

    def checked(value: Any, info: Any) -> Any:
        if not check(value, info.context):
            raise ValueError
        return value

    return core_schema.with_info_after_validator_function(checked, schema)


def _is_uri(text: str, _: _Schema) -> bool:
    with suppress(ValueError):
        return bool(Url(text))
    return False


def _is_time(text: str, _: _Schema) -> bool:
    with suppress(ValueError):
        return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text))
    return False


def _is_expression(text: str, schema: _Schema) -> bool:
    """Whether it is a regular expression in Python and in ECMAScript."""
    schema.pattern_chars += len(text)
    if schema.pattern_chars > MOST_PATTERN_CHARS or _ECMASCRIPT.fullmatch(text) is None:
        return False
    with warnings.catch_warnings(), suppress(re.error, RecursionError, OverflowError):
        warnings.simplefilter("ignore")
        return bool(re.compile(text))
    return False


def _leads_to_schema(reference: str, schema: _Schema) -> bool:
    """Whether there is a schema within the same one; what nothing else leads to has to be one, too."""
    pointer = reference.removeprefix(str(schema.root.get("$id", "")))
    if pointer not in schema.references:
        schema.references.add(pointer)
        found = schema_at(schema.root, pointer[1:]) if pointer.startswith("#") else None
        return found is not None and _validators()["Schema"].isinstance_python(found, context=schema)
    return True


_FORMATS: Mapping[str, Callable[[str, _Schema], bool]] = {
    "uri": _is_uri,
    "date-time": _is_time,
    "regex": _is_expression,
    "schema-reference": _leads_to_schema,
}
