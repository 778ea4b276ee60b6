"""`trust`: shows what the settings and skills of a folder would do, and records that a person has reviewed them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from server.console import CommandFailure
from server.console.terminal import ask, note
from server.console.user_files import not_written
from server.settings.canonical_form import canonicalise
from server.settings.gemini_and_qwen_files import AGENT_CLIS, CliName
from server.settings.load import load_settings
from server.settings.section_model import Diagnostics, SettingsError, dotted
from server.settings.settings_display import as_text, command_text, describe_entry, is_remote
from server.settings.settings_files import Tree, leaves, table_at
from server.settings.workspace_trust import (
    WorkspaceFile,
    digest,
    find_files,
    read_trust,
    sanitise,
    trust_file,
    trust_folder,
)
from tools.contract.display import visible_line, without_gaps
from tools.contract.tool_errors import ToolError
from tools.files.workspace import Workspace
from tools.lsp.language_servers import IN_WORKSPACE, programs_in
from tools.skill_folders import MAIN_FILE, PLACES, skills_below
from tools.text.file_names import sendable_name

MAX_NOTES = 20  # maximum number of notes shown per file, and about skills; further notes are only counted
SCREEN_LINES = 20  # after more lines than this, those about what runs or is allowed are repeated, up to this many
MAX_REPEATED_CHARS = 400  # maximum length of a repeated line

RULES: Mapping[tuple[str, ...], str] = {
    ("permissions", "allow"): "allow without a question",
    ("tools", "allowed"): "allow without a question",
    ("permissions", "ask"): "ask about",
    ("tools", "confirmationRequired"): "ask about",
    ("permissions", "deny"): "refuse",
    ("tools", "exclude"): "exclude",
}

ENTRIES: Mapping[str, str] = {"mcpServers": "server", "agents": "agent"}

COMMANDS: Mapping[tuple[str, ...], str] = {
    ("tools", "discoveryCommand"): "run to discover tools",
    ("tools", "callCommand"): "run for each call to a discovered tool",
    ("mcp", "serverCommand"): "start as the server mcp",
}


def list_trusted(environ: Mapping[str, str]) -> int:
    diagnostics = Diagnostics()
    folders = read_trust(trust_file(environ), diagnostics)
    for warning in diagnostics.warnings:
        note(warning)
    for folder, files in sorted(folders.items()):
        sys.stdout.write(f"{visible_line(folder)}: {visible_line(', '.join(files)) or 'no settings'}\n")
    if not folders:
        sys.stdout.write("No folder is trusted.\n")
    return 0


def remove(folder: str, environ: Mapping[str, str]) -> int:
    real_folder, store = os.path.realpath(folder), _store(environ)
    try:
        was_trusted = trust_folder(store, real_folder, None)
    except (ToolError, OSError) as error:
        raise not_written(store, error) from None
    sys.stdout.write(f"{visible_line(real_folder)} {'is no longer trusted' if was_trusted else 'was not trusted'}.\n")
    return 0


def add(folder: str, environ: Mapping[str, str], *, is_sure: bool) -> int:
    real_folder, store = os.path.realpath(folder), _store(environ)
    display_path = visible_line(real_folder)
    if not os.path.isdir(real_folder):
        raise CommandFailure(f"'{visible_line(folder)}' is not a folder. Name one that exists.")
    workspace_files = find_files(real_folder, AGENT_CLIS.values())
    files = [file for file in workspace_files if file.content is not None]
    skill_problems: list[str] = []
    skills = list(skills_below(Workspace([real_folder]), real_folder, skill_problems))
    programs = programs_in(real_folder)
    if not (files or skills or programs):
        places = [*(file.name for file in workspace_files), *(f"{place}/*/{MAIN_FILE}" for place in PLACES)]
        places += [f"language servers in {place}" for place in IN_WORKSPACE]
        message = f"there are no settings in {display_path}, so there is nothing to trust"
        raise CommandFailure(f"{message}. Searched for {', '.join(places)}.")
    lines: list[str] = []
    runs: list[str] = []
    usable: list[WorkspaceFile] = []
    problems: list[str] = []
    for file in files:
        try:
            _describe(file, environ, lines, runs)
        except SettingsError as error:
            problems.append(visible_line(str(error)))
        else:
            usable.append(file)
    if (files and not usable) or any(file.cli is None and file not in usable for file in files):
        raise CommandFailure(" ".join(problems))
    for name, _, skill in skills:
        lines += [visible_line(os.path.join(real_folder, *name.split("/")))]
        lines += [f"  would offer the skill {visible_line(skill.name)} to models: {visible_line(skill.description)}"]
    lines += _notes(skill_problems)
    purpose = "to answer questions about code"
    starts = [f"start the language server {visible_line(program)} {purpose}" for program in programs]
    lines += [f"would {line}" for line in starts]
    runs += starts
    lines += [f"not trusted, and not read until it is fixed: {problem}" for problem in problems]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if len(lines) > SCREEN_LINES and runs:
        sys.stdout.write("In summary, what runs and what is allowed:\n")
        for line in runs[:SCREEN_LINES]:
            truncated = f"{line[:MAX_REPEATED_CHARS]} [...]" if len(line) > MAX_REPEATED_CHARS else line
            sys.stdout.write(f"  would {truncated}\n")
        if len(runs) > SCREEN_LINES:
            sys.stdout.write(f"  and {len(runs) - SCREEN_LINES:,} more, shown above\n")
    if not is_sure:
        ask(f"Trust {display_path}?", "nothing was trusted")
    digests = {file.name: digest(file.content or b"") for file in usable}
    digests |= {**programs, **{sendable_name(name): digest(data) for name, data, _ in skills}}
    _trust_if_it_starts(store, real_folder, digests, environ)
    sys.stdout.write(f"{display_path} is trusted, with its settings, skills and programs as they are now.\n")
    return 0


def _why_no_start(cli: CliName | None, folder: str, environ: Mapping[str, str]) -> str:
    try:
        load_settings([], {}, environ, cli=cli, folder=folder)
    except SettingsError as error:
        return str(error)
    return ""


def _store(environ: Mapping[str, str]) -> str:
    store = trust_file(environ)
    if store is None:
        raise CommandFailure("there is no home folder, so there is no place to record trusted folders.")
    return store


def _trust_if_it_starts(store: str, real_folder: str, digests: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Trust a folder, unless the server would not start afterwards.

    A problem that occurs only with `--settings`, and that existed before, does not count.
    """
    try:
        old_problems = [_why_no_start(cli, real_folder, environ) for cli in (None, *AGENT_CLIS)]
        trust_folder(store, real_folder, digests)
        for cli, old_problem in zip((None, *AGENT_CLIS), old_problems, strict=True):
            if (problem := _why_no_start(cli, real_folder, environ)) and (cli is None or problem != old_problem):
                trust_folder(store, real_folder, None)
                message = "nothing was trusted, because the server would not start"
                raise CommandFailure(f"{message}: {visible_line(problem)}")
    except (ToolError, OSError) as error:
        raise not_written(store, error) from None


