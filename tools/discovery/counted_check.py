"""A validator of JSON Schema that counts its steps and stops at a number of them.

Neither the length of a schema nor that of the arguments tells how long a check takes: references may double it at each
level. So each application of a keyword is counted while it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MESSAGE_CHARS = 64
"""Characters of an error's text that count as one step: it holds the whole value, and is written for each branch that
does not fit."""


STEPS_OF_PATH = 4
"""What one step of a path counts: it takes several microseconds to follow."""


class LongCheckError(Exception):
    """The check has taken all its steps, and has come to no end."""


class _Steps:
    """How many steps are left."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise LongCheckError


_steps: ContextVar[_Steps] = ContextVar("steps of a check")

_Errors = Iterable["ValidationError"]
_Keyword = Callable[[Any, Any, Any, Any], _Errors | None]


def first_errors(validator: Validator, value: Any, most: int, most_steps: int) -> list[ValidationError]:
    """The first errors of a value.

    Args:
        validator: Of a class that `counting_validator` gives.
        value: What is checked.
        most: Errors that are wanted.
        most_steps: Keywords that are applied, together with the members that they look at.

    Raises:
        LongCheckError: There are no more steps left.
        RecursionError: Schema or value are nested too deeply.
    """
    token = _steps.set(_Steps(most_steps))
    try:
        return list(islice(validator.iter_errors(value), most))
    finally:
        _steps.reset(token)


@cache
def counting_validator() -> type[Validator]:
    """The class of validators that count. The library is imported with the first call."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes some 70 milliseconds

    library: Any = import_module("jsonschema.validators")  # its types are not all told
    keywords: Mapping[str, _Keyword] = Draft202012Validator.VALIDATORS
    counted = {name: _counted(apply) for name, apply in keywords.items()}
    return library.extend(Draft202012Validator, counted)


def _counted(apply: _Keyword) -> _Keyword:
    """A keyword whose application is a step, and one more for each member of what it says and of what it looks at."""

    def apply_counted(validator: Any, says: Any, value: Any, schema: Any) -> _Errors:
        steps = _steps.get()
        steps.take(1 + _members(says) + (len(cast("list[Any]", value)) if isinstance(value, list | dict) else 0))
        for error in apply(validator, says, value, schema) or ():
            steps.take(len(error.message) // MESSAGE_CHARS)
            yield error

    return apply_counted


def _members(says: Any) -> int:
    """How much a keyword looks at: the steps of a path, a list of names or values, the names of an object."""
    if isinstance(says, str):
        return says.count("/") * STEPS_OF_PATH
    if isinstance(says, list):
        return sum(1 + _members(each) if isinstance(each, list) else 1 for each in cast("list[Any]", says))
    return len(cast("dict[str, Any]", says)) if isinstance(says, dict) else 0
