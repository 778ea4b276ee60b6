"""Auto-run files: anyone who writes them makes others run what it likes.

An editor runs the tasks of its folder, git runs hooks and commands from its configuration, an agent obeys its settings.
The permission check asks before such a file is changed, whatever the mode. The sandbox keeps commands from writing them
as well, by a mount each, but for those in `_ASKED` and `_ASKED_PAIRS`, which would cost it too many. A path counts by
its text, whether something is there or not.

Not in the lists: what is run only when a person names it (`Makefile`, `package.json`), what a program merely shows
(`.Xresources`), and what git takes no commands from (`.gitmodules`, `.gitattributes`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from tools.files.ignore_files import AGENT_IGNORE_FILES


def _reasons(texts: Mapping[str, str]) -> dict[str, str]:
    """The reason for each name of each text, from reason -> text."""
    return {name: reason for reason, text in texts.items() for name in text.split()}


_EDITOR_SETTINGS = "an editor runs what its settings and tasks say"
_PACKAGES = "package managers run the programs that it names"
_VERSIONS = "it says which programs run in the folder"
_AT_START = "a program runs the commands in it at its start"
_AT_COMMIT = "git runs the hooks that it names"
_STARTS_ITSELF = "what is in it starts by itself"
_SHELLS = "shells run it"
_AGENTS = (
    ".coretools .qwen .gemini .claude .cursor .codex .windsurf .continue .kiro .amazonq .roo .opencode .junie .trae"
)
AGENT_FOLDERS = frozenset(_AGENTS.split())  # settings of agents: permissions, hooks, servers to start
WORKSPACE_SUFFIX = ".code-workspace"  # a VS Code workspace: settings and tasks in one file
LOCK_NAME = "mcp.lock.json"
PLAIN_ENDINGS = (WORKSPACE_SUFFIX, LOCK_NAME)  # of what is guarded and begins with no dot, nor its folder
# Files and folders by name, with the reason. All names are in lower case: they are compared folded.
_PROTECTED = _reasons({
    _EDITOR_SETTINGS: ".vscode .idea .zed .fleet .devcontainer",
    "an agent takes its permissions and programs from its settings": _AGENTS,
    "it says who may log in and how": ".ssh .gnupg",
    "agents start the servers it names": ".mcp.json",
    "it says which tools of servers a person has approved": LOCK_NAME,
    "it says what is hidden from agents": " ".join(AGENT_IGNORE_FILES),
    # When a shell or a session starts, or (direnv) when a shell enters the folder.
    _SHELLS: ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin"
    " .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xprofile .xinitrc .xsession .xsessionrc"
    " .bash_completion .pam_environment .envrc",
    "programs run the commands in it": ".gitconfig .exrc .nvimrc .nvim.lua .gdbinit .lldbinit",
})  # fmt: skip
# Folders of a home whose files start by themselves or stand before other programs
_PROTECTED_PAIRS = {
    (".config", name) for name in ("autostart", "systemd", "fish", "git", "environment.d")
} | {(".local", "bin")}  # fmt: skip
# Further files and folders that are asked about, and that the sandbox does not guard
_ASKED = _reasons({
    _EDITOR_SETTINGS: ".vs .devcontainer.json",
    "git runs the hooks in it": ".husky",
    "jj runs what its configuration says": ".jj",
    "Emacs runs it at its start": ".emacs.d",
    "vim runs it at its start": ".vim",
    _PACKAGES: ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs",
    _VERSIONS: ".mise.toml mise.toml .mise.local.toml mise.local.toml .tool-versions",
    "an editor runs the commands in it": ".vimrc .gvimrc .lvimrc .ideavimrc .emacs .dir-locals.el",
    _AT_COMMIT: ".pre-commit-config.yaml .pre-commit-config.yml",
    "an agent takes its programs from it": "opencode.json opencode.jsonc .aider.conf.yml",
    _AT_START: ".bazelrc .pdbrc .rprofile .screenrc .tmux.conf .irbrc .pryrc .psqlrc .sqliterc .ghci .perldb .curlrc"
    " .wgetrc",
    "Python runs it at its start": "sitecustomize.py usercustomize.py",
}) | {
    f"{dot}lefthook{local}.{ending}": _AT_COMMIT
    for dot in ("", ".")
    for local in ("", "-local")
    for ending in ("yml", "yaml", "toml", "json")
}  # fmt: skip

# Further files and folders that are asked about in the folder before them only
_ASKED_PAIRS = {
    (folder, name): reason
    for reason, pairs in {
        "Mercurial runs the hooks that it names": ".hg/hgrc",
        _VERSIONS: ".mise/config.toml mise/config.toml .config/mise",
        "agents start the servers it names": ".kilocode/mcp.json",
        "cargo runs the programs that it names": ".cargo/config.toml .cargo/config",
        _SHELLS: ".config/direnv .config/zsh .config/nushell .cargo/env",
        _PACKAGES: ".config/pip .config/npm .m2/settings.xml",
        _AT_START: ".config/nvim .config/gh .config/tmux .config/i3 .config/sway .config/hypr .config/openbox"
        " .config/emacs .config/vim .docker/config.json .docker/cli-plugins .gradle/init.d .gradle/init.gradle",
        "Python and other programs load what is in it": ".local/lib",
        "it stands before other programs": ".cargo/bin",
        "kubectl runs the programs that it names": ".kube/config",
        "it names programs that hand out credentials": ".aws/config",
        _STARTS_ITSELF: "library/launchagents library/launchdaemons systemd/user dbus-1/services",
    }.items()
    for folder, name in (pair.split("/") for pair in pairs.split())
}
# Folders of fetched or made files: large, and nobody opens them as a project
FETCHED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
REPOSITORY = ".git"  # a repository's own folder, or a file that says where it is
# What `git rebase --continue` and `git cherry-pick --continue` go on with; programs may be among it
REPOSITORY_STEPS = {"rebase-merge", "sequencer"}
REPOSITORY_FOLDERS = {"hooks", *REPOSITORY_STEPS}  # programs that git runs
# Commands that git runs (`core.fsmonitor`, `core.hooksPath`, filters), and where to find other such files
REPOSITORY_FILES = {"config", "config.worktree", "commondir"}
_SHORT_NAMES = {"git~1": REPOSITORY}  # how Windows also calls it


def folded(name: str) -> str:
    """A name as careless file systems compare it: without case, invisible characters, streams, last dots."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    bare = visible.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(bare, bare)


