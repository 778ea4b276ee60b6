"""Which files discovery leaves out: `.gitignore`, `.git/info/exclude` and the agent-ignore files, as one rule list.

Ignore files are read anew for every call, so a change counts at once. Rules of git apply from the top of the
repository that a folder lies in, also where that is above the root; an inner repository starts afresh. The
agent-ignore files stand in the root and come last, so a `!name` there brings back what git hides. As in git, nothing
below a hidden folder can be brought back. What permission rules forbid to read is left out as well, always.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding.ignore_files import beginning_of, rules_for_agents, rules_of_git
from tools.filesystem.finding.ignore_rules import RuleList, as_bytes_text

if TYPE_CHECKING:
    from tools.filesystem.workspace import Location, Workspace

logger = logging.getLogger(__name__)

AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
"""In the root of a workspace; a later one overrules an earlier one."""

GIT_FOLDER = ".git"
GIT_IGNORE_FILE = ".gitignore"

MAX_COST_IN_FORCE = 200_000
"""Rules of git, and characters of those with wildcards, that one folder comes under: more than two of the longest files
that count. Files below those do not count."""


class HiddenBy(StrEnum):
    """Whose rule hides something."""

    GIT = "git"
    AGENT = "agent"


class Forbidden(Protocol):
    """What permission rules forbid to read."""

    def hides(self, path: str) -> str | None:
        """The rule that is about an entry, as it was written; `None` if none is.

        Args:
            path: Its absolute real path. A rule about a folder is about everything in it.
        """
        ...


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

    def verdicts(self, names: Sequence[str], folder: str, *, is_folder: bool) -> Mapping[str, bool]:
        return self.rules.verdicts(names, folder[self.base :], is_folder=is_folder)


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules in force in one folder.

    Args:
        prefix: The folder below the top, as bytes text with a slash at its end; empty for the top.
        git: Files of git, weakest first, or `None` where git's rules are not asked for.
        agent: Agent-ignore files, weakest first.
        forbidden: What permission rules forbid, if there are such rules.
        folder: The folder's real path.
    """

    prefix: str
    git: tuple[_Layer, ...] | None
    agent: tuple[_Layer, ...]
    forbidden: Forbidden | None
    folder: str

    def hides(self, name: str, *, is_folder: bool) -> HiddenBy | None:
        """Whether an entry of this folder is left out, and whose rule says so; a permission rule is one for agents."""
        if self.forbidden is not None and self.forbidden.hides(os.path.join(self.folder, name)) is not None:
            return HiddenBy.AGENT
        if self.git is not None and name == GIT_FOLDER:
            return HiddenBy.GIT
        if not self.agent and not self.git:
            return None
        layer = self.deciding(name, is_folder=is_folder)
        return layer.hidden_by if layer else None

    def hidden_among(self, names: Sequence[str], *, is_folder: bool) -> Mapping[str, HiddenBy]:
        """What `hides` tells of several entries of this folder: those that are left out, and whose rule says so.

        Args:
            names: Base names; all of folders or none.
            is_folder: Whether they are folders.
        """
        if self.forbidden is not None:
            forbidden = self._forbidden_among(self.forbidden, names)
            if forbidden:
                allowed = [name for name in names if name not in forbidden]
                return {**self._ignored_among(allowed, is_folder=is_folder), **forbidden}
        return self._ignored_among(names, is_folder=is_folder)

    def _forbidden_among(self, rules: Forbidden, names: Sequence[str]) -> Mapping[str, HiddenBy]:
        above = os.path.join(self.folder, "")
        return {name: HiddenBy.AGENT for name in names if rules.hides(above + name) is not None}

    def _ignored_among(self, names: Sequence[str], *, is_folder: bool) -> Mapping[str, HiddenBy]:
        hidden: dict[str, HiddenBy] = {}
        layers = (*reversed(self.agent), *reversed(self.git or ())) if names else ()
        spelled = None if "".join(names).isascii() else {as_bytes_text(name): name for name in names}
        undecided: Sequence[str] = names if spelled is None else list(spelled)
        for layer in layers:
            verdicts = layer.verdicts(undecided, self.prefix, is_folder=is_folder)
            if verdicts:
                hits = (name for name, is_hidden in verdicts.items() if is_hidden)
                hidden.update((spelled[name] if spelled else name, layer.hidden_by) for name in hits)
                undecided = [name for name in undecided if name not in verdicts]
        if self.git is not None and GIT_FOLDER in names:
            hidden[GIT_FOLDER] = HiddenBy.GIT
        return hidden

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
        return Scope(prefix, self.git, self.agent, self.forbidden, folder).with_own_rules(names)

    def with_own_rules(self, names: Container[str]) -> Scope:
        """This scope with the ignore files that stand in its folder itself.

        Args:
            names: As for `enter`.
        """
        git, folder = self.git, self.folder
        if git is None:
            return self
        if GIT_FOLDER in names and (exclude := _exclude_file(os.path.join(folder, GIT_FOLDER))) is not None:
            git = (_layer(exclude, len(self.prefix), HiddenBy.GIT, through_links=True),)
        if git and GIT_IGNORE_FILE in names:
            if sum(layer.rules.cost for layer in git) < MAX_COST_IN_FORCE:
                own = _layer(os.path.join(folder, GIT_IGNORE_FILE), len(self.prefix), HiddenBy.GIT)
                git = (*git, own)
            else:
                logger.warning("an ignore file does not count, since those above it hold too many rules")
        return self if git is self.git else Scope(self.prefix, git, self.agent, self.forbidden, folder)


