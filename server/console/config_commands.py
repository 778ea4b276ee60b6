"""`config`: what the settings say (`check`, `show`), and changes to a settings file, each shown before it is made.

`add`, `remove`, `enable`, `disable` and `init` make one change; `import` adds the servers of an MCP client. A change is
spliced in, so all other bytes stay unchanged. A file that cannot be parsed reliably is left unchanged.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import anyio

from server.administration.log import start_log
from server.console import EXIT_FAILED, CommandFailure, UsageError
from server.console.known_clients import ClientConfig, client_configs, read_servers
from server.console.terminal import ask, linked, marked, note, show, show_json
from server.console.user_files import (
    SECTION,
    check_keys,
    confirm_change,
    keep_private,
    names_by_alias,
    own_ports,
    own_settings,
    read_file,
    replace_content,
    settings_with,
    usable_servers,
)
from server.settings import SettingsError, SettingsReport, server_models
from server.settings.document_editor import rewrite, with_entries, with_member, without_member
from server.settings.load import SettingsInputs, UnusableSettingsError, read_settings
from server.settings.rule_names import did_you_mean, rule_problems
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_display import as_text, describe_entry, shown_value
from server.settings.settings_files import Tree, leaves, parent_at, parse, user_file
from server.settings.upstream_entries import ALIAS_RULE, alias_of, is_own
from server.settings.variable_expansion import HINT
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError
from tools.text.secrets import is_secret_name

CHECK_SECONDS = 35.0  # how long to wait for a new server; its own connectTimeout usually expires first
# A variable reference, with the `:` and `@` around it if it is the password in a URL.
_REFERENCE = re.compile(r":\$\{\w+\}@|\$\{\w+\}")
MIN_SECRET_CHARS = 8  # a shorter value could appear elsewhere by chance
SCHEMA = Path(server_models.__file__).with_name("settings.schema.json")
NEW_FILE = """\
{
  // The settings of coretools-mcp; keys that are not set have their default values. All keys: settings.schema.json.
  // To change a setting, remove the slashes before it. coretools-mcp config check says whether the file is valid.

  // How much may happen without a question: plan (nothing changes), default, auto-edit (files and the web).
  // "approvalMode": "auto-edit",

  // Calls that run without a question, calls that always need consent, and calls that never run.
  // "permissions": { "allow": ["Bash(npm run test *)"], "ask": ["Bash(git push *)"], "deny": ["Read(.env)"] },

  // The folders that tools may use, instead of those open in the client.
  // "workspace": { "roots": ["~/projects"] },

  // Which built-in tools to offer: full, or core (files, search and commands).
  // "tools": { "profile": "core" },

  // Upstream servers: coretools-mcp config add NAME -- COMMAND, or NAME URL.
  "$schema": "./settings.schema.json"
}
"""
"""Each commented-out key ends with a comma and precedes the last key, so any of them can be uncommented."""


def check(load: Callable[[], SettingsReport]) -> int:
    """Print all problems and warnings. Return exit code 1 if the server would not start, or if an entry is invalid."""
    problems: list[str] = []
    try:
        report = load()
        warnings = report.warnings
    except SettingsError as error:
        report = error.report if isinstance(error, UnusableSettingsError) else None
        problems, warnings = list(error.problems), error.warnings
    if report is not None:
        problems += [problem for entry in report.entries if not entry.is_switched_off for problem in entry.problems]
        warnings = (*(warning for warning in warnings if warning not in problems), *rule_problems(report))
    for problem in problems:
        show(marked("problem", "red", f": {visible_line(problem)}"))
    for warning in warnings:
        show(marked("warning", "yellow", f": {visible_line(warning)}"))
    if report is None or problems:
        return EXIT_FAILED
    paths = ", ".join(visible_line(path) for path in report.files) or "no file"
    sys.stdout.write(f"The settings are valid. Read: {paths}\n")
    return 0


def show_settings(report: SettingsReport, *, as_json: bool) -> int:
    """Print every value that is set, as written, with its source. Secrets are hidden."""
    rows = [(dotted(path), shown_value(path, value), source) for path, value, source in report.values]
    if as_json:
        values = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        show_json({"values": values, "files": report.files, "warnings": report.warnings})
        return 0
    previous_source = ""
    order = {path: position for position, path in enumerate(report.files)}  # values from other sources come last
    for key, value, source in sorted(rows, key=lambda row: order.get(row[2], len(order))):
        if source != previous_source:
            name = visible_line(source)
            name = linked(source, name) if os.path.isabs(source) else name
            show(*([""] if previous_source else []), marked("# ", "", name))
        previous_source = source
        sys.stdout.write(f"{visible_line(key)} = {as_text(value)}\n")
    sys.stdout.write("\nEverything else has its default.\n" if rows else "Every key has its default.\n")
    return 0


def import_servers(
    file_or_client: str, environ: Mapping[str, str], *, prints: bool, force: bool, is_sure: bool = False
) -> int:
    """Show the servers of a client or a file, ask for consent, and add them to the user's own settings."""
    diagnostics = Diagnostics()
    try:
        path, client, servers = _usable_servers(file_or_client, environ, diagnostics)
    except SettingsError as error:
        raise CommandFailure(visible_line(str(error))) from None
    finally:
        for warning in diagnostics.warnings:
            note(warning)
    if prints:
        sys.stdout.write(json.dumps({SECTION: servers}, indent=2, ensure_ascii=False) + "\n")
        return 0
    sys.stdout.write(f"From {visible_line(path)}\n")
    own_file = user_file(environ)
    if own_file is None:
        message = "there is no home folder, so there is no settings file for the servers; use --print to show them."
        raise CommandFailure(message)

    def with_servers(content: bytes) -> bytes:
        """Return the file with the servers added. Concurrent additions by other programs are kept."""
        names = names_by_alias(parse(content, own_file))
        entries = {
            names.get(alias, alias): entry for alias, entry in new_servers.items() if force or alias not in names
        }
        new_content = with_entries(content, SECTION, entries)
        settings_with(new_content, own_file, environ)  # raises an error if the server would not start
        return new_content

    try:
        present = names_by_alias(own_settings(environ))
        for alias, entry in servers.items():
            if alias in present and not force:
                sys.stdout.write(f"  left unchanged (--force replaces it): {visible_line(alias)}\n")
                continue
            action = "would replace" if alias in present else "would add"
            # In a client's own file, the secrets are the user's, so they are hidden. Any other file is shown in full.
            summary = describe_entry(entry, hides=client is not None)
            sys.stdout.write(f"  {action}: {visible_line(alias)}, {summary}\n")
        sys.stdout.flush()
        new_servers = {alias: entry for alias, entry in servers.items() if force or alias not in present}
        if not new_servers:
            sys.stdout.write("There is nothing to add.\n")
            return 0
        if not is_sure:
            ask(f"Add this to {visible_line(own_file)}?", "nothing was added")
        values = [entry.get(key) for entry in new_servers.values() for key in ("env", "headers")]
        if any(values) or shown_value((SECTION,), new_servers) != new_servers:
            keep_private(own_file)
        rewrite(own_file, with_servers)
    except SettingsError as error:
        raise CommandFailure(f"nothing was added: {visible_line(str(error))}") from None
    except (ToolError, OSError):
        raise CommandFailure(f"{visible_line(own_file)} cannot be written, so nothing was added.") from None
    sys.stdout.write(f"Added to {visible_line(own_file)}: {', '.join(new_servers)}\n")
    return 0


