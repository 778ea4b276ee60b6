"""`config`: what the settings say (`check`, `show`), and changes to a settings file, each shown before it is made.

`add`, `remove`, `enable`, `disable` and `init` make one change; `import` adds another client's servers. A change is
spliced in, so all other bytes stay unchanged. A file that cannot be parsed reliably is left alone.
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
from server.console.terminal import ERASE, ask, can_move, linked, marked, note, show, show_json
from server.console.user_files import (
    SECTION,
    check_keys,
    confirm_change,
    keep_private,
    names_by_alias,
    own_ports,
    own_settings,
    problems_of,
    read_file,
    replace_content,
    settings_with,
    usable_servers,
)
from server.settings import SettingsError, SettingsReport, models
from server.settings.document_editor import rewrite, with_entries, with_member, without_member
from server.settings.load import SettingsInputs, UnusableSettingsError, read_settings
from server.settings.rule_names import did_you_mean, rule_problems
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_display import as_text, describe_entry, shown_value
from server.settings.settings_files import Tree, leaves, parent_at, parse, user_file
from server.settings.upstream_entries import MAX_ALIAS, alias_of, is_own
from server.settings.variable_expansion import HINT
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError
from tools.text.secrets import is_secret_name

CHECK_SECONDS = 35.0  # how long to wait for a new server; its own connectTimeout usually expires first
_REFERENCE = re.compile(r":\$\{\w+\}@|\$\{\w+\}")  # a variable reference; for a password in a URL, with `:` and `@`
MIN_SECRET_CHARS = 8  # a shorter value could appear elsewhere by chance
SCHEMA = Path(models.__file__).with_name("settings.schema.json")
NEW_FILE = """\
{
  // The settings of coretools-mcp; keys that are not set have their defaults. All keys: settings.schema.json.
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
"""Each commented key ends with a comma and precedes the last key, so any of them can be uncommented."""


def check(load: Callable[[], SettingsReport]) -> int:
    """Print all problems and warnings. Return exit code 1 if the server would not start."""
    try:
        report = load()
    except SettingsError as error:
        for problem in error.problems:
            show(marked("problem", "red", f": {visible_line(problem)}"))
        rules = rule_problems(error.report) if isinstance(error, UnusableSettingsError) else ()
        for warning in (*error.warnings, *rules):
            show(marked("warning", "yellow", f": {visible_line(warning)}"))
        return EXIT_FAILED
    for warning in (*report.warnings, *rule_problems(report)):
        show(marked("warning", "yellow", f": {visible_line(warning)}"))
    read = ", ".join(visible_line(path) for path in report.files) or "no file"
    sys.stdout.write(f"The settings are valid. Read: {read}\n")
    return 0


def show_settings(report: SettingsReport, *, as_json: bool) -> int:
    """Print every value that is set, as written, with its source. Secrets are hidden."""
    rows = [(dotted(given.path), shown_value(given.path, given.value), given.source) for given in report.given]
    if as_json:
        values = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        show_json({"values": values, "files": report.files, "warnings": report.warnings})
        return 0
    source_before = ""
    order = {path: position for position, path in enumerate(report.files)}  # other sources come after the files
    for key, value, source in sorted(rows, key=lambda row: order.get(row[2], len(order))):
        if source != source_before:
            is_file = os.path.isabs(source)
            named = linked(source, visible_line(source)) if is_file else visible_line(source)
            show(*([""] if source_before else []), marked("# ", "", named))
        source_before = source
        sys.stdout.write(f"{visible_line(key)} = {as_text(value)}\n")
    sys.stdout.write("\nEverything else has its default.\n" if rows else "Every key has its default.\n")
    return 0


def import_servers(wanted: str, environ: Mapping[str, str], *, prints: bool, force: bool, is_sure: bool = False) -> int:
    """Show the servers of a client or a file, ask for consent, and add them to the user's own settings."""
    diagnostics = Diagnostics()
    try:
        path, client, servers = _usable_servers(wanted, environ, diagnostics)
    except SettingsError as error:
        raise CommandFailure(visible_line(str(error))) from None
    finally:
        for warning in diagnostics.warnings:
            note(warning)
    if prints:
        sys.stdout.write(json.dumps({SECTION: servers}, indent=2, ensure_ascii=False) + "\n")
        return 0
    sys.stdout.write(f"From {visible_line(path)}\n")
    own = user_file(environ)
    if own is None:
        raise CommandFailure(
            "there is no home folder, so there is no settings file for the servers; use --print to show them."
        )

    def with_servers(content: bytes) -> bytes:
        """Return the file with the servers added. Concurrent additions by other programs are kept."""
        present = names_by_alias(parse(content, own))
        entries = {present.get(alias, alias): entry for alias, entry in added.items() if force or alias not in present}
        changed = with_entries(content, SECTION, entries)
        problems = problems_of(changed, own, environ)
        if problems:
            raise SettingsError(problems)
        return changed

    try:
        present = names_by_alias(own_settings(environ))
        for alias, entry in servers.items():
            if alias in present and not force:
                sys.stdout.write(f"  left unchanged (--force replaces it): {visible_line(alias)}\n")
                continue
            what = "would replace" if alias in present else "would add"
            # In a client's own file, the secrets are the user's, so they are hidden. Any other file is shown in full.
            described = describe_entry(entry, hides=client is not None)
            sys.stdout.write(f"  {what}: {visible_line(alias)}, {described}\n")
        sys.stdout.flush()
        added = {alias: entry for alias, entry in servers.items() if force or alias not in present}
        if not added:
            sys.stdout.write("There is nothing to add.\n")
            return 0
        if not is_sure:
            ask(f"Add this to {visible_line(own)}?", "nothing was added")
        given = [entry.get(key) for entry in added.values() for key in ("env", "headers")]
        if any(given) or shown_value((SECTION,), added) != added:
            keep_private(own)
        rewrite(own, with_servers)
    except SettingsError as error:
        raise CommandFailure(f"nothing was added: {visible_line(str(error))}") from None
    except (ToolError, OSError):
        raise CommandFailure(f"{visible_line(own)} cannot be written, so nothing was added.") from None
    sys.stdout.write(f"Added to {visible_line(own)}: {', '.join(added)}\n")
    return 0


def _usable_servers(
    wanted: str, environ: Mapping[str, str], diagnostics: Diagnostics
) -> tuple[str, ClientConfig | None, Tree]:
    """Return the file, its client if known, and the servers in it that coretools-mcp can use, keyed by alias."""
    clients = client_configs(environ)
    client = clients.get(wanted)
    files = (*client.files, *(file for file, _ in client.others)) if client is not None else (wanted,)
    path = next((path for path in files if os.path.isfile(path)), None)
    if path is None and client is None:
        known = ", ".join(clients)
        raise SettingsError([f"'{wanted}' is neither a file nor a known client. Known clients: {known}."])
    if path is None:
        looked = f"Searched: {', '.join(files)}. To import from a project, name its file."
        raise SettingsError([f"you have no {clients[wanted].title} configuration. {looked}"])
    return path, client, usable_servers(read_servers(path, client, diagnostics), path, environ, diagnostics)


@dataclass(frozen=True, slots=True)
class EditOptions:
    """The options that all of these commands accept."""

    file: str | None = None  # another settings file instead of the user's own
    is_sure: bool = False
    is_dry: bool = False  # only show the difference


def entry_for(
    words: Sequence[str],
    transport: str | None,
    variables: Sequence[str],
    headers: Sequence[str],
    folder: str | None,
) -> Tree:
    """Build the entry of a server from a command line.

    Args:
        words: The command with its arguments, or the address.
        transport: `stdio`, `http` or `sse`; `None` derives it from `words`.
        variables: `KEY=VALUE`, or `KEY` for that variable's value when the server starts.
        headers: HTTP headers, each as `Name: value`.
        folder: The command's working folder.

    Raises:
        UsageError: The options do not describe one server. The message does not quote values that may be secret.
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
    for option, given in (("--env", variables), ("--cwd", folder)) if is_remote else (("--header", headers),):
        if given:
            which = "reached at an address" if is_remote else "started by a command"
            raise UsageError(f"{option} has no effect on a server that is {which}.")
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
    name: str,
    entry: Tree,
    options: EditOptions,
    environ: Mapping[str, str],
    *,
    replaces: bool = False,
    connects: bool = True,
) -> int:
    """Add a server, connect to it once, and print how many tools it has.

    Return exit code 1 if the server was added, but is not used or cannot be reached.
    """
    if not name or alias_of(name) != name:
        like = f" {alias_of(name)} would work." if name else ""
        said = f"use at most {MAX_ALIAS} letters, digits, - and single _ between them"
        raise UsageError(f"'{name}' cannot be the name of a server: {said}.{like}")
    words = [str(word) for word in cast("list[Any]", entry.get("args", []))]
    # A coretools-mcp server with its own settings is a different server, so it may be an upstream.
    is_chain = any(word.startswith(("--config", "--settings")) for word in words)
    if is_own(entry, own_ports(environ)) and not is_chain:
        raise CommandFailure(
            "this would start or reach coretools-mcp itself, which cannot be its own upstream; nothing was added."
        )
    path = _path(options, environ)
    shown = visible_line(path)
    secrets = _refer(entry, environ)
    if secrets and not options.is_sure:
        said = f"{shown} would store in plain text what looks like a secret: {', '.join(secrets)}"
        by_option = " or by --env NAME" if "command" in entry else ""
        hint = f"Set a variable and refer to it as '${{NAME}}'{by_option}, or use --yes to write the value anyway"
        raise CommandFailure(f"{said}; nothing was added. {hint}.")
    before = read_file(path)
    try:
        present = names_by_alias(parse(before or b"", path))
        if name in present and not replaces:
            raise CommandFailure(f"{shown} already has a server {name}, so nothing was added. --force replaces it.")
        place = (SECTION, present.get(name, name))
        check_keys(before, place, path)
        after = with_member(before or b"", place, entry, path)
        report = settings_with(after, path, environ)
    except SettingsError as error:
        raise CommandFailure(f"nothing was added: {visible_line(str(error))}") from None
    if after == before:
        sys.stdout.write(f"{shown} already has this entry, so nothing was changed.\n")
    else:
        sys.stdout.write(f"{'Replaces' if name in present else 'Adds'} {name}: {describe_entry(entry)}\n")
        may_be_secret = bool(secrets) or "env" in entry or "headers" in entry
        if not _write(path, before, after, options, holds_secrets=may_be_secret):
            return 0
        sys.stdout.write(f"Added to {shown}: {name}\n")
        if secrets:
            said = f"{shown} stores in plain text what looks like a secret: {', '.join(secrets)}"
            note(f"{said}; refer to a variable instead ('${{NAME}}')")
    if (why := _why_left_out(report, name)) is not None:
        note(f"{name} was added but is not used: {why}")
        return EXIT_FAILED
    if not connects:
        return 0
    return _connect(name, path, options, environ)


def change_server(
    what: Literal["remove", "enable", "disable"], name: str, options: EditOptions, environ: Mapping[str, str]
) -> int:
    path = _path(options, environ)
    shown, before = visible_line(path), read_file(path)
    report = None
    try:
        present = names_by_alias(parse(before or b"", path))
        key = present.get(alias_of(name))
        if before is None or key is None:
            told = did_you_mean(name, [*present, *present.values()])
            raise CommandFailure(f"there is no server {visible_line(name)} in {shown}, so nothing was changed.{told}")
        place, after = (SECTION, key), before
        if what == "remove":
            check_keys(before, place, path)
            after = without_member(before, place, path)
        else:
            for spelled in ("enabled", "disabled"):  # other clients write `disabled`
                check_keys(before, (*place, spelled), path)
            after = without_member(before, (*place, "disabled"), path)
            if what == "disable":
                after = with_member(after, (*place, "enabled"), value=False, source=path)
            else:
                after = without_member(after, (*place, "enabled"), path)
                report = settings_with(after, path, environ)
    except SettingsError as error:
        raise CommandFailure(f"nothing was changed: {visible_line(str(error))}") from None
    done = {"remove": "Removed from", "enable": "Enabled in", "disable": "Disabled in"}[what]
    if after == before:
        sys.stdout.write(f"{visible_line(key)} is already {what}d in {shown}, so nothing was changed.\n")
    elif not _write(path, before, after, options):
        return 0
    else:
        sys.stdout.write(f"{done} {shown}: {visible_line(key)}\n")
    if report is not None and (why := _why_left_out(report, alias_of(name))) is not None:
        note(f"{key} is still not used: {why}")
    return 0


def init(options: EditOptions, environ: Mapping[str, str]) -> int:
    """Write an initial settings file and the schema next to it. In an existing file, only refer to the schema."""
    path = _path(options, environ)
    copy = os.path.join(os.path.dirname(path), SCHEMA.name)
    shown, before, schema = visible_line(path), read_file(path), SCHEMA.read_bytes()
    copied = read_file(copy)
    try:
        tree = parse(before or b"", path)
        ours = parse(schema, copy)
        if copied is not None and parse(copied, copy).get("title") != ours["title"]:
            said = "is not a coretools-mcp schema, so it was left unchanged, and nothing was written"
            raise CommandFailure(f"{visible_line(copy)} {said}. Choose another folder with --config.")
        after = before
        if not (before and before.strip()):
            after = NEW_FILE.encode()
        elif "$schema" not in tree:
            after = with_member(before, ("$schema",), f"./{SCHEMA.name}", path)
    except SettingsError as error:
        raise CommandFailure(f"nothing was written: {visible_line(str(error))}") from None
    if not options.is_dry and copied != schema:
        replace_content(copy, copied, schema)
        sys.stdout.write(f"{'Written' if copied is None else 'Updated'}: {visible_line(copy)}\n")
    if after is None or after == before:
        sys.stdout.write(f"{shown} already exists and names a schema, so it was left unchanged.\n")
    elif before is None and not options.is_dry:
        replace_content(path, before, after)
        sys.stdout.write(f"Written: {shown}\n")
    elif _write(path, before, after, options):
        sys.stdout.write(f"Editors now find the schema: {shown}\n")
    return 0


def _path(options: EditOptions, environ: Mapping[str, str]) -> str:
    path = os.path.abspath(options.file) if options.file is not None else user_file(environ)
    if path is None:
        raise CommandFailure("there is no home folder, so you have no settings file. Name one with --config FILE.")
    return path


def _refer(entry: Tree, environ: Mapping[str, str]) -> list[str]:
    """Replace secrets from the environment with references, in place, and return the keys of other secrets."""
    held = {value: name for name, value in environ.items() if len(value) >= MIN_SECRET_CHARS and is_secret_name(name)}

    def referring(text: str) -> str:
        for value in sorted(held, key=len, reverse=True):
            text = text.replace(value, f"${{{held[value]}}}")
        return text

    secrets: list[str] = []
    for place, value in list(leaves(entry)):
        if shown_value(place[-1:], value) == value:
            continue
        name, texts = str(place[-1]), cast("list[str]", value) if isinstance(value, list) else [str(value)]
        is_same = place[0] == "env" and environ.get(name) == value
        changed = [f"${{{name}}}" if is_same else referring(text) for text in texts]
        rest = [_REFERENCE.sub("", text) for text in changed]
        now, without = (changed, rest) if isinstance(value, list) else (changed[0], rest[0])
        cast("Tree", parent_at(entry, place))[name] = now
        if shown_value(place[-1:], now) != now and shown_value(place[-1:], without) != without:
            secrets.append(visible_line(dotted(place)))
        if changed != texts:
            said = "refers to the variable with this value; the value itself is not written to the file"
            note(f"{dotted(place)} {said}")
    return secrets


def _write(path: str, before: bytes | None, after: bytes, options: EditOptions, *, holds_secrets: bool = False) -> bool:
    """Show a change, and make it if the user agrees. Return whether the change was made."""
    documents = [parse(side, path) for side in (before, after) if side]
    if not confirm_change(path, before, after, documents, is_sure=options.is_sure, is_dry=options.is_dry):
        return False
    if holds_secrets:
        keep_private(path)
    replace_content(path, before, after)
    return True


def _why_left_out(report: SettingsReport, alias: str) -> str | None:
    entry = next((each for each in report.entries if each.alias == alias), None)
    if entry is None or entry.left_out is None:
        return None
    return f"{entry.left_out} {HINT}" if entry.lacks_variable else entry.left_out


def _connect(name: str, path: str, options: EditOptions, environ: Mapping[str, str]) -> int:
    """Connect to one server of these settings, and print how many tools it has, or why it failed.

    If there is a lock file, the user can approve the tools right away.
    """
    # These are imported only here, because removing a server needs neither the SDK nor the tools.
    from server.app import App  # noqa: PLC0415
    from server.console.lock_command import compare_servers  # noqa: PLC0415
    from server.console.upstream_waits import connect, published_tools, quiet_log, show_failure  # noqa: PLC0415
    from server.run_server import until_signal  # noqa: PLC0415
    from server.upstreams.catalog.lock_file import COMMAND  # noqa: PLC0415

    only: Tree = {"mcp": {"allowed": [name]}, "tools": {"discoveryCommand": []}}
    config = [path] if path != user_file(environ) else []
    report = read_settings(SettingsInputs(config, only, environ, cli=None, working_folder=None))
    start_log(report.settings.log.level, ERASE if can_move() else "")
    quiet_log(report.settings.log.level)
    sys.stdout.flush()

    option = f" --config {shlex.quote(options.file)}" if options.file is not None else ""

    async def check() -> int:
        app = App(report, "stdio")
        async with app.running():
            with anyio.move_on_after(CHECK_SECONDS):
                await connect(app, app.pool.upstreams)
            (upstream,) = app.pool.upstreams
            if upstream.live_session is None:
                show_failure(f"{name} was added but does not work", upstream)
                take_out = f"coretools-mcp config remove {name}{visible_line(option)}"
                show(f"It stays in the settings. To remove it: {take_out}", stream=sys.stderr)
                return EXIT_FAILED
            sys.stdout.write(f"Connected to {name}: {published_tools(app, name)}\n")
            sys.stdout.flush()
            lock = app.pool.catalog.lock
            if lock is not None and report.lock is not None and not lock.problem:
                why = ""
                try:
                    if sys.stdin.isatty() and not options.is_sure:
                        await compare_servers(app, report.lock, lock, [upstream])
                        return 0
                except CommandFailure as error:
                    why = f"{error} "
                note(f"{why}Its tools are blocked until they are approved: {COMMAND} --approve {name}{option}")
        return 0

    return anyio.run(until_signal, check)
