"""Layers of the settings: what each file and the command line say, in which order they count, and all as one."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, cast

from server.settings.section import Findings, KeyPath, SettingsError, dotted

MAX_FILE_BYTES = 1_000_000
"""Bytes of one settings file; a larger one is something else (ours)."""

MAX_DEPTH = 50
"""Objects and arrays inside each other (ours)."""

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
"""Strings are matched only to be left alone. Every alternative succeeds where it begins, so this is linear."""

_WHY = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
}


def own_folder(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The folder of the user's own settings, whether or not it exists; `None` where there is no home folder."""
    if platform == "win32":
        base = environ.get("APPDATA", "")
    else:
        base = environ.get("XDG_CONFIG_HOME", "")
        if not os.path.isabs(base):  # The XDG specification: a relative path is to be ignored.
            base = os.path.join(home_folder(environ), ".config")
    return os.path.join(base, "coretools-mcp") if os.path.isabs(base) else None


def user_file(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The user's own settings file, whether or not it exists; `None` where there is no home folder."""
    folder = own_folder(environ, platform)
    return os.path.join(folder, "settings.json") if folder is not None else None


def home_folder(environ: Mapping[str, str]) -> str:
    """The user's home folder; some clients start servers without `HOME`."""
    return environ.get("HOME") or os.path.expanduser("~")


def read_user_file(path: str, findings: Findings) -> dict[str, Any] | None:
    """The user's own settings, or `None` if there is no such file.

    Raises:
        SettingsError: The file is there but cannot be used.
    """
    try:
        return parse(read_regular(path), path, findings)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def read_config_file(path: str) -> bytes:
    """The content of a file named on the command line.

    Raises:
        SettingsError: The file is not there, or cannot be read.
    """
    try:
        return read_regular(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        raise _unreadable(path, error) from None


def read_streams(paths: Iterable[str]) -> dict[str, bytes]:
    """The content of those that can be read only once, such as a shell's `<(...)`, by path.

    Raises:
        SettingsError: One of them cannot be read.
    """
    found: dict[str, bytes] = {}
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            try:
                with open(path, "rb") as stream:
                    found[path] = stream.read(MAX_FILE_BYTES + 1)
            except OSError as error:
                raise _unreadable(path, error) from None
    return found


def without_links(paths: Iterable[str]) -> dict[str, str]:
    """For each file that is reached through links, its real path: where links lead may change while the server runs."""
    real = {path: real_path(path) for path in paths if os.path.isfile(path)}
    return {path: to for path, to in real.items() if to != os.path.abspath(path)}


def real_path(path: str) -> str:
    """A path without links. One that leads through a link that this process may not follow stays as it is spelled."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.normpath(path)


class IrregularFileError(OSError):
    """What stands at the path of a settings file is a pipe, a device or the like, which may never end."""


def read_regular(path: str, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file, and one byte more than the most at most. A pipe is not waited for.

    Raises:
        OSError: It cannot be read, or is not a regular file (`IrregularFileError`).
        ValueError: No file has this path.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise IrregularFileError
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(most_bytes + 1)
    finally:
        os.close(descriptor)


def _unreadable(path: str, error: OSError | ValueError) -> SettingsError:
    number = getattr(error, "errno", None) or 0
    why = _WHY.get(number, f"the system reports {errno.errorcode.get(number, 'no valid path')}")
    if isinstance(error, IrregularFileError):
        why = "it is not a regular file"
    return SettingsError([f"{path}: this settings file cannot be read, because {why}."])


def parse(content: bytes, source: str, findings: Findings) -> dict[str, Any]:
    """Turn the content of a settings file into one object. Comments are allowed; a repeated key gets a warning.

    Args:
        content: The bytes as they are in the file.
        source: The file, for sentences.
        findings: Takes the warnings.

    Raises:
        SettingsError: It is too large, not UTF-8, not JSON, or not an object.
    """
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{source}: this file has more than {MAX_FILE_BYTES} bytes, which no settings file has."])
    try:
        text = without_comments(content.decode().removeprefix("\ufeff"), source)
        tree: Any = json.loads(text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
        if "\\u" in text:  # An escape can spell half of a character, which nothing could be done with.
            json.dumps(tree, ensure_ascii=False).encode()
        repeated = list(_repeated_keys(tree, ()))
    except UnicodeDecodeError as error:
        problem = f"this file is not UTF-8 (byte {error.start}); save it as UTF-8."
    except json.JSONDecodeError as error:
        problem = f"this file is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}."
    except UnicodeEncodeError:
        problem = "a \\u escape in this file is half of a surrogate pair."
    except ValueError:
        problem = "this file holds a number that JSON does not have (NaN, too large)."
    except RecursionError:
        problem = f"objects and arrays are nested more than {MAX_DEPTH} deep in this file."
    else:
        if isinstance(tree, dict):
            for path in repeated:
                findings.warn(source, f"{dotted(path)} is given more than once; the last one counts.")
            return cast("dict[str, Any]", tree)
        problem = "settings are one JSON object, from { to }; this file holds something else."
    raise SettingsError([f"{source}: {problem}"])


def without_comments(text: str, source: str) -> str:
    """The text with every comment blanked out, so that lines and columns stay what they are in the file.

    Raises:
        SettingsError: A comment is never closed.
    """

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith('"'):
            return found
        if found.startswith("/*") and (len(found) < len("/**/") or not found.endswith("*/")):
            line = text.count("\n", 0, match.start()) + 1
            raise SettingsError([f"{source}: the comment that begins in line {line} is never closed with */."])
        return re.sub(r"[^\n]", " ", found)

    return _STRING_OR_COMMENT.sub(blank, text)


class _ObjectWithRepeatedKeys(dict[str, Any]):
    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    seen: set[str] = set()
    marked = _ObjectWithRepeatedKeys(plain)
    marked.repeated = tuple(dict.fromkeys(key for key, _ in pairs if key in seen or seen.add(key)))
    return marked


def _repeated_keys(node: Any, path: KeyPath) -> Iterator[KeyPath]:
    if len(path) > MAX_DEPTH:
        raise RecursionError
    if isinstance(node, _ObjectWithRepeatedKeys):
        yield from ((*path, key) for key in node.repeated)
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, dict):
        items = cast("dict[str, Any]", node).items()
    elif isinstance(node, list):
        items = enumerate(cast("list[Any]", node))
    for step, value in items:
        yield from _repeated_keys(value, (*path, step))


def _finite(written: str) -> float:
    """A number with a fraction or an exponent; one beyond every float would count as infinite."""
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(written)
    return value


Tree = dict[str, Any]
"""An object as it came from JSON."""


def holder_of(tree: Tree, path: KeyPath, *, create: bool = False) -> Tree | None:
    """The object that holds the last key of a path; `None` if there is none, and none can be made."""
    holder: Any = tree
    for step in path[:-1]:
        if create:
            cast("Tree", holder).setdefault(str(step), {})
        holder = cast("Tree", holder).get(str(step))
        if not isinstance(holder, dict):
            return None
    return cast("Tree", holder)


def value_at(tree: Tree, path: KeyPath) -> Any:
    """The value of a key; `None` where it is not there."""
    holder = holder_of(tree, path)
    return holder.get(str(path[-1])) if holder is not None else None


def table_at(tree: Tree, key: str) -> Tree:
    """The object under a key at the top; an empty one where there is none."""
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def put(tree: Tree, path: KeyPath, value: Any) -> None:
    """Give a key a value if it has none. Where something else than an object stands above it, nothing happens."""
    holder = holder_of(tree, path, create=True)
    if holder is not None:
        holder.setdefault(str(path[-1]), value)


def take(tree: Tree, path: KeyPath) -> Any:
    """Remove a key, with the sections that are empty then; its value, or `None` where it was not there."""
    holder = holder_of(tree, path)
    if holder is None or path[-1] not in holder:
        return None
    value = holder.pop(str(path[-1]))
    if not holder and len(path) > 1:
        take(tree, path[:-1])
    return value


class Rank(IntEnum):
    """Where a layer comes from. A later one wins."""

    CLI_DEFAULTS = 0
    """What `--settings` itself stands for, before any file."""

    SYSTEM_DEFAULTS = 1
    """The other CLI's defaults for this machine."""

    USER = 2
    """Our own user's file."""

    CLI_USER = 3
    """The other CLI's file of this user."""

    CLI_PROJECT = 4
    """The other CLI's file in the workspace."""

    WORKSPACE = 5
    """Our own file in the workspace."""

    SYSTEM_OVERRIDES = 6
    """The other CLI's file that overrides its users'."""

    CONFIG = 7
    """A file named on the command line."""

    COMMAND_LINE = 8

    @property
    def adds_rules(self) -> bool:
        """Whether its lists of rules are added to those below, which they never take back."""
        return Rank.CLI_USER <= self <= Rank.SYSTEM_OVERRIDES or self is Rank.COMMAND_LINE


@dataclass(slots=True)
class Layer:
    """What one source says.

    Args:
        rank: Where it comes from.
        source: What it is called in sentences: the path of a file.
        data: Its content.
        folder: What relative paths in it start from; empty is the working folder.
        names: For each alias of its servers, the name that stands there.
    """

    rank: Rank
    source: str
    data: Tree
    folder: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])


