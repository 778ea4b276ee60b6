"""The paths that a command's literal words name, as written and with symlinks resolved.

Questions show these paths, and consent gives the command access to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tools.contract.command_views import SYSTEM, Engine
from tools.contract.permission_subjects import CommandSubject
from tools.files.ignore_files import repository_of
from tools.files.path_opener import real_path
from tools.files.workspace import SCRATCH_NAME, Workspace, contains, is_inside, resolve_links
from tools.machine.unlocked_cached_property import cached_property
from tools.permissions.command_text import CONNECTIONS, CommandText, SimpleCommand
from tools.permissions.git_repositories import (
    local_remotes,
    paths_named_by_settings,
    why_protected_at,
    work_tree_above,
)
from tools.permissions.known_commands import changes_scratch_alone, is_reader, remote_of, without_git_options
from tools.permissions.protected_files import why_protected

_SYSTEM_FOLDERS = (*SYSTEM, "/proc", "/dev", "/sys")
# A path in a word that is an option: after the letters (`-I/usr`), or somewhere in the value (`--file=/etc/x`)
_PATH_OF_OPTION = re.compile(r"-(?:\w*|.*?[=:,@])([/~].*)", re.DOTALL)
_CODE_CHARACTERS = re.compile(r"[\n\0;(){}\"'<>|]")  # occurs in inline code, but not in ordinary paths
_SEPARATORS = re.compile(r"[\s=:,;'\"`(){}<>|&$]+")
# An absolute path whose first component is not literal
_NONLITERAL_PATH = re.compile(r"(?<![\w.~-])/[\w.-]*[*?\[{$\\'\"`]")
MAX_LETTERS = 9  # a path attached to an option must start before this position in the word
MAX_PATHS = 3_000  # maximum paths that the words of a command may mean, in all folders in which it may work
_MAKES_WORK_TREE = re.compile(r"(clone|init|worktree add|submodule add)\b")  # git subcommands
# Folders of which each client or command has its own writable copy in the sandbox
PRIVATE_FOLDERS = (SCRATCH_NAME, "/var/tmp", "/run", "/var/run", "/dev/shm")  # noqa: S108 - only names
STREAMS = (os.devnull, "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2")


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that is named in a literal word of a command."""

    path: str  # the absolute path, without resolving symlinks
    real_path: str  # the path with every symlink resolved
    word: str  # as written in the command
    may_be_written: bool  # whether the command may write to the path, including by a redirection
    is_written: bool = False  # whether output is redirected to the path
    is_replaced: bool = False  # whether the redirected output replaces the old content
    is_program: bool = False  # whether the path is the program to run
    is_new_work_tree: bool = False  # whether git may create a work tree at the path


