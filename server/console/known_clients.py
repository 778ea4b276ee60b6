"""The MCP clients: where each has its list of servers, how it writes them, and their servers in our form."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from server.settings.agent_cli import AGENT_CLIS, FILE, CliName
from server.settings.canonical_form import adapt_servers
from server.settings.document_editor import JsonDocument, MemberPath, toml_tree
from server.settings.models import OAuthSettings, UpstreamSettings
from server.settings.nested_values import Tree, table_at, value_at
from server.settings.section_model import Diagnostics, SettingsError, dotted, keys_of
from server.settings.settings_files import home_folder, parse, read_regular
from server.settings.upstream_entries import EXPANDED_IN_SERVERS, LIKELY_SECONDS

MAX_CLIENT_BYTES = 64_000_000  # bytes of a client's file; that of Claude Code also holds its history
Dialect = Literal["json", "comments", "jsonc", "toml"]  # "comments": JSON with them, but without trailing commas
# Which of `$NAME` and `${NAME}` a client expands, `$` stays else; or `{env:NAME}`
Variables = Literal["none", "braces", "all", "named"]
_PLACEHOLDER = re.compile(r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<name>[^{}]+))?\}")
_NAMED = re.compile(r"\{env:(\w+)\}")
_BARE_DOLLAR = re.compile(r"\$(?!\{)")

BASE = frozenset("HOME LOGNAME PATH SHELL USER LANG LC_ALL TERM TMPDIR TZ".split())  # noqa: SIM905 - as one says them
"""What reaches a server in clients that pass a few variables alone: those of Codex (its utils.rs), the longest list."""
_BASE_ON_WINDOWS = frozenset({"APPDATA", "LOCALAPPDATA", "PATHEXT", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"})
_SECRET_WORDS = "TOKEN SECRET PASSWORD PASSWD KEY AUTH CREDENTIAL CREDS PRIVATE CERT".split()  # noqa: SIM905 - as above
"""Gemini CLI drops variables with these in their names (its NEVER_ALLOWED_NAME_PATTERNS)."""
TRUSTING = 'For runs without a terminal put "trust": true into the entry, which lets its tools run unasked.'
_IN_SECONDS = {"startup_timeout_sec": "connectTimeout", "tool_timeout_sec": "timeout"}  # keys of Codex
_COUNTS_SECONDS = re.compile(r"(?:^|[/\\])(?:(?:cline_)?mcp_settings|\.(?:roo|kilocode)[/\\]mcp)\.json$")
"""Files of Cline, Roo Code and Kilo Code."""
_NAME = r"[A-Za-z0-9_-]+"
_NAME_SAID = "letters, digits, - and _"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An MCP client: where it has its list of servers, how it writes them, and what it hands to a server.

    What a project's folder brings along is not among the files of a person: its maker wrote it.
    """

    title: str
    files: tuple[str, ...]  # where the person's own configuration may be, the likeliest first, as absolute paths
    variables: Variables
    path: MemberPath = ("mcpServers",)  # where in the file the servers are
    newer_path: MemberPath = ()  # where they are instead once something stands there
    dialect: Dialect = "json"
    others: tuple[
        tuple[str, MemberPath], ...
    ] = ()  # further files, and places in them, from which servers are imported
    project_file: str = ""  # the file of a project, from its folder; empty where there is none
    programs: tuple[str, ...] = ()  # the names of its command
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what every entry has there besides the command
    passes: Literal["all", "no secrets", "base"] = "all"  # which variables reach a server without being named
    reference: str = ""  # how its `env` refers to a variable NAME; empty where it cannot
    names_variables: bool = False  # whether an entry lists the names of variables, in `env_vars`
    env_key: str = "env"  # what variables stand under in an entry
    is_one_list: bool = False  # whether `command` has the arguments, too
    has_tools: bool = True  # whether it has tools for files and commands of its own
    folder: Literal["roots", "cwd", "none"] = "none"  # what tells a server the workspace
    names: str = _NAME  # what the name of a server may look like there
    names_said: str = _NAME_SAID
    reserved: frozenset[str] = frozenset()  # names that it keeps for itself
    afterwards: str = ""  # what the person still has to do there
    approval: str = ""  # what they have to do besides for a project's file, with NAME in place of the entry's name
    unattended: str = ""  # what the entry needs besides where nobody sits before the client
    keys: Mapping[str, str] = field(default_factory=dict[str, str])  # its keys of an entry, and ours for each
    is_single: bool = False  # whether of several files that exist one cannot be chosen for the person
    counts_milliseconds: bool = False  # whether its `timeout` of an entry is known to be one of milliseconds
    knows_trust: bool = False  # whether `trust` of a server means there what it means here

    def reaches_a_server(self, variable: str) -> bool:
        """Whether a server gets this variable without its entry naming it."""
        if self.passes == "all":
            return True
        if self.passes == "no secrets":
            return not any(word in variable.upper() for word in _SECRET_WORDS)
        return variable in BASE or (sys.platform == "win32" and variable.upper() in _BASE_ON_WINDOWS)


