"""Settings files: where the user's own are, how one is read and parsed, and how all layers become one tree."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, cast

from server.settings.section import Diagnostics, KeyPath, SettingsError, dotted, key_paths

MAX_FILE_BYTES = 1_000_000  # bytes of one settings file; a larger one is something else (ours)
MAX_DEPTH = 50  # objects and arrays inside each other (ours)
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
"""Strings are matched only to be left alone. Every alternative succeeds where it begins, so this is linear."""
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\[^\n])*")|,(?=\s*[}\]])')

_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.ENODEV: "it is not a regular file",
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


def state_folder(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The folder of what this program keeps for itself, whether or not it exists; `None` where there is no home."""
    base = environ.get("LOCALAPPDATA" if platform == "win32" else "XDG_STATE_HOME", "")
    if platform != "win32" and not os.path.isabs(base):  # as above
        base = os.path.join(home_folder(environ), ".local", "state")
    return os.path.join(base, "coretools-mcp") if os.path.isabs(base) else None


def user_file(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The user's own settings file, whether or not it exists; `None` where there is no home folder."""
    folder = own_folder(environ, platform)
    return os.path.join(folder, "settings.json") if folder is not None else None


def home_folder(environ: Mapping[str, str]) -> str:
    """The user's home folder; some clients start servers without `HOME`."""
    return environ.get("HOME") or os.path.expanduser("~")


def real_path(path: str) -> str:
    """A path without links. One that leads through a link that this process may not follow stays as it is written."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.normpath(path)


def read_regular(path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file, up to one byte more than the most that is wanted. A pipe is not waited for.

    Raises:
        OSError: It cannot be read; `ENODEV` if it is a pipe, a device or the like, which may never end.
        ValueError: No file has this path.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(max_bytes + 1)
    finally:
        os.close(descriptor)


def read_settings_file(path: str, *, is_optional: bool = False, is_stream: bool = False) -> bytes | None:
    """The content of a settings file, `None` of an optional one that is not there; a stream can be read only once."""
    try:
        if is_stream:
            with open(path, "rb") as stream:
                return stream.read(MAX_FILE_BYTES + 1)
        return read_regular(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        if is_optional and isinstance(error, FileNotFoundError | NotADirectoryError):
            return None
        number = getattr(error, "errno", None) or 0
        why = _REASONS.get(number, f"the system reports {errno.errorcode.get(number, 'no valid path')}")
        raise SettingsError([f"{path}: this settings file cannot be read, because {why}."]) from None


def parse(
    content: bytes, source: str, diagnostics: Diagnostics | None = None, *, max_bytes: int = MAX_FILE_BYTES
) -> dict[str, Any]:
    """Turn the content of a settings file into one object. Comments are allowed; a repeated key gets a warning."""
    if len(content) > max_bytes:
        raise SettingsError([f"{source}: this file has more than {max_bytes} bytes, which no settings file has."])
    try:
        text = without_comments(content.decode().removeprefix("\ufeff"), source)
        tree: Any = json.loads(text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
        if "\\u" in text:  # An escape can be half of a character, which nothing could be done with.
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
            if diagnostics is not None:
                for path in repeated:
                    diagnostics.warn(source, f"{dotted(path)} is given more than once; the last one counts.")
            return cast("dict[str, Any]", tree)
        problem = "settings are one JSON object, from { to }; this file holds something else."
    raise SettingsError([f"{source}: {problem}"])


def without_comments(text: str, source: str) -> str:
    """The text with every comment blanked out, so that lines and columns stay what they are in the file."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith('"'):
            return found
        if found.startswith("/*") and (len(found) < len("/**/") or not found.endswith("*/")):
            line = text.count("\n", 0, match.start()) + 1
            raise SettingsError([f"{source}: the comment that begins in line {line} is never closed with */."])
        return re.sub(r"[^\n]", " ", found)

    return _STRING_OR_COMMENT.sub(blank, text)


def without_trailing_commas(text: str) -> str:
    """A text without comments, with every comma before a closing bracket blanked out; other clients write such."""
    return _TRAILING_COMMA.sub(lambda match: match[1] or " ", text)


class _ObjectWithRepeatedKeys(dict[str, Any]):
    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = _ObjectWithRepeatedKeys(plain)
    marked.repeated = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
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


Tree = dict[str, Any]  # an object as it came from JSON


def parent_at(tree: Tree, path: KeyPath, *, create: bool = False) -> Tree | None:
    """The object that holds the last key of a path; `None` if there is none, and none can be made."""
    parent: Any = tree
    for step in path[:-1]:
        if create:
            cast("Tree", parent).setdefault(str(step), {})
        parent = cast("Tree", parent).get(str(step))
        if not isinstance(parent, dict):
            return None
    return cast("Tree", parent)


def value_at(tree: Tree, path: KeyPath) -> Any:
    parent = parent_at(tree, path)
    return parent.get(str(path[-1])) if parent is not None else None


def table_at(tree: Tree, key: str) -> Tree:
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def set_default(tree: Tree, path: KeyPath, value: Any) -> None:
    parent = parent_at(tree, path, create=True)
    if parent is not None:
        parent.setdefault(str(path[-1]), value)


def pop_value(tree: Tree, path: KeyPath) -> Any:
    """Remove a key, with the sections that are empty then; its value, or `None` where it was not there."""
    parent = parent_at(tree, path)
    if parent is None or path[-1] not in parent:
        return None
    value = parent.pop(str(path[-1]))
    if not parent and len(path) > 1:
        pop_value(tree, path[:-1])
    return value


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Each value in a tree that is not an object with keys, with its path."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value


class SettingsScope(IntEnum):
    """What a layer is valid for, and so how much it counts: a later one wins."""

    CLI_DEFAULTS = 0  # what `--settings` itself stands for, before any file
    SYSTEM_DEFAULTS = 1  # the other CLI's defaults for this machine
    USER = 2  # our own user's file
    CLI_USER = 3  # the other CLI's file of this user
    CLI_PROJECT = 4  # the other CLI's file in the workspace
    WORKSPACE = 5  # our own file in the workspace
    SYSTEM_OVERRIDES = 6  # the other CLI's file that overrides its users'
    CONFIG = 7  # a file named on the command line
    COMMAND_LINE = 8

    @property
    def adds_rules(self) -> bool:
        """Whether its lists of rules are added to those below, which they never take back."""
        return SettingsScope.CLI_USER <= self <= SettingsScope.SYSTEM_OVERRIDES or self is SettingsScope.COMMAND_LINE


@dataclass(slots=True)
class Layer:
    """What one source says."""

    scope: SettingsScope
    source: str  # what it is called in sentences: the path of a file
    data: Tree
    folder: str = ""  # what relative paths in it start from; empty is the working folder
    names: dict[str, str] = field(default_factory=dict[str, str])  # for each alias of its servers, the name there


class FileState(StrEnum):
    READ = "read"
    ABSENT = "not there"
    UNTRUSTED = "not trusted"
    CHANGED = "changed since it was trusted"
    UNUSABLE = "not usable"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file that may hold settings, and what became of it."""

    path: str
    scope: SettingsScope
    state: FileState

    @property
    def is_in_workspace(self) -> bool:
        """Whether it comes with a workspace, so that it has to be trusted."""
        return self.scope in (SettingsScope.CLI_PROJECT, SettingsScope.WORKSPACE)


REFUSING = key_paths("permissions.ask permissions.deny tools.exclude tools.confirmationRequired mcp.excluded")
"""Lists of what is asked about, refused or left out: more in them restricts more."""
ADDED_RULES: tuple[KeyPath, ...] = (*REFUSING, *key_paths("permissions.allow tools.allowed"))
"""Lists of rules that some layers add to, so that they take back nothing that another layer restricts."""


class MergedLayers:
    """What all layers in canonical form say together: objects merge by key, all else replaces. The last counts most."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._layers: list[Layer] = []
        self.data: Tree = {}  # the values, under canonical keys; the entries of `mcpServers` under their aliases
        self.names: dict[str, str] = {}  # for each alias, the name it was configured with
        for layer in layers:
            self.add(layer)

    def add(self, layer: Layer) -> None:
        self._layers.append(layer)
        self.names |= layer.names
        self.data = _merged(self.data, layer.data, (), adds_rules=layer.scope.adds_rules)

    def source_of(self, path: KeyPath) -> str:
        """The layer that a value, or the nearest thing around it, came from."""
        names = tuple(step for step in path if isinstance(step, str))
        for length in range(len(names), 0, -1):
            giving = [layer for layer in self._layers if _is_given(layer.data, names[:length])]
            if len(names) > 2 and names[0] == "mcpServers":  # an entry is replaced as a whole
                entries = [layer for layer in self._layers if _is_given(layer.data, names[:2])]
                giving = [layer for layer in giving if layer is entries[-1]]
            if giving and names[:length] in ADDED_RULES:
                first = max((at for at, layer in enumerate(giving) if not layer.scope.adds_rules), default=0)
                return " and ".join(dict.fromkeys(layer.source for layer in giving[first:]))
            if giving:
                return giving[-1].source
        return "default"


def _merged(below: Tree, above: Tree, path: KeyPath, *, adds_rules: bool) -> Tree:
    result = dict(below)
    for key, value in above.items():
        here, before = (*path, key), below.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and path != ("mcpServers",):
            result[key] = _merged(cast("Tree", before), cast("Tree", value), here, adds_rules=adds_rules)
        elif adds_rules and here in ADDED_RULES and isinstance(value, list) and isinstance(before, list):
            rules = cast("list[Any]", before)
            result[key] = [*rules, *(rule for rule in cast("list[Any]", value) if rule not in rules)]
        else:
            result[key] = value
    return result


def _is_given(data: Tree, path: KeyPath) -> bool:
    parent = parent_at(data, path)
    return parent is not None and path[-1] in parent
