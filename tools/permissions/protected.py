"""Files that steer programs outside the sandbox: whoever writes them makes others run what it likes.

An editor runs the tasks of its folder, git runs hooks and commands from its configuration, an agent obeys its settings.
One list for two readers: the permission check asks before a file tool changes such a file, whatever the mode; the
sandbox does not let commands write them. A path counts by its text, whether something is there or not.
"""

from __future__ import annotations

import unicodedata

from tools.filesystem.ignore import AGENT_IGNORE_FILES

EDITOR_FOLDERS = {".vscode", ".idea", ".zed", ".fleet", ".devcontainer"}
"""Tasks, launch configurations, paths of interpreters and servers: run when the folder is opened."""

AGENT_FOLDERS = {
    ".coretools",
    ".qwen",
    ".gemini",
    ".claude",
    ".cursor",
    ".codex",
    ".windsurf",
    ".continue",
    ".kiro",
    ".amazonq",
    ".roo",
    ".opencode",
}
"""Settings of agents: permissions, hooks, servers to start."""

ACCOUNT_FOLDERS = {".ssh", ".gnupg"}
"""Who may log in, and commands to connect by."""

AGENT_FILES = {".mcp.json"}
"""Servers that agents start."""

SHELL_FILES = {
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".pam_environment",
    ".envrc",
}
"""Run when a shell or a session starts, or (direnv) when a shell enters the folder."""

PROGRAM_FILES = {".gitconfig", ".exrc", ".nvimrc", ".nvim.lua", ".gdbinit", ".lldbinit"}
"""Commands that git, vim and debuggers take from a folder or from the home."""

WORKSPACE_SUFFIX = ".code-workspace"
"""A VS Code workspace: settings and tasks in one file."""

HOME_FOLDERS = {
    (".config", "autostart"),
    (".config", "systemd"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "environment.d"),
    (".local", "bin"),
}
"""Folders of a home whose files start by themselves or stand before other programs."""

REPOSITORY = ".git"
"""A repository's own folder, or a file that says where it is."""

REPOSITORY_FOLDERS = {"hooks"}
"""Programs that git runs."""

REPOSITORY_FILES = {"config", "config.worktree", "commondir"}
"""Commands that git runs (`core.fsmonitor`, `core.hooksPath`, filters), and where to find other such files."""

ABSENT_FOLDERS = (".vscode", ".coretools", ".qwen", ".gemini", ".claude", ".cursor", ".codex")
ABSENT_FILES = (".mcp.json",)
"""What the sandbox keeps from being made at the top of a workspace root where it is not there: the names that programs
look for in each project and whose word they take at once."""

_FOLDER_REASONS = (
    dict.fromkeys(EDITOR_FOLDERS, "an editor runs what its settings and tasks say")
    | dict.fromkeys(AGENT_FOLDERS, "an agent takes its permissions and programs from its settings")
    | dict.fromkeys(ACCOUNT_FOLDERS, "it says who may log in and how")
)
_FILE_REASONS = (
    dict.fromkeys(AGENT_FILES, "agents start the servers it names")
    | dict.fromkeys(AGENT_IGNORE_FILES, "it says what is hidden from agents")
    | dict.fromkeys(SHELL_FILES, "shells run it")
    | dict.fromkeys(PROGRAM_FILES, "programs run the commands in it")
)
_GIT_REASON = "git runs what its hooks and its configuration say"
_HOME_REASON = "what is in it starts by itself"
_SHORT_NAMES = {"git~1": REPOSITORY}
"""How Windows also calls it."""


def folded(name: str) -> str:
    """A name as careless file systems compare it: without case, invisible characters, streams, last dots."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    bare = visible.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(bare, bare)


def is_protected(relative_path: str) -> str | None:
    """Why a file may not be written without a question, or `None` where it may.

    Args:
        relative_path: A path beneath a workspace root; what is there does not matter.
    """
    parts = [folded(part) for part in relative_path.replace("\\", "/").split("/") if part not in {"", "."}]
    for at, part in enumerate(parts):
        reason = _reason_of_name(part) or _reason_of_pair(parts, at)
        if reason is not None:
            return reason
        if part == REPOSITORY:
            return _reason_in_repository(parts[at + 1 :])
    return None


def is_steering_name(name: str, folder: str = "") -> bool:
    """Whether a name makes what bears it protected, with all it holds; `.git` has rules of its own.

    Args:
        name: The name of a file or folder.
        folder: The name of the folder that it is in.
    """
    bare = folded(name)
    return _reason_of_name(bare) is not None or (folded(folder), bare) in HOME_FOLDERS


def is_guarded_in_repository(parts: list[str]) -> bool:
    """Whether a path within a repository's own folder is protected; the parts of the path are folded."""
    if not parts:
        return False
    if parts[0] in {"modules", "worktrees"}:
        # A submodule's name may have slashes, and its folder is like another `.git`.
        return any(part in REPOSITORY_FOLDERS or part in REPOSITORY_FILES for part in parts[1:])
    return parts[0] in REPOSITORY_FOLDERS or (len(parts) == 1 and parts[0] in REPOSITORY_FILES)


def _reason_in_repository(rest: list[str]) -> str | None:
    # `.git` itself: a file of that name leads git to another configuration.
    return _GIT_REASON if not rest or is_guarded_in_repository(rest) else None


def _reason_of_name(name: str) -> str | None:
    if name.endswith(WORKSPACE_SUFFIX):
        return _FOLDER_REASONS[".vscode"]
    return _FOLDER_REASONS.get(name) or _FILE_REASONS.get(name)


def _reason_of_pair(parts: list[str], at: int) -> str | None:
    return _HOME_REASON if tuple(parts[at : at + 2]) in HOME_FOLDERS else None
