"""Which files discovery leaves out: `.gitignore`, `.git/info/exclude` and the agent-ignore files, as one rule list.

Ignore files are read anew for every call, so a change counts at once. Rules of git apply from the top of the
repository that a folder lies in, also where that is above the root; an inner repository starts afresh. Agent-ignore
files stand in the root and in any folder below it. As with git's, the deeper one overrules the higher one; all of them
come after all of git's, so a `!name` there brings back what git hides. As in git, nothing below a hidden folder can be
brought back. What permission rules forbid to read is left out as well, always.

What git's files hold counts as far as it is understood. An agent-ignore file protects something, so one that is not
understood to its last line hides all of its folder.
"""

from __future__ import annotations

import codecs
import logging
import os
import stat
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import NOTHING_DONE, exhaustion_of
from tools.contract.names_on_one_line import shown_path, shown_whole_path
from tools.files.ignore_rules import MAX_COST, RuleList, bytes_text, parse_rules
from tools.files.opener import NotRegularError, OpenedFile, open_regular
from tools.files.workspace import contains

if TYPE_CHECKING:
    from tools.files.workspace import Location, Workspace


logger = logging.getLogger(__name__)

AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
"""In the root of a workspace and in any folder below it; in one folder, a later one overrules an earlier one."""

GIT_IGNORE_FILE = ".gitignore"

GIT_FOLDER = ".git"
"""A repository's own folder, or a file that says where it is."""

MAX_IGNORE_FILE_BYTES = 1 << 20
"""Rules are read from the first megabyte of an ignore file; the longest real ones have some kilobytes."""

MAX_COST_IN_FORCE = 2 * MAX_COST
"""What the rules of git that one folder comes under may cost: files below those do not count. The same for agents,
where a file below those hides all of its folder."""

LOOK_SECONDS = 1.0
"""How long agent-ignore files are looked for below one folder; a shell command waits for it."""

_ENTRIES_LOOKED_AT = 10_000
"""So many are compared with the rules before a command reads a folder; it takes some 50 ms."""

_ENTRIES_AT_ONCE = 500
"""Looked at between two looks at the clock."""

_SOME_FILE = "an agent-ignore file"
"""What one is called where it is not known whether there is any."""

_UNREADABLE = frozenset(range(0x20)) - frozenset(b"\t\n\f\r")
"""Bytes that no text holds which is neither UTF-8 nor UTF-16."""


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
        source: Its path.
        hidden_by: Whose rule it is.
    """

    rules: RuleList
    base: int
    source: str
    hidden_by: HiddenBy


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules in force in one folder.

    Args:
        prefix: The folder below the top, as bytes text with a slash at its end; empty for the top.
        git: Files of git, weakest first, or `None` where git's rules are not asked for.
        agent: Agent-ignore files, weakest first, or `None` where they are not asked for.
        forbidden: What permission rules forbid, if there are such rules.
        folder: The folder's real path.
    """

    prefix: str
    git: tuple[_Layer, ...] | None
    agent: tuple[_Layer, ...] | None
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
        if self.git is None and not self.agent and self.forbidden is None:
            return {}
        return {name: by for name in names if (by := self.hides(name, is_folder=is_folder)) is not None}

    def deciding(self, name: str, *, is_folder: bool) -> _Layer | None:
        """The ignore file that hides an entry of this folder, or `None` if it is not hidden."""
        path = self.prefix + bytes_text(name)
        for layers in (self.agent or (), self.git or ()):
            for layer in reversed(layers):
                hidden = layer.rules.hides(path[layer.base :], is_folder=is_folder)
                if hidden is not None:
                    return layer if hidden else None
        return None

    def enter(self, folder: str, names: Container[str]) -> Scope:
        """The rules in force in a folder below.

        Args:
            folder: Its real path; its parent is the folder of this scope.
            names: Base names of what is in it; tells without a look at the disk whether it has rules of its own.

        Raises:
            ToolError: As for `with_own_rules`.
        """
        prefix = f"{self.prefix}{bytes_text(os.path.basename(folder))}/"
        return Scope(prefix, self.git, self.agent, self.forbidden, folder).with_own_rules(names)

    def with_own_rules(self, names: Container[str]) -> Scope:
        """This scope with the ignore files that stand in its folder itself.

        Args:
            names: As for `enter`.

        Raises:
            ToolError: `path_ignored`: an agent-ignore file is among them, and it is not known what it hides.
        """
        git, agent = self._git_with_own(names), self._agent_with_own(names)
        if git is self.git and agent is self.agent:
            return self
        return Scope(self.prefix, git, agent, self.forbidden, self.folder)

    def _git_with_own(self, names: Container[str]) -> tuple[_Layer, ...] | None:
        git, folder = self.git, self.folder
        if git is None:
            return None
        if GIT_FOLDER in names and (exclude := exclude_file(os.path.join(folder, GIT_FOLDER))) is not None:
            git = (self._of_git(exclude, through_links=True),)
        if git and GIT_IGNORE_FILE in names:
            if _cost(git) < MAX_COST_IN_FORCE:
                return (*git, self._of_git(os.path.join(folder, GIT_IGNORE_FILE)))
            logger.warning("an ignore file does not count, since those above it hold too many rules")
        return git

    def _of_git(self, path: str, *, through_links: bool = False) -> _Layer:
        return _Layer(rules_of_git(path, through_links=through_links), len(self.prefix), path, HiddenBy.GIT)

    def _agent_with_own(self, names: Container[str]) -> tuple[_Layer, ...] | None:
        agent, folder = self.agent, self.folder
        if agent is None:
            return None
        for name in AGENT_IGNORE_FILES:
            if name in names and (rules := rules_for_agents(folder, name)):
                if _cost(self.agent or ()) >= MAX_COST_IN_FORCE:
                    raise not_known(folder, name, "stands below others that hold too many rules")
                agent = (*agent, _Layer(rules, len(self.prefix), os.path.join(folder, name), HiddenBy.AGENT))
        return agent


