"""`install` and `uninstall`: add coretools-mcp to an MCP client's configuration, and remove it again.

The clients' own commands are not used: some write the values of variables into the file, some drop comments, and some
replace what they cannot read. Here, one entry is spliced in, and all other bytes stay unchanged.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import anyio

from server.console import EXIT_FAILED, CommandFailure, UsageError
from server.console.client_config_file import (
    ConfigChange,
    ConfigFile,
    backup_file,
    install_change,
    uninstall_change,
    write_install,
    write_uninstall,
)
from server.console.known_clients import BASE, ClientConfig, client_configs, read_document, read_servers
from server.console.terminal import note, says_yes
from server.console.upstream_messages import tool_count_text
from server.console.user_files import (
    confirm_change,
    own_names,
    own_ports,
    own_servers,
    own_settings,
    read_file,
    usable_servers,
)
from server.settings import SettingsError
from server.settings.document_editor import toml_table
from server.settings.rule_names import did_you_mean
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_display import command_text, describe_entry, shown_value
from server.settings.settings_files import Tree, home_folder, leaves, user_file, value_at
from server.settings.upstream_entries import PROGRAM, alias_of, is_own
from server.settings.variable_expansion import variables_in
from server.transports.configured_secrets import VARIABLE as TOKEN_VARIABLE
from server.upstreams.connections.connection import UpstreamState
from server.upstreams.resource_and_prompt_router import STATUS_URI
from server.upstreams.wire.upstream_transports import INHERITED
from tools.contract.display import visible_line
from tools.text.file_names import sendable_name, shown_whole_path
from tools.web.search_settings import SEARCH_VARIABLES

NAME = "core"  # the default name of the entry, without `_`, which would end the name in Gemini CLI's rules
LAUNCHER = Path(__file__).resolve().parents[2] / "coretools_mcp.py"  # also valid in an installed package
START_SECONDS = 30.0  # how long the installed server may take to start and list its tools
Scope = Literal["user", "project"]


@dataclass(frozen=True, slots=True)
class InstallOptions:
    client: str
    name: str | None = None  # the entry's name; `None` if not given
    scope: Scope = "user"
    workspaces: tuple[str, ...] = ()
    profile: Literal["none", "core", "full"] | None = None  # which built-in tools to offer
    approval_mode: str | None = None
    imports: bool = False
    is_sure: bool = False
    is_dry: bool = False  # only show the difference
    prints: bool = False  # only show the entry


def install(options: InstallOptions, environ: Mapping[str, str]) -> int:
    """Add the entry to a client's file, start it as that client would, and print the remaining steps."""
    target = _target(options, environ)
    client, name, path = target.client, target.name, visible_line(target.path)
    if not re.fullmatch(client.names, name) or name.casefold() in client.reserved:
        raise UsageError(f"'{name}' is not a valid server name in {client.title}. Use --name: {client.name_rule}.")
    moved_servers = _servers_to_move(target, environ) if options.imports and not options.prints else {}
    variables = needed_variables(environ, moved_servers)
    options = _with_choices(target, options)
    entry = entry_for(client, options, lasting_command(environ), variables)
    if options.prints:
        document: Tree = {name: entry}
        for key in reversed(client.path):
            document = {key: document}
        as_json = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        sys.stdout.write(toml_table(target.place, entry) if client.dialect == "toml" else as_json)
        return 0

    def change_of(content: bytes | None) -> ConfigChange:
        return install_change(target, content, entry, environ, moved_servers)

    change = change_of(read_file(target.path))
    if change.after == change.before:
        sys.stdout.write(f"{client.title} already has this entry, so nothing was changed: {path}\n")
    else:
        for server_name, server in moved_servers.items():
            words = shown_value(("args",), [server.get("command") or "", *(server.get("args") or [])])
            summary = f"{visible_line(alias_of(server_name))}, {describe_entry({**server, 'args': words[1:]})}"
            sys.stdout.write(f"  would move to your settings: {summary}\n")
        confirmed_change = _confirmed_change(target, change, change_of, options)
        if confirmed_change is None:
            return 0
        if options.scope == "project":  # other people read a project's file, so its folder is not private
            with suppress(OSError):
                os.makedirs(os.path.dirname(target.path), exist_ok=True)
        write_install(confirmed_change, moved_servers, environ)
        sys.stdout.write(f"Added to {path}: {name}\n")
        if confirmed_change.record.backup:
            sys.stdout.write(f"The original file: {visible_line(backup_file(confirmed_change.record, environ))}\n")
    missing_variables = [variable for variable in variables if not client.reaches_a_server(variable)]
    if missing_variables and not client.reference and not client.names_variables:
        message = f"{client.title} does not pass {', '.join(missing_variables)} to servers"
        hint = f"Put the values that you need into the settings: {user_file(environ)}"
        note(f"{message}, and its file cannot refer to a variable. {hint}")
    if options.scope == "project":
        message = "This file belongs to the project, but the command in it is specific to this machine"
        sys.stdout.write(f"{message}; review it before you share it.\n")
    code = _try_entry(client, change.entry, environ)
    approval = client.approval.replace("NAME", name) if options.scope == "project" else ""
    sys.stdout.writelines(f"{line}\n" for line in (client.afterwards, approval, client.unattended) if line)
    return code


