"""Enums with titles in a form, as each revision writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TITLED_ENUM_SINCE = "2025-11-25"
"""Earlier revisions title an enum by `enumNames`, and have no field for several choices."""


def titled_enum(titles: Mapping[str, str], protocol_version: str) -> dict[str, Any]:
    """The part of a field's schema that says which values there are.

    Args:
        titles: What a person reads for each value, in order.
        protocol_version: The client's revision.
    """
    if protocol_version >= TITLED_ENUM_SINCE:
        return {"oneOf": titled_values(titles)}
    return {"enum": list(titles), "enumNames": list(titles.values())}


def titled_values(titles: Mapping[str, str]) -> list[dict[str, str]]:
    """Each value with its title."""
    return [{"const": value, "title": title} for value, title in titles.items()]
