"""Reads the declarations printed by the discovery command and checks calls against their schemas.

An invalid declaration does not affect the others. Schemas come in two dialects: JSON Schema, and the dialect of the
Gemini API, which has upper-case types and `nullable`. The Python library of the Gemini API writes all keys with
underscores and writes null for unset values.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import count, islice
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from tools.contract.display import visible
from tools.contract.tool_parameters import coerce
from tools.discovery.discovery_commands import UnusableError, read_json, require_sendable
from tools.machine.unlocked_cached_property import cached_property
from tools.permissions.tool_names import BETWEEN
from tools.text.file_names import brief, one_line

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator


# Keywords whose value is an object that contains schemas.
BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
IN_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})  # keywords whose value is an array of schemas

# Keywords whose value is one schema.
SINGLE = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains", "propertyNames"}
    | {"contentSchema", "not", "if", "then", "else"}
)

COUNTS = frozenset(
    {"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties", "maxContains", "minContains"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef"})
# Identifiers of a schema. They are dropped, because all supported references are paths from the root.
IDENTITY = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary"})
# Keywords of older drafts. They are dropped, so the tool itself must check what they require.
OUTDATED = frozenset({"dependencies", "$recursiveRef", "$recursiveAnchor"})
TEXTS = frozenset({"title", "description"})  # keywords whose value is text for people and models

_CAMEL_CASE_KEYS = {"any_of": "anyOf", "additional_properties": "additionalProperties"} | {
    f"{side}_{noun.lower()}": f"{side}{noun}" for side in ("max", "min") for noun in ("Items", "Length", "Properties")
}


def readable_schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a declared schema to the published JSON Schema (2020-12), or raise an `UnusableError`."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - loaded on first use, because it is slow to import

    schema = _normalise({**raw, "nullable": None})
    if schema.setdefault("type", "object") != "object":
        raise UnusableError(f"its parameters are of type {brief(json.dumps(schema['type']))}, but must be an object")
    schema.setdefault("properties", {})
    metaschema = cast("Validator", Draft202012Validator(Draft202012Validator.META_SCHEMA))
    error = next(metaschema.iter_errors(schema), None)
    if error is not None:
        path, value = error.absolute_path, brief(json.dumps(error.instance, default=str))
        raise UnusableError(f"its {path[-1] if path else 'schema'} is {value}, which JSON Schema does not define")

    def check_references(node: Any) -> None:
        if isinstance(node, dict):
            fields = cast("dict[str, Any]", node)
            for reference in (str(fields[key]) for key in REFERENCES & fields.keys()):
                if not reference.startswith("#") or schema_at(schema, reference[1:]) is None:
                    raise UnusableError(f"the reference '{brief(reference)}' has no target in its schema")
            with_children(fields, check_references)

    check_references(schema)
    return schema


def _normalise(node: Any) -> Any:
    if isinstance(node, bool):
        return node
    if not isinstance(node, dict):
        raise UnusableError(f"{brief(json.dumps(node))} is not a schema")
    fields: dict[str, Any] = {}
    for raw_key, value in cast("dict[str, Any]", node).items():
        key = _CAMEL_CASE_KEYS.get(raw_key, raw_key)
        if (value is None and key != "const") or key in IDENTITY | OUTDATED:
            continue
        if key in COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
            fields[key] = int(value)  # the Gemini API writes 64-bit integers as strings
        else:
            fields[key] = visible(value) if key in TEXTS and isinstance(value, str) else value
    declared_type = fields.get("type")
    if isinstance(declared_type, str):
        fields["type"] = declared_type.lower()
    elif isinstance(declared_type, list):
        fields["type"] = [name.lower() if isinstance(name, str) else name for name in cast("list[Any]", declared_type)]
    if fields.get("type") == "type_unspecified":
        del fields["type"]
    if isinstance(fields.get("items"), list):  # in older drafts, such an array means `prefixItems`
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
    return with_children(fields, _normalise)


def with_children(fields: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Apply a change to each nested schema, but not to values that only look like schemas, such as defaults."""
    result = dict(fields)
    for key, value in fields.items():
        if key in BY_NAME and isinstance(value, dict):
            result[key] = {name: change(child) for name, child in cast("dict[str, Any]", value).items()}
        elif key in IN_LIST and isinstance(value, list):
            result[key] = [change(child) for child in cast("list[Any]", value)]
        elif key in SINGLE:
            result[key] = change(value)
    return result


