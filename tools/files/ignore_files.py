"""Decides which files to omit, based on `.gitignore`, `.git/info/exclude`, agent-ignore files and permission rules.

Ignore files are read again for every call, so changes apply at once. Git's rules apply from the top of a folder's
repository, even if the top is above the root. The rules of an outer repository do not apply in a repository inside it.
Agent-ignore files may be in the root and in any folder inside it. As in git, deeper files take precedence, and nothing
inside a hidden folder can be unhidden. Agent-ignore files take precedence over git's files, so `!name` in them unhides
files that git hides. Files that a permission rule protects from being read are also always left out.

In git's files, lines that are not understood are skipped. Agent-ignore files protect other files, so an
agent-ignore file with a line that is not understood hides its whole folder.

The rules of one file are parsed by `pathspec`, which turns each line into a regular expression, and matched as git
does: the last matching rule decides. This module adds three things:

- A rule applies to an entry itself, not to its contents. The caller descends from the top and skips hidden folders.
  Otherwise `secret/` and `!*.md` would show `secret/notes.md`, and `!docs/` would unhide `docs/id.key`.
- A line that `pathspec` interprets differently from git, or cannot interpret, is reported (`RuleList.odd_line`).
- No expression backtracks without bound. Otherwise eight stars would keep Python busy for seconds on a single name.

As in git, names are compared byte by byte, and a `?` matches one byte. See `bytes_text`.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from tools.contract.tool_errors import NOTHING_DONE, ToolError, ToolErrorType, exhaustion_of
from tools.files.path_opener import NotRegularError, OpenedFile, exists, may_block, open_regular
from tools.files.workspace import Forbidden, Location, Workspace, contains
from tools.text.file_names import shown_path, shown_whole_path

logger = logging.getLogger(__name__)
# On Windows and macOS, git ignores case by default (`core.ignoreCase`)
IGNORE_CASE = sys.platform in ("win32", "darwin")
MAX_COST = 150_000  # limit on the cost of one file's rules, enough for several thousand ordinary rules
COST_OF_RULE = 25  # the cost of a rule in time and memory; each character of the rule adds 1
# If a file has more rules than this and RE2 is installed, RE2 matches them all in one pass, which needs extra memory
MAX_RULES_FOR_RE = 16
MAX_CACHED_BYTES = 64_000_000  # approximate limit on the memory for cached rules
# Bytes of memory per unit of a rule's cost (measured and rounded up), and the limit of RE2's own memory in bytes
_BYTES_OF_COST = 60
_BYTES_OF_RE2 = 8 << 20
MAX_PATTERN_CHARS = 4_096  # length of the longest possible path; longer lines count as not understood
# Bytes that are control characters or white space in Latin-1, mapped to letters. Such bytes are common in UTF-8: the
# last byte of `à` is 0xA0, which `pathspec` would trim.
_LETTERS = {byte: byte + 0x100 for byte in (*range(0x20), 0x85, 0xA0)}
# Lines that `pathspec` reads as git does. `pathspec` takes a backslash in brackets literally and does not know
# `[:alpha:]`. It passes other brackets on to Python or RE2, where `--`, `&&` and a range that includes the slash have
# other meanings. Therefore only ranges of letters and digits are accepted.
_UNDERSTOOD = re.compile(
    r"""(?>(?: [^\\[] | \\[^/]
    | \[ [!^]?+ \]?+ -?+ (?>(?: [^\W_]-[^\W_] | (?!([&|~])\1) [^]\\[-] )*) -? \]
    )*)""",
    re.DOTALL | re.VERBOSE,
)
# The endings of `pathspec`'s expressions for `x/**`, `x/` and `x`, and its expression for `/**` between names
_BELOW, _FOLDERS_ONLY, _FOLDERS_TOO = "/", "(?P<ps_d>/)", "(?:(?P<ps_d>/)|$)"
_TREE = "(?:/.+)?"
_ANYWHERE = "^(?:.+/)?"  # the beginning of `pathspec`'s expressions for a name in any folder
_NOT_A_SLASH = re.compile(r"\[\^//?")  # the beginning of a bracket expression that also excludes a slash
# A star and the text after it within a name, if another star follows
_STAR_BEFORE_STAR = re.compile(
    r"\[\^//\]\*((?>(?:\\.|\[(?:\\.|[^]\\])*\](?!\*)|[^]\\[/^+*().$])*))(?=\[\^//\]\*)", re.DOTALL
)


def bytes_text(name: str) -> str:
    """Return a file name in the form that rules match: one character per byte."""
    if name.isascii() and name.isprintable():
        return name.lower() if IGNORE_CASE else name
    return _as_text(os.fsencode(name))


def bytes_texts(names: Sequence[str]) -> Sequence[str]:
    """Like `bytes_text`, for several names, which are processed together."""
    text = "".join(names)
    return names if not IGNORE_CASE and text.isascii() and text.isprintable() else list(map(bytes_text, names))


def _as_text(content: bytes) -> str:
    return (content.lower() if IGNORE_CASE else content).decode("latin-1").translate(_LETTERS)


class RuleList:
    __slots__ = ("_rules", "bytes", "cost", "is_cut", "may_match", "odd_line", "uses_re2")

    def __init__(
        self, rules: Sequence[tuple[re.Pattern[str], bool]], cost: int, *, is_cut: bool, odd_line: int | None
    ) -> None:
        self.cost = cost
        self.is_cut = is_cut
        self.odd_line = odd_line
        self.uses_re2 = False
        # Tells whether a rule may match a path; the path of a folder ends in a slash. RE2 is as fast without this check
        self.may_match: Callable[[str], object] = bool
        from pathspec import PathSpec, RegexPattern  # noqa: PLC0415 - not needed at startup

        if len(rules) > MAX_RULES_FOR_RE:
            try:
                self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in rules], backend="re2")
                self.uses_re2 = True
            except Exception:  # noqa: BLE001 - RE2's errors cannot be named, because RE2 may be missing
                logger.debug("RE2 is not installed, or there are too many rules for it")
        if not self.uses_re2:
            bounded_rules = [(_without_repetition(regex), hides) for regex, hides in rules]
            self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in bounded_rules], backend="simple")
            # Expressions for a name in any folder are combined, so that the folders above it are skipped only once.
            by_name, by_path = ["(?!)"], ["(?!)"]
            for pattern in (regex.pattern for regex, _ in bounded_rules):
                name = pattern.removeprefix(_ANYWHERE)
                if name == pattern or "/" in _NOT_A_SLASH.sub("", name).removesuffix("/?$").removesuffix("/$"):
                    by_path.append(pattern)
                else:
                    by_name.append(name)
            self.may_match = re.compile(f"^(?>(?:.*/(?=.))?)(?:{'|'.join(by_name)})|{'|'.join(by_path)}").match
        self.bytes = _BYTES_OF_COST * cost + _BYTES_OF_RE2 * self.uses_re2

    def __len__(self) -> int:
        return len(self._rules)

    def hides(self, path: str, *, is_folder: bool) -> bool | None:
        """Return True if these rules hide an entry, False if they unhide it, `None` if none matches.

        Rules that match a folder above the entry are not considered. The path is relative to the ignore file's folder,
        converted by `bytes_text`, with forward slashes. A symlink to a folder is not a folder.
        """
        if is_folder:
            path += "/"
        return self._rules.check_file(path).include if self.may_match(path) else None

    def hidden_folders(self, paths: Sequence[str]) -> list[str]:
        """Return the folders in `paths` that these rules hide. Fast if few are hidden."""
        may_match = self.may_match
        return [path for path in paths if may_match(f"{path}/") and self.hides(path, is_folder=True)]


def _without_repetition(regex: re.Pattern[str]) -> re.Pattern[str]:
    """Return an equivalent expression for which Python's `re` never tries the same part twice at the same position.

    The parts after a star have a fixed length. If another star follows, the first match of these parts is therefore
    as good as any later one, and an atomic group prevents retries. The same applies to `**` and the names after it.
    """
    expression = _STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", regex.pattern)
    first, *later_parts = expression.split(_TREE)
    if later_parts:
        if first.startswith(_ANYWHERE):
            first = f"^(?>(?:.+?/)??{first.removeprefix(_ANYWHERE)}(?=/))"
        between = "".join(f"(?>(?:/.+?)??{part}(?=/))" for part in later_parts[:-1])
        expression = f"{first}{between}{_TREE}{later_parts[-1]}"
    return regex if expression == regex.pattern else re.compile(expression)


class _Cache:
    """A least-recently-used cache of rules, bounded by memory. File content is the key, so rules are never stale."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: OrderedDict[bytes, RuleList] = OrderedDict()
        self._bytes = 0

    def rules(self, content: bytes) -> RuleList:
        """Parse an ignore file. UTF-16 with a byte order mark (PowerShell's `>`) and old Mac line endings work too."""
        with self._lock:
            if (rules := self._rules.get(content)) is not None:
                self._rules.move_to_end(content)
                return rules
        rules = read_rules(content)
        with self._lock:
            if content not in self._rules:
                self._rules[content] = rules
                self._bytes += len(content) + rules.bytes
            while self._bytes > MAX_CACHED_BYTES:
                oldest_content, oldest_rules = self._rules.popitem(last=False)
                self._bytes -= len(oldest_content) + oldest_rules.bytes
        return rules