def _usable_servers(
    file_or_client: str, environ: Mapping[str, str], diagnostics: Diagnostics
) -> tuple[str, ClientConfig | None, Tree]:
    """Return the file, its client if known, and the servers in it that coretools-mcp can use, keyed by alias."""
    clients = client_configs(environ)
    client = clients.get(file_or_client)
    files = (*client.files, *(file for file, _ in client.other_files)) if client is not None else (file_or_client,)
    path = next((path for path in files if os.path.isfile(path)), None)
    if path is None and client is None:
        problem = f"'{file_or_client}' is neither a file nor a known client"
        raise SettingsError([f"{problem}. Known clients: {', '.join(clients)}."])
    if path is None:
        hint = f"Searched: {', '.join(files)}. To import from a project, name its file."
        raise SettingsError([f"you have no {clients[file_or_client].title} configuration. {hint}"])
    return path, client, usable_servers(read_servers(path, client, diagnostics), path, environ, diagnostics)


@dataclass(frozen=True, slots=True)
class EditOptions:
    file: str | None = None  # another settings file instead of the user's own
    is_sure: bool = False
    is_dry: bool = False  # only show the difference


def entry_for(
    words: Sequence[str], transport: str | None, variables: Sequence[str], headers: Sequence[str], folder: str | None
) -> Tree:
    """Build the entry of a server from a command line. Messages do not quote values that may be secret.

    `words` are the command with its arguments, or the address. If `transport` is `None`, the first word decides. A
    variable is `KEY=VALUE`, or `KEY` to take the value from the environment at each start. A header is `Name: value`.
    """
    if not words:
        raise UsageError("give a command or an address: config add NAME -- COMMAND, or NAME URL.")
    is_address = re.match(r"https?://", words[0], re.IGNORECASE) is not None
    if not is_address and transport is None and re.match(r"[a-z]{2,9}://", words[0], re.IGNORECASE):
        raise UsageError("the address of a server must begin with http:// or https://.")
    is_remote = is_address if transport is None else transport != "stdio"
    if is_remote != is_address:
        expected = "an address that begins with http:// or https://" if is_remote else "a command, not an address"
        raise UsageError(f"--transport {transport} takes {expected}.")
    for option, option_value in (("--env", variables), ("--cwd", folder)) if is_remote else (("--header", headers),):
        if option_value:
            kind = "reached at an address" if is_remote else "started by a command"
            raise UsageError(f"{option} has no effect on a server that is {kind}.")
    if is_remote:
        if len(words) > 1:
            raise UsageError("an address takes no arguments; put a command after --.")
        entry: Tree = {"type": transport} if transport is not None else {}
        entry["url"] = words[0]
        for header in headers:
            name, colon, value = header.partition(":")
            if not (colon and name.strip()):
                raise UsageError("--header needs a colon between name and value: 'Name: value'.")
            entry.setdefault("headers", {})[name.strip()] = value.strip()
        return entry
    entry = {"command": words[0], **({"args": list(words[1:])} if words[1:] else {})}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not name:
            raise UsageError("--env needs a name: KEY=VALUE, or only KEY to use the value from the environment.")
        entry.setdefault("env", {})[name] = value if equals else f"${{{name}}}"
    if folder is not None and "$" not in folder:
        if not os.path.isdir(folder):
            raise UsageError(f"--cwd '{folder}' is not an existing folder. Name one that exists.")
        folder = os.path.abspath(folder)
    return entry if folder is None else {**entry, "cwd": folder}


