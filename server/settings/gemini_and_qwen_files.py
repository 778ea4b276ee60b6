"""The settings files of Qwen Code and Gemini CLI: where they are, and which of their keys are used here.

Keys about the CLIs' user interface, model or account are ignored silently. Keys that restrict something and have no
counterpart here are reported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from server.settings.canonical_form import FOREIGN_KEYS, INVALID, MODE_ALIASES, Converters, convert_keys
from server.settings.layers import REFUSING
from server.settings.section_model import Diagnostics, KeyPath, dotted, key_paths
from server.settings.settings_files import Tree, home_folder, set_default, value_at
from server.settings.upstream_entries import EXPANDED_IN_SERVERS
from server.settings.variable_expansion import VariableExpander
from tools.contract.call_options import ApprovalMode

FILE = "settings.json"
CliName = Literal["qwen", "gemini"]


@dataclass(frozen=True, slots=True)
class AgentCli:
    """Qwen Code or Gemini CLI: where its files are, and its defaults for memories."""

    title: str
    folder: str  # the name of the CLI's folder, in the home folder and in projects
    memory_file: str
    memory_section: str  # the heading above the CLI's memories, in the memory file
    system: Mapping[str, str]  # the CLI's folder for machine-wide files, keyed by `sys.platform`
    variable: str  # the prefix of the environment variables that set the location of the machine-wide files
    home_variable: str
    home_is_folder: bool  # whether `home_variable` names the folder itself rather than its parent

    def user_folder(self, environ: Mapping[str, str]) -> str:
        override = environ.get(self.home_variable, "")
        if override and self.home_is_folder:
            return override
        return os.path.join(override or home_folder(environ), self.folder)

    def system_files(self, environ: Mapping[str, str], platform: str = sys.platform) -> tuple[str, str]:
        """Return the CLI's system-wide files: the one that users can override, and the one that they cannot."""
        folder = self.system.get(platform, self.system["linux"])
        if platform == "win32":
            folder = os.path.join(environ.get("ProgramData", "C:\\ProgramData"), folder)
        overrides = environ.get(f"{self.variable}_SYSTEM_SETTINGS_PATH") or os.path.join(folder, FILE)
        usual_defaults = os.path.join(os.path.dirname(overrides), "system-defaults.json")
        return environ.get(f"{self.variable}_SYSTEM_DEFAULTS_PATH") or usual_defaults, overrides

    def defaults(self, environ: Mapping[str, str]) -> Tree:
        """Return the defaults that replace this server's own when the CLI's settings are used."""
        folder = self.user_folder(environ)
        return {"memory": {"fileName": [self.memory_file], "globalFolder": folder, "section": self.memory_section}}


AGENT_CLIS: Mapping[CliName, AgentCli] = {
    "qwen": AgentCli(
        title="Qwen Code",
        folder=".qwen",
        memory_file="QWEN.md",
        memory_section="Qwen Added Memories",
        system={"linux": "/etc/qwen-code", "darwin": "/Library/Application Support/QwenCode", "win32": "qwen-code"},
        variable="QWEN_CODE",
        home_variable="QWEN_HOME",
        home_is_folder=True,
    ),
    "gemini": AgentCli(
        title="Gemini CLI",
        folder=".gemini",
        memory_file="GEMINI.md",
        memory_section="Gemini Added Memories",
        system={"linux": "/etc/gemini-cli", "darwin": "/Library/Application Support/GeminiCli", "win32": "gemini-cli"},
        variable="GEMINI_CLI",
        home_variable="GEMINI_CLI_HOME",
        home_is_folder=False,
    ),
}
"""Both CLIs, with the locations from their documentation."""

_SAME_KEYS = key_paths("""
    mcpServers mcp.serverCommand mcp.allowed mcp.excluded
    tools.discoveryCommand tools.callCommand tools.core tools.allowed tools.exclude tools.confirmationRequired
    permissions.allow permissions.ask permissions.deny
""")
"""Keys of the CLIs that have the same name and meaning in this server's settings."""

_EMPTY_IS_ALL = {("mcp", "allowed"), ("allowMCPServers",)}  # in the CLIs, an empty list allows all servers


def _mode(value: Any) -> Any:
    mode = MODE_ALIASES.get(value, value) if isinstance(value, str) else ""
    return mode if mode in list(ApprovalMode) else INVALID