def _with_choices(target: ConfigFile, options: InstallOptions) -> InstallOptions:
    """Fill in options from the existing entry. If there is none, ask once which tools the user wants."""
    client, present = target.client, None
    with suppress(SettingsError, CommandFailure):  # problems with the file are reported when it is changed
        present = target.servers(read_file(target.path)).get(target.name)
    words: list[str] = []
    for value in cast("Tree", present).values() if isinstance(present, dict) else ():
        texts = map(str, cast("list[Any]", value)) if isinstance(value, list) else ()
        words += (part for word in texts for part in (word.split("=", 1) if word.startswith("--") else [word]))
    options_by_name: dict[str, Any] = dict(pairwise(words))
    profile = options.profile or ("none" if "--no-builtin-tools" in words else options_by_name.get("--profile"))
    is_quiet = options.is_sure or options.is_dry or options.prints or not sys.stdin.isatty()
    if profile is None and present is None and client.has_tools and not is_quiet:
        note(f"{client.title} has its own tools for files and commands, so it seldom needs those of coretools-mcp")
        is_only_proxy = anyio.run(says_yes, "Offer only the tools of upstream servers (--profile none)?")
        profile = "none" if is_only_proxy else None
    mode = options.approval_mode or options_by_name.get("--approval-mode")
    return replace(options, profile=profile, approval_mode=mode)


def uninstall(options: InstallOptions, environ: Mapping[str, str]) -> int:
    """Remove the entry from a client's file, and restore the original file if possible."""
    target = _target(options, environ)

    def change_of(content: bytes | None) -> ConfigChange:
        return uninstall_change(target, content, environ)

    confirmed_change = _confirmed_change(target, change_of(read_file(target.path)), change_of, options)
    if confirmed_change is None:
        return 0
    write_uninstall(confirmed_change, environ)
    is_removed = confirmed_change.after is None
    outcome = "Removed, because it was created for this entry:" if is_removed else f"Removed {target.name} from"
    sys.stdout.write(f"{outcome} {visible_line(target.path)}\n")
    if moved_names := ", ".join(confirmed_change.record.moved):
        sys.stdout.write(f"Moved back to {target.client.title}: {visible_line(moved_names)}\n")
    return 0


def _confirmed_change(
    target: ConfigFile, change: ConfigChange, change_of: Callable[[bytes | None], ConfigChange], options: InstallOptions
) -> ConfigChange | None:
    """Show the change and ask for consent. Return the change to write, or `None` for a dry run.

    Some clients write their files constantly. If the file has changed in the meantime, but its servers are the same,
    the change is computed again.
    """
    path, dialect, is_sure, is_dry = target.path, target.client.dialect, options.is_sure, options.is_dry
    before, after = (
        None if content is None else read_document(content, path, dialect) for content in (change.before, change.after)
    )
    if not confirm_change(path, before, after, is_sure=is_sure, is_dry=is_dry):
        return None
    current_content = read_file(path)
    if current_content == change.before:
        return change
    try:
        has_same_servers = target.servers(current_content) == target.servers(change.before)
    except SettingsError:
        has_same_servers = False
    if not has_same_servers:
        message = f"{visible_line(target.path)} has changed in the meantime, so nothing was written"
        raise CommandFailure(f"{message}. Run this again to see the new change.")
    return change_of(current_content)


