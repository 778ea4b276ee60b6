"""`config check`, `config show`, and `config import`, which adds another client's servers to the user's settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping

from server.console import EXIT_FAILED, CommandFailure
from server.console.known_clients import ClientConfig, client_configs, read_servers
from server.console.own_settings import SECTION, names_by_alias, own_settings, problems_of, usable_servers
from server.console.terminal import linked, marked, note, show_json
from server.console.terminal import show as show_lines
from server.console.terminal_questions import ask
from server.console.user_files import keep_private
from server.settings import SettingsError, SettingsReport
from server.settings.document_editor import rewrite, with_entries
from server.settings.load import UnusableSettingsError
from server.settings.rule_names import rule_problems
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_display import as_text, describe_entry, shown_value
from server.settings.settings_files import Tree, parse, user_file
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError


def check(load: Callable[[], SettingsReport]) -> int:
    """Print all problems and warnings. Return exit code 1 if the server would not start."""
    try:
        report = load()
    except SettingsError as error:
        for problem in error.problems:
            show_lines(marked("problem", "red", f": {visible_line(problem)}"))
        rules = rule_problems(error.report) if isinstance(error, UnusableSettingsError) else ()
        for warning in (*error.warnings, *rules):
            show_lines(marked("warning", "yellow", f": {visible_line(warning)}"))
        return EXIT_FAILED
    for warning in (*report.warnings, *rule_problems(report)):
        show_lines(marked("warning", "yellow", f": {visible_line(warning)}"))
    read = ", ".join(visible_line(path) for path in report.files) or "no file"
    sys.stdout.write(f"The settings are valid. Read: {read}\n")
    return 0


def show(report: SettingsReport, *, as_json: bool) -> int:
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
            show_lines(*([""] if source_before else []), marked("# ", "", named))
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
