"""What validated settings stand for here: variables are expanded, servers chosen, and checked whether they can work."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from server.settings.models import Settings, UpstreamSettings
from server.settings.section import Diagnostics, KeyPath, dotted, shown_name, wire_name
from server.settings.tool_models import AgentSettings

HINT = "Set it, or write $$ for a dollar sign."  # what to do about a variable that is not set
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[^{}]*)\})")
SourceOf = Callable[[KeyPath], str]  # the layer that a value came from


@dataclass(frozen=True, slots=True)
class VariableExpander:
    """Puts environment variables into texts.

    `$NAME` and `${NAME}` are the variable; `${NAME:-text}` is the text where the variable is not set or empty;
    `$$` is a dollar sign. What a variable holds is not expanded again.
    """

    environ: Mapping[str, str]
    missing: list[tuple[KeyPath, str]] = field(default_factory=list[tuple[KeyPath, str]])
    """Where a variable is named that is not set, and which."""

    def text(self, text: str, path: KeyPath) -> str:
        """The text with its variables expanded; one that is not set stays as it is written, and is noted."""

        def value(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            name, has_default, default = (match["plain"] or match["braced"]).partition(":-")
            found = self.environ.get(name)
            if has_default and not found:
                return default
            if found is None:
                self.missing.append((path, name))
                return match[0]
            return found

        return _VARIABLE.sub(value, text) if "$" in text else text

    def texts(self, texts: Sequence[str], path: KeyPath) -> tuple[str, ...]:
        return tuple(self.text(text, (*path, index)) for index, text in enumerate(texts))

    def table(self, table: Mapping[str, str], path: KeyPath) -> dict[str, str]:
        return {name: self.text(text, (*path, name)) for name, text in table.items()}

    def warn_of_missing(self, diagnostics: Diagnostics, source_of: SourceOf, consequence: str) -> bool:
        """Warn of each variable that is not set, the consequence ending the sentence; whether there are any."""
        for where, variable in self.missing:
            said = f"{dotted(where)} names the environment variable {shown_name(variable)}, which is not set"
            diagnostics.warn(source_of(where), f"{said}{consequence}")
        return bool(self.missing)


SEARCH_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "tavily": {"api_key": "TAVILY_API_KEY", "url": ""},
    "brave": {"api_key": "BRAVE_API_KEY", "url": ""},
    "google": {"api_key": "GOOGLE_API_KEY", "search_engine_id": "GOOGLE_SEARCH_ENGINE_ID", "url": ""},
    "searxng": {"url": ""},
}
"""The texts of each search provider, with the variable that holds one which the settings do not give, by the
provider's usual name for it."""


def resolve(settings: Settings, environ: Mapping[str, str], source_of: SourceOf, diagnostics: Diagnostics) -> Settings:
    """The settings with variables expanded in everything but the servers of `mcpServers`."""
    folders: dict[KeyPath, str] = {
        **{("workspace", "roots", index): root for index, root in enumerate(settings.workspace.roots)},
        **{("shell", "readable", index): path for index, path in enumerate(settings.shell.readable)},
    }
    if settings.memory.global_folder is not None:
        folders["memory", "globalFolder"] = settings.memory.global_folder
    for path, folder in folders.items():
        try:
            os.path.realpath(folder)
        except OSError:  # Nobody could tell what lies in it.
            said = f"{dotted(path)} leads through a link that this server may not follow; name another folder."
            diagnostics.refuse(source_of(path), said)
        except ValueError:
            pass  # it holds NUL, which was refused with its layer
    changed: dict[str, Any] = {}
    tools = settings.tools
    commands = {"discovery_command": tools.discovery_command, "call_command": tools.call_command}
    if any(commands.values()):
        used: dict[str, tuple[str, ...] | None] = {}
        for name, command in commands.items():
            expander = VariableExpander(environ)
            expanded = expander.texts(command or (), ("tools", wire_name(name)))
            is_missing = expander.warn_of_missing(diagnostics, source_of, f"; the command is not used. {HINT}")
            used[name] = None if is_missing else expanded or None
        changed["tools"] = tools.model_copy(update=used)
    search, providers = settings.web.search, dict[str, Any]()
    for name, variables in SEARCH_VARIABLES.items():
        provider = getattr(search, name)
        values: dict[str, str | None] = {}
        for key, variable in variables.items():
            given: str | None = getattr(provider, key)
            expander = VariableExpander(environ)
            text = expander.text(given, ("web", "search", name, wire_name(key))) if given else environ.get(variable)
            is_missing = expander.warn_of_missing(diagnostics, source_of, f"; {name} is not asked. {HINT}")
            values[key] = None if is_missing or not (given or text) else text
        if any(getattr(provider, key) != value for key, value in values.items()):
            providers[name] = provider.model_copy(update=values)
    if providers:
        search = search.model_copy(update=providers)
        changed["web"] = settings.web.model_copy(update={"search": search})
    if search.default is not None and search.default not in search.configured:
        said = f"web.search.default is {search.default}, which cannot be asked: its key or its address is missing."
        diagnostics.warn(source_of(("web", "search", "default")), said)
    agents: dict[str, AgentSettings] = {}
    for name, agent in settings.agents.items():
        path = ("agents", name)
        if not (agent.command or "").strip():
            said = f"{dotted(path)}.command is missing or empty; name the program that takes the tasks."
            diagnostics.refuse(source_of(path), said)
            continue
        expander = VariableExpander(environ)
        texts = {
            "command": expander.text(agent.command or "", (*path, "command")),
            "args": expander.texts(agent.args, (*path, "args")),
            "env": expander.table(agent.env, (*path, "env")),
        }
        consequence = f"; the agent {shown_name(name)} is left out. {HINT}"
        if not expander.warn_of_missing(diagnostics, source_of, consequence):
            agents[name] = agent.model_copy(update=texts)
    if settings.agents:
        changed["agents"] = agents
    return settings.model_copy(update=changed) if changed else settings


