"""The configurations of other MCP clients: where they are, and their servers in our form."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, cast

from server.settings.agent_cli import AGENT_CLIS, FILE
from server.settings.canonical_form import TRANSPORT_ALIASES
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.files import home_folder, parse, without_comments
from server.settings.layers import Tree, holder_of
from server.settings.models import UpstreamSettings
from server.settings.section import keys_of

Variables = Literal["none", "braces", "all"]
"""Which of `$NAME` and `${NAME}` a client expands; where it does not, a dollar sign is only that."""

_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\[^\n])*")|,(?=\s*[}\]])')
_PLACEHOLDER = re.compile(r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<name>[^{}]+))?\}")
_BARE_DOLLAR = re.compile(r"\$(?!\{)")
_EXPANDED = ("command", "args", "env", "cwd", "url", "httpUrl", "headers")
"""Keys of a server in whose texts variables are expanded."""


@dataclass(frozen=True, slots=True)
class ForeignClient:
    """An MCP client that has a list of servers of its own.

    Args:
        title: Its name.
        files: Where the person's own configuration may be, the likeliest first. What a folder brings along is none of
            them: whoever made the folder wrote it.
        variables: What it expands.
        places: Where in the file the servers stand.
        knows_trust: Whether `trust` of a server means there what it means here.
    """

    title: str
    files: tuple[str, ...]
    variables: Variables
    places: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    knows_trust: bool = False


ANY_PLACE = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where servers stand in a file of which nothing else is known."""


def foreign_clients(environ: Mapping[str, str], platform: str = sys.platform) -> Mapping[str, ForeignClient]:
    """The clients that are known, by the name that the command line takes.

    Every file of theirs has an absolute path: one from the working folder would be the folder's.
    """
    return {name: _at_home(client) for name, client in _clients(environ, platform).items()}


def _at_home(client: ForeignClient) -> ForeignClient:
    return replace(client, files=tuple(path for path in client.files if os.path.isabs(path)))


def _clients(environ: Mapping[str, str], platform: str) -> Mapping[str, ForeignClient]:
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
        name: ForeignClient(cli.title, (os.path.join(cli.user_folder(environ), FILE),), "all", knows_trust=True)
        for name, cli in AGENT_CLIS.items()
    }
    return {
        "claude-desktop": ForeignClient(
            "Claude Desktop", (os.path.join(programs, "Claude", "claude_desktop_config.json"),), "none"
        ),
        "claude-code": ForeignClient("Claude Code", (os.path.join(home, ".claude.json"),), "braces"),
        "cursor": ForeignClient("Cursor", (os.path.join(home, ".cursor", "mcp.json"),), "braces"),
        "vscode": ForeignClient("VS Code", code, "braces", (("servers",), ("mcp", "servers"))),
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
    for place in client.places if client is not None else ANY_PLACE:
        holder = holder_of(data, place)
        servers = holder.get(place[-1]) if holder is not None else None
        if isinstance(servers, dict):
            entries = cast("Tree", servers).items()
            return {name: _entry(name, entry, path, client, findings) for name, entry in entries if _is(entry)}
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


def _entry(name: str, given: Tree, path: str, client: ForeignClient | None, findings: Findings) -> Tree:
    known = {*keys_of(UpstreamSettings), "disabled"}
    kept: Tree = {}
    for key, value in given.items():
        if key == "type":
            kept[key] = TRANSPORT_ALIASES.get(str(value), value)
        elif key == "trust" and (client is None or not client.knows_trust):
            said = f"{dotted((name, key))} is left out: it would let its tools run without a question, and"
            whose = "a file that is named cannot say that" if client is None else f"{client.title} has no such key"
            findings.warnings += [f"{path}: {said} {whose}."] if value else []
        elif key in known:
            kept[key] = value
        else:
            findings.warn(path, f"{dotted((name, key))} has no counterpart here and is left out.")
    variables = client.variables if client is not None else "all"
    expanded = {key: kept[key] for key in _EXPANDED if key in kept}
    for kind, wanted in sorted(set(_placeholders(expanded))) if variables != "none" else ():
        if kind == "input":
            said = f"{name} asks for the input {wanted}; set the environment variable {_variable(wanted)} to it."
            findings.warn(path, said)
        elif kind != "env":
            findings.warn(path, f"{name} uses ${{{kind}}}, which is not known here; write the path there.")
    return {**kept, **_changed_texts(expanded, partial(_with_our_variables, variables=variables))}


def _changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The value, with each text in it changed by itself."""
    if isinstance(value, dict):
        return {key: _changed_texts(item, change) for key, item in cast("Tree", value).items()}
    if isinstance(value, list):
        return [_changed_texts(item, change) for item in cast("list[Any]", value)]
    return change(value) if isinstance(value, str) else value


def _placeholders(tree: Tree) -> Iterator[tuple[str, str]]:
    texts: list[str] = []
    _changed_texts(tree, lambda text: texts.append(text) or text)
    for match in chain.from_iterable(map(_PLACEHOLDER.finditer, texts)):
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
    return re.sub(r"[^A-Z0-9]|^(?=[0-9])", "_", name.upper())


def _with_our_variables(text: str, variables: Variables) -> str:
    """The text with the variables of its client as ours; a dollar sign that names none is doubled."""
    if variables == "none":
        return text.replace("$", "$$")
    return _PLACEHOLDER.sub(_our_placeholder, text if variables == "all" else _BARE_DOLLAR.sub("$$", text))