class FileState(StrEnum):
    """What became of a place where settings may stand."""

    READ = "read"
    ABSENT = "not there"
    UNTRUSTED = "not trusted"
    CHANGED = "changed since it was trusted"
    UNUSABLE = "not usable"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A place where settings may stand.

    Args:
        path: The file.
        rank: What it would be.
        state: What became of it.
    """

    path: str
    rank: Rank
    state: FileState


ADDED_RULES: tuple[tuple[str, str], ...] = (
    ("permissions", "allow"),
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "allowed"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "excluded"),
)
"""Lists of rules that some layers add to, so that they take back nothing that another layer restricts."""


@dataclass(slots=True)
class MergedLayers:
    """What all layers say together: objects merge key by key, everything else replaces, each value keeps its source.

    Args:
        data: The values, under canonical keys; the entries of `mcpServers` under their aliases.
        names: For each alias, the name it was configured with.
    """

    data: Tree = field(default_factory=dict[str, Any])
    names: dict[str, str] = field(default_factory=dict[str, str])
    _sources: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    _sources_of_objects: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    """For each object with values, the layer that gave the last of them."""

    def add(self, layer: Layer) -> None:
        """Put a layer in canonical form over what is there. Its data is taken over, not copied."""
        self.names.update(layer.names)
        for path in ADDED_RULES if layer.rank.adds_rules else ():
            added, rules = value_at(layer.data, path), value_at(self.data, path)
            if not isinstance(added, list) or not isinstance(rules, list):
                continue
            before = self.source_of(path)
            cast("list[Any]", rules).extend([rule for rule in take(layer.data, path) if rule not in rules])
            if before != layer.source:
                self._sources[path] = f"{before} and {layer.source}"
        self._merge(self.data, layer.data, layer.source, ())

    def _merge(self, below: Tree, above: Tree, source: str, path: KeyPath) -> None:
        for key, value in above.items():
            here = (*path, key)
            is_entry = path == ("mcpServers",)
            if isinstance(value, dict) and isinstance(below.get(key), dict) and not is_entry:
                self._sources.pop(here, None)
                self._merge(below[key], cast("Tree", value), source, here)
                continue
            if key in below:
                for known in [known for known in self._sources if known[: len(here)] == here]:
                    del self._sources[known]
            below[key] = value
            for leaf, _ in leaves(value, here):
                self._sources[leaf] = source
                self._sources_of_objects.update((leaf[:length], source) for length in range(1, len(leaf)))

    def source_of(self, path: KeyPath) -> str:
        """The layer that a value, or the nearest thing around or below it, came from."""
        names = tuple(step for step in path if isinstance(step, str))
        for length in range(len(names), 0, -1):
            if names[:length] in self._sources:
                return self._sources[names[:length]]
        return self._sources_of_objects.get(names, "default")


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Each value in a tree that is not an object with keys, with its path."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value
