"""From files, command line and environment to settings: the one way in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from server.settings.canonical import LayerReader
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.files import home_folder, read_config_file, read_user_file, user_file
from server.settings.keys import Given, given_values, wire_default
from server.settings.merge import Merged
from server.settings.models import Settings, UpstreamSettings
from server.settings.section import NotEnforced, NotUsed
from server.settings.upstreams import UpstreamEntry, resolve_entries

COMMAND_LINE = "command line"
"""The source of values that were given as options."""


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings, and how they came about.

    Args:
        settings: What the server runs with.
        sources: For each value given, by its dotted key, the file or the command line that gave it.
        warnings: Sentences for the operator, in the order of the files.
        entries: Every server of `mcpServers` in the order of the configuration, used or not.
        files: The settings files that were read, in order; a later one wins.
        user_file: The user's own settings file, if there is one.
        home: The user's home folder.
    """

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    entries: tuple[UpstreamEntry, ...] = ()
    files: tuple[str, ...] = ()
    user_file: str | None = None
    home: str = ""

    @property
    def upstreams(self) -> Mapping[str, UpstreamSettings]:
        """The servers to be used: alias to entry, in the order of the configuration."""
        return {entry.alias: entry.settings for entry in self.entries if entry.left_out is None}

    def source_of(self, path: str) -> str:
        """Where the value of a dotted key came from; `default` if nobody gave it."""
        return self.sources.get(path, "default")


def load_settings(
    config_files: Sequence[str], overrides: Mapping[str, Any], environ: Mapping[str, str]
) -> SettingsReport:
    """Read and merge the user's file, the given files and the command line; a later one wins.

    Args:
        config_files: Files named on the command line, in its order; each must exist.
        overrides: What the other options say, in the shape and spelling of a file.
        environ: The environment variables.

    Raises:
        SettingsError: Something in them keeps the server from starting. It tells of all such things at once.
    """
    findings = Findings()
    layers = _read_layers(config_files, environ, findings)
    files = tuple(source for source, _ in layers)
    layers.append((COMMAND_LINE, json.loads(json.dumps(dict(overrides)))))  # The caller's own stay as they are.
    merged = Merged()
    for source, layer in layers:
        is_file = source is not COMMAND_LINE
        folder = os.path.dirname(source) if is_file else ""
        reader = LayerReader(source, folder, is_file, environ, findings)
        reader.normalise(layer, merged.names)
        merged.add(source, layer)
    settings = _validate(merged, findings)
    for given in given_values(merged.data):
        _judge_use(given, merged.source_of(given.path), findings)
    entries = resolve_entries(
        settings, names=merged.names, environ=environ, source_of=merged.source_of, findings=findings
    )
    findings.stop_on_problems()
    return SettingsReport(
        settings=settings.model_copy(update={"mcp_servers": {entry.alias: entry.settings for entry in entries}}),
        sources={dotted(path): source for path, source in merged.sources.items()},
        warnings=tuple(findings.warnings),
        entries=entries,
        files=files,
        user_file=files[0] if files[:1] == (user_file(environ),) else None,
        home=home_folder(environ),
    )


def _read_layers(
    config_files: Sequence[str], environ: Mapping[str, str], findings: Findings
) -> list[tuple[str, dict[str, Any]]]:
    layers: list[tuple[str, dict[str, Any]]] = []
    own = user_file(environ)
    data = read_user_file(own, findings) if own is not None else None
    if own is not None and data is not None:
        layers.append((own, data))
    layers += [(path, read_config_file(path, findings)) for path in config_files]
    return layers


def _validate(merged: Merged, findings: Findings) -> Settings:
    if not merged.data:
        return Settings.model_construct()  # The defaults need no validator, and building one takes time.
    try:
        return Settings.model_validate_json(json.dumps(merged.data))
    except ValidationError as error:
        from server.settings.reference import explain  # noqa: PLC0415 - needed only where something is wrong

        problems = (*findings.problems, *explain(error, merged.source_of))
        raise SettingsError(problems) from None


def _judge_use(given: Given, source: str, findings: Findings) -> None:
    """Tell of a value that this version does not act on; one that restricts must not be passed over."""
    if given.value in (None, "", [], {}):
        return
    where = dotted(given.path)
    match given.mark:
        case NotEnforced():
            said = f"{where} restricts what may happen, and this version cannot enforce it"
            findings.refuse(source, f"{said}, so the server does not start with it. Remove it to start without it.")
        case NotUsed(same_as=same) if given.value != (wire_default(given.key) if same is None else same):
            findings.warn(source, f"{where} is known but not used by this version.")
        case _:
            pass
