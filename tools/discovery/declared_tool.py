"""One custom tool, as the discovery command has declared it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.discovery.argument_check import ArgumentCheck


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """What is known of a custom tool.

    Args:
        name: Its name for clients.
        called: Its name for the call command.
        title: Its name for people.
        description: What it does; may be empty.
        schema: JSON Schema of its parameters.
        check: Holds arguments against the schema.
        size: Characters that it takes in a list of tools.
    """

    name: str
    called: str
    title: str
    description: str
    schema: Mapping[str, Any]
    check: ArgumentCheck = field(compare=False, repr=False)
    size: int
