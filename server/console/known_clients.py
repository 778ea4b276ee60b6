"""The MCP clients: where each keeps its list of servers, how it writes the entries, and how to convert them."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from glob import glob
from typing import Any, Literal, cast

from server.settings.canonical_form import adapt_servers
from server.settings.document_editor import JsonDocument, MemberPath, toml_tree
from server.settings.gemini_and_qwen_files import AGENT_CLIS, FILE, CliName
from server.settings.section_model import Diagnostics, SettingsError, dotted, keys_of
from server.settings.server_models import OAuthSettings, UpstreamSettings
from server.settings.settings_files import Tree, home_folder, parse, read_regular, table_at, value_at
from server.settings.upstream_entries import EXPANDED_IN_SERVERS, LIKELY_SECONDS

MAX_CLIENT_BYTES = 64_000_000  # maximum size of a client's file; Claude Code's file also contains its history
Dialect = Literal["json", "comments", "jsonc", "toml"]  # "comments": JSON with comments, but without trailing commas
# The references to variables that a client expands. "braces": `${NAME}`. "all": also `$NAME`. "named": `{env:NAME}`.
Variables = Literal["none", "braces", "all", "named"]
_PLACEHOLDER = re.compile(r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<name>[^{}]+))?\}")
_NAMED = re.compile(r"\{env:(\w+)\}")
_BARE_DOLLAR = re.compile(r"\$(?!\{)")

BASE = frozenset("HOME LOGNAME PATH SHELL USER LANG LC_ALL TERM TMPDIR TZ".split())  # noqa: SIM905 - easier to read
"""The variables that clients pass by default, if they pass only a few. Codex has the longest list (utils.rs)."""
_BASE_ON_WINDOWS = frozenset({"APPDATA", "LOCALAPPDATA", "PATHEXT", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"})
_SECRET_WORDS = "TOKEN SECRET PASSWORD PASSWD KEY AUTH CREDENTIAL CREDS PRIVATE CERT".split()  # noqa: SIM905 - as above
"""Gemini CLI drops variables with these words in their names (NEVER_ALLOWED_NAME_PATTERNS)."""
TRUSTING = 'For runs without a terminal, add "trust": true to the entry: its tools then run without a question.'
_IN_SECONDS = {"startup_timeout_sec": "connectTimeout", "tool_timeout_sec": "timeout"}  # keys in Codex
_COUNTS_SECONDS = re.compile(r"(?:^|[/\\])(?:(?:cline_)?mcp_settings|\.(?:roo|kilocode)[/\\]mcp)\.json$")
"""The files of Cline, Roo Code and Kilo Code, in which `timeout` is in seconds."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An MCP client: where it keeps its list of servers, how it writes them, and what it passes to a server.

    A project's file is not among the user's own files, because somebody else may have written it.
    """

    title: str
    files: tuple[str, ...]  # candidates for the user's own configuration, likeliest first, as absolute paths
    variables: Variables
    path: MemberPath = ("mcpServers",)  # where the servers are in the file
    newer_path: MemberPath = ()  # where newer versions of the client keep the servers; used if it exists in the file
    dialect: Dialect = "json"
    other_files: tuple[tuple[str, MemberPath], ...] = ()  # more files to import from, each with the path of its servers
    project_file: str = ""  # a project's file, relative to its folder; empty if there is none
    programs: tuple[str, ...] = ()  # the commands that start the client, each of which shows that it is installed
    announces: str = "coretools-mcp"  # the client's name in the protocol, if the list of tools depends on it
    # Members of every entry in addition to the command
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    passes: Literal["all", "no secrets", "base"] = "all"  # which variables a server gets even if the entry lists none
    reference: str = ""  # how `env` refers to a variable NAME; empty if it cannot refer to one
    names_variables: bool = False  # whether an entry's `env_vars` lists the names of variables to pass
    env_key: str = "env"  # the key of the variables in an entry
    is_one_list: bool = False  # whether `command` includes the arguments
    has_tools: bool = True  # whether the client has its own tools for files and commands
    folder: Literal["roots", "cwd", "none"] = "none"  # how a server learns which folder is open
    names: str = r"[A-Za-z0-9_-]+"  # the form of valid server names
    name_rule: str = "letters, digits, - and _"
    reserved: frozenset[str] = frozenset()  # names that the client reserves
    afterwards: str = ""  # the remaining steps for the user
    approval: str = ""  # one more step if the entry is in a project's file; NAME stands for the entry's name
    unattended: str = ""  # what the entry also needs for unattended runs
    # Maps the client's own keys to the keys in coretools-mcp's settings
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    is_single: bool = False  # whether several files are an error, because the user must choose one
    counts_milliseconds: bool = False  # whether an entry's `timeout` is in milliseconds
    knows_trust: bool = False  # whether a server's `trust` means the same as in coretools-mcp's settings

    def reaches_a_server(self, variable: str) -> bool:
        """Return whether the client passes this variable to a server whose entry does not list it."""
        if self.passes == "all":
            return True
        if self.passes == "no secrets":
            return not any(word in variable.upper() for word in _SECRET_WORDS)
        return variable in BASE or (sys.platform == "win32" and variable.upper() in _BASE_ON_WINDOWS)


def client_configs(environ: Mapping[str, str], platform: str = sys.platform) -> Mapping[str, ClientConfig]:
    """Return the clients with their files on this machine, keyed by the names that `coretools-mcp install` accepts."""
    home = home_folder(environ)
    roaming, local = environ.get("APPDATA", ""), environ.get("LOCALAPPDATA", "")
    xdg = environ.get("XDG_CONFIG_HOME", "")
    config_folder = xdg if os.path.isabs(xdg) else os.path.join(home, ".config")
    library = os.path.join(home, "Library", "Application Support")
    programs = {"darwin": library, "win32": roaming}.get(platform, config_folder)

    def folder_of(variable: str, *default: str) -> str:
        """Return the absolute path in an environment variable, or else the path of a folder under the home folder."""
        folder = environ.get(variable, "")
        return folder if os.path.isabs(folder) else os.path.join(home, *default)

    def config(title: str, files: Iterable[str], variables: Variables, **options: Any) -> ClientConfig:
        # A relative path would lead into the working folder, which may belong to somebody else.
        return ClientConfig(title, tuple(file for file in files if os.path.isabs(file)), variables, **options)

    desktop = [os.path.join(programs, "Claude", "claude_desktop_config.json")]
    if platform == "win32":
        # Since 2026, Claude Desktop has been an MSIX package, whose %APPDATA% Windows redirects to a private folder.
        packages = os.path.join(local, "Packages")
        config_path = os.path.join("LocalCache", "Roaming", "Claude", "claude_desktop_config.json")
        names = sorted(glob("Claude_*", root_dir=packages)) if local else []
        candidates = [os.path.join(packages, name, config_path) for name in names]
        desktop = [file for file in candidates if os.path.isfile(file)] or candidates or desktop
    code_folders = [os.path.join(programs, name, "User") for name in ("Code", "Code - Insiders", "VSCodium")]
    zed_folders = [os.path.join(config_folder, "zed"), os.path.join(home, ".var/app/dev.zed.Zed/config/zed")]
    if platform == "win32":
        zed_folders = [os.path.join(roaming, "Zed")]
    elif platform == "darwin":
        zed_folders = [os.path.join(home, ".config", "zed")]
    windsurf_folder = os.path.join(home, ".codeium")

    def cli(name: CliName, **options: Any) -> ClientConfig:
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
            **options,
        )

    return {
        "claude-desktop": config(
            "Claude Desktop",
            desktop,
            "none",
            passes="base",
            has_tools=False,
            is_single=platform == "win32",
            afterwards="Restart Claude Desktop: it reads this file only at startup.",
        ),
        "claude-code": config(
            "Claude Code",
            [os.path.join(folder_of("CLAUDE_CONFIG_DIR"), ".claude.json")],
            "braces",
            project_file=".mcp.json",
            programs=("claude",),
            announces="claude-code",
            extra={"type": "stdio"},
            reference="${NAME}",
            folder="roots",
            reserved=frozenset({"workspace"}),
            counts_milliseconds=True,
            afterwards="In a running session, type /mcp or restart. Claude Code asks before it uses a project's file.",
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
            afterwards="Cursor picks up the change; check under MCP in its settings that the server is on.",
        ),
        "vscode": config(
            "VS Code",
            [os.path.join(folder, "mcp.json") for folder in code_folders],
            "braces",
            path=("servers",),
            dialect="jsonc",
            other_files=tuple((os.path.join(folder, FILE), ("mcp", "servers")) for folder in code_folders),
            project_file=".vscode/mcp.json",
            programs=("code", "code-insiders", "codium"),
            extra={"type": "stdio"},
            reference="${env:NAME}",
            folder="roots",
            afterwards="When the server first starts, VS Code asks whether you trust it.",
        ),
        "gemini": cli(
            "gemini",
            passes="no secrets",
            names=r"[A-Za-z0-9-]+",
            name_rule="letters, digits and - (in its rules, a server's name ends at the first _)",
            afterwards="Restart Gemini CLI in a folder that it trusts (/permissions); elsewhere it starts no servers.",
            unattended=TRUSTING,
        ),
        "qwen": cli(
            "qwen",
            announces="qwen-cli-mcp-client",
            afterwards="Restart Qwen Code.",
            approval="Qwen Code starts a server from a project's file only after: qwen mcp approve NAME",
            unattended=TRUSTING,
        ),
        "codex": config(
            "Codex",
            [os.path.join(folder_of("CODEX_HOME", ".codex"), "config.toml")],
            "none",
            path=("mcp_servers",),
            dialect="toml",
            project_file=".codex/config.toml",
            programs=("codex",),
            announces="codex-mcp-client",
            # The default is ten seconds, and the first start may have to download or compile something.
            extra={"startup_timeout_sec": 30},
            passes="base",
            names_variables=True,
            folder="cwd",
            names=r"[A-Za-z0-9_:@/.-]+",
            name_rule="letters, digits and - _ : @ / .",
            afterwards="Restart Codex; it reads a project's file only if you have trusted the project.",
            unattended="For codex exec, add required = true to the entry, or the first turn may lack these tools.",
            keys={
                "http_headers": "headers",
                "enabled_tools": "includeTools",
                "disabled_tools": "excludeTools",
                "env_vars": "inheritEnv",
            },
        ),
        "zed": config(
            "Zed",
            [os.path.join(folder, FILE) for folder in zed_folders],
            "none",
            path=("context_servers",),
            dialect="jsonc",
            project_file=".zed/settings.json",
            programs=("zed", "zeditor"),
            extra={"source": "custom"},
            afterwards="Zed starts the server; check in Zed's agent panel that the server is on.",
        ),
        "windsurf": config(
            "Windsurf",
            [os.path.join(windsurf_folder, "windsurf", "mcp_config.json")],
            "braces",
            dialect="jsonc",
            other_files=((os.path.join(windsurf_folder, "mcp_config.json"), ("mcpServers",)),),
            programs=("windsurf",),
            passes="base",
            reference="${env:NAME}",
            afterwards="Press refresh in Windsurf's list of MCP servers.",
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
            # Continue reads each JSON file in this folder, in the format of Claude Desktop.
            [os.path.join(folder_of("CONTINUE_GLOBAL_DIR", ".continue"), "mcpServers", "coretools-mcp.json")],
            "braces",
            dialect="jsonc",
            project_file=".continue/mcpServers/coretools-mcp.json",
            programs=("cn",),
            passes="base",
            folder="cwd",
            afterwards="Continue picks up the change; it offers the tools in agent mode.",
        ),
    }


def read_document(content: bytes, path: str, dialect: Dialect) -> Tree:
    """Parse a client's file as that client does, for reading only. An empty file has no entries."""
    if dialect == "toml":
        return toml_tree(content, path)
    document = JsonDocument.parse(content, path, MAX_CLIENT_BYTES)
    if dialect != "jsonc" and document.strict != document.plain:
        parse(content, path, max_bytes=MAX_CLIENT_BYTES)  # raises an error that says where the trailing comma is
    if dialect == "json" and document.plain != document.text:
        raise SettingsError([f"{path}: this file has comments, which its program cannot read."])
    return document.tree