parse_rules = _Cache().rules


def read_rules(content: bytes) -> RuleList:
    """Parse the content of an ignore file, without the cache."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Replace invalid text, because a partly wrong rule is better than no rules.
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    content = content.removeprefix(codecs.BOM_UTF8)
    rules: list[tuple[re.Pattern[str], bool]] = []
    cost, odd_line, is_cut = 0, None, False
    for number, line in enumerate(content.split(b"\n" if b"\n" in content else b"\r"), start=1):
        pattern = _as_text(line.removesuffix(b"\r"))
        # Trailing spaces are ignored unless a backslash protects them.
        bare = pattern.rstrip(" ")
        backslashes = len(bare) - len(bare.rstrip("\\"))
        pattern = bare + " " if backslashes % 2 and len(bare) < len(pattern) else bare
        if pattern.startswith("#") or not pattern.removeprefix("!").strip("/"):
            continue
        cost += COST_OF_RULE + len(pattern)
        is_cut = cost > MAX_COST
        if is_cut:
            logger.warning("an ignore file has too many rules: only its first %s are used", len(rules))
            break
        regex = _expression(pattern)
        if regex is not None:
            rules.append((regex, not pattern.startswith("!")))
        elif odd_line is None:
            odd_line = number
    return RuleList(rules, cost, is_cut=is_cut, odd_line=odd_line)


def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the expression that matches the paths to which a rule applies, or `None` if it is not understood.

    In a path that it matches, a slash at the end marks a folder.
    """
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - not needed at startup

    if len(pattern) > MAX_PATTERN_CHARS or not _UNDERSTOOD.fullmatch(pattern):
        return None
    try:
        regex = GitIgnoreSpecPattern.pattern_to_regex(pattern)[0]
        if regex is None:
            return None
        # With this ending, the expression would also match everything inside the folder.
        if regex.endswith(_FOLDERS_TOO):
            regex = f"{regex.removesuffix(_FOLDERS_TOO)}/?$"
        elif regex.endswith(_FOLDERS_ONLY):
            regex = f"{regex.removesuffix(_FOLDERS_ONLY)}/$"
        elif regex.endswith(_BELOW):
            regex += "."
        elif regex != ".":
            return None
        if not regex.startswith("^"):
            regex = f"^.*{regex}"
        # Make bracket expressions never match a slash. Escape a `]` at the beginning, so that the slash can precede it.
        regex = regex.replace("[]", r"[\]").replace("[^]", r"[^\]").replace("[^", "[^/")
        return re.compile(regex)
    except (ValueError, re.error):
        return None