class CommandPaths:
    def __init__(self, command: CommandSubject, text: CommandText, workspace: Workspace, home: str) -> None:
        self._text = text
        self._command = command
        self._site = command.site
        self._has_bubblewrap = command.site.engine is Engine.BUBBLEWRAP
        self._redirections = (*text.redirections, *text.inner_redirections)
        self.are_too_many = False  # whether the words may mean more paths, which are not in `named_paths`
        self._resolved_paths: dict[tuple[str, bool], str] = {}  # keyed by path, and by whether it is written
        self._is_folder_inside: dict[str | None, bool] = {}  # whether each folder is in the workspace
        self._workspace = workspace
        self._roots = workspace.roots
        self._home = home
        self.real_home = real_path(home) if os.path.isabs(home) else home  # not absolute if this user has none

    @cached_property
    def named_paths(self) -> list[NamedPath]:
        named_paths: list[NamedPath] = []
        commands = (*self._text.commands, *self._text.inner)
        # A command that works in another folder may change that folder.
        changing = (
            command for command in commands if not (is_reader(command.words) or changes_scratch_alone(command.words))
        )
        for folder in filter(None, {command.folder: None for command in changing}):
            places = (NamedPath(*paths, folder, True) for paths in self._paths([folder], ""))
            named_paths += filter(self.can_be_writable, places)
        for folder in filter(None, () if self._has_bubblewrap else self._text.folders):
            named_paths += (NamedPath(*paths, folder, False) for paths in self._paths([folder], ""))
        for command in commands:
            words, changes = command.words, not is_reader(command.words)
            after_options = without_git_options(words[1:])
            makes = _MAKES_WORK_TREE.match(" ".join(word or "?" for word in after_options))
            # The index of the first word that may name a work tree created by git
            first_new = len(words) - len(after_options) + len(makes[0].split()) if makes else len(words)
            for at, word in enumerate(words):
                pieces = _possible_paths(word) if word and (at > 0 or "/" in word) else ()
                if word and not self._has_bubblewrap:  # without bubblewrap, only the words show what is read
                    pieces = (*pieces, *_option_suffixes(word))
                is_new = command.program == "git" and at >= first_new and ":" not in (word or "")
                named_paths += (
                    NamedPath(*paths, word or "", changes and at > 0, is_program=at == 0, is_new_work_tree=is_new)
                    for paths in self._paths(
                        pieces, command.folder, is_cd=self._text.is_literal and command.program in ("cd", "pushd")
                    )
                )
            remotes = ((path, self._paths([path], "")) for path in self.local_remotes(command))
            is_push = words[1:2] == ("push",)
            named_paths += (NamedPath(*paths, path, is_push) for path, places in remotes for paths in places)
        for redirection in self._redirections:
            word, is_output = redirection.target or "", redirection.is_output
            is_replaced = is_output and not redirection.keeps
            paths_of_target = self._paths([word], redirection.folder, is_written=is_output)
            named_paths += (NamedPath(*paths, word, is_output, is_output, is_replaced) for paths in paths_of_target)
        return list(dict.fromkeys(named_paths))

    def _paths(
        self, words: Iterable[str], folder: str | None, *, is_written: bool = False, is_cd: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yield the paths that words may mean: each as written, and with every symlink resolved.

        The words of a `cd` (`is_cd`) count only in its own folder, because the folders that it may lead to count, too.
        """
        # Bubblewrap hides and protects files whatever a command calls them. Without it, all possible paths count.
        folders = (folder,) if self._has_bubblewrap or is_cd else dict.fromkeys((folder, *self._text.folders))
        for word in words:
            if self.are_too_many:
                return
            if not word or _CODE_CHARACTERS.search(word) or word.startswith(CONNECTIONS):
                continue
            for path in filter(None, dict.fromkeys(self.absolute(word, start) for start in folders)):
                if (path, is_written) not in self._resolved_paths:
                    self.are_too_many = len(self._resolved_paths) >= MAX_PATHS
                    self._resolved_paths[path, is_written] = self._resolved(path, is_written=is_written)
                yield path, self._resolved_paths[path, is_written]

    def _resolved(self, path: str, *, is_written: bool) -> str:
        try:
            inner = self.in_scratch(path)
            is_own = is_written or (contains(SCRATCH_NAME, path) and is_inside(path, self._changed_scratch_paths))
            return real_path(inner if is_own or os.path.lexists(inner) else path)
        except (OSError, ValueError):
            return path

    @cached_property
    def _changed_scratch_paths(self) -> Sequence[str]:
        """Paths under `/tmp` that the command itself creates or removes, whether or not they exist on this machine."""
        outputs = [
            (redirection.target, redirection.folder) for redirection in self._redirections if redirection.is_output
        ]
        for command in self._text.commands:
            if changes_scratch_alone(command.words):
                copies = command.program in ("cp", "mv")  # these create only what the last word names
                outputs += [(word, command.folder) for word in command.words[-1 if copies else 1 :]]
        paths = (self.absolute(word, folder) for word, folder in outputs if word)
        in_scratch = (path for path in paths if path is not None and contains(SCRATCH_NAME, path))
        return [path for path in dict.fromkeys(in_scratch) if path != SCRATCH_NAME]

    def is_of_workspace(self, command: SimpleCommand) -> bool:
        """True if a rule can allow a command: it works only in the workspace, and nothing uses files in `/tmp`."""
        for folder in (command.folder, *self._text.folders):
            if folder not in self._is_folder_inside:
                path = self.absolute(".", folder)
                self._is_folder_inside[folder] = path is not None and is_inside(resolve_links(path), self._roots)
            if not self._is_folder_inside[folder]:
                return False
        return not self.names_scratch

    @cached_property
    def names_scratch(self) -> bool:
        """True if the command uses saved outputs, or files in `/tmp`, which is empty for commands that a rule allows.

        Files that a foreground command's `>` creates in `/tmp` do not count, because they are moved to the client's
        `/tmp` when the command has ended.
        """
        if any(is_inside(named_path.real_path, self._site.outputs) for named_path in self.named_paths):
            return True  # nobody was asked about what is in them
        if self._site.engine is Engine.NONE:  # without a sandbox, what is in `/tmp` was written with consent
            return False
        is_brief = not (self._command.is_background or self._text.has_background)
        replaced_paths = {
            path
            for named_path in self.named_paths
            if named_path.is_replaced and is_brief
            for path in (named_path.path, named_path.real_path)
        }
        used_paths = [(named_path.path, named_path.real_path) for named_path in self.named_paths]
        if not self._has_bubblewrap:  # without bubblewrap, only the words show what a command uses
            text = self._text.source
            if _NONLITERAL_PATH.search(text) is not None:
                return True
            tokens = {
                *_SEPARATORS.split(text),
                *(piece for value in self._text.values for piece in _possible_paths(value)),
            }
            letters = (piece for token in tokens for piece in _option_suffixes(token))
            used_paths += self._paths((*tokens, *letters), "")
        own_folders = (*self._site.outputs, *filter(None, (self._site.scratch,)))
        scratch = (SCRATCH_NAME, "/proc", *own_folders)  # symlinks in `/proc` can lead anywhere
        return self.are_too_many or any(
            is_inside(path, scratch) and not (is_inside(path, self._roots) or path in replaced_paths)
            for paths in used_paths
            for path in paths
        )

    @cached_property
    def runs_private_hooks(self) -> bool:
        """True if git may run hooks that earlier commands wrote: it is given a folder that only commands see."""
        return any(
            not contains(SCRATCH_NAME, named_path.path) or self._has_hooks(named_path.real_path)
            for named_path in self.named_paths
            if is_inside(named_path.path, PRIVATE_FOLDERS) and not is_inside(named_path.real_path, self._roots)
        )

    def _has_hooks(self, folder: str) -> bool:
        """Return whether git may run hooks that are in a folder.

        It runs none if the folder is a worktree of a repository in the workspace, unless git's settings name some.
        """
        top = work_tree_above(folder) or folder
        is_linked = is_inside(resolve_links(repository_of(top) or top), self._roots)
        return os.path.isdir(folder) and (not is_linked or any(paths_named_by_settings(top, top)))

    def absolute(self, word: str | None, folder: str | None) -> str | None:
        if word is None:
            return None
        home = self._home
        path = home + word[1:] if word == "~" or word.startswith("~/") else word
        if not os.path.isabs(path):
            if folder is None:
                return None
            start = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
            path = os.path.join(self._command.directory, start, path)
        return os.path.normpath("/" + path.lstrip("/"))

    def local_remotes(self, command: SimpleCommand) -> list[str]:
        """Return the paths of the remotes that a git command contacts; empty if it may contact another machine."""
        remote, folder = remote_of(command.words), self.absolute(".", command.folder)
        is_elsewhere = len(without_git_options(command.words[1:])) < len(command.words) - 1
        return [] if remote is None or folder is None or is_elsewhere else local_remotes(folder, remote)

    def has_package_program(self, folder: str | None, name: str) -> bool:
        """Return True if a package with this program is installed in a folder, or above it within the workspace."""
        place = self.absolute(".", folder)
        while place is not None and is_inside(place, self._roots):
            if os.path.exists(os.path.join(place, "node_modules", ".bin", name)):
                return True
            place = os.path.dirname(place)
        return False

    def in_scratch(self, path: str) -> str:
        """Map a path under `/tmp`, as commands and file tools see it, to its real location."""
        scratch = self._site.scratch
        if scratch is None or not contains(SCRATCH_NAME, path) or is_inside(path, (*self._roots, *self._site.outputs)):
            return path
        return scratch + path[len(SCRATCH_NAME) :]

    def is_outside(self, named_path: NamedPath) -> bool:
        """Return True if the usual view does not show a path, or does not allow the command to write to it."""
        real_path, path = named_path.real_path, named_path.path
        if is_inside(real_path, self._roots) or path in STREAMS:
            return False
        if is_inside(path, _SYSTEM_FOLDERS):
            return named_path.is_written and self._has_bubblewrap
        if contains(SCRATCH_NAME, path) and self._has_bubblewrap:
            is_elsewhere = self._site.scratch is not None and not os.path.lexists(self.in_scratch(path))
            is_own = named_path.is_written or path == SCRATCH_NAME or is_inside(path, self._changed_scratch_paths)
            return is_elsewhere and not is_own and os.path.lexists(path)
        if named_path.is_written:
            return self._has_bubblewrap
        if any(contains(visible_path, real_path) for visible_path in self._site.shown):
            return False
        parent = os.path.dirname(path)
        return os.path.lexists(path) or (parent != os.sep and os.path.isdir(parent))

    def why_protected(self, named_path: NamedPath) -> str | None:
        for path in (named_path.path, named_path.real_path):
            if is_inside(path, self._roots):
                root = self._workspace.at(path).root
                reason = why_protected_at(path, root, is_written=named_path.is_written)
            elif contains(SCRATCH_NAME, path):
                reason = why_in_scratch(path)
            else:
                reason = why_protected(os.path.relpath(path, self._home))
            if reason is not None:
                return reason
        return None

    def can_be_writable(self, named_path: NamedPath) -> bool:
        """Return True if consent can make a path writable.

        False for system folders, saved outputs, and folders that contain the home folder or a workspace folder.
        """
        is_too_much = any(contains(named_path.real_path, folder) for folder in (*self._roots, self.real_home))
        return not is_too_much and not is_inside(named_path.real_path, (*_SYSTEM_FOLDERS, *self._site.outputs))


def _possible_paths(word: str) -> Iterator[str]:
    """Yield the parts of a word that may be paths: the word, the text after `=`, and an option's attached value."""
    option_match = _PATH_OF_OPTION.match(word)
    letter_value = word[2:] if word.startswith("-") and not word.startswith("--") else ""
    pieces = (word, word.partition("=")[2], option_match[1] if option_match else "", letter_value)
    return (piece for piece in pieces if not piece.startswith("-"))


def _option_suffixes(word: str) -> Iterator[str]:
    """Yield each suffix of an option that may be a path attached to option letters, such as `x/y` in `-abx/y`."""
    return (word[at:] for at in range(2, min(len(word), MAX_LETTERS)) if word[0] == "-" != word[1])


def why_in_scratch(path: str) -> str | None:
    return why_protected(os.path.relpath(path, SCRATCH_NAME))