def read_servers(path: str, client: ClientConfig | None, diagnostics: Diagnostics) -> Tree:
    """Read the servers in a client's file and convert them; report what cannot be converted.

    For an unknown client (`None`), the locations and keys of all clients are tried.
    """
    try:
        content = read_regular(path, MAX_CLIENT_BYTES)
    except (OSError, ValueError):
        raise SettingsError([f"{path}: this file cannot be read."]) from None
    clients = [client] if client is not None else list(client_configs({}).values())
    places = [place for candidate in clients for file, place in candidate.other_files if client is None or file == path]
    if client is None or not places:
        usual = [place for candidate in clients for place in (candidate.newer_path, candidate.path) if place]
        places = [*usual, *places]
    key_map = {key: own_key for candidate in clients for key, own_key in candidate.keys.items()}
    # An import accepts whatever can be read, even if the client itself would not accept it.
    data = read_document(content, path, "toml" if path.endswith(".toml") else "jsonc")
    for place in places:
        servers = value_at(data, place)
        if isinstance(servers, dict):
            entries = cast("Tree", servers).items()
            for name, entry in entries:
                if not isinstance(entry, dict):
                    diagnostics.warn(path, f"{dotted((name,))} is not an object, so it was skipped.")
            return {
                name: _convert_entry(name, cast("Tree", entry), key_map, path, client, diagnostics)
                for name, entry in entries
                if isinstance(entry, dict)
            }
    raise SettingsError([f"{path}: this file has no servers under {', '.join(dict.fromkeys(map(dotted, places)))}."])


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _milliseconds(seconds: Any) -> Any:
    """Convert seconds to milliseconds. Any other value is returned unchanged and reported later."""
    return int(seconds * 1000) if _is_time(seconds) else seconds


