"""What the settings models are made of: the base class, what the declaration of a key carries, and the keys by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, cast, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

DAY: Final = 86_400_000
"""Milliseconds of the longest duration that makes sense here (ours)."""

MILLISECONDS: Final = "milliseconds"
Duration = Annotated[int, MILLISECONDS]


@dataclass(frozen=True, slots=True)
class Expected:
    """Says what a value has to be, where the type alone says it wrongly."""

    words: str


CommandLine = Annotated[
    tuple[str, ...] | None,
    Field(repr=False),
    Expected("a command line, as a string or as an array of strings, or null"),
]
"""A program and its arguments. A string was split as a shell does it before it came here."""


def wire_name(name: str) -> str:
    """The key in files for an attribute in here: `http_url` is `httpUrl`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Section(BaseModel):
    """Base of all settings models: frozen, and strict about JSON types."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",  # unknown keys were reported, and removed, before validation
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section.

    Args:
        field: Its declaration.
        section: The section below it, or `None` for a value.
        named: Whether what is below are sections by names that the operator chose.
    """

    field: FieldInfo
    section: type[Section] | None
    named: bool

    @property
    def default(self) -> Any:
        """What counts where nobody gives a value, as JSON has it."""
        default: Any = self.field.get_default(call_default_factory=True, validated_data={})
        return list(cast("tuple[Any, ...]", default)) if isinstance(default, tuple) else default


@cache
def keys_of(section: type[Section]) -> Mapping[str, Key]:
    """The keys of a section by their names in files."""
    keys: dict[str, Key] = {}
    for name, field in section.model_fields.items():
        annotation = cast("Any", field.annotation)
        parts = (annotation, *get_args(annotation)[-1:])  # of a table, the last is what its values are
        below = next((part for part in parts if isinstance(part, type) and issubclass(part, Section)), None)
        keys[field.alias or name] = Key(field, below, named=below is not None and below is not annotation)
    return keys