# Ignore files for agents, in any folder of a workspace. In one folder, later names take precedence over earlier ones
AGENT_IGNORE_FILES = (".geminiignore", ".qwenignore", ".coretoolsignore")
GIT_IGNORE_FILE = ".gitignore"
GIT_FOLDER = ".git"  # a repository's data folder, or a file that names it
# Only the first megabyte of a git ignore file is read, and a larger agent-ignore file hides its whole folder. Real
# ignore files are at most a few kilobytes long
MAX_IGNORE_FILE_BYTES = 1 << 20
# The allowed cost of all git rules that apply to one folder; above this cost, deeper files are ignored. The limit is
# the same for agent-ignore files, but above it, a deeper file hides its whole folder.
MAX_COST_IN_FORCE = 2 * MAX_COST
# Control characters other than white space. Only UTF-16 text contains such bytes
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
    # The folder's path relative to the top (the root, or the top of the repository around it), converted by
    # `bytes_text`, with a slash at the end; empty for the top
    prefix: str
    git: tuple[IgnoreFile, ...] | None  # git's ignore files, weakest first; `None` if git's rules do not apply
    agent: tuple[IgnoreFile, ...] | None  # agent-ignore files, weakest first; `None` if they do not apply
    forbidden: Forbidden | None  # the permission rules that forbid reading, if any
    folder: str
    # The agent-ignore file of an outer workspace folder that hides this folder with everything in it, if any
    hidden_by: IgnoreFile | None = None

    def hides(self, name: str, *, is_folder: bool) -> HiddenBy | None:
        """Return the kind of rule that hides an entry of this folder, or `None`. Permission rules count as `AGENT`."""
        if self.hidden_by is not None or (
            self.forbidden is not None and self.forbidden(os.path.join(self.folder, name)) is not None
        ):
            return HiddenBy.AGENT
        if self.git is not None and name == GIT_FOLDER:
            return HiddenBy.GIT
        if not self.agent and not self.git:
            return None
        file = self.deciding_file(name, is_folder=is_folder)
        return file.hidden_by if file else None

    def hidden_among(self, names: Sequence[str], *, is_folder: bool) -> Mapping[str, HiddenBy]:
        """Like `hides`, for several entries, either all or none of them folders. Return those that are hidden."""
        likely: Iterable[str] = names
        if self.hidden_by is None and self.forbidden is None:
            # Few names match any rule, so a fast test first selects those that may match.
            files = [file for file in (*(self.agent or ()), *(self.git or ())) if file.rules]
            end = "/" * is_folder
            rules = [(self.prefix[file.base :], file.rules.may_match) for file in files]
            texts = zip(names, bytes_texts(names), strict=True) if rules else ()
            likely = {name for name, text in texts for prefix, may_match in rules if may_match(prefix + text + end)}
            if self.git is not None and GIT_FOLDER in names:
                likely.add(GIT_FOLDER)
        return {name: by for name in likely if (by := self.hides(name, is_folder=is_folder)) is not None}

    def deciding_file(self, name: str, *, is_folder: bool) -> IgnoreFile | None:
        """Return the ignore file that hides an entry of this folder, or `None`."""
        if self.hidden_by is not None:
            return self.hidden_by
        path = self.prefix + bytes_text(name)
        for files in (self.agent or (), self.git or ()):
            for file in reversed(files):
                is_hidden = file.rules.hides(path[file.base :], is_folder=is_folder)
                if is_hidden is not None:
                    return file if is_hidden else None
        return None

    def enter(self, folder: str, names: Container[str]) -> IgnoreScope:
        prefix = f"{self.prefix}{bytes_text(os.path.basename(folder))}/"
        scope = IgnoreScope(prefix, self.git, self.agent, self.forbidden, folder, self.hidden_by)
        return scope.with_own_rules(names)

    def with_own_rules(self, names: Container[str]) -> IgnoreScope:
        """Return this scope with the ignore files in its folder.

        Raises a `ToolError` if an agent-ignore file is not understood.
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
        return IgnoreScope(self.prefix, git, agent, self.forbidden, folder, self.hidden_by)


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
    root, agent_root = location.root, workspace.ignore_root(location.root)
    if location.in_scratch:
        # Ignore files in the scratch folder do not apply, because commands can create anything there, even symlinks.
        git = agent = False
    top, child = root, ""
    while git and top != child and exclude_file(top) is None:
        top, child = os.path.dirname(top), top
    # Start at the top of the repository, if there is one, or at an outer root whose agent-ignore files apply.
    top = root if top == child else top
    folder = top = min(top, agent_root, key=len) if agent else top
    agent_files = () if agent and top == agent_root else None
    scope = IgnoreScope("", () if git else None, agent_files, workspace.forbidden_in(location), top)

    def present(folder: str) -> Container[str]:
        return PresentNames(folder) if names is None or folder != location.path else names

    scope = scope.with_own_rules(present(top))
    for name in filter(None, location.path[len(top) :].split(os.sep)):
        folder = os.path.join(folder, name)
        if agent and folder == agent_root:
            scope = replace(scope, agent=())
        elif scope.agent and contains(folder, root):
            scope = replace(scope, hidden_by=replace(scope, git=()).deciding_file(name, is_folder=True))
        scope = scope.enter(folder, present(folder))
    return scope


def agent_scope_above(outer_root: str, root: str) -> IgnoreScope:
    """Return the agent-ignore rules that apply to a root in `outer_root`, except those in the root's own files."""
    scope = IgnoreScope("", None, (), None, outer_root)
    for name in filter(None, root[len(outer_root) :].split(os.sep)):
        scope = scope.with_own_rules(PresentNames(scope.folder))
        hiding_file = scope.deciding_file(name, is_folder=True)
        scope = replace(scope.enter(os.path.join(scope.folder, name), ()), hidden_by=hiding_file)
    return scope


