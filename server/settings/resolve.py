"""What values stand for in this process: variables expanded, keys taken from the environment, gaps told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from server.settings.errors import Findings, KeyPath, dotted, shown_name
from server.settings.models import Settings
from server.settings.section import wire_name
from server.settings.tool_models import AgentSettings, ToolSettings, WebSearchSettings
from server.settings.variables import HINT, Expansion

SEARCH_VARIABLES: Mapping[tuple[str, str], str] = {
    ("tavily", "api_key"): "TAVILY_API_KEY",
    ("brave", "api_key"): "BRAVE_API_KEY",
    ("google", "api_key"): "GOOGLE_API_KEY",
    ("google", "search_engine_id"): "GOOGLE_SEARCH_ENGINE_ID",
}
"""Where the key of a search provider stands if the settings give none, by the provider's usual name for it."""

SEARCH_TEXTS: Mapping[str, tuple[str, ...]] = {
    "tavily": ("api_key", "url"),
    "brave": ("api_key", "url"),
    "google": ("api_key", "search_engine_id", "url"),
    "searxng": ("url",),
}
"""The texts of each search provider."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves everything but the servers of `mcpServers`.

    Args:
        environ: Where variables are looked up.
        source_of: The layer a value came from.
        findings: Takes the warnings and the problems.
    """

    environ: Mapping[str, str]
    source_of: Callable[[KeyPath], str]
    findings: Findings

    def resolve(self, settings: Settings) -> Settings:
        """The settings with variables expanded.

        Args:
            settings: Validated, as they were written.
        """
        self._check_folders(settings)
        changed: dict[str, Any] = {}
        if settings.tools.discovery_command or settings.tools.call_command:
            changed["tools"] = self._tools(settings.tools)
        search = self._search(settings.web.search)
        if search is not settings.web.search:
            changed["web"] = settings.web.model_copy(update={"search": search})
        if settings.agents:
            changed["agents"] = self._agents(settings.agents)
        return settings.model_copy(update=changed) if changed else settings

    def _check_folders(self, settings: Settings) -> None:
        """Refuse folders behind a link that we may not follow: nobody could tell what lies in them."""
        for path, folder in _folders(settings):
            try:
                os.path.realpath(folder)
            except OSError:
                said = f"{dotted(path)} leads through a link that this server may not follow; name another folder."
                self.findings.refuse(self.source_of(path), said)
            except ValueError:
                pass  # it holds NUL, which was refused with its layer

    def _tools(self, tools: ToolSettings) -> ToolSettings:
        commands = {"discovery_command": tools.discovery_command, "call_command": tools.call_command}
        expanded = {name: self._command(command, ("tools", wire_name(name))) for name, command in commands.items()}
        return tools.model_copy(update=expanded)

    def _command(self, command: tuple[str, ...] | None, path: KeyPath) -> tuple[str, ...] | None:
        expansion = Expansion(self.environ)
        expanded = expansion.of_texts(command or (), path)
        return None if self._tell_missing(expansion, "the command is not used") else expanded or None

    def _search(self, search: WebSearchSettings) -> WebSearchSettings:
        changed: dict[str, Any] = {}
        for name, keys in SEARCH_TEXTS.items():
            provider = getattr(search, name)
            values = {key: self._search_value(name, key, getattr(provider, key)) for key in keys}
            if any(getattr(provider, key) != value for key, value in values.items()):
                changed[name] = provider.model_copy(update=values)
        resolved = search.model_copy(update=changed) if changed else search
        if search.default is not None and search.default not in resolved.configured:
            path = ("web", "search", "default")
            said = f"{dotted(path)} is {search.default}, which cannot be asked: its key or its address is missing."
            self.findings.warn(self.source_of(path), said)
        return resolved

    def _search_value(self, name: str, key: str, given: str | None) -> str | None:
        variable = SEARCH_VARIABLES.get((name, key))
        if not given:
            return (self.environ.get(variable) or None) if variable is not None else None
        expansion = Expansion(self.environ)
        expanded = expansion.of_text(given, ("web", "search", name, wire_name(key)))
        return None if self._tell_missing(expansion, f"{name} is not asked") else expanded

    def _agents(self, agents: Mapping[str, AgentSettings]) -> dict[str, AgentSettings]:
        resolved: dict[str, AgentSettings] = {}
        for name, agent in agents.items():
            path = ("agents", name)
            if not (agent.command or "").strip():
                said = f"{dotted(path)}.command is missing or empty; name the program that takes the tasks."
                self.findings.refuse(self.source_of(path), said)
                continue
            expansion = Expansion(self.environ)
            changed = {
                "command": expansion.of_text(agent.command, (*path, "command")),
                "args": expansion.of_texts(agent.args, (*path, "args")),
                "env": expansion.of_table(agent.env, (*path, "env")),
            }
            if not self._tell_missing(expansion, f"the agent {shown_name(name)} is left out"):
                resolved[name] = agent.model_copy(update=changed)
        return resolved

    def _tell_missing(self, expansion: Expansion, consequence: str) -> bool:
        """Warn of variables that are not set; whether there are any."""
        for where, variable in expansion.missing:
            named = f"{dotted(where)} names the environment variable {shown_name(variable)}"
            said = f"{named}, which is not set; {consequence}. {HINT}"
            self.findings.warn(self.source_of(where), said)
        return bool(expansion.missing)


def _folders(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """The folders that the settings name, each with its key."""
    yield from ((("workspace", "roots", index), root) for index, root in enumerate(settings.workspace.roots))
    yield from ((("shell", "readable", index), path) for index, path in enumerate(settings.shell.readable))
    if settings.memory.global_folder is not None:
        yield ("memory", "globalFolder"), settings.memory.global_folder
