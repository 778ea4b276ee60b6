"""Protected files: changing one needs the user's consent in every approval mode. There are two kinds.

Auto-run files make other programs run commands, so writing one amounts to running code. An editor runs the tasks of the
folder that it opens, git runs hooks and commands from its configuration, and an agent follows its settings. The sandbox
also protects these files, with one mount per file, except those in `_ASKED` and `_ASKED_PAIRS`, which would need too
many mounts. Only the text of a path counts; the file need not exist.

Three kinds of files are not listed: those that run only when a user starts them (`Makefile`, `package.json`), those
that a program only displays (`.Xresources`), and those from which git takes no commands (`.gitmodules`,
`.gitattributes`).

Guarded paths are the server's own settings, trust record, lock file, audit log and stored data. The settings decide
what runs without consent. Guarded paths are recognised by their real path, because a settings file given on the command
line may have any name and be in a workspace.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from tools.contract.tool_errors import suppress_unless_scarce
from tools.files.ignore_files import AGENT_IGNORE_FILES
from tools.files.path_opener import MAX_LINKS, is_ours
from tools.files.workspace import is_inside
from tools.text.file_names import shown_path


def _reasons(texts: Mapping[str, str]) -> dict[str, str]:
    """Map each file name to its reason. `texts` maps each reason to file names separated by white space."""
    return {name: reason for reason, text in texts.items() for name in text.split()}


_EDITOR_SETTINGS = "an editor runs commands from its settings and tasks"
_PACKAGES = "package managers run programs named in it"
_VERSIONS = "it decides which programs run in the folder"
_AT_START = "a program runs the commands in it on startup"
_AT_COMMIT = "git runs hooks named in it"
_STARTS_ITSELF = "other programs may run its contents automatically"
_SHELLS = "shells run it"
_AGENTS = (
    ".coretools .qwen .gemini .claude .cursor .codex .windsurf .continue .kiro .amazonq .roo .opencode .junie .trae"
)
AGENT_FOLDERS = frozenset(_AGENTS.split())  # folders with agents' settings: permissions, hooks, MCP servers
WORKSPACE_SUFFIX = ".code-workspace"  # a VS Code workspace file, with settings and tasks
LOCK_NAME = "mcp.lock.json"
PLAIN_ENDINGS = (WORKSPACE_SUFFIX, LOCK_NAME)  # endings of the protected names that have no leading dot
# The reason why each file or folder is protected, keyed by name. Names are passed through `folded` before they are
# compared, so all keys are in lower case.
_PROTECTED = _reasons({
    _EDITOR_SETTINGS: ".vscode .idea .zed .fleet .devcontainer",
    "an agent reads its permissions from it and runs programs named in it": _AGENTS,
    "it decides who may log in and how": ".ssh .gnupg",
    "agents start the servers named in it": ".mcp.json",
    "it records which upstream tools a person has approved": LOCK_NAME,
    "it decides what is hidden from agents": " ".join(AGENT_IGNORE_FILES),
    # Files that run at the start of a shell or session, or (direnv) when a shell enters the folder.
    _SHELLS: ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin"
    " .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xprofile .xinitrc .xsession .xsessionrc"
    " .bash_completion .pam_environment .envrc",
    "programs run the commands in it": ".gitconfig .exrc .nvimrc .nvim.lua .gdbinit .lldbinit",
})  # fmt: skip
# Folders, usually in the home folder, whose contents run automatically or that come first in PATH. Each is a tuple of
# the parent's name and its own name
_PROTECTED_PAIRS = {
    (".config", name) for name in ("autostart", "systemd", "fish", "git", "environment.d")
} | {(".local", "bin")}  # fmt: skip
# Files and folders that also need consent, but that the sandbox does not protect
_ASKED = _reasons({
    _EDITOR_SETTINGS: ".vs .devcontainer.json",
    "git runs the hooks in it": ".husky",
    "jj runs commands from its configuration": ".jj",
    "Emacs runs it on startup": ".emacs.d",
    "vim runs it on startup": ".vim",
    _PACKAGES: ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs",
    _VERSIONS: ".mise.toml mise.toml .mise.local.toml mise.local.toml .tool-versions",
    "an editor runs the commands in it": ".vimrc .gvimrc .lvimrc .ideavimrc .emacs .dir-locals.el",
    _AT_COMMIT: ".pre-commit-config.yaml .pre-commit-config.yml",
    "an agent runs programs named in it": "opencode.json opencode.jsonc .aider.conf.yml",
    _AT_START: ".bazelrc .pdbrc .rprofile .screenrc .tmux.conf .irbrc .pryrc .psqlrc .sqliterc .ghci .perldb .curlrc"
    " .wgetrc",
    "Python runs it on startup": "sitecustomize.py usercustomize.py",
}) | {
    f"{dot}lefthook{local}.{ending}": _AT_COMMIT
    for dot in ("", ".")
    for local in ("", "-local")
    for ending in ("yml", "yaml", "toml", "json")
}  # fmt: skip

# Like `_ASKED`, but only in a particular parent folder. Each key is a tuple of the parent's name and the file's name
_ASKED_PAIRS = {
    (folder, name): reason
    for reason, pairs in {
        "Mercurial runs hooks named in it": ".hg/hgrc",
        _VERSIONS: ".mise/config.toml mise/config.toml .config/mise",
        "agents start the servers named in it": ".kilocode/mcp.json",
        "cargo runs programs named in it": ".cargo/config.toml .cargo/config",
        _SHELLS: ".config/direnv .config/zsh .config/nushell .cargo/env",
        _PACKAGES: ".config/pip .config/npm .m2/settings.xml",
        _AT_START: ".config/nvim .config/gh .config/tmux .config/i3 .config/sway .config/hypr .config/openbox"
        " .config/emacs .config/vim .docker/config.json .docker/cli-plugins .gradle/init.d .gradle/init.gradle",
        "Python and other programs load its contents": ".local/lib",
        "programs in it take precedence over others": ".cargo/bin",
        "kubectl runs programs named in it": ".kube/config",
        "it names programs that provide credentials": ".aws/config",
        _STARTS_ITSELF: "library/launchagents library/launchdaemons systemd/user dbus-1/services",
    }.items()
    for folder, name in (pair.split("/") for pair in pairs.split())
}
# Folders of downloaded or generated files, which are large and never opened as a project
FETCHED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
REPOSITORY = ".git"  # a repository's data folder, or a file that contains its path
# Folders with the state of an interrupted `git rebase` or `git cherry-pick`, which may contain commands
REPOSITORY_STEPS = {"rebase-merge", "sequencer"}
REPOSITORY_FOLDERS = {"hooks", *REPOSITORY_STEPS}  # folders with programs or commands that git runs
# Files with settings that make git run commands (`core.fsmonitor`, `core.hooksPath`, filters), or with the path of
# another folder that has such files (`commondir`)
REPOSITORY_FILES = {"config", "config.worktree", "commondir"}
_SHORT_NAMES = {"git~1": REPOSITORY}  # the 8.3 short name of `.git` on Windows


@lru_cache(1_024)  # most names are checked repeatedly, such as those of parent folders
def folded(name: str) -> str:
    """Fold a name as lenient file systems do: case, invisible characters, NTFS streams, dots and spaces at the end."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    bare = visible.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(bare, bare)