def agent_ignore_file(workspace: Workspace, location: Location, *, own_files: bool = True) -> str | None:
    """Return the agent-ignore file that hides a path or a folder above it, as a path relative to the root.

    If the path is a folder and `own_files` is true, the ignore files in that folder also count, because an ignore file
    that is not understood hides its whole folder. Raises a `ToolError` (`path_ignored`) if an ignore file is not
    understood.
    """
    if not workspace.respect_agent_ignore or location.in_scratch:
        return None
    root = workspace.ignore_root(location.root)
    names = list(filter(None, location.path[len(root) :].split(os.sep)))
    folders = list(accumulate(names, os.path.join, initial=root))
    ignore_files: list[list[str]] = []
    for folder in folders:
        present_names = PresentNames(folder) if own_files or folder != location.path else ()
        ignore_files.append(list(filter(present_names.__contains__, AGENT_IGNORE_FILES)))
    if not any(ignore_files):
        return None
    may_block()
    scope = IgnoreScope("", None, (), None, root).with_own_rules(ignore_files[0])
    for name, folder, files in zip(names, folders[1:], ignore_files[1:], strict=True):
        hiding = scope.deciding_file(name, is_folder=os.path.isdir(folder) and not os.path.islink(folder))
        if hiding is not None:
            return shown_below(location.root, hiding.path)
        scope = scope.enter(folder, files)
    return None