def schema_at(schema: Mapping[str, Any], pointer: str) -> dict[str, Any] | bool | None:
    """Return the nested schema at a JSON Pointer. Named anchors are not resolved."""
    if pointer and not pointer.startswith("/"):
        return None
    node: Any = schema
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isascii() and name.isdigit():
            items = cast("list[Any]", node)
            node = items[int(name)] if int(name) < len(items) else None
        else:
            node = cast("dict[str, Any]", node).get(name) if isinstance(node, dict) else None
    return cast("dict[str, Any] | bool", node) if isinstance(node, dict | bool) else None


# Maximum number of references that a check follows. Without a limit, references that branch could take forever.
MAX_REFERENCES = 2_000
MAX_QUICK_VALUES = 1_000  # arguments with more values are checked in a thread
MAX_PROBLEMS = 5  # maximum number of invalid values listed in one message
_COERCED = ("boolean", "integer", "array", "object")  # types whose values models often write as strings
# Keywords whose checks may take very long, and whose steps cannot be counted. The tool itself must check them.
_COSTLY = frozenset({"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"})


def _without_costly_keywords(node: Any) -> Any:
    """Return a schema without the keywords that may take a long time to check."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    omitted_keys = _COSTLY
    if "patternProperties" in fields:
        # Without `patternProperties`, it is unknown which properties are additional.
        omitted_keys = omitted_keys | {"additionalProperties"}
    checked_fields = {key: value for key, value in fields.items() if key not in omitted_keys}
    return with_children(checked_fields, _without_costly_keywords)


class LongCheckError(Exception):
    """A check of arguments exceeded a limit."""


_references: ContextVar[Iterable[int]] = ContextVar("references that a check has followed")


@cache
def _validator_class() -> type[Validator]:
    """Return the library's validator with a limit on references. The import takes about 70 ms."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    library: Any = import_module("jsonschema.validators")  # its type information is incomplete
    keywords: Mapping[str, Any] = Draft202012Validator.VALIDATORS

    def counted(follow: Any) -> Any:
        def apply(validator: Any, target: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
            if next(iter(_references.get())) > MAX_REFERENCES:
                raise LongCheckError
            return follow(validator, target, value, schema) or ()

        return apply

    return library.extend(Draft202012Validator, {name: counted(keywords[name]) for name in REFERENCES})


class ArgumentCheck:
    """Checks arguments against a schema from `readable_schema`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Validator:
        from referencing import Registry  # noqa: PLC0415 - loaded by `_validator_class`

        return _validator_class()(_without_costly_keywords(self._schema), registry=Registry())

    def repair(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments, changed only if that makes them valid: strings converted to other types, nulls removed.

        Raises a `LongCheckError` if there are too many values to check on the event loop.
        """
        if self.quick_problem_of(arguments) is None:
            return arguments
        converted: dict[str, Any] = {}
        for name, value in arguments.items():
            schema = self._schema["properties"].get(name)
            property_type = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
            if value is not None:
                converted[name] = coerce(value, {"type": property_type}) if property_type in _COERCED else value
        return converted if converted != arguments and self.quick_problem_of(converted) is None else arguments

    def quick_problem_of(self, arguments: Mapping[str, Any]) -> str | None:
        """Like `problem_of`, but safe on the event loop. Raises a `LongCheckError` if there are too many values."""
        waiting: list[Any] = [arguments]
        value_count = 0
        while waiting:
            value = waiting.pop()
            value_count += 1
            if isinstance(value, dict | list):
                children = cast("list[Any]", list(value.values()) if isinstance(value, dict) else value)
                waiting += children[: MAX_QUICK_VALUES + 1]
            if value_count + len(waiting) > MAX_QUICK_VALUES:
                raise LongCheckError
        return self.problem_of(arguments)

    def problem_of(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong, as sentences, or `None`. The tool itself must make slow checks, which are skipped."""
        token = _references.set(count())
        try:
            problems = [*map(_sentence, islice(self._validator.iter_errors(arguments), MAX_PROBLEMS))]
        except LongCheckError:
            return None
        except RecursionError:
            return "they are nested too deeply."
        finally:
            _references.reset(token)
        if not problems:
            return None
        names = ", ".join(self._schema["properties"])
        return " ".join([*dict.fromkeys(problems), f"Accepted: {one_line(names) or 'nothing'}."])


def _sentence(error: ValidationError) -> str:
    path = ".".join(map(str, error.absolute_path))
    subject = f"'{brief(path)}'" if path else "The object"
    rule, limit = str(error.validator), brief(json.dumps(error.validator_value, ensure_ascii=False, default=str))
    if rule in ("required", "additionalProperties", "dependentRequired"):
        return f"{subject}: {brief(error.message)}." if path else f"{brief(error.message)}."
    value: Any = error.instance
    if isinstance(value, str):
        value = value[:100]  # the message shows only the beginning
    elif isinstance(value, dict | list):
        value = "{...}" if isinstance(value, dict) else "[...]"
    return f"{subject} must satisfy {rule} {limit}, got {brief(json.dumps(value, ensure_ascii=False, default=str))}."


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    name: str  # the tool's name for clients
    declared_name: str  # the tool's name for the call command
    title: str  # the tool's name for people
    description: str  # what the tool does; may be empty
    schema: Mapping[str, Any]  # JSON Schema of the tool's parameters
    check: ArgumentCheck = field(compare=False, repr=False)  # checks arguments against the schema
    size: int  # number of characters that the tool adds to `tools/list`


MAX_TOOLS = 1_000  # no model can use more tools, and listing this many takes a fraction of a second
MAX_NAME = 64  # maximum length of a published name, a limit of model APIs
MAX_DECLARATION_CHARS = 64_000  # maximum length of one tool's name, description and schema together
MAX_LISTED_CHARS = 2_000_000  # maximum length of all tools together, because every `tools/list` result contains them
MAX_WARNINGS = 20  # maximum number of warnings that are kept; one more counts the rest
SHAPE = 'an array of function declarations, such as [{"name": "...", "description": "...", "parameters": {...}}]'
_HINT = "Make it print only JSON to standard output, and messages to standard error."
_FULL = f"at most {MAX_TOOLS:,} tools with a total of {MAX_LISTED_CHARS:,} characters are accepted"
_WRAPPERS = ("function_declarations", "functionDeclarations")
# Keys under which a declaration may contain its schema. The first one that is present is used.
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters", "inputSchema", "input_schema")
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]|_(?=_)")
# Rules name upstream tools `mcp_server_tool`, `mcp__server__tool` or `server__tool`. A custom tool with such a name
# would be mistaken for an upstream tool.
UPSTREAM_PREFIX = "mcp_"
# Names of other coding agents' built-in tools, except those that are aliases of this server's tools.
AGENT_TOOL_NAMES = frozenset(
    {"apply_patch", "exec_command", "KillBash", "local_shell", "NotebookRead", "patch", "TodoRead"}
)


class DiscoveryError(Exception):
    """Discovery failed. The message says why and what to do, as sentences for the operator."""


@dataclass(slots=True)
class Declarations:
    # The custom tools, keyed by published name, in the order of the declarations
    tools: dict[str, DeclaredTool] = field(default_factory=dict[str, DeclaredTool])
    warnings: list[str] = field(default_factory=list[str])  # what was skipped or changed, and why


def read_declarations(output: bytes, reserved: frozenset[str]) -> Declarations:
    """Parse the output of the discovery command. Blocking, because each schema is checked.

    `reserved` has the names that no custom tool may have: those of other tools, and the names that rules use for them.
    Case is ignored, because people hardly notice it. Raises a `DiscoveryError` if the output is not a list of
    declarations.
    """
    text = output.decode("utf-8-sig", "replace").strip()
    if not text:
        raise DiscoveryError(f"The discovery command printed nothing. Make it print {SHAPE}.")
    try:
        value: Any = read_json(text)
    except UnusableError as error:
        raise DiscoveryError(f"The output of the discovery command cannot be used: {error}. {_HINT}") from None
    if isinstance(value, dict) and any(key in value for key in _WRAPPERS):
        value = cast("list[Any]", [value])
    if not isinstance(value, list):
        raise DiscoveryError(f"The discovery command printed JSON that is not an array. Make it print {SHAPE}.")
    result = Declarations()
    declarations: list[Any] = []
    for number, entry in enumerate(cast("list[Any]", value), start=1):
        fields: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        wrapper = next((key for key in _WRAPPERS if key in fields), None)
        if wrapper is None:
            declarations.append(entry)
        elif isinstance(fields[wrapper], list):
            declarations += cast("list[Any]", fields[wrapper])
        else:
            result.warnings.append(f"Entry {number} was left out: its '{wrapper}' is not an array.")
    used_names = frozenset(name.casefold() for name in (*reserved, *AGENT_TOOL_NAMES))
    chars_left = MAX_LISTED_CHARS
    for number, declaration in enumerate(declarations, start=1):
        fields = cast("dict[str, Any]", declaration) if isinstance(declaration, dict) else {}
        declared_name: Any = fields.get("name")
        try:
            if len(result.tools) == MAX_TOOLS:
                raise UnusableError(_FULL)  # noqa: TRY301 - raised before the slow check of the schema
            tool = _parse_declaration(declaration, used_names)
            if tool.name in result.tools:
                raise UnusableError("an earlier declaration has this name")  # noqa: TRY301 - as above
            if tool.size > chars_left:
                raise UnusableError(_FULL)  # noqa: TRY301 - as above
        except UnusableError as reason:
            label = f" ('{brief(declared_name)}')" if isinstance(declared_name, str) else ""
            result.warnings.append(f"Declaration {number}{label} was left out: {reason}.")
            continue
        chars_left -= tool.size
        result.tools[tool.name] = tool
        if tool.name != tool.declared_name:
            result.warnings.append(
                f"'{brief(tool.declared_name)}' is published as '{tool.name}': names have at most {MAX_NAME} "
                f"characters (A-Z a-z 0-9 _ -) and do not contain {BETWEEN}."
            )
    if (further_count := len(result.warnings) - MAX_WARNINGS) > 0:
        further_note = f"Further declarations that were left out or changed: {further_count:,}."
        result.warnings[MAX_WARNINGS:] = [further_note]
    if result.tools:
        _validator_class()  # import the validator before the first call
    return result


def _parse_declaration(declaration: Any, used_names: frozenset[str]) -> DeclaredTool:
    """Parse one declaration, or raise an `UnusableError`. `used_names` are the names in use, in lower case."""
    if not isinstance(declaration, dict):
        raise UnusableError("it is not an object")
    fields = cast("dict[str, Any]", declaration)
    declared_name = fields.get("name")
    if not isinstance(declared_name, str) or not declared_name:
        raise UnusableError("it has no name")
    if declared_name.startswith("-"):
        raise UnusableError("the call command would read its name as an option")
    if not declared_name.isprintable():
        raise UnusableError("its name has invisible characters")
    name = declared_name
    if not _NAME.fullmatch(declared_name) or BETWEEN in declared_name:
        # The hash covers only the name, so the published name stays the same, whatever else is declared.
        digest = hashlib.sha256(declared_name.encode()).hexdigest()[:8]
        name = f"{_NOT_IN_NAMES.sub('-', declared_name)[: MAX_NAME - len(digest) - 1]}-{digest}"
    if name.casefold() in used_names or declared_name.casefold() in used_names:
        raise UnusableError("built-in tools, rules or other coding agents use this name, regardless of case")
    if declared_name.casefold().startswith(UPSTREAM_PREFIX):
        raise UnusableError(
            f"rules name upstream tools this way; choose a name that does not begin with {UPSTREAM_PREFIX}"
        )
    texts = {key: text for key in ("title", "description") if isinstance(text := fields.get(key), str)}
    description = visible(texts.get("description", ""))
    key = next((key for key in _SCHEMAS if fields.get(key) is not None), None)
    raw: Any = {"type": "object", "properties": {}} if key is None else fields[key]
    if not isinstance(raw, dict):
        raise UnusableError(f"its '{key}' is not an object")
    require_sendable(raw)
    schema = readable_schema(cast("dict[str, Any]", raw))
    size = len(name) + len(description) + len(json.dumps(schema, ensure_ascii=False))
    if size > MAX_DECLARATION_CHARS:
        raise UnusableError(f"it has more than {MAX_DECLARATION_CHARS:,} characters")
    title = one_line(texts.get("title") or declared_name)[:MAX_NAME]
    return DeclaredTool(name, declared_name, title, description, schema, ArgumentCheck(schema), size)