def why_protected(relative_path: str) -> str | None:
    """Return why a file may not be written without the user's consent, or `None` if it may."""
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
            # `.git` itself may be a file that points git to another configuration.
            is_asked = not rest or rest[-3:-1] == ["objects", "info"] or is_guarded_in_repository(rest)
            return "git runs commands from its hooks and its configuration" if is_asked else None
    return None


def is_auto_run_name(name: str, folder: str = "") -> bool:
    """Return True if the sandbox protects every file and folder with this name, including a folder's contents.

    `.git` is not included; `is_guarded_in_repository` decides about the files in it.
    """
    bare = folded(name)
    return bare in _PROTECTED or bare.endswith(WORKSPACE_SUFFIX) or (folded(folder), bare) in _PROTECTED_PAIRS


def is_guarded_in_repository(parts: list[str]) -> bool:
    """Return True if a path inside `.git` is protected. `parts` are the `folded` path components after `.git`."""
    if not parts:
        return False
    if parts[0] in {"modules", "worktrees"}:
        # The folder of a submodule or worktree is like another `.git`. A submodule's name may contain slashes, so its
        # folder may be at any depth.
        return any(part in REPOSITORY_FOLDERS or part in REPOSITORY_FILES for part in parts[1:])
    return parts[0] in REPOSITORY_FOLDERS or (len(parts) == 1 and parts[0] in REPOSITORY_FILES)


_REASON = "it is or contains this server's settings, trust record, lock file, audit log or stored data"
_NOT_HELD = "the sandbox cannot protect this server's own settings or log, because {} {}"


