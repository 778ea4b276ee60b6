"""The entries of `mcpServers`: their aliases, which are used, their variables, and whether they can work at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from server.settings.errors import Findings, KeyPath, dotted, shown_name
from server.settings.models import Settings
from server.settings.proxy_models import McpSettings, UpstreamSettings
from server.settings.section import wire_name
from server.settings.variables import HINT, Expansion

MAX_ALIAS = 24
"""Characters of an alias, so that `alias__tool` stays short enough for clients that prefix it again (ours)."""

ABOVE_VARIABLE = "CORETOOLS_MCP_SERVERS_ABOVE"
"""In the environment of every server that we start: how many of us are above it."""

MAX_ABOVE = 3
"""Servers like this one in a chain; longer ones are loops (ours)."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token of RFC 9110, 5.6.2."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class UpstreamEntry:
    """A server of the configuration.

    Args:
        alias: Its name here, as in `alias__tool`.
        name: Its name as configured.
        settings: Its entry, variables expanded. `enabled` is false exactly if it is left out.
        source: The file it came from.
        left_out: Why it is not used, as a sentence; `None` if it is.
        lacks_variable: Whether that is because an environment variable is not set.
    """

    alias: str
    name: str
    settings: UpstreamSettings
    source: str
    left_out: str | None = None
    lacks_variable: bool = False


def alias_of(name: str) -> str:
    """The alias for a configured name: the name itself where it fits, else the nearest that does.

    An alias has at most 24 of `A-Z a-z 0-9 _ -`, no `__`, and no `_` at either end, so that `alias__tool` can be
    read only one way.
    """
    alias = re.sub(r"_{2,}|[^A-Za-z0-9_-]", "-", name)[:MAX_ALIAS]
    return re.sub(r"^_|_$", "-", alias)


def resolve_entries(
    settings: Settings,
    *,
    names: Mapping[str, str],
    environ: Mapping[str, str],
    source_of: Callable[[KeyPath], str],
    findings: Findings,
) -> tuple[UpstreamEntry, ...]:
    """Decide which servers are used, expand their variables, and check that each can work.

    Args:
        settings: Validated, variables not yet expanded.
        names: Alias to configured name.
        environ: Where variables are looked up.
        source_of: The layer a value came from.
        findings: Takes the warnings and the problems.
    """
    _check_filters(settings, names, source_of, findings)
    entries: list[UpstreamEntry] = []
    for alias, configured in settings.mcp_servers.items():
        path = ("mcpServers", alias)
        source = source_of(path)
        left_out = _left_out(alias, names[alias], configured, settings.mcp) or _looped(configured, environ)
        entry = configured
        lacks_variable = False
        if left_out is None:
            expansion = Expansion(environ)
            entry = _expanded(configured, path, expansion)
            left_out = _missing_variable(expansion, alias, source, findings)
            lacks_variable = left_out is not None
        if left_out is None:
            if settings.proxy.prefix == "none":
                entry = entry.model_copy(update={"prefix": "none"})
            _check_names(entry, path, source, settings.proxy.name_budget, findings)
            _check_transport(entry, path, source, findings)
            _check_texts(entry, path, source, findings)
        else:
            entry = configured.model_copy(update={"enabled": False})
        entries.append(UpstreamEntry(alias, names[alias], entry, source, left_out, lacks_variable))
    return tuple(entries)


def _left_out(alias: str, name: str, entry: UpstreamSettings, mcp: McpSettings) -> str | None:
    if not entry.enabled:
        return f"It is not enabled (mcpServers.{alias}.enabled is false)."
    if {alias, name} & set(mcp.excluded):
        return "It is in mcp.excluded."
    if mcp.allowed is not None and not {alias, name} & set(mcp.allowed):
        return "It is not in mcp.allowed."
    return None


