"""Tells commands that change the user's own settings which servers exist, and whether new ones are valid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from server.console import CommandFailure
from server.settings import SettingsError, SettingsReport
from server.settings.document_editor import doubtful_key
from server.settings.load import SettingsInputs, read_settings
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_files import (
    MAX_FILE_BYTES,
    Tree,
    parse,
    read_settings_file,
    table_at,
    user_file,
    value_at,
)
from server.settings.upstream_entries import DEFAULT_PORT, alias_of, is_own
from tools.contract.display import visible_line

SECTION = "mcpServers"


def usable_servers(given: Tree, path: str, environ: Mapping[str, str], diagnostics: Diagnostics) -> Tree:
    """Return those of an MCP client's servers that can be used here, keyed by alias, without coretools-mcp itself.

    Raises:
        SettingsError: No server can be used, or the user's settings are already invalid.
    """

    def problems_with(servers: Tree) -> tuple[str, ...]:
        return problems_of(json.dumps({SECTION: servers}).encode(), path, environ)

    servers: Tree = {}
    ports = own_ports(environ)
    for name, entry in given.items():
        alias = alias_of(name)
        if is_own(cast("Tree", entry), ports):
            diagnostics.warn(path, f"{dotted((name,))} starts or reaches this server itself and was skipped.")
            continue
        if not alias or alias in servers:
            raise SettingsError(
                [f"The name of the server {json.dumps(name)} is empty, or becomes an alias that is already taken."]
            )
        servers[alias] = entry
    if not servers:
        raise SettingsError(["There are no servers to import."])
    if not problems_with(servers):
        return servers
    if without_any := problems_with({}):
        raise SettingsError(without_any)
    usable: Tree = {}
    for alias, entry in servers.items():
        problems = problems_with({alias: entry})
        diagnostics.warnings += [f"{problem} The server {alias} was skipped." for problem in problems]
        usable |= {} if problems else {alias: entry}
    if not usable:
        raise SettingsError(["None of these servers can be used here, so nothing was added."])
    return usable


def own_settings(environ: Mapping[str, str]) -> Tree:
    """Return the user's own settings as written there; empty if there are none.

    Raises:
        SettingsError: The file is not valid.
    """
    own = user_file(environ)
    content = read_settings_file(own, is_optional=True) if own is not None else None
    return parse(content or b"", own or "")


def own_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the ports on which this program may listen: the default, and the one in the user's settings."""
    try:
        configured = value_at(own_settings(environ), ("http", "port"))
    except SettingsError:
        configured = None
    return [DEFAULT_PORT, *([configured] if isinstance(configured, int) else [])]


def problems_of(content: bytes, source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the problems that prevent startup with these settings in addition to the user's own."""
    try:
        settings_with(content, source, environ)
    except SettingsError as error:
        return error.problems
    return ()


def settings_with(content: bytes, source: str, environ: Mapping[str, str]) -> SettingsReport:
    """Return the settings that result if `source` (the user's own file or an additional one) has this content.

    Raises:
        SettingsError: The server would not start.
    """
    files = [source] if source != user_file(environ) else []
    inputs = SettingsInputs(files, {}, environ, cli=None, working_folder=None, streams={source: content})
    return read_settings(inputs)


def check_keys(content: bytes | None, place: tuple[str, ...], path: str, max_bytes: int = MAX_FILE_BYTES) -> None:
    """Check that an edit at `place` would take effect, because no key on the way is ambiguous.

    Raises:
        CommandFailure: A key occurs more than once, or in two spellings.
        SettingsError: The file is not valid.
    """
    doubt = doubtful_key(content or b"", place, path, max_bytes)
    if doubt is not None:
        said = f"{visible_line(path)}: {visible_line(doubt)}"
        raise CommandFailure(f"{said}. Remove one of them and try again; nothing was changed.")


def own_names(servers: Tree, ports: Sequence[int] = ()) -> list[str]:
    """Return the names of the servers that run the coretools-mcp command, or that reach it on one of these ports."""
    return [name for name, each in servers.items() if isinstance(each, dict) and is_own(cast("Tree", each), ports)]


def own_servers(environ: Mapping[str, str]) -> Tree:
    """Return the servers in the user's own settings, keyed by alias."""
    return {alias_of(name): entry for name, entry in table_at(own_settings(environ), SECTION).items()}


def names_by_alias(settings: Tree) -> dict[str, str]:
    """Return the server names in a settings file, as written there, keyed by alias."""
    return {alias_of(name): name for name in table_at(settings, SECTION)}
