"""From files, command line and environment to settings: the one way in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from server.settings.agent_cli import CliName
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.files import home_folder, own_folder, read_streams, without_links
from server.settings.inputs import SettingsInputs, working_folder
from server.settings.kept_rules import Kept
from server.settings.keys import Given, given_values
from server.settings.layers import FileState, Layer, Rank, SettingsFile
from server.settings.merge import Merged, holder_of
from server.settings.models import Settings
from server.settings.proxy_models import UpstreamSettings
from server.settings.resolve import Resolver
from server.settings.upstreams import UpstreamEntry, resolve_entries
from server.settings.workspace_files import COMMAND_ALIAS, SERVER_COMMAND


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings, and how they came about.

    Args:
        settings: What the server runs with.
        warnings: Sentences for the operator, in the order of the files.
        entries: Every server of `mcpServers` in the order of the configuration, used or not.
        files: The settings files that were read, in order; a later one wins.
        user_file: The user's own settings file, if there is one.
        home: The user's home folder.
        given: Every value that was given, as it was written, with where it came from.
        places: Every place where settings may stand, and what became of it.
        inputs: What all of this was made from.
        kept: What restricts in the files of workspaces, for when they are not trusted any more.
    """

    settings: Settings
    warnings: tuple[str, ...] = ()
    entries: tuple[UpstreamEntry, ...] = ()
    files: tuple[str, ...] = ()
    user_file: str | None = None
    home: str = ""
    given: tuple[tuple[Given, str], ...] = field(default=(), repr=False)
    places: tuple[SettingsFile, ...] = ()
    inputs: SettingsInputs | None = field(default=None, repr=False)
    kept: Kept = field(default_factory=dict[str, Layer], repr=False)

    @property
    def own_folder(self) -> str | None:
        """The folder of the user's own settings and of what is trusted, whether or not it exists."""
        return own_folder(self.inputs.environ) if self.inputs is not None else None

    @property
    def upstreams(self) -> Mapping[str, UpstreamSettings]:
        """The servers to be used: alias to entry, in the order of the configuration."""
        return {entry.alias: entry.settings for entry in self.entries if entry.left_out is None}

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why other servers are not used: alias to a sentence."""
        return {entry.alias: entry.left_out for entry in self.entries if entry.left_out is not None}


def load_settings(
    config_files: Sequence[str],
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    cli: CliName | None = None,
    folder: str | None = None,
) -> SettingsReport:
    """Read and merge the user's files, those of the workspace, the given ones and the command line; a later one wins.

    Args:
        config_files: Files named on the command line, in its order; each must exist.
        overrides: What the other options say, in the shape and spelling of a file.
        environ: The environment variables.
        cli: The other CLI whose own settings count too.
        folder: The workspace where nobody names another one; `None` is the working folder.

    Raises:
        SettingsError: Something in them keeps the server from starting. It tells of all wrong values and of all keys
            that cannot be enforced at once, and else of all servers and agents that cannot work.
    """
    where = folder if folder is not None else working_folder()
    streams, links = read_streams(config_files), without_links(config_files)
    return read_settings(SettingsInputs(config_files, overrides, environ, cli, where, streams, links))


def default_settings(environ: Mapping[str, str]) -> SettingsReport:
    """What counts where nobody gives anything; no file is read."""
    return SettingsReport(Settings.model_construct(), home=home_folder(environ))


def read_settings(inputs: SettingsInputs, before: SettingsReport | None = None) -> SettingsReport:
    """Read everything, now.

    Args:
        inputs: Where to read.
        before: The settings until now, in a server that runs.

    Raises:
        SettingsError: As `load_settings`.
    """
    findings = Findings()
    layers, places, kept = inputs.read(findings, before.kept if before is not None else {})
    merged = Merged()
    for layer in layers:
        merged.names.update(layer.names)
        merged.add(layer.source, layer.data, joins=layer.rank.joins)
    _add_server_command(merged, findings)
    settings = _validate(merged, findings)
    given = tuple((item, merged.source_of(item.path)) for item in given_values(merged.data))
    if settings is None:
        raise SettingsError(findings.problems)
    settings = Resolver(inputs.environ, merged.source_of, findings).resolve(settings)
    entries = resolve_entries(
        settings, names=merged.names, environ=inputs.environ, source_of=merged.source_of, findings=findings
    )
    findings.stop_on_problems()
    own = next((place for place in places if place.rank is Rank.USER and place.state is FileState.READ), None)
    return SettingsReport(
        settings=settings.model_copy(update={"mcp_servers": {entry.alias: entry.settings for entry in entries}}),
        warnings=tuple(findings.warnings),
        entries=entries,
        files=tuple(layer.source for layer in layers if Rank.CLI_DEFAULTS < layer.rank < Rank.COMMAND_LINE),
        user_file=own.path if own is not None else None,
        home=home_folder(inputs.environ),
        given=given,
        places=tuple(places),
        inputs=inputs,
        kept=kept,
    )


def _add_server_command(merged: Merged, findings: Findings) -> None:
    """Make an entry of `mcpServers` of the one command line that starts a server."""
    holder = holder_of(merged.data, SERVER_COMMAND)
    line: Any = holder.get("serverCommand") if holder is not None else None
    words = cast("list[Any]", line) if isinstance(line, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        return  # there is none, or validation says what it has to be
    source = merged.source_of(SERVER_COMMAND)
    servers: Any = merged.data.get("mcpServers")
    if isinstance(servers, dict) and COMMAND_ALIAS in servers:
        own = dotted(("mcpServers", COMMAND_ALIAS))
        findings.warn(source, f"{dotted(SERVER_COMMAND)} is not used, because there is {own}, which has its alias.")
        return
    merged.names[COMMAND_ALIAS] = COMMAND_ALIAS
    merged.add(source, {"mcpServers": {COMMAND_ALIAS: {"command": words[0], "args": words[1:]}}})


def _validate(merged: Merged, findings: Findings) -> Settings | None:
    """The settings, or `None` where a value is wrong, with a problem for each."""
    if not merged.data:
        return Settings.model_construct()  # The defaults need no validator, and building one takes time.
    try:
        return Settings.model_validate_json(json.dumps(merged.data))
    except ValidationError as error:
        from server.settings.explaining import explain  # noqa: PLC0415 - needed only where something is wrong

        findings.problems += explain(error, merged.source_of)
        return None