def servers_above(environ: Mapping[str, str]) -> int:
    """How many servers like this one have started each other until this one."""
    given = environ.get(ABOVE_VARIABLE, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < len("1000") else 0


def _looped(entry: UpstreamSettings, environ: Mapping[str, str]) -> str | None:
    """Why nothing more is started: a server whose settings name itself would start itself without end."""
    if entry.transport != "stdio" or servers_above(environ) < MAX_ABOVE:
        return None
    return f"{MAX_ABOVE} servers like this one have started each other already, which looks like a loop."


def _check_filters(
    settings: Settings, names: Mapping[str, str], source_of: Callable[[KeyPath], str], findings: Findings
) -> None:
    """A name that is misspelled in a filter leaves nothing out, or everything."""
    known = {*names, *names.values()}
    for key, listed in (("allowed", settings.mcp.allowed), ("excluded", settings.mcp.excluded)):
        for name in listed or ():
            if name not in known:
                said = f"mcp.{key} names {json.dumps(name)}, which is no server of mcpServers."
                findings.warn(source_of(("mcp", key)), said)
    if settings.mcp.allowed == () and names:
        findings.warn(source_of(("mcp", "allowed")), "mcp.allowed is empty, so no server of mcpServers is used.")


def _missing_variable(expansion: Expansion, alias: str, source: str, findings: Findings) -> str | None:
    """Why an entry is left out whose texts name variables that are not set."""
    if not expansion.missing:
        return None
    for where, variable in expansion.missing:
        said = f"{dotted(where)} names the environment variable {shown_name(variable)}, which is not set"
        findings.warn(source, f"{said}; the server {alias} is left out. {HINT}")
    return f"The environment variable {shown_name(expansion.missing[0][1])} is not set."


def _expanded(entry: UpstreamSettings, path: KeyPath, expansion: Expansion) -> UpstreamSettings:
    """The entry with its variables expanded."""
    changed: dict[str, Any] = {
        "args": expansion.of_texts(entry.args, (*path, "args")),
        "env": expansion.of_table(entry.env, (*path, "env")),
        "headers": expansion.of_table(entry.headers, (*path, "headers")),
    }
    singles = {"command": entry.command, "cwd": entry.cwd, "url": entry.url, "http_url": entry.http_url}
    for name, text in singles.items():
        changed[name] = expansion.of_text(text, (*path, wire_name(name)))
    return entry.model_copy(update=changed)


def _check_transport(entry: UpstreamSettings, path: KeyPath, source: str, findings: Findings) -> None:
    transport = entry.transport
    here = dotted(path)
    if transport is None:
        findings.refuse(source, f"{here} has no command, no url and no httpUrl; give it one of them.")
    elif transport == "stdio":
        if not (entry.command or "").strip():
            findings.refuse(source, f"{here}.command is missing or empty; name the program that starts the server.")
    elif entry.endpoint is None:
        findings.refuse(source, f'{here} has the type "{transport}" but no url; give the address of the server.')
    elif not _is_address(entry.endpoint):
        expected = "an address that begins with http:// or https:// and names a host"
        findings.refuse(source, f"{here}.{_way_taken(entry)} has to be {expected}.")
    ways = {"command": entry.command, "url": entry.url, "httpUrl": entry.http_url}
    ways_given = [name for name, value in ways.items() if value is not None]
    if len(ways_given) > 1:
        findings.warn(source, f"{here} gives {' and '.join(ways_given)}; only {_way_taken(entry)} is used.")


def _way_taken(entry: UpstreamSettings) -> Literal["command", "httpUrl", "url"]:
    if entry.transport == "stdio":
        return "command"
    return "httpUrl" if entry.transport == "http" and entry.http_url is not None else "url"


def _is_address(text: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415 - needed only with a remote server

    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _check_names(entry: UpstreamSettings, path: KeyPath, source: str, budget: int, findings: Findings) -> None:
    """Refuse new names that no client takes, that would be shortened, or that two tools would have."""
    room = budget - (len(f"{path[-1]}__") if entry.prefix == "alias" else 0)
    takers: dict[str, str] = {}
    for name, new in entry.rename.items():
        here = f"{dotted((*path, 'rename'))}: the new name of {json.dumps(name)}"
        if not _TOOL_NAME.fullmatch(new):
            findings.refuse(source, f"{here} has to be of letters, digits and _ . - only, and not empty.")
        elif len(new) > room:
            long = f"has {len(new)} characters, and proxy.nameBudget leaves room for {max(room, 0)}"
            findings.refuse(source, f"{here} {long}; give a shorter one, or a larger budget.")
        elif new in takers:
            findings.refuse(source, f"{here} is that of {json.dumps(takers[new])} too; give each its own.")
        takers.setdefault(new, name)


def _check_texts(entry: UpstreamSettings, path: KeyPath, source: str, findings: Findings) -> None:
    """Refuse here what no process and no HTTP request can carry."""
    for where in _wrong_texts(entry):
        findings.refuse(source, f"{dotted((*path, *where[0]))} {where[1]}.")


def _wrong_texts(entry: UpstreamSettings) -> Iterator[tuple[KeyPath, str]]:
    texts: dict[KeyPath, str] = {("args", index): arg for index, arg in enumerate(entry.args)}
    texts |= {("env", name): text for name, text in entry.env.items()}
    texts |= {("command",): entry.command or "", ("cwd",): entry.cwd or ""}
    for where, text in texts.items():
        if "\0" in text:
            yield where, "holds a NUL character, which no process can be given"
    for name in entry.env:
        if not name or "=" in name or "\0" in name:
            yield ("env", name), "is no name for an environment variable"
    for name, value in entry.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield ("headers", name), "is no name for an HTTP header"
        elif not _HEADER_VALUE.fullmatch(value):
            yield ("headers", name), "has to be printable ASCII on one line"
