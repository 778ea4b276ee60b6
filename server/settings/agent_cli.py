"""The settings files of Qwen Code and Gemini CLI: where they are, and what of them means something here.

Both know two shapes: flat keys (`coreTools`), and keys in sections (`tools.core`). What is about their own face, their
model or their account is passed over in silence; what restricts, and has no counterpart here, is told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from server.settings.errors import Findings, dotted
from server.settings.files import home_folder
from server.settings.merge import Tree, holder_of
from server.settings.spellings import OTHER_SPELLINGS
from server.settings.tool_models import MAX_COUNT
from tools.execution.time_limit import MAX_TIMEOUT

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


def _positive(value: Any) -> int | None:
    """A limit; there, none or a negative one is no limit."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(value, MAX_COUNT) if is_number and value > 0 else None


def _milliseconds(seconds: Any) -> int | None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return max(0, min(int(seconds * 1000), MAX_TIMEOUT)) if is_number else None


def _mode(value: Any) -> Any:
    return "auto-edit" if value in ("auto_edit", "autoEdit") else value


def _as_it_is(value: Any) -> Any:
    return value


_TRANSLATED: Mapping[tuple[str, ...], tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    ("tools", "approvalMode"): (("approvalMode",), _mode),
    ("approvalMode",): (("approvalMode",), _mode),
    ("general", "defaultApprovalMode"): (("approvalMode",), _mode),
    ("yolo",): (("approvalMode",), lambda value: "yolo" if value is True else None),
    ("tools", "shell", "inactivityTimeout"): (("shell", "silenceTimeout"), _milliseconds),
    ("tools", "truncateToolOutputThreshold"): (("limits", "readChars"), _positive),
    ("truncateToolOutputThreshold",): (("limits", "readChars"), _positive),
    ("tools", "truncateToolOutputLines"): (("limits", "readLines"), _positive),
    ("truncateToolOutputLines",): (("limits", "readLines"), _positive),
    ("context", "fileFiltering", "respectGitIgnore"): (("workspace", "respectGitIgnore"), _as_it_is),
    ("fileFiltering", "respectGitIgnore"): (("workspace", "respectGitIgnore"), _as_it_is),
    ("context", "fileFiltering", "respectQwenIgnore"): (("workspace", "respectAgentIgnore"), _as_it_is),
    ("fileFiltering", "respectQwenIgnore"): (("workspace", "respectAgentIgnore"), _as_it_is),
    ("context", "fileFiltering", "respectGeminiIgnore"): (("workspace", "respectAgentIgnore"), _as_it_is),
    ("fileFiltering", "respectGeminiIgnore"): (("workspace", "respectAgentIgnore"), _as_it_is),
}
"""Keys whose value means something here under another name, in another unit or in other words."""

_TAKEN = (*_SPELLED_ALIKE, *(other for other in OTHER_SPELLINGS if other not in _TRANSLATED))
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
    for path, (target, convert) in _TRANSLATED.items():
        value = convert(_at(data, path))
        if value is not None:
            _put(result, target, value)
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