def scope_of(workspace: Workspace, location: Location, *, git: bool, agent: bool) -> Scope:
    """The rules in force in a folder that was named outright: whether it is hidden itself does not matter.

    Args:
        workspace: What is forbidden in it counts in any case.
        location: The folder.
        git: Whether the rules of git apply.
        agent: Whether those of the agent-ignore files apply.

    Raises:
        ToolError: `path_ignored`: one of those is there, in the folder or above it, and it is not known what it hides.
    """
    root = location.root
    folder = top = (repository_above(root) if git else None) or root
    scope = Scope("", () if git else None, () if agent and top == root else None, workspace.forbidden, top)
    scope = scope.with_own_rules(PresentNames(top))
    for name in _names_below(top, location.path):
        folder = os.path.join(folder, name)
        if agent and folder == root:
            scope = replace(scope, agent=())
        scope = scope.enter(folder, PresentNames(folder))
    return scope


def agent_ignore_file(workspace: Workspace, location: Location) -> str | None:
    """The agent-ignore file whose rules hide a path or a folder above it.

    Returns:
        Its path below the root, as it is shown; `None` if the path is not hidden or the workspace does not respect
        these files.

    Raises:
        ToolError: `path_ignored`: such a file is there, in a folder above the path or, if this is a folder, in it, and
            it is not known what it hides.
    """
    if not workspace.respect_agent_ignore:
        return None
    names = _names_below(location.root, location.path)
    folders = list(accumulate(names, os.path.join, initial=location.root))
    own = [[name for name in AGENT_IGNORE_FILES if name in present] for present in map(PresentNames, folders)]
    if not any(own):
        return None
    scope = Scope("", None, (), None, location.root).with_own_rules(own[0])
    for name, folder, files in zip(names, folders[1:], own[1:], strict=True):
        layer = scope.deciding(name, is_folder=_is_folder(folder))
        if layer is not None:
            return _shown_below(location.root, layer.source)
        scope = scope.enter(folder, files)
    return None


