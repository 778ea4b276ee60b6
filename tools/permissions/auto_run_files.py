"""Auto-run files: whoever writes them makes others run what it likes.

An editor runs the tasks of its folder, git runs hooks and commands from its configuration, an agent obeys its settings.
The permission check asks before such a file is changed, whatever the mode. The sandbox keeps commands from writing them
as well, by a mount each, but for those in `ASKED_...`, which would cost it too many. A path counts by its text, whether
something is there or not.

Not in the lists: what is run only when a person names it (`Makefile`, `package.json`), what a program merely shows
(`.Xresources`), and what git takes no commands from (`.gitmodules`, `.gitattributes`).
"""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatchcase

from tools.files.ignore_files import AGENT_IGNORE_FILES

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
    ".junie",
    ".trae",
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
    ".xsessionrc",
    ".bash_completion",
    ".pam_environment",
    ".envrc",
}
"""Run when a shell or a session starts, or (direnv) when a shell enters the folder."""

PROGRAM_FILES = {".gitconfig", ".exrc", ".nvimrc", ".nvim.lua", ".gdbinit", ".lldbinit"}
"""Commands that git, vim and debuggers take from a folder or from the home."""

WORKSPACE_SUFFIX = ".code-workspace"
"""A VS Code workspace: settings and tasks in one file."""

ASKED_FOLDERS = {
    ".vs": "an editor runs what its settings and tasks say",
    ".husky": "git runs the hooks in it",
    ".jj": "jj runs what its configuration says",
    ".emacs.d": "Emacs runs it at its start",
    ".vim": "vim runs it at its start",
}
"""Further folders that are asked about, with the reason. All names are in lower case: they are compared folded."""

_OF_PACKAGES = "package managers run the programs that it names"
_OF_VERSIONS = "it says which programs run in the folder"
_OF_EDITORS = "an editor runs the commands in it"
_AT_START = "a program runs the commands in it at its start"
_AT_COMMIT = "git runs the hooks that it names"

