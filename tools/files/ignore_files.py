"""Which files discovery leaves out: `.gitignore`, `.git/info/exclude` and the agent-ignore files, as one rule list.

Ignore files are read again for every call, so a change counts at once. Rules of git apply from the top of the
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
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from tools.contract.tool_errors import NOTHING_DONE, ToolError, ToolErrorType, exhaustion_of
from tools.files.gitignore_matcher import MAX_COST, RuleList, bytes_text, parse_rules
from tools.files.path_opener import NotRegularError, OpenedFile, exists, may_block, open_regular
from tools.files.workspace import Forbidden, Location, Workspace
from tools.text.file_names import shown_path, shown_whole_path

logger = logging.getLogger(__name__)
# In the root of a workspace and in any folder below it; in one folder, a later one overrules an earlier one
AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
GIT_IGNORE_FILE = ".gitignore"
GIT_FOLDER = ".git"  # a repository's own folder, or a file that says where it is
# Rules are read from the first megabyte of an ignore file; the longest real ones have some kilobytes
MAX_IGNORE_FILE_BYTES = 1 << 20
# What the rules of git that one folder comes under may cost: files below those do not count. The same for agents, where
# a file below those hides all of its folder.
MAX_COST_IN_FORCE = 2 * MAX_COST
# Bytes that no text holds which is neither UTF-8 nor UTF-16
_UNREADABLE = frozenset(range(0x20)) - frozenset(b"\t\n\f\r")


class HiddenBy(StrEnum):
    GIT = "git"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    rules: RuleList  # what it says
    base: int  # length of the path, from the top on, of the folder it stands in
    path: str
    hidden_by: HiddenBy  # whose rule it is


@dataclass(frozen=True, slots=True)
class IgnoreScope:
    """The rules in force in one folder."""

    prefix: str  # the folder below the top, as bytes text with a slash at its end; empty for the top
    git: tuple[IgnoreFile, ...] | None  # files of git, weakest first, or `None` where git's rules are not asked for
    agent: tuple[IgnoreFile, ...] | None  # agent-ignore files, weakest first, or `None` where they are not asked for
    forbidden: Forbidden | None  # what permission rules forbid, if there are such rules
    folder: str

    def hides(self, name: str, *, is_folder: bool) -> HiddenBy | None:
        """Whether an entry of this folder is left out, and whose rule says so; a permission rule is one for agents."""
        if self.forbidden is not None and self.forbidden(os.path.join(self.folder, name)) is not None:
            return HiddenBy.AGENT
        if self.git is not None and name == GIT_FOLDER:
            return HiddenBy.GIT
        if not self.agent and not self.git:
            return None
        file = self.deciding(name, is_folder=is_folder)
        return file.hidden_by if file else None

    def hidden_among(self, names: Sequence[str], *, is_folder: bool) -> Mapping[str, HiddenBy]:
        """What `hides` tells of several entries of this folder, all of them folders or none: those left out."""
        if self.git is None and not self.agent and self.forbidden is None:
            return {}
        return {name: by for name in names if (by := self.hides(name, is_folder=is_folder)) is not None}

    def deciding(self, name: str, *, is_folder: bool) -> IgnoreFile | None:
        """The ignore file that hides an entry of this folder, or `None` if it is not hidden."""
        path = self.prefix + bytes_text(name)
        for files in (self.agent or (), self.git or ()):
            for file in reversed(files):
                hidden = file.rules.hides(path[file.base :], is_folder=is_folder)
                if hidden is not None:
                    return file if hidden else None
        return None

    def enter(self, folder: str, names: Container[str]) -> IgnoreScope:
        prefix = f"{self.prefix}{bytes_text(os.path.basename(folder))}/"
        return IgnoreScope(prefix, self.git, self.agent, self.forbidden, folder).with_own_rules(names)

    def with_own_rules(self, names: Container[str]) -> IgnoreScope:
        """This scope with the ignore files that stand in its folder itself.

        A `ToolError` (`path_ignored`) says that it is not known what an agent-ignore file among them hides.
        """
        git, agent, folder, base = self.git, self.agent, self.folder, len(self.prefix)
        if git is not None and GIT_FOLDER in names:
            exclude = exclude_file(folder)
            if exclude is not None:
                git = (IgnoreFile(_rules_of_git(exclude, through_links=True), base, exclude, HiddenBy.GIT),)
        if git and GIT_IGNORE_FILE in names:
            if sum(file.rules.cost for file in git) < MAX_COST_IN_FORCE:
                path = os.path.join(folder, GIT_IGNORE_FILE)
                git = (*git, IgnoreFile(_rules_of_git(path), base, path, HiddenBy.GIT))
            else:
                logger.warning("an ignore file does not count, since those above it hold too many rules")
        if agent is not None:
            for name in AGENT_IGNORE_FILES:
                if name in names and (rules := rules_for_agents(folder, name)):
                    if sum(file.rules.cost for file in self.agent or ()) >= MAX_COST_IN_FORCE:
                        raise _unknown_protection(folder, name, "stands below others that hold too many rules")
                    agent = (*agent, IgnoreFile(rules, base, os.path.join(folder, name), HiddenBy.AGENT))
        if git is self.git and agent is self.agent:
            return self
        return IgnoreScope(self.prefix, git, agent, self.forbidden, folder)


def names_of_ignore_files(names: Iterable[str]) -> set[str]:
    """Of the names in a folder those that may be of ignore files, as a file system without case finds them."""
    return {name.casefold() for name in names if name[0] == "."}


def scope_of(
    workspace: Workspace, location: Location, *, git: bool, agent: bool, names: Container[str] | None = None
) -> IgnoreScope:
    """The rules in force in a folder that was named outright: whether it is hidden itself does not matter.

    Names are those of what is in the folder, where that is known. A `ToolError` (`path_ignored`) says that it is not
    known what an agent-ignore file in the folder or above it hides.
    """
    root = location.root
    if location.in_scratch:
        # None counts there: commands make whatever they like in it, links as well that a command follows elsewhere.
        git = agent = False
    top, below = root, ""
    while git and top != below and exclude_file(top) is None:
        top, below = os.path.dirname(top), top
    # From the top of the repository, where there is one.
    folder = top = root if top == below else top
    scope = IgnoreScope(
        "", () if git else None, () if agent and top == root else None, workspace.forbidden_in(location), top
    )

    def present(folder: str) -> Container[str]:
        return PresentNames(folder) if names is None or folder != location.path else names

    scope = scope.with_own_rules(present(top))
    for name in _names_below(top, location.path):
        folder = os.path.join(folder, name)
        if agent and folder == root:
            scope = replace(scope, agent=())
        scope = scope.enter(folder, present(folder))
    return scope


def agent_ignore_file(workspace: Workspace, location: Location, *, own_files: bool = True) -> str | None:
    """The agent-ignore file whose rules hide a path or a folder above it, as its path below the root is shown.

    Those in the path itself count, if it is a folder, with `own_files`: what they mean for it is not known where they
    are not understood. A `ToolError` (`path_ignored`) says that it is not known what one of these files hides.
    """
    if not workspace.respect_agent_ignore or location.in_scratch:
        return None
    names = _names_below(location.root, location.path)
    folders = list(accumulate(names, os.path.join, initial=location.root))
    own: list[list[str]] = []
    for folder in folders:
        there = PresentNames(folder) if own_files or folder != location.path else ()
        own.append([name for name in AGENT_IGNORE_FILES if name in there])
    if not any(own):
        return None
    may_block()
    scope = IgnoreScope("", None, (), None, location.root).with_own_rules(own[0])
    for name, folder, files in zip(names, folders[1:], own[1:], strict=True):
        try:
            is_folder = stat.S_ISDIR(os.lstat(folder).st_mode)
        except OSError:
            is_folder = False
        hiding = scope.deciding(name, is_folder=is_folder)
        if hiding is not None:
            return shown_below(location.root, hiding.path)
        scope = scope.enter(folder, files)
    return None


def why_hidden(workspace: Workspace, location: Location) -> str | None:
    """What keeps the content of a file from results: a rule about reading, or an agent-ignore file.

    A `ToolError` (`path_ignored`) says that it is not known what an agent-ignore file hides.
    """
    return workspace.rule_about_reading(location) or agent_ignore_file(workspace, location)


def is_hidden_target(workspace: Workspace, location: Location, *, agent: bool) -> bool:
    forbidden = workspace.forbidden_in(location)
    if forbidden is not None and forbidden(location.path) is not None:
        return True
    try:
        return agent and agent_ignore_file(workspace, location) is not None
    except ToolError:
        return True  # it is not known, and anyone who names it is told why


def refuse_hidden(workspace: Workspace, location: Location, done: str, *, own_files: bool = True) -> None:
    """Do not touch what an agent-ignore file hides (`path_ignored`); what would be done is a word such as `read`."""
    hidden_by = agent_ignore_file(workspace, location, own_files=own_files)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{location.shown}' is hidden from agents by {hidden_by}, so it is not {done}. "
            "If it is needed, ask the user to change that file.",
        )


def shown_below(root: str, path: str) -> str:
    return shown_path(os.path.relpath(path, root).replace(os.sep, "/"))


def _names_below(top: str, path: str) -> list[str]:
    return path[len(top) :].strip(os.sep).split(os.sep) if path != top else []


@dataclass(frozen=True, slots=True)
class PresentNames:
    """The names in a folder, each looked up when asked for."""

    folder: str

    def __contains__(self, name: object) -> bool:
        try:
            return exists(f"{self.folder}{os.sep}{name}")  # not by `join`: three names are looked up for each read
        except PermissionError:
            return False  # if it is there, nothing else in the folder can be opened either
        except OSError:
            may_block()
            return os.path.isdir(self.folder)  # in a folder, it is not known whether it is there; to open it tells why


def _rules_of_git(path: str, *, through_links: bool = False) -> RuleList:
    """The rules in an ignore file of git, as far as they are understood; none if it cannot be read."""
    rules = parse_rules(_beginning_of(path, through_links=through_links))
    if rules.odd_line is not None:
        logger.warning(
            "an ignore file has a pattern in line %s that is not understood and does not count", rules.odd_line
        )
    return rules


def _beginning_of(path: str, *, through_links: bool = False) -> bytes:
    """The beginning of a regular file; empty where there is none. Only rules are taken from it, never shown text."""
    try:
        with open_regular(path, through_links=through_links) as opened:
            size = opened.info.st_size
            if size > MAX_IGNORE_FILE_BYTES:
                logger.warning("an ignore file is too large: only its first %s bytes count", MAX_IGNORE_FILE_BYTES)
            # As much as may be wanted would be set aside first, and that takes longer than all the rest.
            return _read(opened, min(size, MAX_IGNORE_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        logger.warning("cannot read an ignore file: %s", error)
        return b""


def _read(opened: OpenedFile, size: int) -> bytes:
    """So many bytes, or all there are: one read may bring fewer."""
    blocks: list[bytes] = []
    while size > 0:
        block: bytes | None = opened.stream.read(size)
        if block is None:
            raise BlockingIOError  # it is made up by somebody, and there may be more of it
        if not block:
            break
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def repository_of(work_tree: str) -> str | None:
    """The folder in which git keeps what is a work tree's own; `None` if there is none.

    It is `.git`; or where a file of that name says that it is, of a linked worktree or a submodule.
    """
    place = os.path.join(work_tree, GIT_FOLDER)
    try:
        mode = os.lstat(place).st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode):
        return place
    named = _beginning_of(place).decode("utf-8", "surrogateescape").partition("\n")[0]
    return os.path.join(work_tree, named.removeprefix("gitdir:").strip(" \r").replace("\0", ""))


def exclude_file(work_tree: str) -> str | None:
    """Where the repository of a work tree has its own excludes (the file need not exist); `None` if there is none."""
    repository = repository_of(work_tree)
    if repository is None:
        return None
    if os.path.basename(repository) != GIT_FOLDER:  # it may share what a main repository has
        common = _beginning_of(os.path.join(repository, "commondir"), through_links=True)
        repository = os.path.join(repository, common.decode("utf-8", "surrogateescape").strip().replace("\0", ""))
    return os.path.join(repository, "info", "exclude")


def rules_for_agents(folder: str, name: str) -> RuleList | None:
    """The rules in an agent-ignore file; `None` where there is none, or nothing in it.

    A `ToolError` (`path_ignored`) says that there is one, and it is not known what it protects.
    """
    path = os.path.join(folder, name)
    try:
        with open_regular(path, through_links=True) as opened:
            content = _read(opened, MAX_IGNORE_FILE_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(path):
            return None
        raise _unknown_protection(folder, name, "is a link that leads nowhere") from None
    except OSError as error:
        raise exhaustion_of(error, NOTHING_DONE) or _unknown_protection(folder, name, "cannot be read") from None
    if len(content) > MAX_IGNORE_FILE_BYTES:
        raise _unknown_protection(folder, name, f"is larger than {MAX_IGNORE_FILE_BYTES:,} bytes")
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        # That of UTF-32 begins with the mark of UTF-16; it is told by its NUL characters.
        is_text = "\0" not in content.decode("utf-16" if is_utf_16 else "utf-8")
    except UnicodeDecodeError:
        is_text = not is_utf_16 and _UNREADABLE.isdisjoint(content)  # names in an older encoding
    if not is_text:
        raise _unknown_protection(folder, name, "is not UTF-8 text")
    rules = parse_rules(content)
    if rules.odd_line is not None:
        raise _unknown_protection(folder, name, f"has a pattern in line {rules.odd_line} that is not understood")
    if rules.is_cut:
        raise _unknown_protection(folder, name, "holds too many rules")
    return rules or None


def _unknown_protection(folder: str, name: str, why: str) -> ToolError:
    return ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(folder)} {why}, so it is not known what it hides, and nothing there is read. "
        "Ask the user to mend or to remove it.",
    )
