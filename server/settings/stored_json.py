"""Reads stored JSON back with the types that it was stored with, or rejects it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_format = cache(TypeAdapter[Any])


def read_stored(kind: type[T], content: bytes | str) -> T:
    """Parse the content of a file, a row or a line.

    Raises:
        ValueError: It does not have these types. The message contains parts of the content, which may be secret.
    """
    return _format(kind).validate_json(content, strict=True)
