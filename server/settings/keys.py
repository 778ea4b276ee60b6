"""The tree of keys: which key holds a section, which a table of named sections, which a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

from pydantic.fields import FieldInfo

from server.settings.errors import KeyPath
from server.settings.models import Settings
from server.settings.section import Section


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


@cache
def keys_of(section: type[Section]) -> Mapping[str, Key]:
    """The keys of a section by their names in files."""
    return {field.alias or name: _key(field) for name, field in section.model_fields.items()}


def _key(field: FieldInfo) -> Key:
    annotation = cast("Any", field.annotation)
    if _is_section(annotation):
        return Key(field, annotation, named=False)
    values = get_args(annotation)[-1:]
    if values and _is_section(values[0]):
        return Key(field, values[0], named=True)
    return Key(field, None, named=False)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def key_at(path: KeyPath) -> tuple[Key | None, KeyPath]:
    """The key that a path leads to or through, and the rest of the path, which leads into its value.

    There is no key where the path ends at a name that the operator chose.
    """
    section: type[Section] = Settings
    key: Key | None = None
    position = 0
    while position < len(path):
        key = keys_of(section)[str(path[position])]
        position += 1
        if key.section is None:
            break
        section = key.section
        if key.named and position < len(path):
            key = None
            position += 1
    return key, path[position:]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the settings give.

    Args:
        path: Where it stands.
        value: As it came from JSON.
    """

    path: KeyPath
    value: Any


def given_values(data: Mapping[str, Any], section: type[Section] = Settings, path: KeyPath = ()) -> Iterator[Given]:
    """Every value in the settings that has a key."""
    keys = keys_of(section)
    for name, value in data.items():
        key = keys[name]
        if key.section is None or not isinstance(value, dict):
            yield Given((*path, name), value)
        elif key.named:
            for chosen, entry in cast("dict[str, Any]", value).items():
                if isinstance(entry, dict):
                    below = cast("dict[str, Any]", entry)
                    yield from given_values(below, key.section, (*path, name, chosen))
        else:
            yield from given_values(cast("dict[str, Any]", value), key.section, (*path, name))


def wire_default(key: Key) -> Any:
    """The default of a value as JSON would have it."""
    default: Any = key.field.get_default(call_default_factory=True, validated_data={})
    return list(cast("tuple[Any, ...]", default)) if isinstance(default, tuple) else default
