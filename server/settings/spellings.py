"""Other spellings: keys and shapes of Qwen Code and Gemini CLI, of all their versions, and ours for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from server.settings.errors import Findings, dotted
from server.settings.merge import Tree, holder_of
from server.settings.tool_models import MAX_COUNT
from tools.execution.time_limit import MAX_TIMEOUT

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

_NO_NUMBER: Final = object()
"""What a converter gives for a value of another type than its key has there."""


def _milliseconds(seconds: Any) -> Any:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return _NO_NUMBER
    return int(max(0, min(seconds, MAX_TIMEOUT / 1000)) * 1000)


def _limit(value: Any) -> Any:
    """A limit; there, none or a negative one is no limit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return _NO_NUMBER
    return int(min(value, MAX_COUNT)) if value > 0 else None


_CONVERTED: Mapping[tuple[str, ...], tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    ("tools", "shell", "inactivityTimeout"): (("shell", "silenceTimeout"), _milliseconds),
    ("tools", "truncateToolOutputThreshold"): (("limits", "readChars"), _limit),
    ("truncateToolOutputThreshold",): (("limits", "readChars"), _limit),
    ("tools", "truncateToolOutputLines"): (("limits", "readLines"), _limit),
    ("truncateToolOutputLines",): (("limits", "readLines"), _limit),
}
"""Keys of both whose value is in another unit or means another thing: ours for each, and what makes the value ours."""

_MEANINGLESS = (
    ("$schema",),
    ("$version",),
    ("tools", "shell", "enableInteractiveShell"),
    ("tools", "shell", "pager"),
    ("tools", "shell", "showColor"),
)
"""Keys that editors and both CLIs write, and that mean nothing here."""

KNOWN_ELSEWHERE = (*OTHER_SPELLINGS, *_CONVERTED)
"""Every key of theirs that is read here in any file."""

TRANSPORTS: Mapping[str, str] = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http"}
"""How other clients write the type of a server, and how it is called here."""

MODES: Mapping[str, str] = {"auto_edit": "auto-edit", "autoEdit": "auto-edit"}
"""How both write an approval mode, and how it is called here."""

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
    for path in _MEANINGLESS:
        taken(data, path)
    for other, canonical in OTHER_SPELLINGS.items():
        _move(data, other, canonical, source, findings)
    _convert(data, source, findings)
    mode = data.get("approvalMode")
    if isinstance(mode, str):
        data["approvalMode"] = MODES.get(mode, mode)
    respell_transports(data)
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
    value = taken(data, other)
    if other == ("webSearch",):
        value = _providers(value, source, findings)
    target = holder_of(data, canonical, create=True)
    if target is None:  # A section that is no object; validation says so.
        return
    kept = target.setdefault(canonical[-1], value)
    if kept != value:
        warn_of_difference(other, canonical, source, findings)


def taken(data: Tree, path: tuple[str, ...]) -> Any:
    """Take the value of a key out of a layer, with the sections that are empty then; `None` where it is not there."""
    holder = holder_of(data, path)
    if holder is None or path[-1] not in holder:
        return None
    value = holder.pop(path[-1])
    if not holder and len(path) > 1:
        taken(data, path[:-1])
    return value


def warn_of_difference(other: tuple[str, ...], counting: tuple[str, ...], source: str, findings: Findings) -> None:
    """Tell that two keys of one file say different things, and which of them counts."""
    said = f"{dotted(other)} and {dotted(counting)} mean the same and differ; {dotted(counting)} counts."
    findings.warn(source, said)


def respell_transports(data: Tree) -> None:
    """Put the type of each server in our words, in place."""
    servers: Any = data.get("mcpServers")
    for entry in cast("Tree", servers).values() if isinstance(servers, dict) else ():
        named: Any = cast("Tree", entry).get("type") if isinstance(entry, dict) else None
        if isinstance(named, str):
            entry["type"] = TRANSPORTS.get(named, named)


def _convert(data: Tree, source: str, findings: Findings) -> None:
    counting: dict[tuple[str, ...], tuple[str, ...]] = {}
    for other, (canonical, convert) in _CONVERTED.items():
        given = taken(data, other)
        value = convert(given) if given is not None else None
        if value is _NO_NUMBER:
            findings.warn(source, f"{dotted(other)} is ignored, because it is no number.")
            continue
        target = holder_of(data, canonical, create=value is not None)
        if value is None or target is None:
            continue
        if canonical[-1] not in target:
            target[canonical[-1]] = value
            counting[canonical] = other
        elif target[canonical[-1]] != value:
            warn_of_difference(other, counting.get(canonical, canonical), source, findings)


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
    default = given.get("default")
    if isinstance(default, str) and default in found:
        found["default"] = default
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
