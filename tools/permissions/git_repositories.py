"""Finds tracked files in git repositories, and the settings, hooks and files that make git run programs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from tools.contract.tool_errors import suppress_unless_scarce
from tools.files.ignore_files import repository_of
from tools.files.path_opener import Stamp, StampedCache, open_regular, stamp_of
from tools.files.workspace import contains, is_inside, outermost, resolve_links
from tools.permissions.protected_files import (
    REPOSITORY,
    folded,
    folded_path,
    is_guarded_in_repository,
    why_protected,
)

MAX_INDEX_BYTES = 64 * 1024 * 1024
# The mode in a submodule's index entry. If other bytes of an index look like it, the only effect is a needless question
_MODE_OF_SUBMODULE = 0o160000.to_bytes(4)
_MAX_STORED_LENGTH = 0xFFF  # the greatest name length that an index entry can store; also stored for longer names
# The harmless settings. All others count as dangerous, because new git releases add settings that may run a program,
# like `core.fsmonitor`
_HARMLESS_SETTING = re.compile(
    r"""
    user\.(?:name|email|useconfigonly) | (?:author|committer)\.(?:name|email) | init\.defaultbranch | color\.\S+
    | advice\.\w+ | column\.\w+ | versionsort\.suffix | http\.postbuffer
    | protocol\.(?:version|(?:file|git|https?|ssh)\.allow)
    | core\.(?:abbrev|autocrlf|bigfilethreshold|checkstat|commentchar|compression|eol|filemode|ignorecase
        |logallrefupdates|longpaths|packedgitlimit|precomposeunicode|preloadindex|quotepath|safecrlf|symlinks
        |trustctime|untrackedcache|warnambiguousrefs|whitespace)
    | (?:add|am|apply|branch|checkout|clone|commit|fetch|gc|index|log|merge|pack|pull|push|rebase|rerere|stash|status
        |switch|tag)\.
      (?:abbrevcommit|auto|autosetupmerge|autosetuprebase|autosquash|autostash|autoupdate|conflictstyle|date|decorate
        |defaultremotename|enabled|excludedecoration|ff|follow|followtags|guess|ignoreerrors|ignorewhitespace
        |keepcr|mailmap|parallel|prune|prunetags|rebase|renamelimit|renames|relativepaths|short|showbranch|showpatch
        |showroot|showstash|showstat|showuntrackedfiles|sort|stat|submodulesummary|threads|updaterefs|verbose|version
        |whitespace|windowmemory|workers|writecommitgraph|commitgraph|autosetupremote|usebitmaps)
    | push\.default
    | diff\.(?:algorithm|colormoved|colormovedws|context|dirstat|ignoresubmodules|indentheuristic|interhunkcontext
        |mnemonicprefix|noprefix|renamelimit|renames|relative|statgraphwidth|submodule|suppressblankempty
        |wordregex|wserrorhighlight)
    | grep\.(?:column|extendedregexp|fallbacktonoindex|fullname|linenumber|patterntype|threads)
    | branch\.\S+\.(?:description|rebase)
    # Written by `git init`, `clone`, `worktree`, `submodule`, `sparse-checkout`, `remote` and `push -u`
    | core\.(?:repositoryformatversion|bare|sharedrepository|sparsecheckout(?:cone)?) | index\.sparse
    | extensions\.(?:objectformat|refstorage|worktreeconfig|partialclone)
    | remote\.[^\n]+\.(?:url|pushurl|fetch|tagopt|promisor|partialclonefilter) | remote\.pushdefault
    | branch\.[^\n]+\.(?:remote|merge|rebase|pushremote|vscode-merge-base|gh-merge-base)
    | submodule\.[^\n]+\.(?:url|active) | submodule\.active | lfs\.repositoryformatversion
    """,
    re.VERBOSE | re.IGNORECASE,
)
MAX_SETTINGS_BYTES = 256 * 1024  # bytes to read of settings, or of a file that says where a work tree or its store is
_MAX_SETTINGS_FILES = 40  # of one repository, including those that its settings include
# A comment, a section's name, or a setting with its value as written. A value ends at a line feed or comment, unless
# these are in quotation marks or follow a backslash.
_PART_OF_SETTINGS = re.compile(
    r'[#;][^\n]*+|\[(?P<section>[A-Za-z0-9.-]++)(?>(?:[ \t\r]++"(?P<of>(?>(?:[^"\\\n]|\\.)*))")?)\]'
    r"|(?P<name>[A-Za-z][A-Za-z0-9-]*+)[ \t]*+(?:(?=\n)|=(?>(?:[ \t\r]|\\\n|\"\")*)"
    r'(?P<value>(?>(?:"(?>(?:[^"\\\n]|\\(?:\n|.))*)"|\\(?:\n|.)|[^"\\\n#;])*)))'
    r"|(?P<unknown>[\w-]++|[^ \t\r\n])"
)
_QUOTATION = re.compile(r'"|\\(.)')
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b"}
# The shape of a hook's name, for a hooks folder that is the whole workspace folder
_HOOK = re.compile(r"(?:[a-z0-9]+(?:-[a-z0-9]+)+|update)(?:\.exe)?")


class _NamedBySettings(NamedTuple):
    """Absolute paths that git's settings name."""

    hooks: tuple[str, ...]  # folders with hooks
    files: tuple[str, ...]  # included settings
    remotes: tuple[tuple[str, str | None], ...]  # names of remotes, each with a path; `None` instead of a URL


