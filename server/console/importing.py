"""`config import`: the servers of another client, put into the user's own settings file."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from typing import Any, cast

from server.console.asking import ask
from server.console.failure import Failure
from server.console.foreign_clients import ForeignClient, foreign_clients, read_servers
from server.console.reach import reached_by
from server.console.shown import shown_value
from server.settings.errors import Findings, SettingsError
from server.settings.files import parse, read_user_file, user_file
from server.settings.layers import Tree
from server.settings.load import SettingsInputs, read_settings
from server.settings.resolution import alias_of
from server.settings.settings_writer import PRIVATE_FILE, rewrite, with_entries
from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError
from tools.display import visible_line

SECTION = "mcpServers"


def import_servers(wanted: str, environ: Mapping[str, str], *, prints: bool, force: bool, is_sure: bool = False) -> int:
    """Show the servers of a client, or of a file, ask, and add them to the user's own settings.

    Args:
        wanted: A client's name, or a file.
        environ: The environment variables.
        prints: Print them as settings in place of adding them.
        force: Replace servers that have an alias of theirs.
        is_sure: Whether nobody needs to be asked.

    Raises:
        Failure: There is nothing to import, or nobody agreed, or it cannot be written.
    """
    findings = Findings()
    clients = foreign_clients(environ)
    try:
        path, client = _place(wanted, clients)
        servers = _usable(_by_alias(read_servers(path, client, findings)), path, environ, findings)
    except SettingsError as error:
        raise Failure(visible_line(str(error))) from None
    finally:
        for warning in findings.warnings:
            sys.stderr.write(f"coretools-mcp: {visible_line(warning)}\n")
    if prints:
        sys.stdout.write(json.dumps({SECTION: servers}, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return 0
    sys.stdout.write(f"From {visible_line(path)}\n")
    # A client's own file is the person's, and so are the secrets in it; of another one they have to see everything.
    shown = {alias: reached_by(entry, hides=client is not None) for alias, entry in servers.items()}
    return _add(servers, shown, environ, force=force, is_sure=is_sure)


def _place(wanted: str, clients: Mapping[str, ForeignClient]) -> tuple[str, ForeignClient | None]:
    client = clients.get(wanted)
    if client is None:
        if os.path.isfile(wanted):
            return wanted, None
        raise SettingsError([f"'{wanted}' is no file and no client that is known. Known are {', '.join(clients)}."])
    for path in client.files:
        if os.path.isfile(path):
            return path, client
    looked = ", ".join(client.files)
    raise SettingsError([f"{client.title} has no configuration of yours. Looked at: {looked}. Name a project's file."])


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


def _usable(servers: Tree, source: str, environ: Mapping[str, str], findings: Findings) -> Tree:
    """The servers with which the server would start; it is told why another one is left out.

    Raises:
        SettingsError: None is left, or the settings that are there cannot be used without them either.
    """
    if not _problems(servers, source, environ):
        return servers
    alone = _problems({}, source, environ)
    if alone:
        raise SettingsError(alone)
    found: Tree = {}
    for alias, entry in servers.items():
        problems = _problems({alias: entry}, source, environ)
        findings.warnings += [f"{problem} The server {alias} is left out." for problem in problems]
        found |= {} if problems else {alias: entry}
    if not found:
        raise SettingsError(["Of these servers none can be used here, so nothing was added."])
    return found


def _problems(servers: Tree, source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What keeps the server from starting with these on top of the user's own settings."""
    try:
        content = json.dumps({SECTION: servers}, allow_nan=False).encode()
    except ValueError:
        return (f"{source}: there is a number that JSON does not have.",)
    return _problems_of(content, source, environ)


def _problems_of(content: bytes, source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    inputs = SettingsInputs([source], {}, environ, cli=None, working_folder=None, streams={source: content})
    try:
        read_settings(inputs)
    except SettingsError as error:
        return error.problems
    return ()


def _add(servers: Tree, shown: Mapping[str, str], environ: Mapping[str, str], *, force: bool, is_sure: bool) -> int:
    path = user_file(environ)
    if path is None:
        raise Failure("there is no home folder, so there is no settings file to add them to; --print shows them.")
    try:
        present = _names(read_user_file(path, Findings()) or {})
        taken = {alias: entry for alias, entry in servers.items() if force or alias not in present}
        _show(shown, present, force=force)
        if not taken:
            sys.stdout.write("There is nothing to add.\n")
            return 0
        if not is_sure:
            ask(f"Add this to {visible_line(path)}?", "nothing was added")
        _make_private(path, taken)
        rewrite(path, lambda content: _changed(content, taken, path, environ, force=force), AbortSignal())
    except SettingsError as error:
        raise Failure(f"nothing was added: {visible_line(str(error))}") from None
    except (ToolError, OSError):
        raise Failure(f"{visible_line(path)} cannot be written, so nothing was added.") from None
    sys.stdout.write(f"Added to {visible_line(path)}: {', '.join(taken)}\n")
    return 0


def _show(shown: Mapping[str, str], present: Mapping[str, str], *, force: bool) -> None:
    """Print what would become of each server."""
    for alias, reached in shown.items():
        if alias in present and not force:
            sys.stdout.write(f"  stays as it is (--force replaces it): {visible_line(alias)}\n")
            continue
        what = "would replace" if alias in present else "would add"
        sys.stdout.write(f"  {what}: {visible_line(alias)}, {reached}\n")
    sys.stdout.flush()


def _make_private(path: str, taken: Tree) -> None:
    """Let nobody else read the file that is there, before anything secret comes into it. A new one is private anyway.

    Raises:
        OSError: The file is somebody else's.
    """
    given = [entry.get(key) for entry in taken.values() for key in ("env", "headers")]
    is_secret = any(given) or shown_value((SECTION,), taken) != taken
    if os.name != "posix" or not is_secret or not os.path.exists(path):
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & ~PRIVATE_FILE & 0o077:
        os.chmod(path, mode & ~0o077)
        said = f"there may be secrets in what is added, so only you can read {visible_line(path)} from now on"
        sys.stderr.write(f"coretools-mcp: {said}\n")


def _changed(content: bytes, taken: Tree, path: str, environ: Mapping[str, str], *, force: bool) -> bytes:
    """The file with the servers in it. What somebody else added in the meantime stays.

    Raises:
        SettingsError: The server would not start with what comes out.
    """
    present = _names(parse(content, path, Findings()) if content.strip() else {})
    added = {present.get(alias, alias): entry for alias, entry in taken.items() if force or alias not in present}
    changed = with_entries(content, SECTION, added)
    problems = _problems_of(changed, path, environ)
    if problems:
        raise SettingsError(problems)
    return changed


def _names(settings: Mapping[str, Any]) -> dict[str, str]:
    """The aliases of the servers that are there, each with the name that stands in the file."""
    servers: Any = settings.get(SECTION)
    return {alias_of(name): name for name in cast("Tree", servers)} if isinstance(servers, dict) else {}
