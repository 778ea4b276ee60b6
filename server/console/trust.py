"""`trust`: says what the settings files of a folder would do, and remembers that a person has seen that."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from server.console.failure import Failure
from server.console.reach import is_remote, reached_by
from server.console.shown import as_text, command_text, leaves, shown_value
from server.settings.agent_cli import AGENT_CLIS
from server.settings.canonical import LayerReader
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.layers import Layer
from server.settings.load import load_settings
from server.settings.merge import Tree
from server.settings.trust import digest, forget_folder, read_trust, trust_file, trust_folder
from server.settings.workspace_files import WorkspaceFile, confine, find_files
from tools.contract.errors import ToolError
from tools.display import visible_line

RULES: Mapping[tuple[str, ...], str] = {
    ("permissions", "allow"): "allow without a question",
    ("tools", "allowed"): "allow without a question",
    ("permissions", "ask"): "ask about",
    ("tools", "confirmationRequired"): "ask about",
    ("permissions", "deny"): "refuse",
    ("tools", "exclude"): "leave out",
}

COMMANDS: Mapping[tuple[str, ...], str] = {
    ("tools", "discoveryCommand"): "run, to find tools",
    ("tools", "callCommand"): "run, for each call of such a tool",
    ("mcp", "serverCommand"): "start the server mcp",
}


def list_trusted(environ: Mapping[str, str]) -> int:
    """Print the folders that are trusted."""
    findings = Findings()
    trust = read_trust(trust_file(environ), findings)
    for warning in findings.warnings:
        sys.stderr.write(f"coretools-mcp: {visible_line(warning)}\n")
    for folder, files in sorted(trust.folders.items()):
        sys.stdout.write(f"{visible_line(folder)}: {visible_line(', '.join(files))}\n")
    if not trust.folders:
        sys.stdout.write("No folder is trusted.\n")
    return 0


def remove(folder: str, environ: Mapping[str, str]) -> int:
    """Trust a folder no more.

    Raises:
        Failure: What is trusted cannot be written.
    """
    real, store = os.path.realpath(folder), _store(environ)
    try:
        had = forget_folder(store, real)
    except (ToolError, OSError):
        raise Failure(f"{visible_line(store)} cannot be written, so nothing was changed.") from None
    sys.stdout.write(f"{visible_line(real)} {'is not trusted any more' if had else 'was not trusted'}.\n")
    return 0


def add(folder: str, environ: Mapping[str, str], *, is_sure: bool) -> int:
    """Show what the settings files of a folder would do, ask, and trust them as they are now.

    Args:
        folder: The folder.
        environ: The environment variables.
        is_sure: Whether nobody needs to be asked.

    Raises:
        Failure: There is nothing to trust, or nobody agreed, or it cannot be remembered.
    """
    real, store = os.path.realpath(folder), _store(environ)
    if not os.path.isdir(real):
        raise Failure(f"'{visible_line(folder)}' is no folder. Name one that exists.")
    places = find_files(real, AGENT_CLIS.values())
    files = [place for place in places if place.content is not None]
    if not files:
        looked = ", ".join(place.name for place in places)
        raise Failure(
            f"there are no settings in {visible_line(real)}, so there is nothing to trust. Looked for {looked}."
        )
    try:
        for file in files:
            _show(file, environ)
    except SettingsError as error:
        raise Failure(visible_line(str(error))) from None
    if not is_sure:
        _ask(real)
    try:
        trust_folder(store, real, {file.name: digest(file.content or b"") for file in files})
        _try(real, environ)
    except SettingsError as error:
        forget_folder(store, real)
        raise Failure(f"nothing was trusted, because the server would not start: {visible_line(str(error))}") from None
    except (ToolError, OSError):
        raise Failure(f"{visible_line(store)} cannot be written, so nothing was trusted.") from None
    sys.stdout.write(f"{visible_line(real)} is trusted, with its settings as they are now.\n")
    return 0


def _try(folder: str, environ: Mapping[str, str]) -> None:
    """Read all settings with those of the folder, as each way of starting the server would."""
    for cli in (None, *AGENT_CLIS):
        load_settings([], {}, environ, cli=cli, folder=folder)


def _store(environ: Mapping[str, str]) -> str:
    store = trust_file(environ)
    if store is None:
        raise Failure("there is no home folder, so there is no place to remember it in.")
    return store


def _ask(folder: str) -> None:
    if not sys.stdin.isatty():
        raise Failure("nothing was trusted: nobody can answer here (standard input is no terminal). Give --yes.")
    sys.stderr.write(f"Trust {visible_line(folder)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure("nothing was trusted.")


def _show(file: WorkspaceFile, environ: Mapping[str, str]) -> None:
    if file.problem:
        raise SettingsError([f"{file.path}: {file.problem}."])
    findings = Findings()
    layer = file.layer(findings)
    LayerReader(layer.source, layer.folder, True, environ, findings).normalise(layer.data, layer.names)
    confine(layer, (), findings)
    findings.stop_on_problems()
    counts = "" if file.cli is None else f", where {file.cli.title}'s settings are read"
    sys.stdout.write(f"{visible_line(file.path)}{counts}\n")
    lines = list(effects(layer))
    sys.stdout.writelines(f"  would {line}\n" for line in lines or ["change nothing"])
    sys.stdout.writelines(f"  note: {visible_line(warning)}\n" for warning in findings.warnings)


def effects(layer: Layer) -> Iterator[str]:
    """What a layer would do, a line for each thing, the programs that it starts first."""
    data = layer.data
    told: set[tuple[str, ...]] = set()
    for table, what in (("mcpServers", "server"), ("agents", "agent")):
        entries = data.get(table)
        for name, entry in cast("Tree", entries if isinstance(entries, dict) else {}).items():
            told.add((table, name))
            yield f"{_reach(what, name, cast('Tree', entry) if isinstance(entry, dict) else {})}"
    for path, value in leaves(data):
        key = cast("tuple[str, ...]", path)
        if key[:2] in told:
            continue
        shown = shown_value(path, value)
        if key in COMMANDS and value:
            words = cast("list[Any]", value) if isinstance(value, list) else [value]
            yield f"{COMMANDS[key]}: {command_text(words)}"
        elif key in RULES and isinstance(value, list):
            if value:
                yield f"{RULES[key]}: {visible_line(', '.join(str(rule) for rule in cast('Sequence[Any]', value)))}"
        else:
            yield f"set {visible_line(dotted(path))} to {as_text(shown)}"


def _reach(what: str, name: str, entry: Tree) -> str:
    way = f"connect to the {what}" if is_remote(entry) else f"start the {what}"
    return f"{way} {visible_line(name)}: {reached_by(entry)}"
