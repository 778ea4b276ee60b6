"""How the files are called in which new content waits: hidden from everybody, since it may be that of a hidden file."""

from __future__ import annotations

import re
import secrets

_PREFIX = ".coretools-"
_SUFFIX = ".tmp"
_TEMPORARY = re.compile(rf"{re.escape(_PREFIX)}[0-9a-f]{{16}}{re.escape(_SUFFIX)}")


def temporary_name() -> str:
    """A name that nothing has yet."""
    return f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether this is such a name."""
    return name.startswith(_PREFIX) and _TEMPORARY.fullmatch(name) is not None
