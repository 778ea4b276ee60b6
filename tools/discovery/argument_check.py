"""Arguments of a call held against the schema of a custom tool, as far as that is quick."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from importlib import import_module
from itertools import count, islice
from typing import TYPE_CHECKING, Any, cast

from tools.contract.file_names_in_text import brief, one_line
from tools.contract.parameters import coerce
from tools.discovery.schema import REFERENCES, with_children

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MAX_REFERENCES = 2_000  # of one check: a small schema may have two ways to each of many levels, and so no end
QUICK_VALUES = 1_000  # arguments of more values than this are checked in a thread
MAX_PROBLEMS = 5  # wrong values that one sentence names
_COERCED = ("boolean", "integer", "array", "object")  # types that models often write as a string
# What may take very long to check in steps that cannot be counted. It is left to the tool.
_COSTLY = frozenset({"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"})


def _quickly_checked(node: Any) -> Any:
    """A schema without what may take long to check."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    left_out = _COSTLY
    if "patternProperties" in fields:
        # What is additional cannot be told without the patterns.
        left_out = left_out | {"additionalProperties"}
    return with_children({key: value for key, value in fields.items() if key not in left_out}, _quickly_checked)


class LongCheckError(Exception):
    """The check has come to no end within its bounds."""


_references: ContextVar[Iterable[int]] = ContextVar("references that a check has followed")


@cache
def _validator_class() -> type[Validator]:
    """The library's validator, which follows a bounded number of references. The import takes some 70 milliseconds."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    library: Any = import_module("jsonschema.validators")  # its types are not all told
    keywords: Mapping[str, Any] = Draft202012Validator.VALIDATORS

    def counted(follow: Any) -> Any:
        def apply(validator: Any, target: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
            if next(iter(_references.get())) > MAX_REFERENCES:
                raise LongCheckError
            return follow(validator, target, value, schema) or ()

        return apply

    return library.extend(Draft202012Validator, {name: counted(keywords[name]) for name in REFERENCES})


def load() -> None:
    """Import what checks, for a thread, before the first call."""
    _validator_class()


class ArgumentCheck:
    """Holds arguments against a schema, as `readable_schema` gives it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Validator:
        from referencing import Registry  # noqa: PLC0415 - see `load`

        return _validator_class()(_quickly_checked(self._schema), registry=Registry())

    def gently_read(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments. If that helps, text is read as the type that is wanted, and nulls are left out.

        Raises:
            LongCheckError: They are too many for the event loop.
        """
        if self.quick_problem_of(arguments) is None:
            return arguments
        read: dict[str, Any] = {}
        for name, value in arguments.items():
            schema = self._schema["properties"].get(name)
            wanted = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
            if value is not None:
                read[name] = coerce(value, {"type": wanted}) if wanted in _COERCED else value
        return read if read != arguments and self.quick_problem_of(read) is None else arguments

    def quick_problem_of(self, arguments: Mapping[str, Any]) -> str | None:
        """The same as `problem_of`, for the event loop; a `LongCheckError` if they are too many for it."""
        waiting: list[Any] = [arguments]
        found = 0
        while waiting:
            each = waiting.pop()
            found += 1
            if isinstance(each, dict | list):
                children = cast("list[Any]", list(each.values()) if isinstance(each, dict) else each)
                waiting += children[: QUICK_VALUES + 1]
            if found + len(waiting) > QUICK_VALUES:
                raise LongCheckError
        return self.problem_of(arguments)

    def problem_of(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, as sentences, or `None`. What takes too long is left to the tool."""
        token = _references.set(count())
        try:
            errors = islice(self._validator.iter_errors(arguments), MAX_PROBLEMS)
            problems = [_sentence(error) for error in errors]
        except LongCheckError:
            return None
        except RecursionError:
            return "they are nested too deeply."
        finally:
            _references.reset(token)
        if not problems:
            return None
        accepted = ", ".join(self._schema["properties"])
        return " ".join([*dict.fromkeys(problems), f"Accepted: {one_line(accepted) or 'nothing'}."])


def _sentence(error: ValidationError) -> str:
    where = ".".join(map(str, error.absolute_path))
    subject = f"'{brief(where)}'" if where else "The object"
    rule, limit = str(error.validator), brief(json.dumps(error.validator_value, ensure_ascii=False, default=str))
    if rule in ("required", "additionalProperties", "dependentRequired"):
        return f"{subject}: {brief(error.message)}." if where else f"{brief(error.message)}."
    value: Any = error.instance
    if isinstance(value, str):
        value = value[:100]  # more is not shown
    elif isinstance(value, dict | list):
        value = "{...}" if isinstance(value, dict) else "[...]"
    return f"{subject} has to fulfil {rule} {limit}, got {brief(json.dumps(value, ensure_ascii=False, default=str))}."
