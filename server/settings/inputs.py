"""Where settings come from in one run: the files in their order, the command line, the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from server.settings.agent_cli import AGENT_CLIS, FILE, AgentCli, CliName, translated
from server.settings.canonical import LayerReader
from server.settings.cli_variables import expand_texts
from server.settings.errors import Findings
from server.settings.files import home_folder, parse, read_config_file, read_user_file, real_path, user_file
from server.settings.kept_rules import Kept, restrictions_of, still_counting
from server.settings.layers import FileState, Layer, Rank, SettingsFile
from server.settings.merge import Tree, holder_of
from server.settings.trust import read_trust, trust_file
from server.settings.workspace_files import confine, find_files, read_trusted

COMMAND_LINE = "command line"
"""The source of values that were given as options."""

_OF_CLIS = (Rank.SYSTEM_DEFAULTS, Rank.CLI_USER, Rank.CLI_PROJECT, Rank.SYSTEM_OVERRIDES)
"""Layers from files of another CLI."""


@dataclass(frozen=True, slots=True)
class SettingsInputs:
    """Everything that decides what the settings are, so that they can be read again.

    Args:
        config_files: Files named on the command line, in its order; each must exist.
        overrides: What the other options say, in the shape and spelling of a file.
        environ: The environment variables.
        cli: The other CLI whose settings count too.
        working_folder: The workspace where nobody names another one; `None` where there is none.
        streams: What was in config files that can be read only once, such as a shell's `<(...)`.
        links: Where links among the config files led at the start, and are read.
    """

    config_files: Sequence[str]
    overrides: Mapping[str, Any]
    environ: Mapping[str, str]
    cli: CliName | None
    working_folder: str | None
    streams: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False, compare=False)
    links: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    def read(self, findings: Findings, kept: Kept) -> tuple[list[Layer], list[SettingsFile], Kept]:
        """Every layer in canonical form, the weakest first, and every place that was looked at.

        Args:
            findings: Takes the warnings and the problems.
            kept: What restricted so far in the files of workspaces.

        Returns:
            Besides, what restricts in them from now on.

        Raises:
            SettingsError: A file of the operator is there and cannot be used.
        """
        operators, places = self._operators(findings)
        for layer in operators:
            self._normalise(layer, findings)
        own = {real_path(self.place_of(place.path)) for place in places}
        trust = read_trust(trust_file(self.environ), findings)
        layers = list(operators)
        restricting: dict[str, Layer] = {}
        for folder in self._workspace_folders(operators):
            files = [file for file in find_files(folder, self._clis()) if real_path(file.path) not in own]
            trusted, seen = read_trusted(files, trust, findings)
            places += seen
            for layer in trusted:
                self._normalise(layer, findings)
            trusted += still_counting(kept, seen, findings)
            for layer in trusted:
                confine(layer, operators, findings)
            restricting |= restrictions_of(trusted)
            layers += trusted
        return sorted(layers, key=lambda layer: layer.rank), places, restricting

    def place_of(self, path: str) -> str:
        """The file that is read for a config file: where a link led at the start."""
        return self.links.get(path, path)

    def _clis(self) -> list[AgentCli]:
        return [AGENT_CLIS[self.cli]] if self.cli is not None else []

    def _normalise(self, layer: Layer, findings: Findings) -> None:
        reader = LayerReader(layer.source, layer.folder, layer.rank is not Rank.COMMAND_LINE, self.environ, findings)
        reader.normalise(layer.data, layer.names)
        if layer.rank in _OF_CLIS:
            expand_texts(layer.data, layer.source, self.environ, findings)

    def _operators(self, findings: Findings) -> tuple[list[Layer], list[SettingsFile]]:
        layers: list[Layer] = []
        places: list[SettingsFile] = []

        def optional(path: str, rank: Rank) -> None:
            data = read_user_file(path, findings)
            places.append(SettingsFile(path, rank, FileState.ABSENT if data is None else FileState.READ))
            if data is not None:
                data = data if rank is Rank.USER else translated(data, path, findings)
                layers.append(Layer(rank, path, data, os.path.dirname(path)))

        own = user_file(self.environ)
        if own is not None:
            optional(own, Rank.USER)
        for cli in self._clis():
            defaults, overrides = cli.system_files(self.environ)
            layers.append(Layer(Rank.CLI_DEFAULTS, f"--settings {self.cli}", cli.defaults(self.environ)))
            optional(defaults, Rank.SYSTEM_DEFAULTS)
            optional(os.path.join(cli.user_folder(self.environ), FILE), Rank.CLI_USER)
            optional(overrides, Rank.SYSTEM_OVERRIDES)
        for path in self.config_files:
            layers.append(Layer(Rank.CONFIG, path, self._config(path, findings), os.path.dirname(path)))
            places.append(SettingsFile(path, Rank.CONFIG, FileState.READ))
        given = json.loads(json.dumps(dict(self.overrides)))  # The caller's own stay as they are.
        layers.append(Layer(Rank.COMMAND_LINE, COMMAND_LINE, given))
        return layers, places

    def _config(self, path: str, findings: Findings) -> Tree:
        content = self.streams.get(path)
        return parse(read_config_file(self.place_of(path)) if content is None else content, path, findings)

    def _workspace_folders(self, operators: Sequence[Layer]) -> list[str]:
        """The folders that bring settings: the operator's, else the working folder; never what a client names."""
        for layer in sorted(operators, key=lambda layer: layer.rank, reverse=True):
            holder = holder_of(layer.data, ("workspace", "roots"))
            roots: Any = holder.get("roots") if holder is not None else None
            if isinstance(roots, list) and roots:
                named = [root for root in cast("list[Any]", roots) if isinstance(root, str) and "\0" not in root]
                return list(dict.fromkeys(real_path(root) for root in named))
        if self.working_folder is None:
            return []
        folder = real_path(self.working_folder)
        is_project = folder not in (os.path.dirname(folder), real_path(home_folder(self.environ)))
        return [folder] if is_project else []


def working_folder() -> str | None:
    """The folder that we were started in, if it is still there."""
    try:
        return os.getcwd()
    except OSError:
        return None
