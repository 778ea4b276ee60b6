"""The settings files of Qwen Code and Gemini CLI: where they are, and what of them means something here.

Both know two shapes: flat keys (`coreTools`), and keys in sections (`tools.core`). What is about their own face, their
model or their account is passed over in silence; what restricts, and has no counterpart here, is told.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from server.settings.errors import Findings, dotted
from server.settings.files import home_folder
from server.settings.merge import Tree, holder_of
from server.settings.proxy_models import UpstreamSettings
from server.settings.spellings import KNOWN_ELSEWHERE, MODES, respell_transports, warn_of_difference
from tools.contract.context import ApprovalMode

FILE = "settings.json"
DEFAULTS_FILE = "system-defaults.json"

CliName = Literal["qwen", "gemini"]


@dataclass(frozen=True, slots=True)
class AgentCli:
    """One of the two.

    Args:
        title: Its name.
        folder: The name of its folder in a home and in a project.
        memory_file: The file that it keeps memories in.
        memory_section: The heading that it keeps them below.
        system: Its folder for this machine, by `sys.platform`; on Windows below the folder of program data.
        variable: What the names of its environment variables for the files of this machine begin with.
        home_variable: The variable that names another home.
        home_is_folder: Whether that one names the folder itself, and not what it lies in.
    """

    title: str
    folder: str
    memory_file: str
    memory_section: str
    system: Mapping[str, str]
    variable: str
    home_variable: str
    home_is_folder: bool

    def user_folder(self, environ: Mapping[str, str]) -> str:
        """Its folder of this user."""
        other = environ.get(self.home_variable, "")
        if other and self.home_is_folder:
            return other
        return os.path.join(other or home_folder(environ), self.folder)

    def system_files(self, environ: Mapping[str, str], platform: str = sys.platform) -> tuple[str, str]:
        """Its files for this machine: what users may change, and what they may not."""
        folder = self.system.get(platform, self.system["linux"])
        if platform == "win32":
            folder = os.path.join(environ.get("ProgramData", "C:\\ProgramData"), folder)
        overrides = environ.get(f"{self.variable}_SYSTEM_SETTINGS_PATH") or os.path.join(folder, FILE)
        beside = os.path.join(os.path.dirname(overrides), DEFAULTS_FILE)
        return environ.get(f"{self.variable}_SYSTEM_DEFAULTS_PATH") or beside, overrides

    def defaults(self, environ: Mapping[str, str]) -> Tree:
        """What is different from our own defaults where its settings are read."""
        return {
            "memory": {
                "fileName": [self.memory_file],
                "globalFolder": self.user_folder(environ),
                "section": self.memory_section,
            }
        }


AGENT_CLIS: Mapping[CliName, AgentCli] = {
    "qwen": AgentCli(
        title="Qwen Code",
        folder=".qwen",
        memory_file="QWEN.md",
        memory_section="Qwen Added Memories",
        system={
            "linux": "/etc/qwen-code",
            "darwin": "/Library/Application Support/QwenCode",
            "win32": "qwen-code",
        },
        variable="QWEN_CODE",
        home_variable="QWEN_HOME",
        home_is_folder=True,
    ),
    "gemini": AgentCli(
        title="Gemini CLI",
        folder=".gemini",
        memory_file="GEMINI.md",
        memory_section="Gemini Added Memories",
        system={
            "linux": "/etc/gemini-cli",
            "darwin": "/Library/Application Support/GeminiCli",
            "win32": "gemini-cli",
        },
        variable="GEMINI_CLI",
        home_variable="GEMINI_CLI_HOME",
        home_is_folder=False,
    ),
}
"""Where their documentation says that their files are."""

_SPELLED_ALIKE = (
    ("mcpServers",),
    ("mcp", "serverCommand"),
    ("mcp", "allowed"),
    ("mcp", "excluded"),
    ("tools", "discoveryCommand"),
    ("tools", "callCommand"),
    ("tools", "core"),
    ("tools", "allowed"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("permissions", "allow"),
    ("permissions", "ask"),
    ("permissions", "deny"),
)
"""Keys that have the same name and the same meaning here."""

_EMPTY_IS_ALL = {("mcp", "allowed"), ("allowMCPServers",)}
"""Lists that leave nothing out there where they are empty."""


_MODE_KEYS = (("tools", "approvalMode"), ("approvalMode",), ("general", "defaultApprovalMode"))
"""Where the approval mode stands in their versions; the first that is given counts."""

_ALIKE = {
    ("context", "fileFiltering", "respectGitIgnore"): ("workspace", "respectGitIgnore"),
    ("fileFiltering", "respectGitIgnore"): ("workspace", "respectGitIgnore"),
    ("context", "fileFiltering", "respectQwenIgnore"): ("workspace", "respectAgentIgnore"),
    ("fileFiltering", "respectQwenIgnore"): ("workspace", "respectAgentIgnore"),
    ("context", "fileFiltering", "respectGeminiIgnore"): ("workspace", "respectAgentIgnore"),
    ("fileFiltering", "respectGeminiIgnore"): ("workspace", "respectAgentIgnore"),
}
"""Keys of their files alone that are true or false, and ours for each; of two, the first that is given counts."""

_TAKEN = (*_SPELLED_ALIKE, *(other for other in KNOWN_ELSEWHERE if other not in _MODE_KEYS))
"""Keys that mean here what they mean there; their other spellings are put right with those of all layers."""

_SANDBOX = 'commands run in our own sandbox where it works, and shell.sandbox "required" insists on it'

_RESTRICTIONS: Mapping[tuple[str, ...], str] = {
    ("tools", "sandbox"): _SANDBOX,
    ("sandbox",): _SANDBOX,
    ("security", "disableYoloMode"): "yolo counts only on the command line here, whatever this key says",
    ("security", "disableAlwaysAllow"): "answers of always are still offered",
    ("security", "environmentVariableRedaction", "blocked"): "commands get a short list of variables here",
    ("context", "fileFiltering", "customIgnoreFilePaths"): "these files hide nothing here; .coretoolsignore does",
    ("hooks",): "hooks do not run here, so none of them can refuse a call",
    ("policyPaths",): "policy files are not read; rules stand in permissions",
    ("adminPolicyPaths",): "policy files are not read; rules stand in permissions",
    ("admin",): "what an administrator forbids there is not forbidden here",
}
"""Keys that restrict, with what there is here in their place."""


def translated(data: Tree, source: str, findings: Findings) -> Tree:
    """What of such a file means something here, in our spelling or in one that we know.

    Args:
        data: The file.
        source: Its path, for sentences.
        findings: Takes a warning for what restricts there and not here.
    """
    result: Tree = {}
    for path in _TAKEN:
        value = _at(data, path)
        if value is not None and not (value == [] and path in _EMPTY_IS_ALL):
            _put(result, path, value)
    respell_transports(result)
    _keep_usable_servers(result, source, findings)
    mode = _mode(data, source, findings)
    if mode is not None:
        result["approvalMode"] = mode
    _put_alike(data, result, source, findings)
    for path, instead in _RESTRICTIONS.items():
        if _at(data, path):
            findings.warn(source, f"{dotted(path)} restricts, and is not known here: {instead}.")
    return result


def _at(data: Tree, path: tuple[str, ...]) -> Any:
    holder = holder_of(data, path)
    return holder.get(path[-1]) if holder is not None else None


def _put(result: Tree, path: tuple[str, ...], value: Any) -> None:
    holder = holder_of(result, path, create=True)
    if holder is not None:
        holder.setdefault(path[-1], value)


def _mode(data: Tree, source: str, findings: Findings) -> str | None:
    """The approval mode in our words. One that is not known here is told: theirs come and go with their versions."""
    found: str | None = None
    counting: tuple[str, ...] = ()
    for path in _MODE_KEYS:
        value = _at(data, path)
        if value is None:
            continue
        mode = MODES.get(value, value) if isinstance(value, str) else ""
        if mode not in list(ApprovalMode):
            findings.warn(source, f"{dotted(path)} is ignored, because this server does not know that mode.")
        elif found is None:
            found, counting = mode, path
        elif found != mode:
            warn_of_difference(path, counting, source, findings)
    return "yolo" if found is None and _at(data, ("yolo",)) is True else found


def _put_alike(data: Tree, result: Tree, source: str, findings: Findings) -> None:
    counting: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, target in _ALIKE.items():
        value = _at(data, path)
        if value is None:
            continue
        if not isinstance(value, bool):
            findings.warn(source, f"{dotted(path)} is ignored, because it is neither true nor false.")
        elif target not in counting:
            counting[target] = path
            _put(result, target, value)
        elif _at(result, target) != value:
            warn_of_difference(path, counting[target], source, findings)


def _keep_usable_servers(result: Tree, source: str, findings: Findings) -> None:
    """Leave out each server of which this one can make nothing: theirs know transports and keys that ours does not."""
    servers: Any = result.get("mcpServers")
    if not isinstance(servers, dict):
        return
    usable: Tree = {}
    for name, entry in cast("Tree", servers).items():
        why = _why_unusable(entry)
        if why:
            findings.warn(source, f"{dotted(('mcpServers', name))} is left out, because {why}.")
        else:
            usable[name] = entry
    result["mcpServers"] = usable


def _why_unusable(entry: Any) -> str:
    """The end of a sentence, without any value, which may be a secret; empty where the entry can be used."""
    from pydantic import ValidationError  # noqa: PLC0415 - only where such a file has servers

    try:
        settings = UpstreamSettings.model_validate_json(json.dumps(entry))
    except ValidationError as error:
        where: tuple[str | int, ...] = error.errors(include_url=False, include_input=False)[0]["loc"]
        return f"this server can make nothing of its {dotted(where)}" if where else "it is no object"
    if settings.transport is None or (settings.transport != "stdio" and settings.endpoint is None):
        return "it names no command and no address that this server knows"
    if settings.transport == "stdio" and not (settings.command or "").strip():
        return "it names no command"
    return ""
