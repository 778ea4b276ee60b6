"""Reads stored JSON back with its original types, or rejects it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_format = cache(TypeAdapter[Any])


def read_stored(kind: type[T], content: bytes | str) -> T:
    """Parse the content of a file, row or line as a value of the type `kind`.

    Raises:
        ValueError: The content does not fit `kind`. The error message quotes parts of the content, which may be secret.
    """
    return _format(kind).validate_json(content, strict=True)