MAX_ALIAS = 24  # so that `alias__tool` stays short enough for clients that prefix it again (ours)
ABOVE_VARIABLE = "CORETOOLS_MCP_SERVERS_ABOVE"  # tells a server that we start how many of us are above it
EXPANDED_IN_SERVERS = ("command", "args", "env", "cwd", "url", "httpUrl", "headers")  # whose texts have variables
MAX_ABOVE = 3  # servers like this one in a chain; longer ones are loops (ours)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a token of RFC 9110, 5.6.2
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class UpstreamEntry:
    """A server of the configuration."""

    alias: str
    name: str  # its name as configured
    settings: UpstreamSettings  # its entry, variables expanded. `enabled` is false exactly if it is left out.
    source: str
    left_out: str | None = None  # why it is not used, as a sentence; `None` if it is
    lacks_variable: bool = False  # whether that is because an environment variable is not set


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
    source_of: SourceOf,
    diagnostics: Diagnostics,
    starts_itself: Callable[[UpstreamSettings, str], bool],
) -> tuple[UpstreamEntry, ...]:
    """Decide which servers are used, expand their variables, and check that each can work.

    Args:
        settings: With the servers as they are written.
        names: For each alias, the name that the server was configured with.
        environ: Where the values of variables are.
        source_of: What gave a value.
        diagnostics: Is told what is wrong.
        starts_itself: Whether a server, from this source, would be this program with these very settings.
    """
    # A name that is misspelled in a filter leaves nothing out, or everything.
    mcp, known = settings.mcp, {*names, *names.values()}
    for key, listed in (("allowed", mcp.allowed), ("excluded", mcp.excluded)):
        for name in listed or ():
            if name not in known:
                said = f"mcp.{key} names {json.dumps(name)}, which is not a server of mcpServers."
                diagnostics.warn(source_of(("mcp", key)), said)
    if mcp.allowed == () and names:
        diagnostics.warn(source_of(("mcp", "allowed")), "mcp.allowed is empty, so no server of mcpServers is used.")
    entries: list[UpstreamEntry] = []
    for alias, configured in settings.mcp_servers.items():
        path, name, entry = ("mcpServers", alias), names[alias], configured
        left_out: str | None = None
        expander = VariableExpander(environ)
        if not entry.enabled:
            left_out = f"It is not enabled (mcpServers.{alias}.enabled is false)."
        elif {alias, name} & set(mcp.excluded):
            left_out = "It is in mcp.excluded."
        elif mcp.allowed is not None and not {alias, name} & set(mcp.allowed):
            left_out = "It is not in mcp.allowed."
        elif entry.transport == "stdio" and servers_above(environ) >= MAX_ABOVE:
            left_out = f"{MAX_ABOVE} servers like this one have started each other already, which looks like a loop."
        else:
            expanded: dict[str, Any] = {
                "args": expander.texts(entry.args, (*path, "args")),
                "env": expander.table(entry.env, (*path, "env")),
                "headers": expander.table(entry.headers, (*path, "headers")),
            }
            for key in ("command", "cwd", "url", "http_url"):
                value: str | None = getattr(entry, key)
                expanded[key] = expander.text(value, (*path, wire_name(key))) if value is not None else None
            entry = entry.model_copy(update=expanded)
            if expander.warn_of_missing(diagnostics, source_of, f"; the server {alias} is left out. {HINT}"):
                left_out = f"The environment variable {shown_name(expander.missing[0][1])} is not set."
            elif starts_itself(entry, source_of(path)):
                left_out = "It would start this very server again, with the same settings."
                said = f"{dotted(path)} would start this very server again, with the same settings; it is left out."
                diagnostics.warn(source_of(path), said)
        if left_out is not None:
            entry = configured.model_copy(update={"enabled": False})
        else:
            if settings.proxy.prefix == "none":
                entry = entry.model_copy(update={"prefix": "none"})
            for problem in _problems_of(entry, path, settings.proxy.name_budget):
                diagnostics.refuse(source_of(path), problem)
            given = {"command": entry.command, "url": entry.url, "httpUrl": entry.http_url}
            keys = [key for key, value in given.items() if value is not None]
            if len(keys) > 1:
                said = f"{dotted(path)} gives {' and '.join(keys)}; only {_transport_key(entry)} is used."
                diagnostics.warn(source_of(path), said)
        entries.append(UpstreamEntry(alias, name, entry, source_of(path), left_out, bool(expander.missing)))
    return tuple(entries)


