"""What was kept as JSON, read again: it has the types that it was kept with, or it counts for nothing."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_format = cache(TypeAdapter[Any])


def read_stored(kind: type[T], content: bytes | str) -> T:
    """The content of a file, of a row or of a line.

    Raises:
        ValueError: It does not have these types. Its text holds some of the content, which may be secret.
    """
    return _format(kind).validate_json(content, strict=True)