def why_hidden(workspace: Workspace, location: Location) -> str | None:
    """Return the permission rule, or the result of `agent_ignore_file`, that keeps a file's content out of results."""
    return workspace.rule_about_reading(location) or agent_ignore_file(workspace, location)


def is_hidden_target(workspace: Workspace, location: Location, *, agent: bool) -> bool:
    forbidden = workspace.forbidden_in(location)
    if forbidden is not None and forbidden(location.path) is not None:
        return True
    try:
        return agent and agent_ignore_file(workspace, location) is not None
    except ToolError:
        # It is unknown what an ignore file hides. A call that names the target reports the reason.
        return True


def refuse_hidden(workspace: Workspace, location: Location, participle: str, *, own_files: bool = True) -> None:
    """Refuse a path hidden by an agent-ignore file (`path_ignored`). `participle` is, for example, `read`."""
    hidden_by = agent_ignore_file(workspace, location, own_files=own_files)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{location.shown}' is hidden from agents by {hidden_by}, so it was not {participle}. If you need it, "
            "ask the user to change that ignore file.",
        )


def shown_below(root: str, path: str) -> str:
    return shown_path(os.path.relpath(path, root).replace(os.sep, "/"))


@dataclass(frozen=True, slots=True)
class PresentNames:
    """The names in a folder, looked up on demand."""

    folder: str

    def __contains__(self, name: object) -> bool:
        try:
            return exists(f"{self.folder}{os.sep}{name}")  # faster than `join`
        except PermissionError:
            return False  # even if the file exists, it cannot be opened
        except OSError:
            may_block()
            # If the folder exists, the file may too. Treat it as present, so that opening it reports the error.
            return os.path.isdir(self.folder)