def add(
    name: str, entry: Tree, options: EditOptions, environ: Mapping[str, str], *, replaces: bool, connects: bool
) -> int:
    """Add a server, connect to it once, and print how many tools it has. Return 1 if the server cannot be used."""
    if not name or alias_of(name) != name:
        suggestion = f" {alias_of(name)} would work." if name else ""
        raise UsageError(f"'{name}' cannot be the name of a server: use {ALIAS_RULE}.{suggestion}")
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(
            "an argument contains bytes that are not UTF-8, which a settings file cannot contain."
        ) from None
    # A coretools-mcp server with its own settings is a different server, so it may be an upstream.
    is_chain = any(str(arg).startswith(("--config", "--settings")) for arg in cast("list[Any]", entry.get("args", [])))
    if is_own(entry, own_ports(environ)) and not is_chain:
        message = "this would start or reach coretools-mcp itself, which cannot be its own upstream; nothing was added."
        raise CommandFailure(message)
    path = _path(options, environ)
    display_path = visible_line(path)
    secrets = _refer_to_variables(entry, environ)
    if secrets and not options.is_sure:
        message = f"{display_path} would store in plain text what looks like a secret: {', '.join(secrets)}"
        by_option = " or by --env NAME" if "command" in entry else ""
        hint = f"Set a variable and refer to it as '${{NAME}}'{by_option}, or use --yes to write the value anyway"
        raise CommandFailure(f"{message}; nothing was added. {hint}.")
    old_content = read_file(path)
    try:
        present = names_by_alias(parse(old_content or b"", path))
        if name in present and not replaces:
            message = f"{display_path} already has a server {name}, so nothing was added. --force replaces it."
            raise CommandFailure(message)
        place = (SECTION, present.get(name, name))
        check_keys(old_content, place, path)
        new_content = with_member(old_content or b"", place, entry, path)
        report = settings_with(new_content, path, environ)
    except SettingsError as error:
        raise CommandFailure(f"nothing was added: {visible_line(str(error))}") from None
    if problems := [problem for entry in report.entries if entry.alias == name for problem in entry.problems]:
        raise CommandFailure(f"nothing was added: {visible_line(' '.join(problems))}")
    if new_content == old_content:
        sys.stdout.write(f"{display_path} already has this entry, so nothing was changed.\n")
    else:
        sys.stdout.write(f"{'Replaces' if name in present else 'Adds'} {name}: {describe_entry(entry)}\n")
        may_be_secret = bool(secrets) or "env" in entry or "headers" in entry
        if not _write(path, old_content, new_content, options, holds_secrets=may_be_secret):
            return 0
        sys.stdout.write(f"Added to {display_path}: {name}\n")
        if secrets:
            message = f"{display_path} stores in plain text what looks like a secret: {', '.join(secrets)}"
            note(f"{message}; refer to a variable instead ('${{NAME}}')")
    if (reason := _why_left_out(report, name)) is not None:
        note(f"{name} was added but is not used: {reason}")
        return EXIT_FAILED
    if not connects:
        return 0
    return _connect(name, path, options, environ)


