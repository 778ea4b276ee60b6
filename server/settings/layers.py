"""The settings from one source, and all sources merged, with the source of each value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, cast

from server.settings.section_model import KeyPath, key_paths
from server.settings.settings_files import Tree, parent_at


class SettingsScope(IntEnum):
    """The kind of a layer's source; higher values win. "The other CLI" is Qwen Code or Gemini CLI (`--settings`)."""

    CLI_DEFAULTS = 0  # the defaults that `--settings` implies, before any file
    SYSTEM_DEFAULTS = 1  # the other CLI's system-wide defaults
    USER = 2  # this server's user file
    CLI_USER = 3  # the other CLI's user file
    CLI_PROJECT = 4  # the other CLI's file in the workspace
    WORKSPACE = 5  # this server's file in the workspace
    SYSTEM_OVERRIDES = 6  # the other CLI's system-wide overrides
    CONFIG = 7  # a file named on the command line
    COMMAND_LINE = 8

    @property
    def is_of_agent_cli(self) -> bool:
        """Whether layers of this scope are files of the other CLI."""
        scopes = SettingsScope
        return self in (scopes.SYSTEM_DEFAULTS, scopes.CLI_USER, scopes.CLI_PROJECT, scopes.SYSTEM_OVERRIDES)

    @property
    def adds_rules(self) -> bool:
        """Whether the lists of rules in such a layer are added to those of lower layers instead of replacing them."""
        return SettingsScope.CLI_USER <= self <= SettingsScope.SYSTEM_OVERRIDES or self is SettingsScope.COMMAND_LINE


@dataclass(slots=True)
class Layer:
    scope: SettingsScope
    source: str  # the name of the source in messages, usually the path of a file
    data: Tree
    folder: str = ""  # the folder that relative paths start from; empty for the working folder
    names: dict[str, str] = field(default_factory=dict[str, str])  # the configured name of each server, keyed by alias


class FileState(StrEnum):
    """The state of a possible settings file, as the end of a sentence about the file."""

    READ = "read"
    ABSENT = "missing"
    UNTRUSTED = "not trusted"
    CHANGED = "changed since it was trusted"
    UNUSABLE = "not valid"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    path: str
    scope: SettingsScope
    state: FileState

    @property
    def is_in_workspace(self) -> bool:
        """Whether the file belongs to a workspace and therefore must be trusted."""
        return self.scope in (SettingsScope.CLI_PROJECT, SettingsScope.WORKSPACE)


REFUSING = key_paths("permissions.ask permissions.deny tools.exclude tools.confirmationRequired mcp.excluded")
"""Keys that list calls to ask about or refuse, or tools and servers to exclude. A longer list restricts more."""
ADDED_RULES: tuple[KeyPath, ...] = (*REFUSING, *key_paths("permissions.allow tools.allowed"))
"""Keys of the lists that some layers extend instead of replacing (`SettingsScope.adds_rules`). These layers cannot
remove another layer's restrictions.
"""


class MergedLayers:
    """All layers in canonical form, merged by key.

    A later value replaces an earlier one, and an entry of `mcpServers` is replaced as a whole. Lists of rules may be
    added together instead (`SettingsScope.adds_rules`).
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._layers: list[Layer] = []
        self.data: Tree = {}  # the values under canonical keys; the entries of `mcpServers` under their aliases
        self.names: dict[str, str] = {}  # the configured name of each server, keyed by alias
        for layer in layers:
            self.add(layer)

    def add(self, layer: Layer) -> None:
        """Add a layer that takes precedence over all earlier ones."""
        self._layers.append(layer)
        self.names |= layer.names
        self.data = _merge(self.data, layer.data, (), adds_rules=layer.scope.adds_rules)

    def source_of(self, path: KeyPath) -> str:
        """Return the source of the value at `path`, or else of the nearest enclosing value that a layer has set.

        If several layers have contributed rules, all their sources are named. Without any source, returns `default`.
        """
        names = tuple(step for step in path if isinstance(step, str))
        for length in range(len(names), 0, -1):
            layers = [layer for layer in self._layers if _has_value(layer.data, names[:length])]
            if len(names) > 2 and names[0] == "mcpServers":  # a later layer replaces the whole entry
                entries = [layer for layer in self._layers if _has_value(layer.data, names[:2])]
                layers = [layer for layer in layers if layer is entries[-1]]
            if layers and names[:length] in ADDED_RULES:
                first = max((index for index, layer in enumerate(layers) if not layer.scope.adds_rules), default=0)
                return " and ".join(dict.fromkeys(layer.source for layer in layers[first:]))
            if layers:
                return layers[-1].source
        return "default"


def _merge(lower: Tree, upper: Tree, path: KeyPath, *, adds_rules: bool) -> Tree:
    result = dict(lower)
    for key, value in upper.items():
        key_path, lower_value = (*path, key), lower.get(key)
        if isinstance(value, dict) and isinstance(lower_value, dict) and path != ("mcpServers",):
            result[key] = _merge(cast("Tree", lower_value), cast("Tree", value), key_path, adds_rules=adds_rules)
        elif adds_rules and key_path in ADDED_RULES and isinstance(value, list) and isinstance(lower_value, list):
            rules = cast("list[Any]", lower_value)
            result[key] = [*rules, *(rule for rule in cast("list[Any]", value) if rule not in rules)]
        else:
            result[key] = value
    return result


def _has_value(data: Tree, path: KeyPath) -> bool:
    parent = parent_at(data, path)
    return parent is not None and path[-1] in parent