SETTINGS_FILES = ("config", "config.worktree")
_named_by_settings = StampedCache[_NamedBySettings](1_000)


def settings_that_run(text: str, is_work_tree: Callable[[str], bool]) -> list[str]:
    """Return the settings in a file, with their sections, that may make git run a program or work in another folder.

    A line that is not understood counts, together with the rest of the file, as one such setting. `is_work_tree`
    returns True if a value of `core.worktree` is harmless.
    """
    # Do not try to understand a file with control characters. Git itself ends lines only at a line feed.
    if re.search(r"\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        return [text]
    running: list[str] = []
    for name, value in _parsed(text):
        is_known = is_work_tree(value) if name == "core.worktree" else _HARMLESS_SETTING.fullmatch(name)
        # For a URL such as `ext::command`, git runs the remote helper that is named before the colons.
        if not is_known or re.match(r"\s*[\w-]*::", value):
            running.append(f"{name}={value}")
    return running


def _parsed(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings in a text as git reads them: each name with its section, in lower case, and the value.

    The first thing that is not understood is yielded too, with the rest of the text, as the value of an empty name.
    """
    section, is_understood = "", True
    text = text.replace("\r\n", "\n") + "\n"  # to git, a line also ends at the end of the file
    for part in _PART_OF_SETTINGS.finditer(text):
        if part["section"] is not None:
            section = part["section"].lower()
            if part["of"] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", part["of"])
        elif part["name"] is not None:
            value = (part["value"] or "").replace("\\\n", '""').rstrip(" \t\r")
            value = _QUOTATION.sub(lambda match: _ESCAPED.get(match[1], match[1] or ""), value)
            yield f"{section}.{part['name'].lower()}", value
        elif part["unknown"] is not None and is_understood:
            is_understood = False
            yield "", text[part.start() :]


def work_tree_above(folder: str) -> str | None:
    """Return the top folder of the work tree that contains `folder` (an absolute path), as git finds it, or `None`."""
    while not os.path.lexists(os.path.join(folder, REPOSITORY)):
        if (parent := os.path.dirname(folder)) == folder:
            return None
        folder = parent
    return folder


def linked_stores(top: str) -> list[str]:
    """Return the real paths of the folders in which git keeps the data of a linked worktree or submodule. Blocking.

    A `.git` file may come from anyone who can write to the work tree. So the folders count only if they look like git's
    and refer back to the work tree.
    """
    git_file = os.path.join(top, REPOSITORY)
    if not os.path.isfile(git_file):
        return []
    store = resolve_links(repository_of(top) or git_file)
    if not os.path.isfile(os.path.join(store, "HEAD")):
        return []
    back = _pointer(store, "gitdir")
    if back and resolve_links(os.path.join(store, back)) == resolve_links(git_file):
        common = resolve_links(os.path.join(store, _pointer(store, "commondir")))
        is_own = os.path.dirname(store) == os.path.join(common, "worktrees")
        has_data = all(os.path.lexists(os.path.join(common, name)) for name in ("HEAD", "objects"))
        return [store, common] if is_own and has_data else [store]
    tree = dict(_settings(os.path.join(store, "config"))).get("core.worktree")
    is_own = tree is not None and resolve_links(os.path.join(store, tree)) == top
    return [store] if is_own else []


def repositories_outside(folder: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the real paths outside the workspace in which git makes changes if it works in this folder."""
    if (top := work_tree_above(resolve_links(folder))) is not None:
        yield from (path for path in outermost((top, *linked_stores(top))) if not is_inside(path, roots))


def _pointer(folder: str, name: str) -> str:
    """Return the path in one of git's files that hold only a path; empty if there is none."""
    path = _beginning(os.path.join(folder, name)).rstrip("\r\n")
    return "" if "\0" in path else path


def _beginning(path: str) -> str:
    """Return the beginning of a regular file as text; empty if it cannot be read."""
    with suppress(ValueError), suppress_unless_scarce(), open_regular(path, through_links=True) as file:
        return os.fsdecode(file.head(MAX_SETTINGS_BYTES))
    return ""


def why_protected_at(path: str, root: str, *, is_written: bool = True) -> str | None:
    """Return why writing an absolute path in the workspace folder `root` needs consent, or `None`. Blocking.

    The names of the folders above the workspace are also checked, up to the top folder of the work tree that contains
    the workspace. If there is no such work tree, the names of all parent folders are checked. If the path is certain to
    be written (`is_written`), a write that could turn a folder into a repository also needs consent.
    """
    top = work_tree_above(root)
    reason = why_protected(path if top is None else os.path.relpath(path, os.path.dirname(top)))
    if reason is None and _is_named_by_settings(path, root):
        reason = "git's settings name it or its folder, and git runs hooks or commands from it"
    if reason is not None or not is_written:
        return reason
    # If the path is a `HEAD` or `commondir`, or is in a folder with a `HEAD`
    reason = "git may take its folder for a repository"
    name = folded(os.path.basename(path))
    if name in ("head", "commondir"):
        return reason
    while name:
        parent = os.path.dirname(path)
        if os.path.lexists(os.path.join(parent, "HEAD")) and (
            is_guarded_in_repository([name]) or (name in ("objects", "refs") and not os.path.lexists(path))
        ):
            return reason
        path, name = parent, folded(os.path.basename(parent))
    return None


def work_trees_above(path: str) -> Iterator[str]:
    """Yield the top folder of each work tree that contains a path, from the inside out."""
    while (top := work_tree_above(path)) is not None:
        yield top
        if (path := os.path.dirname(top)) == top:
            break


def paths_named_by_settings(work_tree: str, root: str) -> Iterator[str]:
    """Yield the paths in `root` that git's settings for a work tree name as hooks or as further settings. Blocking.

    These are the folders in `core.hooksPath` and the included files, whether or not they exist. If `root` itself is a
    hooks folder, only existing files in it that have the name of a hook count. `work_tree` may also be another folder,
    for which the settings of the user and the machine apply.
    """
    named_paths = _named_paths(work_tree)
    yield from (path for path in (*named_paths.hooks, *named_paths.files) if contains(root, path) and path != root)
    if root in named_paths.hooks:
        with suppress_unless_scarce():
            yield from (os.path.join(root, name) for name in os.listdir(root) if _HOOK.fullmatch(folded(name)))


def _is_named_by_settings(path: str, root: str) -> bool:
    parts = folded_path(path)
    is_hook = os.path.dirname(path) == root and _HOOK.fullmatch(parts[-1]) is not None
    for top in dict.fromkeys((*work_trees_above(os.path.dirname(path)), root)):
        named_paths = _named_paths(top)
        if is_hook and root in named_paths.hooks:
            return True
        for place in (*named_paths.hooks, *named_paths.files):
            folded_place = folded_path(place)
            if contains(root, place) and place != root and parts[: len(folded_place)] == folded_place:
                return True
    return False


def _named_paths(work_tree: str) -> _NamedBySettings:
    """Return the paths that settings name for a work tree, as written and with every symlink resolved."""
    paths = _read_named_paths(work_tree)
    hooks, files = (
        tuple(dict.fromkeys((*map(os.path.normpath, group), *map(resolve_links, group))))
        for group in (paths.hooks, paths.files)
    )
    return paths._replace(hooks=hooks, files=files)


def local_remotes(folder: str, name: str) -> list[str]:
    """Return the paths of the remote `name` of the work tree that contains a folder; without a name, of all remotes.

    Empty if there is none, or if one of them is not a path on this machine. Blocking.
    """
    if (top := work_tree_above(folder)) is None:
        return []
    paths = [path for remote, path in _read_named_paths(top).remotes if remote in (name or remote, "")]
    return [path for path in paths if path] if all(paths) else []


def _read_named_paths(work_tree: str) -> _NamedBySettings:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    pending = ["/etc/gitconfig", os.path.expanduser("~/.gitconfig"), os.path.join(base, "git", "config")]
    pending += filter(None, map(os.environ.get, ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL")))
    if (repository := repository_of(work_tree)) is not None:
        shared = os.path.join(repository, _pointer(repository, "commondir"))
        pending += [os.path.join(folder, name) for folder in (shared, repository) for name in SETTINGS_FILES]
    key = (work_tree, *pending)
    if (named_paths := _named_by_settings.get(key)) is not None:
        return named_paths
    examined_at, stamps = time.time_ns(), dict[str, Stamp | None]()
    hooks: list[str] = []
    files: list[str] = []
    remotes: list[tuple[str, str | None]] = []
    while pending and len(stamps) < _MAX_SETTINGS_FILES:
        path = pending.pop(0)
        if path in stamps:
            continue
        stamps[path] = stamp_of(path)
        for name, value in _settings(path):
            if name == "core.hookspath":
                hooks.append(os.path.join(work_tree, value))
            elif is_include(name):
                files.append(os.path.normpath(os.path.join(os.path.dirname(path), value)))
                pending.append(files[-1])
            elif name.startswith("remote.") and name.endswith((".url", ".pushurl")):
                if value.startswith("file://"):  # git ignores the host
                    value = "/" + unquote(value.removeprefix("file://").partition("/")[2])  # noqa: PLW2901
                is_path = ":" not in value.partition("/")[0]
                place = os.path.normpath(os.path.join(work_tree, value)) if is_path else None
                remotes.append((name.removeprefix("remote.").rpartition(".")[0], place))
            elif name.startswith("url."):
                remotes.append(("", None))  # git may replace the URL of any remote
    named_paths = _NamedBySettings(tuple(hooks), tuple(files), tuple(remotes))
    _named_by_settings.keep(key, named_paths, stamps.items(), examined_at)
    return named_paths


def _settings(path: str) -> Iterator[tuple[str, str]]:
    """Yield the settings in a file that may be paths."""
    return ((name, os.path.expanduser(value)) for name, value in possible_paths(_beginning(path)))


def possible_paths(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each setting in a text that may be a path. A `~` in the value is not expanded."""
    for name, value in _parsed(text):
        if name and value and "\0" not in value:
            yield name, value.removeprefix(":(optional)")


def is_include(name: str) -> bool:
    """Return True if the value of a setting is the path of further settings. `name` comes from `possible_paths`."""
    return name == "include.path" or (name.startswith("includeif.") and name.endswith(".path"))


class TrackedFiles:
    """Looks up tracked files of repositories. Each index is read once."""

    def __init__(self) -> None:
        self._indexes: dict[str, bytes] = {}

    def has(self, path: str) -> bool:
        """Return True if the repository's index contains a file. An index in a newer format counts as empty."""
        top = work_tree_above(os.path.dirname(path))
        if top is None:
            return False
        if top not in self._indexes:
            try:
                with open_regular(os.path.join(repository_of(top) or top, "index"), through_links=True) as index:
                    self._indexes[top] = index.head(MAX_INDEX_BYTES)
            except (OSError, ValueError):
                self._indexes[top] = b""
        name = os.fsencode(os.path.relpath(path, top))
        return min(len(name), _MAX_STORED_LENGTH).to_bytes(2) + name + b"\0" in self._indexes[top]


def runs_programs(top: str) -> bool:
    """Return True if git may run a repository's programs in a work tree: hooks, filters, drivers, a file monitor.

    Also true if there are submodules, because git also works in each submodule that the index lists, wherever its
    repository is.
    """
    own = os.path.join(top, REPOSITORY)
    try:
        if any(name.startswith("sharedindex") for name in os.listdir(own)):
            return True  # a split index, part of which is in another file
        if any(not name.endswith(".sample") for name in os.listdir(os.path.join(own, "hooks"))):
            return True
    except OSError as error:
        # Without a folder, this is a worktree or a submodule, whose settings are elsewhere.
        if not isinstance(error, FileNotFoundError) or not os.path.isdir(own):
            return True
    for name in ("index", *SETTINGS_FILES):
        try:
            with open_regular(os.path.join(own, name), through_links=True) as file:
                content = file.head(MAX_INDEX_BYTES)
            if name == "index":
                is_running = _MODE_OF_SUBMODULE in content or len(content) == MAX_INDEX_BYTES
            else:
                is_running = bool(settings_that_run(os.fsdecode(content), lambda _: False))
            if is_running:
                return True
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return True
    return False