def _rules_of_git(path: str, *, through_links: bool = False) -> RuleList:
    """Return those rules of a git ignore file that are understood, or no rules if the file cannot be read."""
    rules = parse_rules(_beginning_of(path, through_links=through_links))
    if rules.odd_line is not None:
        logger.warning("the pattern on line %s of an ignore file is not understood and is ignored", rules.odd_line)
    return rules


def _beginning_of(path: str, *, through_links: bool = False) -> bytes:
    """Return the beginning of one of git's own files, which must not be shown; empty if it cannot be read."""
    try:
        with open_regular(path, through_links=through_links) as file:
            size = file.info.st_size
            if size > MAX_IGNORE_FILE_BYTES:
                logger.warning("an ignore file is too large: only its first %s bytes are used", MAX_IGNORE_FILE_BYTES)
            # A read of the maximum size would first allocate that much memory, which is slow.
            return _read(file, min(size, MAX_IGNORE_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return b""
    except OSError as error:
        if (exhaustion := exhaustion_of(error, NOTHING_DONE)) is not None:
            raise exhaustion from None
        logger.warning("cannot read an ignore file: %s", error)
        return b""


def _read(file: OpenedFile, size: int) -> bytes:
    """Read `size` bytes, or up to the end. A single system call may return fewer bytes."""
    blocks: list[bytes] = []
    while size > 0 and (block := file.read_block(size)):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def repository_of(work_tree: str) -> str | None:
    """Return where git keeps a work tree's data: `.git`, or where a file of that name points; `None` without `.git`."""
    git_path = os.path.join(work_tree, GIT_FOLDER)
    try:
        mode = os.lstat(git_path).st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode):
        return git_path
    first_line = _beginning_of(git_path).decode("utf-8", "surrogateescape").partition("\n")[0]
    return os.path.join(work_tree, first_line.removeprefix("gitdir:").strip(" \r").replace("\0", ""))


def exclude_file(work_tree: str) -> str | None:
    """Return the path of a repository's exclude file, which need not exist; `None` without a repository."""
    repository = repository_of(work_tree)
    if repository is None:
        return None
    if os.path.basename(repository) != GIT_FOLDER:  # a linked worktree may use the main repository's file
        common = _beginning_of(os.path.join(repository, "commondir"), through_links=True)
        repository = os.path.join(repository, common.decode("utf-8", "surrogateescape").strip().replace("\0", ""))
    return os.path.join(repository, "info", "exclude")


def rules_for_agents(folder: str, name: str) -> RuleList | None:
    """Return the rules in an agent-ignore file, or `None` if there are none.

    Raises a `ToolError` if it is unknown what the file hides.
    """
    path = os.path.join(folder, name)
    try:
        with open_regular(path, through_links=True) as file:
            content = _read(file, MAX_IGNORE_FILE_BYTES + 1)
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
        raise _unknown_protection(folder, name, f"has a pattern on line {rules.odd_line} that is not understood")
    if rules.is_cut:
        raise _unknown_protection(folder, name, "has too many rules")
    return rules or None


def _unknown_protection(folder: str, name: str, problem: str) -> ToolError:
    return ToolError(
        ToolErrorType.PATH_IGNORED,
        f"{name} in {shown_whole_path(folder)} {problem}, so it is unknown what it hides, and nothing in that folder "
        "is read. Ask the user to repair or remove the file.",
    )