def servers_above(environ: Mapping[str, str]) -> int:
    given = environ.get(ABOVE_VARIABLE, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < len("1000") else 0


def _transport_key(entry: UpstreamSettings) -> str:
    if entry.transport == "stdio":
        return "command"
    return "httpUrl" if entry.transport == "http" and entry.http_url is not None else "url"


def _problems_of(entry: UpstreamSettings, path: KeyPath, name_budget: int) -> Iterator[str]:
    """Why an entry cannot work: new names, the transport, and texts that no process and no HTTP request can carry."""
    here = dotted(path)
    budget = max(name_budget - (len(f"{path[-1]}__") if entry.prefix == "alias" else 0), 0)
    owners: dict[str, str] = {}
    for name, new in entry.rename.items():
        which = f"{here}.rename: the new name of {json.dumps(name)}"
        if not _TOOL_NAME.fullmatch(new):
            yield f"{which} has to consist of letters, digits and _ . - only, and not be empty."
        elif len(new) > budget:
            yield (
                f"{which} has {len(new)} characters, and proxy.nameBudget leaves room for {budget}; give a shorter "
                "one, or a larger budget."
            )
        elif new in owners:
            yield f"{which} is that of {json.dumps(owners[new])} too; give each its own."
        owners.setdefault(new, name)
    if entry.transport is None:
        yield f"{here} has no command, no url and no httpUrl; give it one of them."
    elif entry.transport == "stdio":
        if not (entry.command or "").strip():
            yield f"{here}.command is missing or empty; name the program that starts the server."
    elif entry.endpoint is None:
        yield f'{here} has the type "{entry.transport}" but no url; give the address of the server.'
    else:
        try:
            parts = urlsplit(entry.endpoint)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            expected = "an address that begins with http:// or https:// and names a host"
            yield f"{here}.{_transport_key(entry)} has to be {expected}."
    texts: dict[KeyPath, str] = {("args", index): arg for index, arg in enumerate(entry.args)}
    texts |= {("env", name): text for name, text in entry.env.items()}
    texts |= {("command",): entry.command or "", ("cwd",): entry.cwd or ""}
    for where, text in texts.items():
        if "\0" in text:
            yield f"{dotted((*path, *where))} holds a NUL character, which no process can be given."
    for name in entry.env:
        if not name or "=" in name or "\0" in name:
            yield f"{dotted((*path, 'env', name))} is not a name for an environment variable."
    for name, value in entry.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield f"{dotted((*path, 'headers', name))} is not a name for an HTTP header."
        elif not _HEADER_VALUE.fullmatch(value):
            yield f"{dotted((*path, 'headers', name))} has to be printable ASCII on one line."