def list_clients(environ: Mapping[str, str]) -> int:
    """List the known clients, and say which are on this machine and which have coretools-mcp."""
    clients, ports, home = client_configs(environ), own_ports(environ), home_folder(environ)
    width = max(map(len, clients))
    for key, client in clients.items():
        states: list[str] = []
        project = [os.path.join(os.getcwd(), client.project_file)] if client.project_file else []
        for path in dict.fromkeys([*client.files, *project]):
            display_path = visible_line(path)
            try:
                servers = ConfigFile(key, _client_for_file(path, client), path, NAME).servers(read_file(path))
            except (SettingsError, CommandFailure) as error:
                states.append(visible_line(str(error)))
                continue
            states += [f"installed as {visible_line(name)} in {display_path}" for name in own_names(servers, ports)]
        # The folder of a client's file shows that the client is installed, unless it is the home folder.
        folders = [os.path.dirname(file) for file in client.files]
        is_here = any(os.path.isdir(folder) and folder != home for folder in folders)
        is_here = is_here or any(map(os.path.exists, client.files))
        is_here = is_here or any(shutil.which(program, path=environ.get("PATH", "")) for program in client.programs)
        state = "; ".join(states) or (
            f"found; to add this server: coretools-mcp install {key}" if is_here else "not found"
        )
        sys.stdout.write(f"{key:<{width}}  {state}\n")
    return 0


def _target(options: InstallOptions, environ: Mapping[str, str]) -> ConfigFile:
    clients = client_configs(environ)
    client = clients.get(options.client)
    if client is None:
        hint = did_you_mean(options.client, clients)
        raise UsageError(f"'{options.client}' is not a known client.{hint} Known clients: {', '.join(clients)}.")
    name = options.name if options.name is not None else NAME
    for folder in (*options.workspaces, *[os.getcwd()] * (options.scope == "project")):
        if sendable_name(folder) != folder:
            message = "the name of this folder cannot be written to a client's file"
            raise UsageError(f"{message}: {shown_whole_path(folder)}")
    if options.scope == "project":
        if not client.project_file:
            raise UsageError(f"{client.title} has no project file. Omit --scope project.")
        if options.imports:
            raise UsageError("--import moves servers only from your own file. Omit --scope project.")
        path = os.path.join(os.getcwd(), *client.project_file.split("/"))
    else:
        existing = [file for file in client.files if os.path.lexists(file)]
        if not client.files:
            raise CommandFailure(f"there is no home folder, so there is no {client.title} configuration.")
        if client.is_single and len(existing or client.files) > 1:
            paths = visible_line(" and ".join(existing or client.files))
            message = f"{client.title} seems to be installed more than once: {paths}"
            raise CommandFailure(f"{message}. Remove the one that you do not use.")
        with_folder = [file for file in client.files if os.path.isdir(os.path.dirname(file))]
        path = (existing or with_folder or list(client.files))[0]
    return ConfigFile(options.client, _client_for_file(path, client), path, name, is_named=options.name is not None)


def _client_for_file(path: str, client: ClientConfig) -> ClientConfig:
    """Return the client with the `path` of the servers in this file: newer versions may keep them under another key."""
    with suppress(SettingsError, CommandFailure):
        document = read_document(read_file(path) or b"", path, client.dialect)
        if client.newer_path and isinstance(value_at(document, client.newer_path), dict):
            return replace(client, path=client.newer_path)
    return client


