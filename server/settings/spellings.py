"""Other spellings: keys and shapes of Qwen Code and Gemini CLI, of all their versions, and ours for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, cast

from server.settings.errors import Findings, dotted
from server.settings.merge import Tree, holder_of

OTHER_SPELLINGS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("toolDiscoveryCommand",): ("tools", "discoveryCommand"),
    ("tools", "toolDiscoveryCommand"): ("tools", "discoveryCommand"),
    ("toolCallCommand",): ("tools", "callCommand"),
    ("tools", "toolCallCommand"): ("tools", "callCommand"),
    ("mcpServerCommand",): ("mcp", "serverCommand"),
    ("mcp", "mcpServerCommand"): ("mcp", "serverCommand"),
    ("allowMCPServers",): ("mcp", "allowed"),
    ("excludeMCPServers",): ("mcp", "excluded"),
    ("coreTools",): ("tools", "core"),
    ("allowedTools",): ("tools", "allowed"),
    ("excludeTools",): ("tools", "exclude"),
    ("tools", "approvalMode"): ("approvalMode",),
    ("webSearch",): ("web", "search"),
    ("tavilyApiKey",): ("web", "search", "tavily", "apiKey"),
    ("advanced", "tavilyApiKey"): ("web", "search", "tavily", "apiKey"),
    ("contextFileName",): ("memory", "fileName"),
    ("context", "fileName"): ("memory", "fileName"),
}
"""Keys of Qwen Code and Gemini CLI, in their older versions and in their documentation, and ours for each."""

COMMAND_LINES = (("tools", "discoveryCommand"), ("tools", "callCommand"), ("mcp", "serverCommand"))
"""Keys whose value may be one string that is split as a shell does it."""

LISTS = (("memory", "fileName"),)
"""Keys whose value may be one string in place of an array."""


def respell(data: Tree, source: str, findings: Findings) -> None:
    """Put a layer under our spelling of each key and our shape of each value, in place.

    Args:
        data: The layer as it was read.
        source: What it is called in sentences.
        findings: Takes the warnings and the problems.
    """
    for other, canonical in OTHER_SPELLINGS.items():
        _move(data, other, canonical, source, findings)
    for path in COMMAND_LINES:
        _split(data, path, source, findings)
    for path in LISTS:
        holder = holder_of(data, path)
        if holder is not None and isinstance(holder.get(path[-1]), str):
            holder[path[-1]] = [holder[path[-1]]]


def _move(data: Tree, other: tuple[str, ...], canonical: tuple[str, ...], source: str, findings: Findings) -> None:
    holder = holder_of(data, other)
    if holder is None or other[-1] not in holder:
        return
    value = holder.pop(other[-1])
    if not holder and len(other) > 1:
        del data[other[0]]
    if other == ("webSearch",):
        value = _providers(value, source, findings)
    target = holder_of(data, canonical, create=True)
    if target is None:  # A section that is no object; validation says so.
        return
    kept = target.setdefault(canonical[-1], value)
    if kept != value:
        said = f"{dotted(other)} and {dotted(canonical)} mean the same and differ; {dotted(canonical)} counts."
        findings.warn(source, said)


def _providers(value: object, source: str, findings: Findings) -> object:
    """Qwen Code's `webSearch`, a list of providers that name their type, as one object by type."""
    if not isinstance(value, dict):
        return value
    given = cast("Tree", value)
    listed = given.get("provider")
    if not isinstance(listed, list):
        return given
    found: Tree = {}
    for entry in cast("list[Any]", listed):
        provider = dict(cast("Tree", entry)) if isinstance(entry, dict) else {}
        kind = provider.pop("type", None)
        if kind in ("tavily", "brave", "google", "searxng"):
            found.setdefault(kind, provider)
        else:
            named = json.dumps(kind) if isinstance(kind, str) else "without a type"
            said = f"webSearch.provider {named} is not known and is ignored; known are tavily, brave, google, searxng."
            findings.warn(source, said)
    if given.get("default") in found:
        found["default"] = given["default"]
    return found


def _split(data: Tree, path: tuple[str, ...], source: str, findings: Findings) -> None:
    holder = holder_of(data, path)
    line = holder.get(path[-1]) if holder is not None else None
    if holder is None or not (isinstance(line, str) or line == []):
        return
    import shlex  # noqa: PLC0415 - needed only where a command line is configured

    lexer = shlex.shlex(line or "", posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if sys.platform == "win32":
        lexer.escape = ""  # a backslash stands in paths there
    try:
        holder[path[-1]] = list(lexer) or None
    except ValueError:
        findings.refuse(source, f"{dotted(path)} has a quote, or a backslash at its end, that is never closed.")
        holder[path[-1]] = None
