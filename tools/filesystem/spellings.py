"""What a path means beside what it says: models copy quotes and shell escapes along, and write what a shell expands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import meant_path, shown_path

_SHELL_ESCAPE = re.compile(r"\\([ \t()\[\]{};|*?$`'\"#&<>!~])")
"""A backslash before one of these may be a shell escape that the model copied (Qwen Code's list)."""


def other_readings(base: str, spelled: str) -> Iterator[str]:
    """What a path may mean beside what it says, the likeliest first.

    Args:
        base: Where a relative path starts.
        spelled: As the caller wrote it.
    """
    stripped = spelled.strip()
    unquoted = meant_path(stripped)
    if unquoted is not None and "\0" not in unquoted:
        yield os.path.join(base, unquoted)
    yield os.path.join(base, stripped)
    if "\\" in stripped and os.sep != "\\":
        yield os.path.join(base, _SHELL_ESCAPE.sub(r"\1", stripped))


def first_name(spelled: str) -> str:
    """What a path begins with, up to its first separator."""
    return spelled.strip().partition(os.sep)[0]


def refuse_what_is_no_path(spelled: str) -> None:
    """Do not take for a name what means something else; called where nothing is there that begins so.

    Raises:
        ToolError: `invalid_tool_params`: it is a URI, or begins with a `~` that would have to be expanded.
    """
    stripped = spelled.strip()
    first = first_name(spelled)
    if first.startswith("~") and (first == "~" or os.sep in stripped):
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{shown_path(spelled)}' begins with '~', which is not expanded here. Give the absolute path.",
        )
    if stripped.lower().startswith("file://"):
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS, f"'{shown_path(spelled)}' is a URI. Give the path that it means."
        )