ASKED_FILES = {
    ".devcontainer.json": "an editor runs what its settings and tasks say",
    **dict.fromkeys((".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs"), _OF_PACKAGES),
    **dict.fromkeys((".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".tool-versions"), _OF_VERSIONS),
    **dict.fromkeys((".vimrc", ".gvimrc", ".lvimrc", ".ideavimrc", ".emacs", ".dir-locals.el"), _OF_EDITORS),
    **dict.fromkeys((".pre-commit-config.yaml", ".pre-commit-config.yml"), _AT_COMMIT),
    **{
        f"{dot}lefthook{local}.{ending}": _AT_COMMIT
        for dot in ("", ".")
        for local in ("", "-local")
        for ending in ("yml", "yaml", "toml", "json")
    },
    **dict.fromkeys(("opencode.json", "opencode.jsonc", ".aider.conf.yml"), "an agent takes its programs from it"),
    **dict.fromkeys((".bazelrc", ".pdbrc", ".rprofile", ".screenrc", ".tmux.conf", ".irbrc", ".pryrc"), _AT_START),
    **dict.fromkeys((".psqlrc", ".sqliterc", ".ghci", ".perldb", ".curlrc", ".wgetrc"), _AT_START),
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py"), "Python runs it at its start"),
}
"""Further files that are asked about, with the reason."""

ASKED_PAIRS = {
    (".hg", "hgrc"): "Mercurial runs the hooks that it names",
    (".mise", "config.toml"): _OF_VERSIONS,
    ("mise", "config.toml"): _OF_VERSIONS,
    (".kilocode", "mcp.json"): "agents start the servers it names",
    (".cargo", "config.toml"): "cargo runs the programs that it names",
    (".cargo", "config"): "cargo runs the programs that it names",
    (".config", "nvim"): _AT_START,
    (".config", "mise"): _OF_VERSIONS,
    (".config", "direnv"): "shells run it",
    (".config", "zsh"): "shells run it",
    (".config", "nushell"): "shells run it",
    (".config", "pip"): _OF_PACKAGES,
    (".config", "gh"): _AT_START,
    (".config", "tmux"): _AT_START,
    (".config", "i3"): _AT_START,
    (".config", "sway"): _AT_START,
    (".config", "hypr"): _AT_START,
    (".config", "openbox"): _AT_START,
    (".config", "emacs"): _AT_START,
    (".config", "vim"): _AT_START,
    (".config", "npm"): _OF_PACKAGES,
    (".local", "lib"): "Python and other programs load what is in it",
    (".cargo", "bin"): "it stands before other programs",
    (".cargo", "env"): "shells run it",
    (".docker", "config.json"): _AT_START,
    (".docker", "cli-plugins"): _AT_START,
    (".kube", "config"): "kubectl runs the programs that it names",
    (".aws", "config"): "it names programs that hand out credentials",
    (".gradle", "init.d"): _AT_START,
    (".gradle", "init.gradle"): _AT_START,
    (".m2", "settings.xml"): _OF_PACKAGES,
    ("library", "launchagents"): "what is in it starts by itself",
    ("library", "launchdaemons"): "what is in it starts by itself",
    ("systemd", "user"): "what is in it starts by itself",
    ("dbus-1", "services"): "what is in it starts by itself",
}
"""Files and folders that count in the folder before them only."""

HOME_FOLDERS = {
    (".config", "autostart"),
    (".config", "systemd"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "environment.d"),
    (".local", "bin"),
}
"""Folders of a home whose files start by themselves or stand before other programs."""

HOLDING_FOLDERS = (".config", ".local", ".local/share", "Library")
"""Folders of a home in which a name that is not known may be one of these."""

SYSTEM_FOLDERS = (
    "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/boot", "/sys", "/proc", "/var/spool/cron",
    "/var/spool/at", "/Library", "/System", "/opt/homebrew", "/private/etc",
)  # fmt: skip
"""What is in them starts by itself, or is run by everybody."""

FETCHED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders of fetched or made files: large, and nobody opens them as a project."""

REPOSITORY = ".git"
"""A repository's own folder, or a file that says where it is."""

REPOSITORY_FOLDERS = {"hooks"}
"""Programs that git runs."""

REPOSITORY_FILES = {"config", "config.worktree", "commondir"}
"""Commands that git runs (`core.fsmonitor`, `core.hooksPath`, filters), and where to find other such files."""

REPOSITORY_WITHOUT_CONTENTS = {
    *REPOSITORY_FOLDERS, *REPOSITORY_FILES, "HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD",
    "REVERT_HEAD", "COMMIT_EDITMSG", "MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "description", "index", "info", "logs",
    "packed-refs", "refs", "shallow", "branches",
}  # fmt: skip
"""What of a repository holds names, messages and settings; in the rest are contents of files."""

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
_SYSTEM_REASON = "the whole system runs what is in it"
_SHORT_NAMES = {"git~1": REPOSITORY}
"""How Windows also calls it."""


_NAMES = sorted({
    REPOSITORY, *_FOLDER_REASONS, *_FILE_REASONS, *ASKED_FOLDERS, *ASKED_FILES,
    *(first for first, _ in (*ASKED_PAIRS, *HOME_FOLDERS)),
})  # fmt: skip
_DOTTED = [name for name in _NAMES if name.startswith(".")]
_DATA_ENDINGS = (
    ".log", ".txt", ".csv", ".tsv", ".html", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".o", ".a", ".bak",
    ".tmp", ".out", ".err", ".diff", ".patch", ".gz", ".xz", ".zst", ".zip", ".tar", ".tgz", ".whl",
)  # fmt: skip


def auto_run_names(pattern: str) -> list[str]:
    """The names of these files, and of folders that lead to them, that a pattern stands for which begins with a dot."""
    return [name for name in _DOTTED if fnmatchcase(name, pattern.casefold())] if pattern.startswith(".") else []


def names_between(begin: str, end: str) -> list[str]:
    """The names of these files that begin and end so, and have letters in between."""
    begin, end = begin.casefold(), end.casefold()
    fitting = (name for name in _NAMES if name.startswith(begin) and name.endswith(end))
    return [name for name in fitting if len(name) > len(begin) + len(end)]


def is_data(ending: str) -> bool:
    """Whether no program takes what it runs from a file whose name ends so, in whatever folder it lies."""
    return ending.casefold().endswith(_DATA_ENDINGS)


def folded(name: str) -> str:
    """A name as careless file systems compare it: without case, invisible characters, streams, last dots."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    bare = visible.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(bare, bare)


def why_protected(relative_path: str) -> str | None:
    """Why a file may not be written without a question, or `None` where it may.

    Args:
        relative_path: A path beneath a workspace root; what is there does not matter.
    """
    parts = [folded(part) for part in relative_path.replace("\\", "/").split("/") if part not in {"", "."}]
    for at, part in enumerate(parts):
        reason = _reason_of_name(part) or _reason_of_pair(parts, at) or _reason_to_ask(parts, at)
        if reason is not None:
            return reason
        if part == REPOSITORY:
            return _reason_in_repository(parts[at + 1 :])
    return None


def why_system_protected(path: str) -> str | None:
    """Why a file of the system may not be written without a question, or `None`.

    Args:
        path: An absolute path without `.` and `..`, outside every workspace root.
    """
    is_system = any(path == folder or path.startswith(f"{folder}/") for folder in SYSTEM_FOLDERS)
    return _SYSTEM_REASON if is_system else None


def is_auto_run_name(name: str, folder: str = "") -> bool:
    """Whether the sandbox keeps what bears a name as it is, with all it holds; `.git` has rules of its own.

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
    is_asked = rest[:1] == ["rebase-merge"] or rest[-3:-1] == ["objects", "info"]
    return _GIT_REASON if not rest or is_asked or is_guarded_in_repository(rest) else None


def _reason_of_name(name: str) -> str | None:
    if name.endswith(WORKSPACE_SUFFIX):
        return _FOLDER_REASONS[".vscode"]
    return _FOLDER_REASONS.get(name) or _FILE_REASONS.get(name)


def _reason_of_pair(parts: list[str], at: int) -> str | None:
    return _HOME_REASON if tuple(parts[at : at + 2]) in HOME_FOLDERS else None


def _reason_to_ask(parts: list[str], at: int) -> str | None:
    return (
        ASKED_FOLDERS.get(parts[at])
        or ASKED_FILES.get(parts[at])
        or ASKED_PAIRS.get((parts[at], "".join(parts[at + 1 : at + 2])))
    )