def _servers_to_move(target: ConfigFile, environ: Mapping[str, str]) -> Tree:
    """Return the client's other servers, converted, keyed by their own names. Report those that cannot be moved."""
    diagnostics, ports = Diagnostics(), own_ports(environ)
    if user_file(environ) is None:
        raise CommandFailure("there is no home folder, so there is no settings file to move servers to.")
    movable: Tree = {}
    try:
        if not target.servers(read_file(target.path)):
            return {}
        servers = read_servers(target.path, target.client, diagnostics)
        servers = {name: entry for name, entry in servers.items() if name != target.name and not is_own(entry, ports)}
        usable = usable_servers(servers, target.path, environ, diagnostics) if servers else {}
        present = own_servers(environ)
        for name, entry in servers.items():
            alias = alias_of(name)
            if alias in usable and present.get(alias, entry) == entry:
                movable[name] = entry
            elif alias in usable:
                message = f"{dotted((name,))} is not moved: your settings already have another server named {alias}."
                diagnostics.warn(target.path, message)
    except SettingsError as error:
        raise CommandFailure(f"nothing was moved: {visible_line(str(error))}") from None
    finally:
        for warning in diagnostics.warnings:
            note(warning)
    return movable


def lasting_command(
    environ: Mapping[str, str], prefix: str = sys.prefix, interpreter: str = sys.executable
) -> list[str]:
    """Return a command line with an absolute path that still starts this program after upgrades.

    `prefix` is the Python environment that contains this program, and `interpreter` is the environment's Python.
    """
    is_windows = sys.platform == "win32"
    script = os.path.join(os.path.dirname(interpreter), f"{PROGRAM}.exe" if is_windows else PROGRAM)
    caches = {environ.get(name) for name in ("UV_CACHE_DIR", "XDG_CACHE_HOME")} - {None, ""}
    parent = os.path.dirname(os.path.realpath(prefix))
    is_cached = any(f"{parent}{os.sep}".startswith(os.path.join(os.path.realpath(str(cache)), "")) for cache in caches)
    if is_cached or {".cache", "caches", "cache"}.intersection(parent.casefold().split(os.sep)):
        uv = environ.get("UV", "")
        if os.path.isabs(uv) and os.path.isfile(uv):
            return [uv, "tool", "run", PROGRAM]
        message = "this copy of coretools-mcp is in a cache, which may be emptied at any time"
        raise CommandFailure(f"{message}. Install it first: uv tool install {PROGRAM}, or pipx install {PROGRAM}.")
    folders = [environ.get(name, "") for name in ("UV_TOOL_BIN_DIR", "PIPX_BIN_DIR", "XDG_BIN_HOME")]
    for folder in (*folders, os.path.join(home_folder(environ), ".local", "bin")):
        link = os.path.join(folder, os.path.basename(script))
        # The link survives upgrades; its target may not.
        if os.path.isabs(link) and os.path.isfile(script) and os.path.realpath(link) == os.path.realpath(script):
            return [link]
    return [script] if os.path.isfile(script) else [interpreter, "-P", str(LAUNCHER)]


def needed_variables(environ: Mapping[str, str], moved_servers: Tree) -> list[str]:
    """Return the environment variables that are set and that this program or the upstream configuration uses."""
    try:
        settings = own_settings(environ)
    except SettingsError:
        settings = {}
    names = [name for variables in SEARCH_VARIABLES.values() for name in variables.values()]
    names += [TOKEN_VARIABLE, "XDG_CONFIG_HOME", *(name for name in INHERITED if name not in BASE)]
    for path, value in leaves({**settings, "": moved_servers}):
        texts = cast("list[Any]", value) if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str) and path[-1] == "inheritEnv":
                names.append(text)
            elif isinstance(text, str):
                names += variables_in(text)
    return [name for name in dict.fromkeys(names) if environ.get(name)]


