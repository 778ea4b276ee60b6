"""The configuration files of other MCP clients: where they are, and their servers in our form."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from server.settings.agent_cli import AGENT_CLIS, FILE, TRANSPORT_ALIASES
from server.settings.files import Tree, home_folder, parse, value_at, without_comments
from server.settings.models import UpstreamSettings
from server.settings.section import Diagnostics, SettingsError, dotted, keys_of
from server.settings.variable_expansion import EXPANDED_IN_SERVERS

Variables = Literal["none", "braces", "all"]  # which of `$NAME` and `${NAME}` a client expands; `$` stays else
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\[^\n])*")|,(?=\s*[}\]])')
_PLACEHOLDER = re.compile(r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<name>[^{}]+))?\}")
_BARE_DOLLAR = re.compile(r"\$(?!\{)")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where an MCP client has its list of servers, and how it writes them.

    What a project's folder brings along is not among the files: whoever made the folder wrote it.
    """

    title: str
    files: tuple[str, ...]  # where the person's own configuration may be, the likeliest first, as absolute paths
    variables: Variables
    paths: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    knows_trust: bool = False  # whether `trust` of a server means there what it means here


ANY_PATH = (("mcpServers",), ("servers",), ("mcp", "servers"))  # in a file of which nothing else is known


def client_configs(environ: Mapping[str, str], platform: str = sys.platform) -> Mapping[str, ClientConfig]:
    home = home_folder(environ)
    if platform == "darwin":
        programs = os.path.join(home, "Library", "Application Support")
    elif platform == "win32":
        programs = environ.get("APPDATA", "")
    else:
        programs = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")

    def config(title: str, files: Sequence[str], variables: Variables, **more: Any) -> ClientConfig:
        # A relative path would lead into the working folder, which may be somebody else's.
        return ClientConfig(title, tuple(file for file in files if os.path.isabs(file)), variables, **more)

    code = [os.path.join(programs, name, "User", file) for name in ("Code", "VSCodium") for file in ("mcp.json", FILE)]
    desktop = os.path.join(programs, "Claude", "claude_desktop_config.json")
    clis = {
        name: config(cli.title, [os.path.join(cli.user_folder(environ), FILE)], "all", knows_trust=True)
        for name, cli in AGENT_CLIS.items()
    }
    return {
        "claude-desktop": config("Claude Desktop", [desktop], "none"),
        "claude-code": config("Claude Code", [os.path.join(home, ".claude.json")], "braces"),
        "cursor": config("Cursor", [os.path.join(home, ".cursor", "mcp.json")], "braces"),
        "vscode": config("VS Code", code, "braces", paths=(("servers",), ("mcp", "servers"))),
        **clis,
    }


def read_servers(path: str, client: ClientConfig | None, diagnostics: Diagnostics) -> Tree:
    """The servers in a client's file, in our form; what cannot be taken over is told. `None` is an unknown client."""
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError:
        raise SettingsError([f"{path}: this file cannot be read."]) from None
    try:
        # VS Code writes trailing commas, and JSON does not have them.
        text = without_comments(content.decode().removeprefix("\ufeff"), path)
        content = _TRAILING_COMMA.sub(lambda match: match[1] or " ", text).encode()
    except UnicodeDecodeError:
        pass  # parsing says so
    data = parse(content, path)
    for place in client.paths if client is not None else ANY_PATH:
        servers = value_at(data, place)
        if isinstance(servers, dict):
            given = cast("Tree", servers).items()
            return {
                name: _converted(name, cast("Tree", entry), path, client, diagnostics)
                for name, entry in given
                if isinstance(entry, dict)
            }
    raise SettingsError([f"{path}: this file has no servers, under mcpServers or servers."])


def _converted(name: str, given: Tree, path: str, client: ClientConfig | None, diagnostics: Diagnostics) -> Tree:
    known = {*keys_of(UpstreamSettings), "disabled"}
    entry: Tree = {}
    for key, value in given.items():
        if key == "type":
            entry[key] = TRANSPORT_ALIASES.get(str(value), value)
        elif key == "trust" and (client is None or not client.knows_trust):
            said = f"{dotted((name, key))} is left out: it would let its tools run without a question, and"
            whose = "a file that is named cannot say that" if client is None else f"{client.title} has no such key"
            if value:
                diagnostics.warn(path, f"{said} {whose}.")
        elif key in known:
            entry[key] = value
        else:
            diagnostics.warn(path, f"{dotted((name, key))} has no counterpart here and is left out.")
    variables = client.variables if client is not None else "all"
    told: set[str] = set()

    def converted_texts(value: Any) -> Any:
        """The value with the variables of its client as ours; a dollar sign that names none is doubled."""
        if isinstance(value, dict):
            return {key: converted_texts(item) for key, item in cast("Tree", value).items()}
        if isinstance(value, list):
            return [converted_texts(item) for item in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        if variables == "none":
            return value.replace("$", "$$")
        return _PLACEHOLDER.sub(placeholder, value if variables == "all" else _BARE_DOLLAR.sub("$$", value))

    def placeholder(match: re.Match[str]) -> str:
        kind, variable = match["kind"], match["name"]
        if kind == "userHome":
            return "${HOME}"
        if kind == "env" and variable is not None:
            return f"${{{variable}}}"
        if kind == "input" and variable is not None:
            # `api-key` is `API_KEY`.
            ours = re.sub(r"[^A-Z0-9]|^(?=[0-9])", "_", variable.upper())
            told.add(f"{name} asks for the input {variable}; set the environment variable {ours} to it.")
            return f"${{{ours}}}"
        if kind in ("workspaceFolder", "workspaceFolderBasename", "pathSeparator"):
            told.add(f"{name} uses ${{{kind}}}, which is not known here; write the path there.")
        return match[0]

    entry |= {key: converted_texts(entry[key]) for key in EXPANDED_IN_SERVERS if key in entry}
    for sentence in sorted(told):
        diagnostics.warn(path, sentence)
    return entry
