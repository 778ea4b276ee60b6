"""Which files discovery leaves out: `.gitignore`, `.git/info/exclude` and the agent-ignore files, as one rule list.

Ignore files are read anew for every call, so a change counts at once. Rules of git apply from the top of the
repository that a folder lies in, also where that is above the root; an inner repository starts afresh. The
agent-ignore files stand in the root and come last, so a `!name` there brings back what git hides. As in git, nothing
below a hidden folder can be brought back.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.filesystem.descriptors import NotRegularError, open_regular
from tools.filesystem.finding.ignore_rules import RuleList, as_bytes_text, parse_rules

if TYPE_CHECKING:
    from tools.filesystem.workspace import Location, Workspace

logger = logging.getLogger(__name__)

AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
"""In the root of a workspace; a later one overrules an earlier one."""

GIT_FOLDER = ".git"
GIT_IGNORE_FILE = ".gitignore"

MAX_IGNORE_FILE_BYTES = 1 << 20
"""Rules are read from the first megabyte of an ignore file; the longest real ones have some kilobytes."""


class HiddenBy(StrEnum):
    """Whose rule hides something."""

    GIT = "git"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class _Layer:
    """One ignore file in force.

    Args:
        rules: What it says.
        base: Length of the path, from the top on, of the folder it stands in.
        source: Its base name.
        hidden_by: Whose rule it is.
    """

    rules: RuleList
    base: int
    source: str
    hidden_by: HiddenBy

    def verdict(self, name: str, path: str, *, is_folder: bool) -> bool | None:
        return self.rules.hides(name, path[self.base :], is_folder=is_folder)


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules in force in one folder.

    Args:
        prefix: The folder below the top, as bytes text with a slash at its end; empty for the top.
        git: Files of git, weakest first, or `None` where git's rules are not asked for.
        agent: Agent-ignore files, weakest first.
    """

    prefix: str
    git: tuple[_Layer, ...] | None
    agent: tuple[_Layer, ...]

    def hides(self, name: str, *, is_folder: bool) -> HiddenBy | None:
        """Whether an entry of this folder is left out, and whose rule says so."""
        if self.git is not None and name == GIT_FOLDER:
            return HiddenBy.GIT
        if not self.agent and not self.git:
            return None
        layer = self.deciding(name, is_folder=is_folder)
        return layer.hidden_by if layer else None

    def deciding(self, name: str, *, is_folder: bool) -> _Layer | None:
        """The ignore file that hides an entry of this folder, or `None` if it is not hidden."""
        plain = as_bytes_text(name)
        path = self.prefix + plain
        for layers in (self.agent, self.git or ()):
            for layer in reversed(layers):
                hidden = layer.verdict(plain, path, is_folder=is_folder)
                if hidden is not None:
                    return layer if hidden else None
        return None

    def enter(self, folder: str, names: Container[str]) -> Scope:
        """The rules in force in a folder below.

        Args:
            folder: Its real path; its parent is the folder of this scope.
            names: Base names of what is in it; tells without a look at the disk whether it has rules of its own.
        """
        prefix = f"{self.prefix}{as_bytes_text(os.path.basename(folder))}/"
        return replace(self, prefix=prefix).with_own_rules(folder, names)

    def with_own_rules(self, folder: str, names: Container[str]) -> Scope:
        """This scope with the ignore files that stand in its folder itself."""
        git = self.git
        if git is None:
            return self
        if GIT_FOLDER in names and (exclude := _exclude_file(os.path.join(folder, GIT_FOLDER))) is not None:
            git = (_layer(exclude, len(self.prefix), HiddenBy.GIT, through_links=True),)
        if git and GIT_IGNORE_FILE in names:
            own = _layer(os.path.join(folder, GIT_IGNORE_FILE), len(self.prefix), HiddenBy.GIT)
            git = (*git, own)
        return replace(self, git=git)


def scope_of(location: Location, *, git: bool, agent: bool) -> Scope:
    """The rules in force in a folder that was named outright: whether it is hidden itself does not matter.

    Args:
        location: The folder.
        git: Whether the rules of git apply.
        agent: Whether those of the agent-ignore files apply.
    """
    top = (_repository_above(location.root) if git else None) or location.root
    base = len(_below(top, location.root))
    layers = tuple(_agent_layers(location.root, base)) if agent else ()
    scope = Scope("", () if git else None, layers).with_own_rules(top, PresentNames(top))
    folder = top
    for name in _names_below(top, location.path):
        folder = os.path.join(folder, name)
        scope = scope.enter(folder, PresentNames(folder))
    return scope