def agent_ignore_file_below(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that may hide something in a folder or beneath it, or where links in it lead. Blocking.

    Returns:
        Its path below the root, as it is shown, or what to call it where it is not known whether there is one; `None`
        if nothing there can be hidden or the workspace does not respect these files.
    """
    if not workspace.respect_agent_ignore:
        return None
    try:
        return _file_in_force(workspace, location) or _file_beneath(workspace, location)
    except (OSError, ToolError):
        return _SOME_FILE


def agent_ignore_file_hiding(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that hides something that is in a folder or beneath it now. Blocking.

    Returns:
        As `agent_ignore_file_below`; also where there are links, or more entries than are looked at.
    """
    if (below := agent_ignore_file_below(workspace, location)) is None:
        return None
    looked = 0
    try:
        waiting = [scope_of(workspace, location, git=False, agent=True)]
        while waiting:
            scope = waiting.pop()
            entries = list(_entries(scope.folder))
            looked += len(entries)
            if looked > _ENTRIES_LOOKED_AT or any(entry.is_symlink() for entry in entries):
                return below
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if (layer := scope.deciding(entry.name, is_folder=is_folder)) is not None:
                    return _shown_below(location.root, layer.source)
                if is_folder and entry.name != GIT_FOLDER:
                    waiting.append(scope.enter(entry.path, PresentNames(entry.path)))
    except (OSError, ToolError):
        return below
    return None


def _file_in_force(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that a folder comes under.

    Raises:
        ToolError: `path_ignored`: it is not known what it hides.
    """
    layers = scope_of(workspace, location, git=False, agent=True).agent
    return _shown_below(location.root, layers[-1].source) if layers else None


def _file_beneath(workspace: Workspace, start: Location) -> str | None:
    """An agent-ignore file beneath a folder, or that counts where a link beneath it leads.

    Raises:
        OSError: Not all could be looked at.
        ToolError: `path_ignored`: it is not known what it hides.
    """
    until = time.monotonic() + LOOK_SECONDS
    waiting, led_to = [start.path], {start.path}
    while waiting:
        folder = waiting.pop()
        for number, entry in enumerate(_entries(folder)):
            if number % _ENTRIES_AT_ONCE == 0 and time.monotonic() > until:
                return _SOME_FILE
            if entry.name in AGENT_IGNORE_FILES and rules_for_agents(folder, entry.name):
                return _shown_below(start.root, entry.path)
            if entry.is_symlink():
                path = os.path.realpath(entry.path)
                if path in led_to or contains(start.path, path) or not workspace.holds(path):
                    continue
                led_to.add(path)
                if (hidden_by := _file_in_force(workspace, workspace.at(path))) is not None:
                    return hidden_by
                waiting.append(path)
            elif entry.name != GIT_FOLDER and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return None


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where there is none, or where commands cannot look into it either.

    Raises:
        OSError: It cannot be read for another reason.
    """
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def is_hidden_target(workspace: Workspace, location: Location, *, agent: bool) -> bool:
    """Whether what a link leads to is left out, as it would be if it were found where it is.

    Args:
        workspace: Its rules count.
        location: Where the link leads.
        agent: Whether those of the agent-ignore files do.
    """
    if workspace.forbidden is not None and workspace.forbidden.hides(location.path) is not None:
        return True
    try:
        return agent and agent_ignore_file(workspace, location) is not None
    except ToolError:
        return True  # it is not known, and whoever names it is told why


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


def _names_below(top: str, path: str) -> list[str]:
    return [] if path == top else os.path.relpath(path, top).split(os.sep)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _cost(layers: Sequence[_Layer]) -> int:
    return sum(layer.rules.cost for layer in layers)


def _shown_below(root: str, path: str) -> str:
    """A path below a root as messages show it."""
    return shown_path(os.path.relpath(path, root).replace(os.sep, "/"))


class PresentNames:
    """The names in a folder, each looked up when asked for."""

    __slots__ = ("_above",)

    def __init__(self, folder: str) -> None:
        self._above = os.path.join(folder, "")

    def __contains__(self, name: object) -> bool:
        try:
            os.lstat(f"{self._above}{name}")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False  # if it is there, nothing else in the folder can be opened either
        except OSError:
            return os.path.isdir(self._above)  # in a folder, it is not known whether it is there; to open it tells why
        return True


def rules_of_git(path: str, *, through_links: bool = False) -> RuleList:
    """The rules in an ignore file of git, as far as they are understood; none where there is none to be read.

    Args:
        path: The file.
        through_links: Whether links are followed.
    """
    rules = parse_rules(beginning_of(path, through_links=through_links))
    if rules.odd_line is not None:
        logger.warning(
            "an ignore file has a pattern in line %s that is not understood and does not count", rules.odd_line
        )
    return rules


def rules_for_agents(folder: str, name: str) -> RuleList | None:
    """The rules in an agent-ignore file; `None` where there is none, or nothing in it.

    Args:
        folder: Where it stands.
        name: Its base name.

    Raises:
        ToolError: `path_ignored`: there is one, and it is not known what it protects; `resources_exhausted`.
    """
    content = _protecting(folder, name)
    rules = parse_rules(content) if content else None
    if rules is None:
        return None
    if rules.odd_line is not None:
        raise not_known(folder, name, f"has a pattern in line {rules.odd_line} that is not understood")
    if rules.is_cut:
        raise not_known(folder, name, "holds too many rules")
    return rules or None


def beginning_of(path: str, *, through_links: bool = False) -> bytes:
    """The beginning of a regular file; empty where there is none. Only rules are taken from it, never shown text."""
    try:
        with open_regular(path, through_links=through_links) as opened:
            size = opened.info.st_size
            if size > MAX_IGNORE_FILE_BYTES:
                logger.warning("an ignore file is too large: only its first %s bytes count", MAX_IGNORE_FILE_BYTES)
            # As much as may be wanted would be set aside first, and that takes longer than all the rest.
            return _beginning(opened, min(size, MAX_IGNORE_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        logger.warning("cannot read an ignore file: %s", error)
        return b""


def repository_above(root: str) -> str | None:
    """The nearest folder from a root upwards that is the top of a repository, if there is one."""
    folder = root
    while True:
        if exclude_file(os.path.join(folder, GIT_FOLDER)) is not None:
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def exclude_file(git_folder: str) -> str | None:
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


def _protecting(folder: str, name: str) -> bytes:
    """The content of an agent-ignore file; empty where there is none.

    Raises:
        ToolError: `path_ignored`: there is one, and it is not known what it protects; `resources_exhausted`.
    """
    try:
        with open_regular(os.path.join(folder, name), through_links=True) as opened:
            content = _beginning(opened, MAX_IGNORE_FILE_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(os.path.join(folder, name)):
            return b""
        why = "is a link that leads nowhere"
    except OSError as error:
        exhaustion = exhaustion_of(error, NOTHING_DONE)
        if exhaustion is not None:
            raise exhaustion from None
        why = "cannot be read"
    else:
        if len(content) > MAX_IGNORE_FILE_BYTES:
            why = f"is larger than {MAX_IGNORE_FILE_BYTES:,} bytes"
        elif not _is_text(content):
            why = "is not UTF-8 text"
        else:
            return content
    raise not_known(folder, name, why)


def not_known(folder: str, name: str, why: str) -> ToolError:
    """That nothing in a folder is read, since it is not known what the agent-ignore file in it protects.

    Args:
        folder: Where it stands.
        name: Its base name.
        why: What is the matter with it, as the end of a sentence.
    """
    return ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(folder)} {why}, so it is not known what it hides, and nothing there is read. "
        "Ask the user to mend or to remove it.",
    )


def _beginning(opened: OpenedFile, size: int) -> bytes:
    """So many bytes, or all there are: one read may bring fewer.

    Raises:
        OSError: They cannot be read.
    """
    pieces: list[bytes] = []
    while size > 0:
        piece: bytes | None = opened.stream.read(size)
        if piece is None:
            raise BlockingIOError  # it is made up by somebody, and there may be more of it
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_text(content: bytes) -> bool:
    """Whether rules can be read from it: UTF-8, UTF-16 with its mark, or names in an older encoding."""
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        # That of UTF-32 begins with the mark of UTF-16; it is told by its NUL characters.
        return "\0" not in content.decode("utf-16" if is_utf_16 else "utf-8")
    except UnicodeDecodeError:
        return not is_utf_16 and _UNREADABLE.isdisjoint(content)
