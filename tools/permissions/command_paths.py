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
from tools.files.path_opener import real_path
from tools.files.workspace import SCRATCH_NAME, Workspace, contains, is_inside
from tools.machine.cached_properties import cached_property
from tools.permissions.command_lists import changes_scratch_alone, is_reader, without_git_options
from tools.permissions.command_text import CONNECTIONS, CommandText, SimpleCommand
from tools.permissions.protected_files import why_protected
from tools.permissions.repositories import why_protected_at

_OF_THE_SYSTEM = (*SYSTEM, "/proc", "/dev", "/sys")
# A path in a word that is an option: after the letters (`-I/usr`), or somewhere in the value (`--file=/etc/x`)
_PATH_OF_OPTION = re.compile(r"-(?:\w*|.*?[=:,@])([/~].*)", re.DOTALL)
_CODE = re.compile(r"[\n\0;(){}\"'<>|]")  # occurs in inline code, but not in ordinary paths
_BETWEEN_NAMES = re.compile(r"[\s=:,;'\"`(){}<>|&$]+")
_ANYWHERE = re.compile(r"(?<![\w.~-])/[\w.-]*[*?\[{$\\'\"`]")  # an absolute path whose first name is not literal
MAX_LETTERS = 9  # a path attached to an option must start before this position in the word
_MAKES_WORK_TREE = re.compile(r"(clone|init|worktree add|submodule add)\b")  # git subcommands
STREAMS = (os.devnull, "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2")


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that is named in a literal word of a command."""

    shown: str  # the absolute path, with symlinks as written
    real: str  # the path with every symlink resolved
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
        self._is_held = command.site.engine is Engine.BUBBLEWRAP
        self._workspace = workspace
        self._roots = workspace.roots
        self._home = home

    @cached_property
    def named(self) -> list[NamedPath]:
        found: dict[NamedPath, None] = {}
        commands = (*self._text.commands, *self._text.inner)
        # A command that works in another folder may change that folder.
        changing = (each for each in commands if not (is_reader(each.words) or changes_scratch_alone(each.words)))
        for folder in filter(None, {each.folder: None for each in changing}):
            places = (NamedPath(*each, folder, True) for each in self._paths([folder], ""))
            found |= dict.fromkeys(filter(self.is_ever_written, places))
        for command in commands:
            words, changes = command.words, not is_reader(command.words)
            after_options = without_git_options(words[1:])
            makes = _MAKES_WORK_TREE.match(" ".join(word or "?" for word in after_options))
            # The index of the first word that may name a work tree created by git
            first_new = len(words) - len(after_options) + len(makes[0].split()) if makes else len(words)
            for at, word in enumerate(words):
                pieces = _pieces(word) if word and (at > 0 or "/" in word) else ()
                if word and not self._is_held:  # without bubblewrap, only the words show what is read
                    pieces = (*pieces, *_behind_letters(word))
                is_new = command.program == "git" and at >= first_new and ":" not in (word or "")
                for each in self._paths(pieces, command.folder):
                    named = NamedPath(
                        *each, word or "", changes and at > 0, is_program=at == 0, is_new_work_tree=is_new
                    )
                    found[named] = None
        for redirection in self._text.redirections:
            word, is_output = redirection.target or "", redirection.is_output
            is_replaced = is_output and not redirection.keeps
            for each in self._paths([word], redirection.folder, is_written=is_output):
                found[NamedPath(*each, word, is_output, is_output, is_replaced)] = None
        return list(found)

    def _paths(
        self, words: Iterable[str], folder: str | None, *, is_written: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yield the paths that words may mean: each as written, and with every symlink resolved."""
        for word in words:
            is_path = word and not _CODE.search(word) and not word.startswith(CONNECTIONS)
            if is_path and (path := self.absolute(word, folder)) is not None:
                try:
                    inner = self._in_scratch(path)
                    is_own = is_written or is_inside(path, self._made) or os.path.lexists(inner)
                    yield path, real_path(inner if is_own else path)
                except (OSError, ValueError):
                    yield path, path

    @cached_property
    def _made(self) -> Sequence[str]:
        """Paths under `/tmp` that the command itself creates or removes, whether or not they exist on this machine."""
        outputs = [(each.target, each.folder) for each in self._text.redirections if each.is_output]
        for command in self._text.commands:
            if changes_scratch_alone(command.words):
                copies = command.program in ("cp", "mv")  # these create only what the last word names
                outputs += [(word, command.folder) for word in command.words[-1 if copies else 1 :]]
        paths = (self.absolute(word, folder) for word, folder in outputs if word)
        return [path for path in paths if path is not None and path != SCRATCH_NAME and contains(SCRATCH_NAME, path)]

    def is_of_workspace(self, command: SimpleCommand) -> bool:
        """Return True if a rule can allow a simple command.

        It can if the simple command works in the workspace, and no part of the whole command uses files in `/tmp`.
        """
        folder = self.absolute(".", command.folder)
        return folder is not None and is_inside(os.path.realpath(folder), self._roots) and not self.names_scratch

    @cached_property
    def names_scratch(self) -> bool:
        """True if the command uses files in `/tmp`, which is empty for commands that a rule allows in the sandbox.

        Files that a redirection creates in `/tmp` do not count, because they are moved to the client's `/tmp` when the
        command has ended.
        """
        if self._site.engine is Engine.NONE:  # without a sandbox, what is in `/tmp` was written with consent
            return False
        is_brief = not (self._command.is_background or self._text.has_background)
        made = {path for each in self.named if each.is_replaced and is_brief for path in (each.shown, each.real)}
        named = [(each.shown, each.real) for each in self.named]
        if not self._is_held:  # without bubblewrap, only the words show what a command uses
            text = self._text.source
            if _ANYWHERE.search(text) is not None:
                return True
            tokens = {*_BETWEEN_NAMES.split(text), *(piece for value in self._text.values for piece in _pieces(value))}
            letters = (piece for each in tokens for piece in _behind_letters(each))
            named += self._paths((*tokens, *letters), "")
        scratch = (SCRATCH_NAME, "/proc", *filter(None, (self._site.scratch,)))  # symlinks in `/proc` can lead anywhere
        return any(
            is_inside(path, scratch) and not (is_inside(path, self._roots) or path in made)
            for each in named
            for path in each
        )

    def absolute(self, word: str, folder: str | None) -> str | None:
        home = self._home
        path = home + word[1:] if word == "~" or word.startswith("~/") else word
        if not os.path.isabs(path):
            if folder is None:
                return None
            start = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
            path = os.path.join(self._command.directory, start, path)
        return os.path.normpath("/" + path.lstrip("/"))

    def _in_scratch(self, path: str) -> str:
        """Map a path under `/tmp`, as commands and file tools see it, to its real location."""
        scratch = self._site.scratch
        if scratch is None or not contains(SCRATCH_NAME, path) or is_inside(path, self._roots):
            return path
        return scratch + path[len(SCRATCH_NAME) :]

    def is_outside(self, named: NamedPath) -> bool:
        """Return True if the usual view does not show a path, or does not allow the command to write to it."""
        real, shown = named.real, named.shown
        if is_inside(real, self._roots) or shown in STREAMS:
            return False
        if is_inside(shown, _OF_THE_SYSTEM):
            return named.is_written and self._is_held
        if contains(SCRATCH_NAME, shown) and self._is_held:
            is_elsewhere = self._site.scratch is not None and not os.path.lexists(self._in_scratch(shown))
            is_own = named.is_written or shown == SCRATCH_NAME or is_inside(shown, self._made)
            return is_elsewhere and not is_own and os.path.lexists(shown)
        if named.is_written:
            return self._is_held
        if any(contains(path, real) for path in self._site.shown):
            return False
        above = os.path.dirname(shown)
        return os.path.lexists(shown) or (above != os.sep and os.path.isdir(above))

    def why_protected(self, named: NamedPath) -> str | None:
        for path in (named.shown, named.real):
            if is_inside(path, self._roots):
                root = self._workspace.at(path).root
                why = why_protected_at(path, root, is_written=named.is_written)
            elif contains(SCRATCH_NAME, path):
                why = why_in_scratch(path)
            else:
                why = why_protected(os.path.relpath(path, self._home))
            if why is not None:
                return why
        return None

    def is_ever_written(self, named: NamedPath) -> bool:
        """Return True if consent can open a path for writing.

        False for system folders, and for folders that contain the home folder or a workspace folder.
        """
        is_too_much = any(contains(named.real, each) for each in (*self._roots, self._home))
        return not is_too_much and not is_inside(named.real, _OF_THE_SYSTEM)


def _pieces(word: str) -> Iterator[str]:
    """Yield the parts of a word that may be paths: the word, the text after `=`, and an option's attached value."""
    attached = _PATH_OF_OPTION.match(word)
    of_letter = word[2:] if word.startswith("-") and not word.startswith("--") else ""
    pieces = (word, word.partition("=")[2], attached[1] if attached else "", of_letter)
    return (piece for piece in pieces if not piece.startswith("-"))


def _behind_letters(word: str) -> Iterator[str]:
    """Yield each part of an option that may be a path attached to option letters, such as `x/y` in `-abx/y`."""
    return (word[at:] for at in range(2, min(len(word), MAX_LETTERS)) if word[0] == "-" != word[1])


def why_in_scratch(path: str) -> str | None:
    return why_protected(os.path.relpath(path, SCRATCH_NAME))
