"""Environment variables in the files of Qwen Code and Gemini CLI, which expand them in every text of a file.

Some texts are expanded where they are used, in whatever file they stand. These are the others. Rules are different: a
dollar sign in them may also be that of a command. One that allows stays as it is written; one that asks or refuses
counts in both readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from server.settings.errors import Findings, KeyPath, dotted, shown_name
from server.settings.merge import Tree
from server.settings.variables import Expansion

_EXPANDED_IN_USE = (
    ("tools", "discoveryCommand"),
    ("tools", "callCommand"),
    ("mcp", "serverCommand"),
    ("web", "search"),
    ("agents",),
)

_OF_SERVERS_IN_USE = frozenset({"command", "args", "env", "cwd", "url", "httpUrl", "headers"})

_ALLOWING = (("permissions", "allow"), ("tools", "allowed"), ("tools", "core"))

_RESTRICTING = (
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "excluded"),
)


def expand_texts(data: Tree, source: str, environ: Mapping[str, str], findings: Findings) -> None:
    """Expand the variables in the texts of a layer that nobody expands later, in place.

    Args:
        data: The layer, in canonical form.
        source: What it is called in sentences.
        environ: Where variables are looked up.
        findings: Takes a warning for each that is not set; its text stays as it is written.
    """
    expansion = Expansion(environ)
    for key in list(data):
        data[key] = _expanded(data[key], (key,), expansion)
    for where, variable in expansion.missing:
        named = f"{dotted(where)} names the environment variable {shown_name(variable)}"
        findings.warn(source, f"{named}, which is not set, so it stays as it is written.")


def _expanded(value: Any, path: KeyPath, expansion: Expansion) -> Any:
    if _stays(path):
        return value
    if isinstance(value, str):
        return expansion.of_text(value, path)
    if isinstance(value, dict):
        return {key: _expanded(item, (*path, key), expansion) for key, item in cast("Tree", value).items()}
    if isinstance(value, list):
        written = cast("list[Any]", value)
        items = [_expanded(item, (*path, index), expansion) for index, item in enumerate(written)]
        if path in _RESTRICTING:  # nothing at all would be a rule about every tool
            return [item for item in items if item != ""] + [item for item in written if item not in items]
        return items
    return value


def _stays(path: KeyPath) -> bool:
    if path in _ALLOWING or path in _EXPANDED_IN_USE:
        return True
    match path:
        case ("mcpServers", _, key):
            return key in _OF_SERVERS_IN_USE
        case _:
            return False