def client_configs(environ: Mapping[str, str], platform: str = sys.platform) -> Mapping[str, ClientConfig]:
    """The clients, by the names by which commands know them, with their files on this machine."""
    home = home_folder(environ)
    roaming, local = environ.get("APPDATA", ""), environ.get("LOCALAPPDATA", "")
    xdg = environ.get("XDG_CONFIG_HOME", "")
    config_folder = xdg if os.path.isabs(xdg) else os.path.join(home, ".config")
    if platform == "darwin":
        programs = os.path.join(home, "Library", "Application Support")
    elif platform == "win32":
        programs = roaming
    else:
        programs = config_folder

    def below(variable: str, *otherwise: str) -> str:
        """The folder that a variable names, if by an absolute path, else one below the home folder."""
        named = environ.get(variable, "")
        return named if os.path.isabs(named) else os.path.join(home, *otherwise)

    def config(title: str, files: Iterable[str], variables: Variables, **more: Any) -> ClientConfig:
        # A relative path would lead into the working folder, which may be somebody else's.
        return ClientConfig(title, tuple(file for file in files if os.path.isabs(file)), variables, **more)

    desktop = [os.path.join(programs, "Claude", "claude_desktop_config.json")]
    if platform == "win32":
        # The program is packaged since 2026, and sees a folder of its own in place of %APPDATA%.
        desktop = _packaged(local, "claude_desktop_config.json") or desktop
    code = [os.path.join(programs, name, "User") for name in ("Code", "Code - Insiders", "VSCodium")]
    zed = [os.path.join(roaming if platform == "win32" else config_folder, "Zed" if platform == "win32" else "zed")]
    if platform == "darwin":
        zed = [os.path.join(home, ".config", "zed")]
    elif platform != "win32":
        zed.append(os.path.join(home, ".var", "app", "dev.zed.Zed", "config", "zed"))
    windsurf = os.path.join(home, ".codeium")

    def cli(name: CliName, **more: Any) -> ClientConfig:
        file = os.path.join(AGENT_CLIS[name].user_folder(environ), FILE)
        return config(
            AGENT_CLIS[name].title,
            [file],
            "all",
            dialect="comments",
            project_file=f".{name}/{FILE}",
            programs=(name,),
            reference="$NAME",
            folder="cwd",
            counts_milliseconds=True,
            knows_trust=True,
            **more,
        )

    return {
        "claude-desktop": config(
            "Claude Desktop",
            desktop,
            "none",
            passes="base",
            has_tools=False,
            is_single=platform == "win32",
            afterwards="Restart Claude Desktop: it reads this file at its start only.",
        ),
        "claude-code": config(
            "Claude Code",
            [os.path.join(below("CLAUDE_CONFIG_DIR"), ".claude.json")],
            "braces",
            project_file=".mcp.json",
            programs=("claude",),
            extra={"type": "stdio"},
            reference="${NAME}",
            folder="roots",
            reserved=frozenset({"workspace"}),
            counts_milliseconds=True,
            afterwards="A session that runs takes it with /mcp, or restarted; about a project's file it asks first.",
        ),
        "cursor": config(
            "Cursor",
            [os.path.join(home, ".cursor", "mcp.json")],
            "braces",
            dialect="jsonc",
            project_file=".cursor/mcp.json",
            programs=("cursor",),
            passes="base",
            reference="${env:NAME}",
            folder="roots",
            afterwards="Cursor reads the file by itself; look in its settings, under MCP, whether the server is on.",
        ),
        "vscode": config(
            "VS Code",
            [os.path.join(folder, "mcp.json") for folder in code],
            "braces",
            path=("servers",),
            dialect="jsonc",
            others=tuple((os.path.join(folder, FILE), ("mcp", "servers")) for folder in code),
            project_file=".vscode/mcp.json",
            programs=("code", "code-insiders", "codium"),
            extra={"type": "stdio"},
            reference="${env:NAME}",
            folder="roots",
            afterwards="VS Code asks at the first start of the server whether you trust it.",
        ),
        "gemini": cli(
            "gemini",
            passes="no secrets",
            names=r"[A-Za-z0-9-]+",
            names_said="letters, digits and - (its rules are cut at the first _)",
            afterwards="Restart Gemini CLI in a folder that it trusts (/permissions); in others it starts none.",
            unattended=TRUSTING,
        ),
        "qwen": cli(
            "qwen",
            afterwards="Restart Qwen Code.",
            approval="It starts the server of a project's file after: qwen mcp approve NAME",
            unattended=TRUSTING,
        ),
        "codex": config(
            "Codex",
            [os.path.join(below("CODEX_HOME", ".codex"), "config.toml")],
            "none",
            path=("mcp_servers",),
            dialect="toml",
            project_file=".codex/config.toml",
            programs=("codex",),
            # Ten seconds are its own, and the first start may have to fetch or compile something.
            extra={"startup_timeout_sec": 30},
            passes="base",
            names_variables=True,
            folder="cwd",
            names=r"[A-Za-z0-9_:@/.-]+",
            names_said="letters, digits and - _ : @ / .",
            afterwards="Restart Codex; it reads a project's file only where you have trusted the project.",
            unattended="For codex exec put required = true into the entry, or the first turn may lack these tools.",
            keys={
                "http_headers": "headers",
                "enabled_tools": "includeTools",
                "disabled_tools": "excludeTools",
                "env_vars": "inheritEnv",
            },
        ),
        "zed": config(
            "Zed",
            [os.path.join(folder, FILE) for folder in zed],
            "none",
            path=("context_servers",),
            dialect="jsonc",
            project_file=".zed/settings.json",
            programs=("zed", "zeditor"),
            extra={"source": "custom"},
            afterwards="Zed starts it by itself; look in its agent panel whether the server is on.",
        ),
        "windsurf": config(
            "Windsurf",
            [os.path.join(windsurf, "windsurf", "mcp_config.json")],
            "braces",
            dialect="jsonc",
            others=((os.path.join(windsurf, "mcp_config.json"), ("mcpServers",)),),
            programs=("windsurf",),
            passes="base",
            reference="${env:NAME}",
            afterwards="Press refresh in the list of MCP servers of Windsurf.",
            keys={"serverUrl": "url", "disabledTools": "excludeTools"},
        ),
        "opencode": config(
            "opencode",
            [os.path.join(config_folder, "opencode", f"opencode.{ending}") for ending in ("json", "jsonc")],
            "named",
            path=("mcp",),
            newer_path=("mcp", "servers"),
            dialect="jsonc",
            project_file="opencode.json",
            programs=("opencode",),
            extra={"type": "local"},
            reference="{env:NAME}",
            env_key="environment",
            is_one_list=True,
            folder="cwd",
            counts_milliseconds=True,
            afterwards="Restart opencode.",
            keys={"environment": "env"},
        ),
        "continue": config(
            "Continue",
            # It reads each JSON file there, in the form of Claude Desktop's.
            [os.path.join(below("CONTINUE_GLOBAL_DIR", ".continue"), "mcpServers", "coretools-mcp.json")],
            "braces",
            dialect="jsonc",
            project_file=".continue/mcpServers/coretools-mcp.json",
            programs=("cn",),
            passes="base",
            folder="cwd",
            afterwards="Continue reads the file by itself; its tools are offered in agent mode.",
        ),
    }


