"""Encodes and decodes parameter values that the 2026-07-28 revision repeats in HTTP headers, in base64 if necessary."""

from __future__ import annotations

import base64
import re

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def encode_header(value: str) -> str:
    if _PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_header(header: str | None) -> str | None:
    """Return a header's value, decoded if it is encoded; `None` if the header is missing or its base64 is invalid."""
    encoded = _ENCODED.fullmatch(header or "")
    if header is None or encoded is None:
        return header
    try:
        value = base64.b64decode(encoded[1], validate=True)
        return value.decode() if base64.b64encode(value).decode() == encoded[1] else None
    except ValueError:
        return None
