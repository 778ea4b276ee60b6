"""Decides which files to leave out, from `.gitignore`, `.git/info/exclude`, agent-ignore files and permission rules.

Ignore files are read again for every call, so changes apply at once. Git's rules apply from the top of a folder's
repository, even if the top is above the root. The rules of an outer repository do not apply in a repository inside it.
Agent-ignore files may be in the root and in any folder inside it. As in git, deeper files take precedence, and nothing
inside a hidden folder can be unhidden. Agent-ignore files take precedence over git's files, so `!name` in them unhides
files that git hides. Files that a permission rule protects from being read are always left out too.

In git's files, lines that are not understood are skipped. Agent-ignore files protect something, so one with a line
that is not understood hides its whole folder.
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
from tools.files.gitignore_matcher import MAX_COST, RuleList, bytes_text, bytes_texts, parse_rules
from tools.files.path_opener import NotRegularError, OpenedFile, exists, may_block, open_regular
from tools.files.workspace import Forbidden, Location, Workspace
from tools.text.file_names import shown_path, shown_whole_path

logger = logging.getLogger(__name__)
# Ignore files for agents, in any folder of a workspace. In one folder, later names take precedence over earlier ones
AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
GIT_IGNORE_FILE = ".gitignore"
GIT_FOLDER = ".git"  # a repository's data folder, or a file that names it
# Only the first megabyte of an ignore file is read; real ones have a few kilobytes at most
MAX_IGNORE_FILE_BYTES = 1 << 20
# The allowed cost of all git rules that apply to one folder; above this cost, deeper files are ignored. The limit is
# the same for agent-ignore files, but above it, a deeper file hides its whole folder.
MAX_COST_IN_FORCE = 2 * MAX_COST
# Bytes that occur in text only if it is UTF-16
_UNREADABLE = frozenset(range(0x20)) - frozenset(b"\t\n\f\r")


class HiddenBy(StrEnum):
    GIT = "git"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    rules: RuleList  # the rules in the file
    base: int  # length of the `IgnoreScope.prefix` of the file's folder
    path: str
    hidden_by: HiddenBy  # the kind of this ignore file


@dataclass(frozen=True, slots=True)
class IgnoreScope:
    """The rules that apply in one folder."""

    # The folder's path relative to the top (the root, or the top of the repository around it), converted by
    # `bytes_text`, with a slash at the end; empty for the top
    prefix: str
    git: tuple[IgnoreFile, ...] | None  # git's ignore files, weakest first; `None` if git's rules do not apply
    agent: tuple[IgnoreFile, ...] | None  # agent-ignore files, weakest first; `None` if they do not apply
    forbidden: Forbidden | None  # the permission rules that forbid reading, if any
    folder: str

    def hides(self, name: str, *, is_folder: bool) -> HiddenBy | None:
        """Return the kind of rule that hides an entry of this folder, or `None`. Permission rules count as `AGENT`."""
        if self.forbidden is not None and self.forbidden(os.path.join(self.folder, name)) is not None:
            return HiddenBy.AGENT
        if self.git is not None and name == GIT_FOLDER:
            return HiddenBy.GIT
        if not self.agent and not self.git:
            return None
        file = self.deciding(name, is_folder=is_folder)
        return file.hidden_by if file else None

    def hidden_among(self, names: Sequence[str], *, is_folder: bool) -> Mapping[str, HiddenBy]:
        """Like `hides`, for several entries of this folder. Return the hidden ones, each with the kind of rule.

        Either all or none of the entries must be folders.
        """
        likely: Iterable[str] = names
        if self.forbidden is None:
            # Few names match any rule, so a fast test first selects those that may match.
            files = [file for file in (*(self.agent or ()), *(self.git or ())) if file.rules]
            end = "/" * is_folder
            rules = [(self.prefix[file.base :], file.rules.may_match) for file in files]
            texts = zip(names, bytes_texts(names), strict=True) if rules else ()
            likely = {name for name, text in texts for above, may_match in rules if may_match(above + text + end)}
            if self.git is not None and GIT_FOLDER in names:
                likely.add(GIT_FOLDER)
        return {name: by for name in likely if (by := self.hides(name, is_folder=is_folder)) is not None}

    def deciding(self, name: str, *, is_folder: bool) -> IgnoreFile | None:
        """Return the ignore file that hides an entry of this folder, or `None`."""
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
        """Return this scope extended by the ignore files in its own folder.

        Raises a `ToolError` (`path_ignored`) if an agent-ignore file among them is not understood.
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
                logger.warning("an ignore file is ignored, because the ignore files above it have too many rules")
        if agent is not None:
            for name in AGENT_IGNORE_FILES:
                if name in names and (rules := rules_for_agents(folder, name)):
                    if sum(file.rules.cost for file in self.agent or ()) >= MAX_COST_IN_FORCE:
                        raise _unknown_protection(folder, name, "is below other ignore files that have too many rules")
                    agent = (*agent, IgnoreFile(rules, base, os.path.join(folder, name), HiddenBy.AGENT))
        if git is self.git and agent is self.agent:
            return self
        return IgnoreScope(self.prefix, git, agent, self.forbidden, folder)