def _packaged(local: str, name: str) -> list[str]:
    """Where a packaged Claude Desktop looks; of several packages those that have the file, if one has it."""
    packages = os.path.join(local, "Packages")
    try:
        found = sorted(entry for entry in os.listdir(packages) if entry.startswith("Claude_")) if local else []
    except OSError:
        return []
    files = [os.path.join(packages, each, "LocalCache", "Roaming", "Claude", name) for each in found]
    return [file for file in files if os.path.isfile(file)] or files


def read_document(content: bytes, path: str, dialect: Dialect) -> Tree:
    """What a client's file holds, read as that client reads it, for nobody to change; an empty file holds nothing.

    Raises:
        SettingsError: It is not valid.
    """
    if dialect == "toml":
        return toml_tree(content, path)
    document = JsonDocument.of(content, path, MAX_CLIENT_BYTES)
    if dialect != "jsonc" and document.strict != document.plain:
        parse(content, path, max_bytes=MAX_CLIENT_BYTES)  # which says where the comma is
    if dialect == "json" and document.plain != document.text:
        raise SettingsError([f"{path}: this file has comments, with which its program does not read it."])
    return document.tree


def read_servers(path: str, client: ClientConfig | None, diagnostics: Diagnostics) -> Tree:
    """The servers in a client's file, in our form; what cannot be taken over is told.

    `None` is an unknown client, whose servers may be where any client has them, with the keys of all of them.
    """
    try:
        content = read_regular(path, MAX_CLIENT_BYTES)
    except (OSError, ValueError):
        raise SettingsError([f"{path}: this file cannot be read."]) from None
    clients = [client] if client is not None else list(client_configs({}).values())
    places = [place for each in clients for other, place in each.others if client is None or other == path]
    if client is None or not places:
        places = [*(place for each in clients for place in (each.newer_path, each.path) if place), *places]
    theirs = {key: ours for each in clients for key, ours in each.keys.items()}
    # An import takes what can be read, whether or not the client itself would.
    data = read_document(content, path, "toml" if path.endswith(".toml") else "jsonc")
    for place in places:
        servers = value_at(data, place)
        if isinstance(servers, dict):
            given = cast("Tree", servers).items()
            return {
                name: _our_entry(name, cast("Tree", entry), theirs, path, client, diagnostics)
                for name, entry in given
                if isinstance(entry, dict)
            }
    raise SettingsError([f"{path}: this file has no servers, under mcpServers or servers."])


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _milliseconds(seconds: Any) -> Any:
    """As many milliseconds; what is no time stays as it is, and is refused later."""
    return int(seconds * 1000) if _is_time(seconds) else seconds