def _describe(file: WorkspaceFile, environ: Mapping[str, str], lines: list[str], runs: list[str]) -> None:
    """Describe a file in `lines`, and repeat in `runs` what it would start, connect to or allow."""
    if file.problem:
        raise SettingsError([f"{file.path}: {file.problem}."])
    diagnostics = Diagnostics()
    layer = file.layer(diagnostics)
    canonicalise(layer, environ, diagnostics)
    sanitise(layer, (), diagnostics)
    if diagnostics.problems:
        raise SettingsError(diagnostics.problems)
    # Hide and truncate nothing: the user must be able to review all that the file would do.
    active_lines: list[str] = []
    other_lines: list[str] = []
    for table, kind in ENTRIES.items():
        for name, raw_entry in table_at(layer.data, table).items():
            entry = cast("Tree", raw_entry) if isinstance(raw_entry, dict) else {}
            verb = f"connect to the {kind}" if is_remote(entry) else f"start the {kind}"
            active_lines.append(f"{verb} {visible_line(name)}: {describe_entry(entry, hides=False)}")
    for path, value in leaves(layer.data):
        key = cast("tuple[str, ...]", path)
        if key[0] in ENTRIES:
            continue
        if key in COMMANDS and value:
            words = cast("list[Any]", value) if isinstance(value, list) else [value]
            active_lines.append(f"{COMMANDS[key]}: {command_text(words)}")
        elif key not in RULES or not isinstance(value, list):
            other_lines.append(f"set {visible_line(dotted(path))} to {as_text(value)}")
        elif value:
            rules = visible_line(", ".join(str(rule) for rule in cast("list[Any]", value)))
            (active_lines if RULES[key].startswith("allow") else other_lines).append(f"{RULES[key]}: {rules}")
    active_lines = [without_gaps(line) for line in active_lines]
    condition = "" if file.cli is None else f", if {file.cli.title}'s settings are read (--settings)"
    lines.append(f"{visible_line(file.path)}{condition}")
    lines += [f"  would {line}" for line in (*active_lines, *map(without_gaps, other_lines)) or ["change nothing"]]
    lines += _notes(diagnostics.warnings)
    runs += active_lines


def _notes(texts: Sequence[str]) -> list[str]:
    lines = [f"  note: {visible_line(text)}" for text in texts[:MAX_NOTES]]
    return [*lines, f"  note: {len(texts) - MAX_NOTES:,} more not shown."] if len(texts) > MAX_NOTES else lines
