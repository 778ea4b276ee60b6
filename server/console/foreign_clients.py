"""The configurations of other MCP clients: where they are, and their servers in our form."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from server.settings.agent_cli import AGENT_CLIS, FILE
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.files import home_folder, parse, without_comments
from server.settings.keys import keys_of
from server.settings.merge import Tree, holder_of
from server.settings.proxy_models import UpstreamSettings

Variables = Literal["none", "braces", "all"]
"""Which of `$NAME` and `${NAME}` a client expands; where it does not, a dollar sign is only that."""

_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\[^\n])*")|,(?=\s*[}\]])')
_PLACEHOLDER = re.compile(r"\$\{(?P<kind>env|input|workspaceFolder|userHome|[A-Za-z]+)(?::(?P<name>[^{}]*))?\}")
_BARE_DOLLAR = re.compile(r"\$(?!\{)")
_TRANSPORTS = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http"}


@dataclass(frozen=True, slots=True)
class ForeignClient:
    """An MCP client that has a list of servers of its own.

    Args:
        title: Its name.
        files: Where its configuration may be, the likeliest first.
        variables: What it expands.
        places: Where in the file the servers stand.
    """

    title: str
    files: tuple[str, ...]
    variables: Variables
    places: tuple[tuple[str, ...], ...] = (("mcpServers",),)


ANY_PLACE = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where servers stand in a file of which nothing else is known."""


def foreign_clients(environ: Mapping[str, str], platform: str = sys.platform) -> Mapping[str, ForeignClient]:
    """The clients that are known, by the name that the command line takes."""
    home = home_folder(environ)
    if platform == "darwin":
        programs = os.path.join(home, "Library", "Application Support")
    elif platform == "win32":
        programs = environ.get("APPDATA", "")
    else:
        programs = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    code = tuple(
        os.path.join(programs, name, "User", file) for name in ("Code", "VSCodium") for file in ("mcp.json", FILE)
    )
    clis = {
        name: ForeignClient(cli.title, (os.path.join(cli.user_folder(environ), FILE),), "all")
        for name, cli in AGENT_CLIS.items()
    }
    return {
        "claude-desktop": ForeignClient(
            "Claude Desktop", (os.path.join(programs, "Claude", "claude_desktop_config.json"),), "none"
        ),
        "claude-code": ForeignClient("Claude Code", (os.path.join(home, ".claude.json"), ".mcp.json"), "braces"),
        "cursor": ForeignClient("Cursor", (os.path.join(home, ".cursor", "mcp.json"),), "braces"),
        "vscode": ForeignClient(
            "VS Code", (os.path.join(".vscode", "mcp.json"), *code), "braces", (("servers",), ("mcp", "servers"))
        ),
        **clis,
    }


def read_servers(path: str, client: ForeignClient | None, findings: Findings) -> Tree:
    """The servers in a client's file, in our form; what cannot be taken over is told.

    Args:
        path: The file.
        client: Whose it is, or `None` if that is not known.
        findings: Takes a warning for each thing that is left out or has to be looked at.

    Raises:
        SettingsError: It cannot be read, or holds no servers.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError:
        raise SettingsError([f"{path}: this file cannot be read."]) from None
    data = parse(_without_trailing_commas(content, path), path, Findings())
    variables = client.variables if client is not None else "all"
    for place in client.places if client is not None else ANY_PLACE:
        holder = holder_of(data, place)
        servers = holder.get(place[-1]) if holder is not None else None
        if isinstance(servers, dict):
            entries = cast("Tree", servers).items()
            return {name: _entry(name, entry, path, variables, findings) for name, entry in entries if _is(entry)}
    raise SettingsError([f"{path}: this file has no servers, under mcpServers or servers."])


def _is(entry: Any) -> bool:
    return isinstance(entry, dict)


def _without_trailing_commas(content: bytes, path: str) -> bytes:
    """VS Code writes them, and JSON does not have them."""
    try:
        text = without_comments(content.decode().removeprefix("\ufeff"), path)
    except UnicodeDecodeError:
        return content  # parsing says so
    return _TRAILING_COMMA.sub(lambda match: match[1] or " ", text).encode()


def _entry(name: str, given: Tree, path: str, variables: Variables, findings: Findings) -> Tree:
    known = {*keys_of(UpstreamSettings), "disabled"}
    kept: Tree = {}
    for key, value in given.items():
        if key == "type":
            kept[key] = _TRANSPORTS.get(str(value), value)
        elif key in known:
            kept[key] = value
        else:
            findings.warn(path, f"{dotted((name, key))} has no counterpart here and is left out.")
    for where in ("command", "args", "env", "cwd", "url", "httpUrl", "headers"):
        if where in kept:
            kept[where] = _with_our_variables(kept[where], variables)
    if variables == "none":
        return kept
    for kind, wanted in sorted(set(_placeholders(kept))):
        if kind == "input":
            said = f"{name} asks for the input {wanted}; set the environment variable {_variable(wanted)} to it."
            findings.warn(path, said)
        elif kind != "env":
            findings.warn(path, f"{name} uses ${{{kind}}}, which is not known here; write the path there.")
    return json.loads(_PLACEHOLDER.sub(_our_placeholder, json.dumps(kept)))


def _placeholders(tree: Any) -> Iterator[tuple[str, str]]:
    for match in _PLACEHOLDER.finditer(json.dumps(tree)):
        if match["name"] is not None and match["kind"] in ("env", "input"):
            yield match["kind"], match["name"]
        elif match["kind"] in ("workspaceFolder", "workspaceFolderBasename", "pathSeparator"):
            yield match["kind"], ""


def _our_placeholder(match: re.Match[str]) -> str:
    kind, name = match["kind"], match["name"]
    if kind == "userHome":
        return "${HOME}"
    if kind in ("env", "input") and name is not None:
        return f"${{{_variable(name) if kind == 'input' else name}}}"
    return match[0]


def _variable(name: str) -> str:
    """The environment variable that an input becomes: `api-key` is `API_KEY`."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _with_our_variables(value: Any, variables: Variables) -> Any:
    """The value, with every dollar sign doubled that names no variable for its client."""
    if isinstance(value, dict):
        return {key: _with_our_variables(item, variables) for key, item in cast("Tree", value).items()}
    if isinstance(value, list):
        return [_with_our_variables(item, variables) for item in cast("list[Any]", value)]
    if not isinstance(value, str) or variables == "all":
        return value
    return value.replace("$", "$$") if variables == "none" else _BARE_DOLLAR.sub("$$", value)
