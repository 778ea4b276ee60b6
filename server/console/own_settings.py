"""Checks the user's own settings for commands that change them: which servers exist, and whether new ones are valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from server.settings import SettingsError, SettingsReport
from server.settings.load import SettingsInputs, read_settings
from server.settings.nested_values import Tree, table_at, value_at
from server.settings.own_entries import DEFAULT_PORT, is_own
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_files import parse, read_settings_file, user_file
from server.settings.upstream_entries import alias_of

SECTION = "mcpServers"


def usable_servers(given: Tree, path: str, environ: Mapping[str, str], diagnostics: Diagnostics) -> Tree:
    """Return the servers of an MCP client that can be used here, by alias, without coretools-mcp itself.

    Raises:
        SettingsError: No server can be used, or the user's settings are already invalid.
    """
    servers: Tree = {}
    ports = own_ports(environ)
    for name, entry in given.items():
        alias = alias_of(name)
        if is_own(cast("Tree", entry), ports):
            diagnostics.warn(path, f"{dotted((name,))} starts or reaches this server itself, and was skipped.")
            continue
        if not alias or alias in servers:
            raise SettingsError(
                [f"The name of the server {json.dumps(name)} is empty, or becomes an alias that is already taken."]
            )
        servers[alias] = entry
    if not servers:
        raise SettingsError(["There are no servers to import."])
    if not problems_of(_as_settings(servers), path, environ):
        return servers
    without_any = problems_of(_as_settings({}), path, environ)
    if without_any:
        raise SettingsError(without_any)
    usable: Tree = {}
    for alias, entry in servers.items():
        problems = problems_of(_as_settings({alias: entry}), path, environ)
        diagnostics.warnings += [f"{problem} The server {alias} was skipped." for problem in problems]
        usable |= {} if problems else {alias: entry}
    if not usable:
        raise SettingsError(["None of these servers can be used here, so nothing was added."])
    return usable


def own_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the ports on which this program may listen: the default, and the one in the user's settings."""
    own = user_file(environ)
    try:
        content = read_settings_file(own, is_optional=True) if own is not None else None
        configured = value_at(parse(content or b"", own or ""), ("http", "port"))
    except SettingsError:
        configured = None
    return [DEFAULT_PORT, *([configured] if isinstance(configured, int) else [])]


def _as_settings(servers: Tree) -> bytes:
    return json.dumps({SECTION: servers}).encode()


def problems_of(content: bytes, source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the problems that prevent startup with these settings in addition to the user's own."""
    try:
        settings_with(content, source, environ)
    except SettingsError as error:
        return error.problems
    return ()


def settings_with(
    content: bytes, source: str, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> SettingsReport:
    """Return the settings that result if this is the content of `source`, the user's own file or an additional one.

    Raises:
        SettingsError: The server would not start.
    """
    files = [source] if source != user_file(environ) else []
    inputs = SettingsInputs(files, overrides or {}, environ, cli=None, working_folder=None, streams={source: content})
    return read_settings(inputs)


def names_by_alias(settings: Tree) -> dict[str, str]:
    """Return the server names in a settings file, as written there, by alias."""
    return {alias_of(name): name for name in table_at(settings, SECTION)}