def why_protected(relative_path: str) -> str | None:
    """Why a file may not be written without a question, or `None` where it may."""
    parts = [folded(part) for part in relative_path.replace("\\", "/").split("/") if part not in {"", "."}]
    for at, part in enumerate(parts):
        pair = (part, "".join(parts[at + 1 : at + 2]))
        reason = _PROTECTED.get(part) or _ASKED.get(part) or _ASKED_PAIRS.get(pair)
        if part.endswith(WORKSPACE_SUFFIX):
            reason = _EDITOR_SETTINGS
        elif pair in _PROTECTED_PAIRS:
            reason = _STARTS_ITSELF
        if reason is not None:
            return reason
        if part == REPOSITORY:
            rest = parts[at + 1 :]
            # `.git` itself: a file of that name leads git to another configuration.
            is_asked = not rest or rest[-3:-1] == ["objects", "info"] or is_guarded_in_repository(rest)
            return "git runs what its hooks and its configuration say" if is_asked else None
    return None


def is_auto_run_name(name: str, folder: str = "") -> bool:
    """Whether the sandbox keeps what bears a name as it is, with all it holds; `.git` has rules of its own."""
    bare = folded(name)
    return bare in _PROTECTED or bare.endswith(WORKSPACE_SUFFIX) or (folded(folder), bare) in _PROTECTED_PAIRS


def is_guarded_in_repository(parts: list[str]) -> bool:
    """Whether a path within a repository's own folder is protected; the parts of the path are folded."""
    if not parts:
        return False
    if parts[0] in {"modules", "worktrees"}:
        # A submodule's name may have slashes, and its folder is like another `.git`.
        return any(part in REPOSITORY_FOLDERS or part in REPOSITORY_FILES for part in parts[1:])
    return parts[0] in REPOSITORY_FOLDERS or (len(parts) == 1 and parts[0] in REPOSITORY_FILES)