_MODES: Converters = dict.fromkeys(  # the key for the approval mode depends on the version of the CLI
    key_paths("tools.approvalMode approvalMode general.defaultApprovalMode"), (("approvalMode",), _mode)
)
_SWITCHES: Converters = {
    (*section, cli_key): (("workspace", canonical), lambda value: value if isinstance(value, bool) else INVALID)
    for cli_key, canonical in (
        ("respectGitIgnore", "respectGitIgnore"),
        ("respectQwenIgnore", "respectAgentIgnore"),
        ("respectGeminiIgnore", "respectAgentIgnore"),
    )
    for section in (("context", "fileFiltering"), ("fileFiltering",))
}
"""Boolean keys that are accepted only in the CLIs' files."""

_SANDBOX = 'commands run in the sandbox here if it works; shell.sandbox "required" makes it mandatory'

_RESTRICTIONS: Mapping[tuple[str, ...], str] = {
    ("tools", "sandbox"): _SANDBOX,
    ("sandbox",): _SANDBOX,
    ("security", "disableYoloMode"): "yolo is accepted only on the command line here, whatever this key says",
    ("security", "disableAlwaysAllow"): "answers that allow calls permanently are still offered",
    ("security", "environmentVariableRedaction", "blocked"): "commands get only a few environment variables here",
    ("context", "fileFiltering", "customIgnoreFilePaths"): "these files hide nothing here; use .coretoolsignore",
    ("hooks",): "hooks do not run here, so they cannot refuse a call",
    ("policyPaths",): "policy files are not read; put rules into permissions",
    ("adminPolicyPaths",): "policy files are not read; put rules into permissions",
    ("admin",): "the restrictions that an administrator sets under this key do not apply here",
}
"""Keys that restrict what a CLI may do, each with a note on what applies here instead."""


def translate(data: Tree, source: str, diagnostics: Diagnostics) -> Tree:
    """Return the values of `data` that are used here, under canonical keys or known aliases."""
    result: Tree = {}
    for path in (*_SAME_KEYS, *(alias for alias in FOREIGN_KEYS if alias not in _MODES)):
        value = value_at(data, path)
        if value is not None and not (value == [] and path in _EMPTY_IS_ALL):
            set_default(result, path, value)
    convert_keys(data, _MODES, result, source, diagnostics, "coretools-mcp has no such mode")
    if value_at(data, ("yolo",)) is True:
        set_default(result, ("approvalMode",), "yolo")
    convert_keys(data, _SWITCHES, result, source, diagnostics, "it must be true or false")
    for path, note in _RESTRICTIONS.items():
        if value_at(data, path):
            diagnostics.warn(source, f"{dotted(path)} is a restriction that has no effect here: {note}.")
    return result


_EXPANDED_LATER = key_paths("tools.discoveryCommand tools.callCommand mcp.serverCommand web.search agents")
_ALLOW_RULES = key_paths("permissions.allow tools.allowed tools.core")


def expand_variables(data: Tree, source: str, environ: Mapping[str, str], diagnostics: Diagnostics) -> None:
    """Expand, in place, the variables in those strings of a layer that no other code expands.

    Both CLIs expand every string. This server treats rules differently, because a dollar sign in a rule may belong to a
    command. A rule that allows calls stays as written. A rule that asks about calls or refuses them applies both as
    written and with its variables expanded.
    """
    expander = VariableExpander(environ)

    def expand(value: Any, path: KeyPath) -> Any:
        if path in _ALLOW_RULES or path in _EXPANDED_LATER:
            return value
        if len(path) == 3 and path[0] == "mcpServers" and path[2] in EXPANDED_IN_SERVERS:
            return value
        if isinstance(value, dict):
            return {key: expand(item, (*path, key)) for key, item in cast("Tree", value).items()}
        if isinstance(value, list):
            items = cast("list[Any]", value)
            values = [expand(item, (*path, index)) for index, item in enumerate(items)]
            if path in REFUSING:  # an empty string would be a rule about every tool
                return [item for item in values if item != ""] + [item for item in items if item not in values]
            return values
        return expander.text(value, path) if isinstance(value, str) else value

    for key in list(data):
        data[key] = expand(data[key], (key,))
    expander.warn_of_missing(diagnostics, lambda _: source, ", so it stays as written.")
