"""What the settings models are made of: the base class, and what a key's declaration carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

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