def _convert_entry(
    name: str, raw: Tree, key_map: Mapping[str, str], path: str, client: ClientConfig | None, diagnostics: Diagnostics
) -> Tree:
    """Convert the entry of a server; `key_map` maps the client's own keys to those of coretools-mcp."""
    own_keys = {*keys_of(UpstreamSettings), "disabled"}
    entry: Tree = {}
    raw = {key_map.get(key, key): value for key, value in raw.items()}
    program: Any = raw.get("command")
    if isinstance(program, list) and program:  # the whole command in one list
        raw |= {"command": program[0], "args": program[1:]}
    if raw.get("type") in ("local", "remote"):
        del raw["type"]
    if isinstance(program, dict):  # the format of older versions of Zed
        raw |= {{"path": "command"}.get(key, key): value for key, value in cast("Tree", program).items()}
    # Codex lists names of variables instead of values.
    headers = {name: f"${{{value}}}" for name, value in table_at(raw, "env_http_headers").items()}
    token = raw.get("bearer_token_env_var")
    headers |= {"Authorization": f"Bearer ${{{token}}}"} if isinstance(token, str) else {}
    raw |= {own_key: _milliseconds(raw[key]) for key, own_key in _IN_SECONDS.items() if key in raw}
    if "timeout" in raw and not _is_time(raw["timeout"]):
        del raw["timeout"]
        diagnostics.warn(path, f"{dotted((name, 'timeout'))} is not a positive number and was ignored.")
    if _COUNTS_SECONDS.search(path):
        if "timeout" in raw:
            raw["timeout"] = _milliseconds(raw["timeout"])
    elif "tool_timeout_sec" not in raw and not (client is not None and client.counts_milliseconds):
        limit = raw.get("timeout", LIKELY_SECONDS)
        if limit < LIKELY_SECONDS:
            raw["timeout"] = _milliseconds(limit)
            warning = f"{limit}, which was read as seconds ({raw['timeout']} ms)"
            diagnostics.warn(path, f"{dotted((name, 'timeout'))} is {warning}.")
    for key in ("source", "env_http_headers", "bearer_token_env_var", *_IN_SECONDS):
        raw.pop(key, None)
    for key, value in raw.items():
        if key == "oauth" and isinstance(value, dict):
            login = cast("Tree", value)
            entry[key] = {own_key: login[own_key] for own_key in keys_of(OAuthSettings) if own_key in login}
            for unknown_key in sorted(login.keys() - entry[key].keys()):
                diagnostics.warn(path, f"{dotted((name, key, unknown_key))} has no counterpart here and was ignored.")
        elif key == "trust" and (client is None or not client.knows_trust):
            reason = f"{client.title} has no such key" if client else "only a known client's own file can allow that"
            if value:
                effect = "it would run the server's tools without a question"
                diagnostics.warn(path, f"{dotted((name, key))} was ignored: {effect}, and {reason}.")
        elif key in own_keys:
            entry[key] = value
        else:
            diagnostics.warn(path, f"{dotted((name, key))} has no counterpart here and was ignored.")
    adapt_servers({"mcpServers": {name: entry}})
    variables, notes = client.variables if client is not None else "all", set[str]()
    entry |= {key: _convert_references(entry[key], variables, notes) for key in EXPANDED_IN_SERVERS if key in entry}
    if headers:
        entry["headers"] = {**table_at(entry, "headers"), **headers}
    for clause in sorted(notes):
        diagnostics.warn(path, f"{name} {clause}")
    return entry