def change_server(
    action: Literal["remove", "enable", "disable"], name: str, options: EditOptions, environ: Mapping[str, str]
) -> int:
    path = _path(options, environ)
    display_path, old_content = visible_line(path), read_file(path)
    report = None
    try:
        present = names_by_alias(parse(old_content or b"", path))
        key = present.get(alias_of(name))
        if old_content is None or key is None:
            hint = did_you_mean(name, [*present, *present.values()])
            problem = f"there is no server {visible_line(name)} in {display_path}"
            raise CommandFailure(f"{problem}, so nothing was changed.{hint}")
        place, new_content = (SECTION, key), old_content
        if action == "remove":
            check_keys(old_content, place, path)
            new_content = without_member(old_content, place, path)
        else:
            for member in ("enabled", "disabled"):  # other clients write `disabled`
                check_keys(old_content, (*place, member), path)
            new_content = without_member(old_content, (*place, "disabled"), path)
            if action == "disable":
                new_content = with_member(new_content, (*place, "enabled"), value=False, source=path)
            else:
                new_content = without_member(new_content, (*place, "enabled"), path)
                report = settings_with(new_content, path, environ)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed: {visible_line(str(error))}") from None
    outcome = {"remove": "Removed from", "enable": "Enabled in", "disable": "Disabled in"}[action]
    if new_content == old_content:
        sys.stdout.write(f"{visible_line(key)} is already {action}d in {display_path}, so nothing was changed.\n")
    elif not _write(path, old_content, new_content, options):
        return 0
    else:
        sys.stdout.write(f"{outcome} {display_path}: {visible_line(key)}\n")
    if report is not None and (reason := _why_left_out(report, alias_of(name))) is not None:
        note(f"{key} is still not used: {reason}")
    return 0


def init(options: EditOptions, environ: Mapping[str, str]) -> int:
    """Write an initial settings file and the schema. A file that has content only gets a reference to the schema."""
    path = _path(options, environ)
    schema_path = os.path.join(os.path.dirname(path), SCHEMA.name)
    display_path, old_content, schema = visible_line(path), read_file(path), SCHEMA.read_bytes()
    old_schema = read_file(schema_path)
    try:
        tree = parse(old_content or b"", path)
        own_schema = parse(schema, schema_path)
        if old_schema is not None and parse(old_schema, schema_path).get("title") != own_schema["title"]:
            message = "is not a coretools-mcp schema, so it was left unchanged, and nothing was written"
            raise CommandFailure(f"{visible_line(schema_path)} {message}. Choose another folder with --config.")
        new_content = old_content
        if not (old_content and old_content.strip()):
            new_content = NEW_FILE.encode()
        elif "$schema" not in tree:
            new_content = with_member(old_content, ("$schema",), f"./{SCHEMA.name}", path)
    except SettingsError as error:
        raise CommandFailure(f"nothing was written: {visible_line(str(error))}") from None
    if new_content is None or new_content == old_content:
        sys.stdout.write(f"{display_path} already exists and names a schema, so it was left unchanged.\n")
    elif old_content is None and not options.is_dry:
        replace_content(path, old_content, new_content)
        sys.stdout.write(f"Written: {display_path}\n")
    elif _write(path, old_content, new_content, options):
        sys.stdout.write(f"{display_path} now refers to the schema.\n")
    if not options.is_dry and old_schema != schema:
        replace_content(schema_path, old_schema, schema)
        sys.stdout.write(f"{'Written' if old_schema is None else 'Updated'}: {visible_line(schema_path)}\n")
    return 0


def _path(options: EditOptions, environ: Mapping[str, str]) -> str:
    path = os.path.abspath(options.file) if options.file is not None else user_file(environ)
    if path is None:
        raise CommandFailure("there is no home folder, so you have no settings file. Name one with --config FILE.")
    return path


