"""Arguments of a call held against the schema of a custom tool, as far as that is quick."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tools.contract.names import brief, one_line
from tools.contract.parameters import coerce
from tools.discovery.counted_check import LongCheckError, counting_validator, first_errors
from tools.discovery.keywords import with_children

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

QUICK_STEPS = 10_000
"""Steps of a check in the event loop; they take 10 to 30 milliseconds."""

MOST_STEPS = 300_000
"""Steps of a check in a thread, about a second. What takes longer is left to the tool."""

MAX_PROBLEMS = 5
"""Wrong values that one sentence names."""

_COERCED = frozenset({"boolean", "integer", "array", "object"})
"""Types that models often write as a string."""

_COSTLY = frozenset({"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"})
"""What may take very long to check in steps that cannot be counted. It is left to the tool."""


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


def load() -> None:
    """Import what checks, which takes some 70 milliseconds: for a thread, before the first call."""
    counting_validator()


class ArgumentCheck:
    """Holds arguments against a schema.

    Args:
        schema: As `readable_schema` gives it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Validator:
        from referencing import Registry  # noqa: PLC0415 - see `load`

        return counting_validator()(_quickly_checked(self._schema), registry=Registry())

    @property
    def _properties(self) -> Mapping[str, Any]:
        return self._schema["properties"]

    def gently_read(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments. If that helps, text is read as the type that is wanted, and nulls are left out.

        Raises:
            LongCheckError: They cannot be checked in the event loop.
        """
        if self.problem_of(arguments) is None:
            return arguments
        read = {
            name: self._read(value, self._properties.get(name))
            for name, value in arguments.items()
            if value is not None
        }
        return read if read != arguments and self.problem_of(read) is None else arguments

    def problem_of(self, arguments: Mapping[str, Any], most_steps: int = QUICK_STEPS) -> str | None:
        """What is wrong with the arguments, as sentences, or `None`.

        Raises:
            LongCheckError: That is not known after so many steps.
        """
        try:
            problems = [
                _sentence(error) for error in first_errors(self._validator, arguments, MAX_PROBLEMS, most_steps)
            ]
        except RecursionError:
            return "they are nested too deeply."
        if not problems:
            return None
        accepted = ", ".join(self._properties)
        return " ".join([*dict.fromkeys(problems), f"Accepted: {one_line(accepted) or 'nothing'}."])

    def patient_problem_of(self, arguments: Mapping[str, Any]) -> str | None:
        """The same with many more steps; what is not known then is left to the tool. Blocking: for a thread."""
        try:
            return self.problem_of(arguments, MOST_STEPS)
        except LongCheckError:
            return None

    def _read(self, value: Any, schema: Any) -> Any:
        wanted = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
        return coerce(value, {"type": wanted}) if isinstance(wanted, str) and wanted in _COERCED else value


def _sentence(error: ValidationError) -> str:
    where = ".".join(map(str, error.absolute_path))
    subject = f"'{brief(where)}'" if where else "The object"
    rule, limit = str(error.validator), brief(json.dumps(error.validator_value, ensure_ascii=False, default=str))
    if rule in ("required", "additionalProperties", "dependentRequired"):
        return f"{subject}: {brief(error.message)}." if where else f"{brief(error.message)}."
    value = brief(json.dumps(_beginning(error.instance), ensure_ascii=False, default=str))
    return f"{subject} has to fulfil {rule} {limit}, got {value}."


def _beginning(value: Any) -> Any:
    """As much of a value as a sentence shows."""
    if isinstance(value, str):
        return value[:100]
    return (
        value if isinstance(value, int | float) or value is None else ("[...]" if isinstance(value, list) else "{...}")
    )