def names_of_ignore_files(names: Iterable[str]) -> set[str]:
    """Return the names that may be ignore files, case-folded for file systems that ignore case."""
    return {name.casefold() for name in names if name[0] == "."}


def scope_of(
    workspace: Workspace, location: Location, *, git: bool, agent: bool, names: Container[str] | None = None
) -> IgnoreScope:
    """Return the rules that apply in a folder named by a call, even if the folder itself is hidden.

    `names` are the entries of the folder, if known. Raises a `ToolError` (`path_ignored`) if an agent-ignore file in
    the folder or above it is not understood.
    """
    root = location.root
    if location.in_scratch:
        # The scratch folder has no ignore files, because commands can create anything there, including symlinks.
        git = agent = False
    top, below = root, ""
    while git and top != below and exclude_file(top) is None:
        top, below = os.path.dirname(top), top
    # Start at the top of the repository, if there is one.
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
    """Return the agent-ignore file that hides a path or a folder above it, as a path relative to the root.

    If the path is a folder and `own_files` is true, the ignore files in that folder count too, because one that is not
    understood hides the whole folder. Raises a `ToolError` (`path_ignored`) if an ignore file is not understood.
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
    """Return the permission rule or the agent-ignore file that keeps a file's content out of results.

    Raises a `ToolError` (`path_ignored`) if an agent-ignore file is not understood.
    """
    return workspace.rule_about_reading(location) or agent_ignore_file(workspace, location)


def is_hidden_target(workspace: Workspace, location: Location, *, agent: bool) -> bool:
    forbidden = workspace.forbidden_in(location)
    if forbidden is not None and forbidden(location.path) is not None:
        return True
    try:
        return agent and agent_ignore_file(workspace, location) is not None
    except ToolError:
        return True  # it may be hidden; a call that names the path gets the reason


def refuse_hidden(workspace: Workspace, location: Location, done: str, *, own_files: bool = True) -> None:
    """Refuse a path hidden by an agent-ignore file (`path_ignored`). `done` is a participle, such as `read`."""
    hidden_by = agent_ignore_file(workspace, location, own_files=own_files)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{location.shown}' is hidden from agents by {hidden_by}, so it was not {done}. If you need it, ask the "
            "user to change that ignore file.",
        )


def shown_below(root: str, path: str) -> str:
    return shown_path(os.path.relpath(path, root).replace(os.sep, "/"))


def _names_below(top: str, path: str) -> list[str]:
    return path[len(top) :].strip(os.sep).split(os.sep) if path != top else []


@dataclass(frozen=True, slots=True)
class PresentNames:
    """The names in a folder, looked up on demand."""

    folder: str

    def __contains__(self, name: object) -> bool:
        try:
            return exists(f"{self.folder}{os.sep}{name}")  # faster than `join`: three names are looked up for each read
        except PermissionError:
            return False  # even if the file exists, it cannot be opened
        except OSError:
            may_block()
            # If the folder exists, the answer is unknown, and opening the file reports why.
            return os.path.isdir(self.folder)


def _rules_of_git(path: str, *, through_links: bool = False) -> RuleList:
    """Return those rules of a git ignore file that are understood, or no rules if the file cannot be read."""
    rules = parse_rules(_beginning_of(path, through_links=through_links))
    if rules.odd_line is not None:
        logger.warning("the pattern in line %s of an ignore file is not understood and is ignored", rules.odd_line)
    return rules


def _beginning_of(path: str, *, through_links: bool = False) -> bytes:
    """Return the beginning of one of git's own files; empty if it is not a regular file or cannot be read.

    The content is never shown.
    """
    try:
        with open_regular(path, through_links=through_links) as opened:
            size = opened.info.st_size
            if size > MAX_IGNORE_FILE_BYTES:
                logger.warning("an ignore file is too large: only its first %s bytes are used", MAX_IGNORE_FILE_BYTES)
            # A read of the maximum size would first allocate that much memory, which is slow.
            return _read(opened, min(size, MAX_IGNORE_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        logger.warning("cannot read an ignore file: %s", error)
        return b""


def _read(opened: OpenedFile, size: int) -> bytes:
    """Read `size` bytes, or up to the end. A single system call may return fewer bytes."""
    blocks: list[bytes] = []
    while size > 0:
        block: bytes | None = opened.stream.read(size)
        if block is None:
            raise BlockingIOError  # the file is generated on demand, so more content may follow
        if not block:
            break
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def repository_of(work_tree: str) -> str | None:
    """Return the folder where git keeps a work tree's data, or `None`.

    This is `.git`, or the folder that a file of that name points to (a linked worktree or a submodule).
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
    """Return the path of a repository's exclude file, which may not exist; `None` without a repository."""
    repository = repository_of(work_tree)
    if repository is None:
        return None
    if os.path.basename(repository) != GIT_FOLDER:  # a linked worktree may use the main repository's file
        common = _beginning_of(os.path.join(repository, "commondir"), through_links=True)
        repository = os.path.join(repository, common.decode("utf-8", "surrogateescape").strip().replace("\0", ""))
    return os.path.join(repository, "info", "exclude")