def agent_ignore_file(workspace: Workspace, location: Location) -> str | None:
    """The agent-ignore file whose rules hide a path or a folder above it.

    Returns:
        Its base name, or `None` if the path is not hidden or the workspace does not respect these files.
    """
    if not workspace.respect_agent_ignore:
        return None
    layers = tuple(_agent_layers(location.root, 0))
    if not layers:
        return None
    scope = Scope("", None, layers)
    folder = location.root
    for name in _names_below(location.root, location.path):
        folder = os.path.join(folder, name)
        layer = scope.deciding(name, is_folder=_is_folder(folder))
        if layer is not None:
            return layer.source
        scope = scope.enter(folder, ())
    return None


def refuse_hidden(workspace: Workspace, location: Location, done: str) -> None:
    """Do not touch what an agent-ignore file hides.

    Args:
        workspace: Whether it respects these files.
        location: What was named.
        done: What would be done with it: `read`, `searched`.

    Raises:
        ToolError: `path_ignored`.
    """
    hidden_by = agent_ignore_file(workspace, location)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{location.shown}' is hidden from agents by {hidden_by}, so it is not {done}. "
            "If it is needed, ask the user to change that file.",
        )


class PresentNames:
    """The names in a folder, each looked up when asked for."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and os.path.lexists(os.path.join(self._folder, name))


def _names_below(top: str, path: str) -> list[str]:
    return [] if path == top else os.path.relpath(path, top).split(os.sep)


def _below(top: str, path: str) -> str:
    """A path below the top as a scope's prefix."""
    return "".join(f"{as_bytes_text(name)}/" for name in _names_below(top, path))


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _repository_above(root: str) -> str | None:
    """The nearest folder from the root upwards that is the top of a repository."""
    folder = root
    while True:
        if _exclude_file(os.path.join(folder, GIT_FOLDER)) is not None:
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _exclude_file(git_folder: str) -> str | None:
    """Where a repository keeps its own excludes (the file need not exist), or `None` if this is no repository."""
    try:
        mode = os.lstat(git_folder).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return _exclude_of_worktree(git_folder)
    return os.path.join(git_folder, "info", "exclude")


def _exclude_of_worktree(git_file: str) -> str:
    """The excludes of a linked worktree or submodule, whose `.git` is a file that names the real folder."""
    named = _read(git_file).decode("utf-8", "surrogateescape").partition("\n")[0]
    folder = os.path.join(os.path.dirname(git_file), named.removeprefix("gitdir:").strip(" \r").replace("\0", ""))
    common = (
        _read(os.path.join(folder, "commondir"), through_links=True)
        .decode("utf-8", "surrogateescape")
        .strip()
        .replace("\0", "")
    )
    return os.path.join(folder, common, "info", "exclude")


def _agent_layers(root: str, base: int) -> Iterator[_Layer]:
    for name in AGENT_IGNORE_FILES:
        rules = parse_rules(_protecting(root, name))
        if rules:
            yield _Layer(rules, base, name, HiddenBy.AGENT)


def _protecting(root: str, name: str) -> bytes:
    """The content of an agent-ignore file; empty where there is none.

    Raises:
        ToolError: `path_ignored`: there is one, and it is not known what it protects.
    """
    try:
        with open_regular(os.path.join(root, name), through_links=True) as opened:
            content = opened.stream.read(MAX_IGNORE_FILE_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(os.path.join(root, name)):
            return b""
        why = "is a link that leads nowhere"
    except OSError:
        why = "cannot be read"
    else:
        if len(content) <= MAX_IGNORE_FILE_BYTES:
            return content
        why = f"is larger than {MAX_IGNORE_FILE_BYTES:,} bytes"
    raise ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(root)} {why}, so it is not known what it hides, and nothing there is read. "
        "Ask the user to mend or to remove it.",
    )


def _layer(path: str, base: int, hidden_by: HiddenBy, *, through_links: bool = False) -> _Layer:
    return _Layer(parse_rules(_read(path, through_links=through_links)), base, os.path.basename(path), hidden_by)


def _read(path: str, *, through_links: bool = False) -> bytes:
    """The beginning of a regular file; empty where there is none. Only rules are taken from it, never shown text."""
    try:
        with open_regular(path, through_links=through_links) as opened:
            return opened.stream.read(MAX_IGNORE_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        logger.warning("cannot read an ignore file: %s", error)
        return b""