def _convert_references(value: Any, variables: Variables, notes: set[str]) -> Any:
    """Convert a client's references to variables in all strings of a value.

    Unless the client also expands `$NAME`, a dollar sign outside of references is doubled. For each reference that
    requires action by the user, a sentence without its subject is added to `notes`.
    """
    if isinstance(value, dict):
        return {key: _convert_references(item, variables, notes) for key, item in cast("Tree", value).items()}
    if isinstance(value, list):
        return [_convert_references(item, variables, notes) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if variables in ("none", "named"):
        text = value.replace("$", "$$")
        return text if variables == "none" else _NAMED.sub(r"${\1}", text)

    def own_reference(match: re.Match[str]) -> str:
        kind, variable = match["kind"], match["name"]
        if kind == "userHome":
            return "${HOME}"
        if kind == "env" and variable is not None:
            return f"${{{variable}}}"
        if kind == "input" and variable is not None:
            # `api-key` becomes `API_KEY`.
            name = re.sub(r"[^A-Z0-9]|^(?=[0-9])", "_", variable.upper())
            notes.add(f"asks for the input {variable}; set the environment variable {name} to its value.")
            return f"${{{name}}}"
        if kind in ("workspaceFolder", "workspaceFolderBasename", "pathSeparator", "file"):
            notes.add(f"uses ${{{kind}}}, which is unknown here; write the path instead.")
        return match[0]

    return _PLACEHOLDER.sub(own_reference, value if variables == "all" else _BARE_DOLLAR.sub("$$", value))
