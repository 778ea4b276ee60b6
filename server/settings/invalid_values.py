"""Explains settings that do not work: what is wrong with a value, and what it must be.

Imported only when needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from server.settings.section_model import MILLISECONDS, Expected, Key, KeyPath, Section, dotted, keys_of
from server.settings.server_models import Settings

MAX_SHOWN_VALUE = 80  # maximum number of characters quoted from an invalid value
MAX_PROBLEMS = 20  # the maximum number of problems in one error


def words(key: Key) -> str:
    """Return a description of a key's valid values, as the end of "must be ..."."""
    expected = next((item.words for item in key.field.metadata if isinstance(item, Expected)), None)
    return expected or _words(key.field.annotation, key.field.metadata)


def _words(annotation: Any, metadata: list[Any]) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [item.metadata if isinstance(item, FieldInfo) else [item] for item in parts[1:]]
        return _words(parts[0], [*chain.from_iterable(inner), *metadata])
    if origin in (Union, UnionType):
        present = [part for part in parts if part is not NoneType]
        return f"{_words(present[0], metadata)}, or null"
    choices: list[Any] = list(parts) if get_origin(annotation) is Literal else []
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        choices = [member.value for member in annotation]
    if choices:
        return f"one of {', '.join(json.dumps(str(choice)) for choice in choices)}"
    if origin is tuple:
        item = _words(parts[0], [])
        item = item.replace("a string", "strings").replace("an integer", "integers").replace("one of", "strings among")
        return f"an array of {item}"
    if origin is not None and issubclass(origin, Mapping):
        return "an object of strings" if parts[1] is str else "an object"
    if annotation is bool:
        return "true or false"
    if annotation is int:
        unit = " of milliseconds" if MILLISECONDS in metadata else ""
        return f"an integer{unit} from {_bound('ge', metadata)} to {_bound('le', metadata)}"
    return "a string" if annotation is str else "an object"


def _bound(name: Literal["ge", "le"], metadata: list[Any]) -> int:
    return next(bound for item in metadata if (bound := getattr(item, name, None)) is not None)


def _item_words(annotation: Any, steps: tuple[str | int, ...]) -> str:
    """Return a description of the valid values at `steps` in an array or an object of strings."""
    present = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) in (Union, UnionType):
        return _item_words(present[0], steps)
    item = present[0] if get_origin(annotation) is tuple else present[-1]
    if len(steps) > 1:  # a key of an object in an array, such as `http.stateKeys[0].file`
        item = item.model_fields[str(steps[1])].annotation
    return _words(item, [])


def explain(error: ValidationError, source_of: Callable[[KeyPath], str]) -> dict[KeyPath, str]:
    """Explain each invalid value, keyed by its path: file, key, value unless it may be secret, and what is expected."""
    sentences: dict[KeyPath, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        path, value = item["loc"], item["input"]
        if not path:  # the settings cannot be written as JSON; files are checked when they are parsed
            sentences[path] = "an option or an environment variable contains bytes that are not UTF-8."
            continue
        # The last key of a model on the path; `None` if the path ends at a name that the operator chose.
        section: type[Section] = Settings
        key: Key | None = None
        position = 0
        while position < len(path):
            key = keys_of(section)[str(path[position])]
            position += 1
            if key.section is None:
                break
            section = key.section
            if key.is_table and position < len(path):
                key = None
                position += 1
        steps = path[position:]  # not empty if the value is inside an array or an object of strings
        expected = "an object" if key is None else _item_words(key.field.annotation, steps) if steps else words(key)
        if isinstance(value, dict | list):
            value_text = "an object" if isinstance(value, dict) else "an array"
        elif value is None:
            value_text = "null"
        elif key is None or key.section is not None or not key.field.repr:  # the value may be secret
            value_text = "a boolean" if isinstance(value, bool) else "a number"
            value_text = "a string" if isinstance(value, str) else value_text
        else:
            value_text = json.dumps(value, ensure_ascii=False)
            value_text = value_text if len(value_text) <= MAX_SHOWN_VALUE else value_text[:MAX_SHOWN_VALUE] + "..."
        message = f"{source_of(path)}: {dotted(path)} is {value_text}, but must be {expected}."
        sentences.setdefault(path, message)
    return sentences


def shortened(problems: list[str]) -> list[str]:
    """Return the first problems, and a sentence with the number of the others."""
    if (hidden_count := len(problems) - MAX_PROBLEMS) > 0:
        more = "is 1 more problem" if hidden_count == 1 else f"are {hidden_count} more problems"
        problems[MAX_PROBLEMS:] = [f"There {more}."]
    return problems