def _refer_to_variables(entry: Tree, environ: Mapping[str, str]) -> list[str]:
    """In `entry`, replace secrets from the environment with references. Return the keys of the remaining secrets."""
    names = [name for name, value in environ.items() if len(value) >= MIN_SECRET_CHARS and is_secret_name(name)]
    names_by_value = {environ[name]: name for name in names}

    def with_references(text: str) -> str:
        for value in sorted(names_by_value, key=len, reverse=True):
            text = text.replace(value, f"${{{names_by_value[value]}}}")
        return text

    secrets: list[str] = []
    for place, value in list(leaves(entry)):
        if shown_value(place[-1:], value) == value:
            continue
        name, texts = str(place[-1]), cast("list[str]", value) if isinstance(value, list) else [str(value)]
        is_same = place[0] == "env" and environ.get(name) == value
        new_texts = [f"${{{name}}}" if is_same else with_references(text) for text in texts]
        texts_without_references = [_REFERENCE.sub("", text) for text in new_texts]
        # A list stays a list, because an item may be a secret only because of the option before it.
        forms = [form if isinstance(value, list) else form[0] for form in (new_texts, texts_without_references)]
        cast("Tree", parent_at(entry, place))[name] = forms[0]
        if all(shown_value(place[-1:], form) != form for form in forms):
            secrets.append(visible_line(dotted(place)))
        if new_texts != texts:
            message = "refers to the environment variable that has this value"
            note(f"{dotted(place)} {message}; the value itself is not written to the file")
    return secrets


def _write(
    path: str, old_content: bytes | None, new_content: bytes, options: EditOptions, *, holds_secrets: bool = False
) -> bool:
    """Show a change, and make it if the user agrees. Return whether the change was made."""
    before, after = None if old_content is None else parse(old_content, path), parse(new_content, path)
    if not confirm_change(path, before, after, is_sure=options.is_sure, is_dry=options.is_dry):
        return False
    if holds_secrets:
        keep_private(path)
    replace_content(path, old_content, new_content)
    return True


def _why_left_out(report: SettingsReport, alias: str) -> str | None:
    entry = next((candidate for candidate in report.entries if candidate.alias == alias), None)
    if entry is None or entry.left_out is None:
        return None
    return f"{entry.left_out} {HINT}" if entry.lacks_variable else entry.left_out


def _connect(name: str, path: str, options: EditOptions, environ: Mapping[str, str]) -> int:
    """Connect to a server, and print its number of tools or why it failed; with a lock file, offer to approve them."""
    # These are imported only here, because removing a server needs neither the SDK nor the tools.
    from server.app import App  # noqa: PLC0415
    from server.console.lock_command import compare_servers  # noqa: PLC0415
    from server.console.upstream_messages import connect, published_tools, quiet_log, show_failure  # noqa: PLC0415
    from server.run_server import run_in_app  # noqa: PLC0415
    from server.upstreams.catalog.lock_file import COMMAND  # noqa: PLC0415

    only: Tree = {"mcp": {"allowed": [name]}, "tools": {"discoveryCommand": []}}
    config = [path] if path != user_file(environ) else []
    report = read_settings(SettingsInputs(config, only, environ, cli=None, working_folder=None))
    start_log(report.settings.log.level)
    quiet_log(report.settings.log.level)
    sys.stdout.flush()

    option = f" --config {shlex.quote(options.file)}" if options.file is not None else ""

    async def try_server(app: App) -> int:
        with anyio.move_on_after(CHECK_SECONDS):
            await connect(app, app.pool.upstreams)
        (upstream,) = app.pool.upstreams
        if upstream.live_session is None:
            show_failure(f"{name} was added but does not work", upstream)
            remove_command = f"coretools-mcp config remove {name}{visible_line(option)}"
            show(f"It stays in the settings. To remove it: {remove_command}", stream=sys.stderr)
            return EXIT_FAILED
        sys.stdout.write(f"Connected to {name}: {published_tools(app, name)}\n")
        sys.stdout.flush()
        lock = app.pool.catalog.lock
        if lock is not None and report.lock is not None and not lock.problem:
            prefix = ""
            try:
                if sys.stdin.isatty() and not options.is_sure:
                    await compare_servers(app, report.lock, lock, [upstream])
                    return 0
            except CommandFailure as error:
                prefix = f"{error} "
            note(f"{prefix}Its tools are blocked until they are approved: {COMMAND} --approve {name}{option}")
        return 0

    return run_in_app(report, try_server)
