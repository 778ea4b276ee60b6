"""A section of the settings and its keys, and the collection of warnings and problems."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, cast, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

DAY: Final = 86_400_000  # in milliseconds; the upper bound of many durations
MILLISECONDS: Final = "milliseconds"
Duration = Annotated[int, MILLISECONDS]


@dataclass(frozen=True, slots=True)
class Expected:
    """Describes what a value must be, if its type alone would be misleading."""

    words: str


CommandLine = Annotated[
    tuple[str, ...] | None,
    Field(repr=False),
    Expected("a command line, as a string or as an array of strings, or null"),
]
"""A program and its arguments. A string has already been split as a shell would split it."""


def wire_name(name: str) -> str:
    """Return the key in settings files for an attribute of a model: `http_url` becomes `httpUrl`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Section(BaseModel):
    """Base of all settings models: frozen, and strict about JSON types."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",  # unknown keys were reported and removed before validation
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. The value of a table is an object that maps names, chosen by the operator, to sections."""

    field: FieldInfo
    section: type[Section] | None
    is_table: bool

    def sections_in(self, value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any], type[Section]]]:
        """Yield each section in the value of this key at `path`: its path, its content and its model."""
        if self.section is not None and isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            entries = {(*path, name): entry for name, entry in members.items()} if self.is_table else {path: members}
            for entry_path, entry in entries.items():
                if isinstance(entry, dict):
                    yield entry_path, cast("dict[str, Any]", entry), self.section


@cache
def keys_of(section: type[Section]) -> Mapping[str, Key]:
    """Return the keys of a section, keyed by their names in settings files, in declaration order."""
    keys: dict[str, Key] = {}
    for name, model_field in section.model_fields.items():
        annotation = cast("Any", model_field.annotation)
        parts = (annotation, *get_args(annotation))  # the section may be the value type of a table, or optional
        subsection = next((part for part in parts if isinstance(part, type) and issubclass(part, Section)), None)
        is_table = subsection is not None and subsection is not annotation and NoneType not in parts
        keys[model_field.alias or name] = Key(model_field, subsection, is_table=is_table)
    return keys


MAX_SHOWN_KEY = 60  # maximum number of characters quoted from a key
KeyPath = tuple[str | int, ...]
"""The keys from the top of the settings down to a value; an integer is a position in an array."""


def key_paths(table: str) -> tuple[tuple[str, ...], ...]:
    """Parse dotted paths, separated by blanks."""
    return tuple(tuple(path.split(".")) for path in table.split())


class SettingsError(Exception):
    """Invalid settings. Each problem names the file, the key, the value unless it is secret, and what is expected."""

    def __init__(self, problems: Iterable[str], warnings: Iterable[str] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)  # the warnings found before the error
        super().__init__("\n".join(self.problems))


@dataclass(slots=True)
class Diagnostics:
    """Collects messages while the settings are read, so that one run reports everything that is wrong."""

    warnings: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def warn(self, source: str, sentence: str) -> None:
        self.warnings.append(f"{source}: {sentence}")

    def refuse(self, source: str, sentence: str) -> None:
        self.problems.append(f"{source}: {sentence}")


def dotted(path: KeyPath) -> str:
    """Return the path as messages write it: `mcpServers.docs.args[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{shown_name(step)}" if text else shown_name(step)
    return text


def shown_name(name: str) -> str:
    """Return a key or other name from a file for messages: truncated, on one line, with every character visible."""
    short_name = name if len(name) <= MAX_SHOWN_KEY else name[:MAX_SHOWN_KEY] + "..."
    return short_name if short_name.isprintable() and short_name else json.dumps(short_name)