def _our_entry(
    name: str,
    given: Tree,
    theirs: Mapping[str, str],
    path: str,
    client: ClientConfig | None,
    diagnostics: Diagnostics,
) -> Tree:
    """The entry of a server in our form; `theirs` are keys that are spelled otherwise there, with ours for each."""
    known = {*keys_of(UpstreamSettings), "disabled"}
    entry: Tree = {}
    given = {theirs.get(key, key): value for key, value in given.items()}
    program: Any = given.get("command")
    if isinstance(program, list) and program:  # as one list of words
        given |= {"command": program[0], "args": program[1:]}
    if given.get("type") in ("local", "remote"):
        del given["type"]
    if isinstance(program, dict):  # as older versions of Zed have it
        given |= {{"path": "command"}.get(key, key): value for key, value in cast("Tree", program).items()}
    # Codex names variables in place of their values.
    headers = {name: f"${{{value}}}" for name, value in table_at(given, "env_http_headers").items()}
    token = given.get("bearer_token_env_var")
    headers |= {"Authorization": f"Bearer ${{{token}}}"} if isinstance(token, str) else {}
    given |= {ours: _milliseconds(given[key]) for key, ours in _IN_SECONDS.items() if key in given}
    if "timeout" in given and not _is_time(given["timeout"]):
        del given["timeout"]
        diagnostics.warn(path, f"{dotted((name, 'timeout'))} is not a time and is left out.")
    if _COUNTS_SECONDS.search(path):
        if "timeout" in given:
            given["timeout"] = _milliseconds(given["timeout"])
    elif "tool_timeout_sec" not in given and not (client is not None and client.counts_milliseconds):
        limit = given.get("timeout", LIKELY_SECONDS)
        if limit < LIKELY_SECONDS:
            given["timeout"] = _milliseconds(limit)
            said = f"{limit}, which is taken for seconds, so {given['timeout']} ms here"
            diagnostics.warn(path, f"{dotted((name, 'timeout'))} is {said}.")
    for key in ("source", "env_http_headers", "bearer_token_env_var", *_IN_SECONDS):
        given.pop(key, None)
    for key, value in given.items():
        if key == "oauth" and isinstance(value, dict):
            login = cast("Tree", value)
            entry[key] = {ours: login[ours] for ours in keys_of(OAuthSettings) if ours in login}
            for other in sorted(login.keys() - entry[key].keys()):
                diagnostics.warn(path, f"{dotted((name, key, other))} has no counterpart here and is left out.")
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
    noted: set[str] = set()

    def converted_texts(value: Any) -> Any:
        """The value with the variables of its client as ours; a dollar sign that names none is doubled."""
        if isinstance(value, dict):
            return {key: converted_texts(item) for key, item in cast("Tree", value).items()}
        if isinstance(value, list):
            return [converted_texts(item) for item in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        if variables in ("none", "named"):
            whole = value.replace("$", "$$")
            return whole if variables == "none" else _NAMED.sub(r"${\1}", whole)
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
            noted.add(f"{name} asks for the input {variable}; set the environment variable {ours} to it.")
            return f"${{{ours}}}"
        if kind in ("workspaceFolder", "workspaceFolderBasename", "pathSeparator", "file"):
            noted.add(f"{name} uses ${{{kind}}}, which is not known here; write the path there.")
        return match[0]

    adapt_servers({"mcpServers": {name: entry}})
    entry |= {key: converted_texts(entry[key]) for key in EXPANDED_IN_SERVERS if key in entry}
    if headers:
        entry["headers"] = {**table_at(entry, "headers"), **headers}
    for sentence in sorted(noted):
        diagnostics.warn(path, sentence)
    return entry