def rules_for_agents(folder: str, name: str) -> RuleList | None:
    """Return the rules in an agent-ignore file, or `None` if it does not exist or is empty.

    Raises a `ToolError` (`path_ignored`) if it exists but is not understood.
    """
    path = os.path.join(folder, name)
    try:
        with open_regular(path, through_links=True) as opened:
            content = _read(opened, MAX_IGNORE_FILE_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(path):
            return None
        raise _unknown_protection(folder, name, "is a broken symlink") from None
    except OSError as error:
        raise exhaustion_of(error, NOTHING_DONE) or _unknown_protection(folder, name, "cannot be read") from None
    if len(content) > MAX_IGNORE_FILE_BYTES:
        raise _unknown_protection(folder, name, f"is larger than {MAX_IGNORE_FILE_BYTES:,} bytes")
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        # UTF-32 begins with UTF-16's byte order mark, but then contains NUL characters.
        is_text = "\0" not in content.decode("utf-16" if is_utf_16 else "utf-8")
    except UnicodeDecodeError:
        is_text = not is_utf_16 and _UNREADABLE.isdisjoint(content)  # the patterns may be in a legacy encoding
    if not is_text:
        raise _unknown_protection(folder, name, "is not UTF-8 text")
    rules = parse_rules(content)
    if rules.odd_line is not None:
        raise _unknown_protection(folder, name, f"has a pattern in line {rules.odd_line} that is not understood")
    if rules.is_cut:
        raise _unknown_protection(folder, name, "has too many rules")
    return rules or None


def _unknown_protection(folder: str, name: str, why: str) -> ToolError:
    return ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(folder)} {why}, so it is unknown what it hides, and nothing in that folder is "
        "read. Ask the user to repair or remove the file.",
    )