def entry_for(client: ClientConfig, options: InstallOptions, command: Sequence[str], variables: Iterable[str]) -> Tree:
    """Return the entry in the client's format: command, folders, and variables that the client does not pass itself."""
    folders = list(options.workspaces)
    if not folders and client.folder == "none":
        if options.scope == "user":
            message = f"{client.title} does not say which folder is open"
            raise UsageError(f"{message}. Name the folders that the tools may use: --workspace DIR (repeatable).")
        folders = [os.getcwd()]
    for folder in folders:
        if not os.path.isdir(folder):
            raise UsageError(f"--workspace '{folder}' is not an existing folder. Name one that exists.")
    args = [*command[1:], *(word for folder in folders for word in ("--workspace", os.path.abspath(folder)))]
    if options.profile is not None:
        args += ["--no-builtin-tools"] if options.profile == "none" else ["--profile", options.profile]
    args += ["--approval-mode", options.approval_mode] if options.approval_mode is not None else []
    first = {key: value for key, value in client.extra.items() if isinstance(value, str)}
    program = {"command": [command[0], *args]} if client.is_one_list else {"command": command[0], "args": args}
    entry: Tree = {**first, **program}
    missing_variables = [name for name in variables if not client.reaches_a_server(name)]
    if missing_variables and client.names_variables:
        entry["env_vars"] = missing_variables
    elif missing_variables and client.reference:
        entry[client.env_key] = {name: client.reference.replace("NAME", name) for name in missing_variables}
    return {**entry, **client.extra}


def _try_entry(client: ClientConfig, entry: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Start an entry as its client would, list its tools, and print how many there are."""
    from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client  # noqa: PLC0415 - not needed for --print
    from mcp_types import Implementation, TextResourceContents  # noqa: PLC0415

    references: Any = entry.get(client.env_key) or {}
    variable_names: Any = entry.get("env_vars") or []
    environment = {name: value for name, value in environ.items() if client.reaches_a_server(name)}
    for name, value in cast("Tree", references).items():
        reference = client.reference.replace("NAME", name) if client.reference else None
        environment[name] = environ.get(name, "") if value == reference else str(value)
    environment |= {str(name): environ[name] for name in cast("list[Any]", variable_names) if name in environ}
    program: Any = entry["command"] if client.is_one_list else [entry["command"], *(entry.get("args") or [])]
    command, *words = command_line = [str(word) for word in cast("list[Any]", program)]
    folder = home_folder(environ) if client.folder == "none" else os.getcwd()
    server = StdioServerParameters(command=command, args=words, env=environment, cwd=folder)
    info = Implementation(name=client.announces, version="1")
    logging.disable()  # the SDK logs a traceback for each line that is not a message

    async def count() -> tuple[int, list[str]]:
        """Return the number of tools, and the upstreams that are still connecting."""
        with anyio.fail_after(START_SECONDS), open(os.devnull, "w", encoding="utf-8") as null_device:  # noqa: ASYNC230 - the null device never blocks
            async with (
                stdio_client(server, null_device) as streams,
                ClientSession(*streams, client_info=info) as session,
            ):
                await session.initialize()
                tools = len((await session.list_tools()).tools)
                connecting: list[str] = []
                with suppress(MCPError):  # the status resource is missing if built-in tools are off
                    (status,) = (await session.read_resource(STATUS_URI)).contents
                    upstreams: list[dict[str, Any]] = json.loads(cast("TextResourceContents", status).text)["upstreams"]
                    connecting_states = (UpstreamState.WAITING, UpstreamState.CONNECTING)
                    connecting = [upstream["alias"] for upstream in upstreams if upstream["state"] in connecting_states]
                return tools, connecting

    sys.stdout.flush()
    try:
        number, connecting = anyio.run(count)
    except Exception as error:  # noqa: BLE001 - any error means that the entry does not work
        reason = "it did not start, or exited too early"
        if isinstance(error, TimeoutError):
            reason = f"it listed no tools within {START_SECONDS:g} s"
        message = f"the server does not work when it is started as {client.title} would start it: {reason}"
        note(f"{message}. To see its output, run it by hand: {command_text(command_line)}")
        return EXIT_FAILED
    sys.stdout.write(f"Started as {client.title} would start it, the server has {tool_count_text(number)}.\n")
    if not number and not connecting:
        ways = "coretools-mcp config add NAME -- COMMAND, or coretools-mcp config import CLIENT"
        sys.stdout.write(f"No upstream server has tools yet. To add one: {ways}\n")
    if connecting:
        message = f"The tools of {visible_line(', '.join(connecting))} will appear later: the connection is not up yet."
        hint = "If a client lists tools only once (as in a headless run), raise proxy.firstListWait in the settings."
        sys.stdout.write(f"{message} {hint}\n")
    return 0