class GuardedPaths:
    """Files and folders that may be written only with consent. Blocking.

    Paths are guarded even if they do not exist, and so is every symlink that leads to them. Files in `free` are exempt
    from the protection of `folders`.
    """

    def __init__(self, files: Iterable[str] = (), folders: Iterable[str] = (), free: Iterable[str] = ()) -> None:
        # Every path that leads to a guarded file or folder, as written and with its components folded.
        self._files = tuple(dict.fromkeys(path for file in files for path in _all_paths_to(file)))
        self._folders = tuple(dict.fromkeys(path for folder in folders for path in _all_paths_to(folder)))
        self._folded_files = frozenset(map(folded_path, self._files))
        self._folded_folders = frozenset(map(folded_path, self._folders))
        all_folded = self._folded_files | self._folded_folders
        self._parents = frozenset(path[:length] for path in all_folded for length in range(1, len(path)))
        self._exempt = frozenset(folded_path(path) for file in free for path in _all_paths_to(file))

    def why(self, paths: Iterable[str]) -> str | None:
        """Return why writing one of these absolute paths needs consent, or `None`. Blocking.

        This also applies to a folder above a guarded path, because replacing the folder replaces the settings.
        """
        return _REASON if (self._files or self._folders) and any(map(self._guards, dict.fromkeys(paths))) else None

    def why_not_held(self, roots: Sequence[str]) -> str | None:
        """Return why mounts cannot protect all guarded files from commands that can write to `roots`, or `None`.

        A mount protects a file under one name only, and cannot protect a symlink. Blocking.
        """
        for path in self._files:
            ancestor = path
            while is_inside(ancestor, roots) and ancestor not in roots:
                if os.path.islink(ancestor):
                    return _NOT_HELD.format(shown_path(ancestor), "leads to them through a symlink")
                ancestor = os.path.dirname(ancestor)
            info = _status(path)
            if info is None or not stat.S_ISREG(info.st_mode) or info.st_nlink == 1:
                continue
            # False for a file in a read-only package store, which may use hard links for identical files.
            can_be_written = is_ours(info) or os.access(path, os.W_OK)
            if can_be_written and any(
                (root_status := _status(root)) and root_status.st_dev == info.st_dev for root in roots
            ):
                display_path = shown_path(path) if is_inside(path, roots) else "one of them"
                return _NOT_HELD.format(display_path, "has other names (hard links)")
        return None

    def _guards(self, path: str) -> bool:
        name = folded_path(path)
        is_below = any(name[: len(folder)] == folder for folder in self._folded_folders)
        if name in self._folded_files or name in self._parents or (is_below and name not in self._exempt):
            return True
        path_status = _status(path)
        if path_status is None or not stat.S_ISREG(path_status.st_mode):
            return False
        # The path may be another name of a guarded file, because of a hard link or another mount.
        guarded_files = [*self._files]
        for folder in self._folders:
            with suppress_unless_scarce():
                paths = [os.path.join(folder, name) for name in os.listdir(folder)]
                guarded_files += (path for path in paths if folded_path(path) not in self._exempt)
        return any(
            (file_status := _status(file)) is not None and os.path.samestat(path_status, file_status)
            for file in guarded_files
        )


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def folded_path(path: str) -> tuple[str, ...]:
    """Return the components of a path, in the form in which lenient file systems compare them."""
    anchor, names = _split(path)
    return (anchor.casefold(), *(folded(name) or name for name in names))


def _split(path: str) -> tuple[str, list[str]]:
    """Return the root of a path (empty for a relative path), and the components after the root."""
    drive, rest = os.path.splitdrive(path.replace(os.altsep, os.sep) if os.altsep else path)
    anchor = drive + os.sep if rest.startswith(os.sep) else drive
    return anchor, [name for name in rest.split(os.sep) if name not in ("", os.curdir)]


def _all_paths_to(path: str) -> Iterator[str]:
    """Yield every path that leads to a file: as given, through each symlink, and the real one."""
    absolute_path = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    resolved, rest = _split(absolute_path)
    yield os.path.normpath(absolute_path)
    links = 0
    rest.reverse()
    while rest and links < MAX_LINKS:
        name = rest.pop()
        current = os.path.dirname(resolved) if name == os.pardir else os.path.join(resolved, name)
        if name == os.pardir or not os.path.islink(current):
            resolved = current
            continue
        links += 1
        yield os.path.join(current, *reversed(rest))
        try:
            anchor, names = _split(os.readlink(current))
        except OSError:
            return
        resolved = anchor or resolved
        rest += reversed(names)
    yield os.path.join(resolved, *reversed(rest))
