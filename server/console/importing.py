"""`config import`: the servers of another client, put into the user's own settings file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from server.console.failure import Failure
from server.console.foreign_clients import ForeignClient, foreign_clients, read_servers
from server.console.reach import reached_by
from server.settings.editing import with_entries
from server.settings.errors import Findings, SettingsError
from server.settings.files import read_user_file, user_file
from server.settings.merge import Tree
from server.settings.own_files import rewrite
from server.settings.upstreams import alias_of
from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError
from tools.display import visible_line


def import_servers(wanted: str, environ: Mapping[str, str], *, prints: bool, force: bool) -> int:
    """Add the servers of a client, or of a file, to the user's own settings.

    Args:
        wanted: A client's name, or a file.
        environ: The environment variables.
        prints: Print them as settings in place of adding them.
        force: Replace servers that have an alias of theirs.

    Raises:
        Failure: There is nothing to import, or it cannot be written.
    """
    findings = Findings()
    clients = foreign_clients(environ)
    try:
        path, client = _place(wanted, clients)
        servers = _by_alias(read_servers(path, client, findings))
    except SettingsError as error:
        raise Failure(visible_line(str(error))) from None
    for warning in findings.warnings:
        sys.stderr.write(f"coretools-mcp: {visible_line(warning)}\n")
    if prints:
        sys.stdout.write(json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False) + "\n")
        return 0
    sys.stdout.write(f"From {visible_line(path)}\n")
    return _add(servers, environ, force=force)


def _place(wanted: str, clients: Mapping[str, ForeignClient]) -> tuple[str, ForeignClient | None]:
    client = clients.get(wanted)
    if client is None:
        if os.path.isfile(wanted):
            return wanted, None
        raise SettingsError([f"'{wanted}' is no file and no client that is known. Known are {', '.join(clients)}."])
    for path in client.files:
        if os.path.isfile(path):
            return path, client
    raise SettingsError([f"{client.title} has no configuration here. Looked at: {', '.join(client.files)}."])


def _by_alias(servers: Tree) -> Tree:
    found: Tree = {}
    for name, entry in servers.items():
        alias = alias_of(name)
        if not alias or alias in found:
            raise SettingsError([f"The name of the server {json.dumps(name)} is empty, or becomes one that is taken."])
        found[alias] = entry
    if not found:
        raise SettingsError(["There are no servers to import."])
    return found


def _add(servers: Tree, environ: Mapping[str, str], *, force: bool) -> int:
    path = user_file(environ)
    if path is None:
        raise Failure("there is no home folder, so there is no settings file to add them to; --print shows them.")
    try:
        present = _present(path)
        added = {alias: entry for alias, entry in servers.items() if force or alias not in present}
        named = {present.get(alias, alias): entry for alias, entry in added.items()}
        rewrite(path, lambda content: with_entries(content, "mcpServers", named), AbortSignal())
    except SettingsError as error:
        raise Failure(visible_line(str(error))) from None
    except (ToolError, OSError):
        raise Failure(f"{visible_line(path)} cannot be written, so nothing was added.") from None
    for alias, entry in servers.items():
        what = (
            "kept as it was (--force replaces it)"
            if alias not in added
            else "replaced"
            if alias in present
            else "added"
        )
        sys.stdout.write(f"  {what}: {visible_line(alias)}, {reached_by(entry)}\n")
    sys.stdout.write(f"In {visible_line(path)}\n")
    return 0


def _present(path: str) -> dict[str, str]:
    """The aliases of the servers that are there, each with the name that stands in the file."""
    servers: Any = (read_user_file(path, Findings()) or {}).get("mcpServers")
    return {alias_of(name): name for name in cast("Tree", servers)} if isinstance(servers, dict) else {}