def scope_of(workspace: Workspace, location: Location, *, git: bool, agent: bool) -> Scope:
    """The rules in force in a folder that was named outright: whether it is hidden itself does not matter.

    Args:
        workspace: What is forbidden in it counts in any case.
        location: The folder.
        git: Whether the rules of git apply.
        agent: Whether those of the agent-ignore files apply.
    """
    top = (_repository_above(location.root) if git else None) or location.root
    base = len(_below(top, location.root))
    layers = tuple(_agent_layers(location.root, base)) if agent else ()
    scope = Scope("", () if git else None, layers, workspace.forbidden, top).with_own_rules(PresentNames(top))
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
    scope = Scope("", None, layers, None, location.root)
    folder = location.root
    for name in _names_below(location.root, location.path):
        folder = os.path.join(folder, name)
        layer = scope.deciding(name, is_folder=_is_folder(folder))
        if layer is not None:
            return layer.source
        scope = scope.enter(folder, ())
    return None


def is_hidden_target(workspace: Workspace, location: Location, *, agent: bool) -> bool:
    """Whether what a link leads to is left out, as it would be if it were found where it is.

    Args:
        workspace: Its rules count.
        location: Where the link leads.
        agent: Whether those of the agent-ignore files do.
    """
    if workspace.forbidden is not None and workspace.forbidden.hides(location.path) is not None:
        return True
    return agent and agent_ignore_file(workspace, location) is not None


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
    named = beginning_of(git_file).decode("utf-8", "surrogateescape").partition("\n")[0]
    folder = os.path.join(os.path.dirname(git_file), named.removeprefix("gitdir:").strip(" \r").replace("\0", ""))
    common = (
        beginning_of(os.path.join(folder, "commondir"), through_links=True)
        .decode("utf-8", "surrogateescape")
        .strip()
        .replace("\0", "")
    )
    return os.path.join(folder, common, "info", "exclude")


def _agent_layers(root: str, base: int) -> Iterator[_Layer]:
    for name in AGENT_IGNORE_FILES:
        rules = rules_for_agents(root, name)
        if rules:
            yield _Layer(rules, base, name, HiddenBy.AGENT)


def _layer(path: str, base: int, hidden_by: HiddenBy, *, through_links: bool = False) -> _Layer:
    return _Layer(rules_of_git(path, through_links=through_links), base, os.path.basename(path), hidden_by)
