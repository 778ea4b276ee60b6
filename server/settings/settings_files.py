"""Finds the user's own files, reads and parses settings files, and reads and changes values in parsed JSON.

`read_stored` reads other JSON that this program has stored.
"""

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
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from server.settings.section_model import Diagnostics, KeyPath, SettingsError, dotted

Tree = dict[str, Any]  # a JSON object
T = TypeVar("T")

LOCK_NAME = "mcp.lock.json"  # the lock file next to the settings, with the approved tools of other servers
MAX_FILE_BYTES = 1_000_000  # maximum size of a settings file
MAX_DEPTH = 50  # the maximum nesting depth of objects and arrays
_STRING = r'"[^"\\\n]*+(?>(?:\\[^\n][^"\\\n]*+)*)"?'  # a string; if it is unclosed, the rest of the line
_TEXT_OR_COMMENT = re.compile(rf'(?>(?:[^"/]++|{_STRING}|/(?![/*]))+)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
"""Matches comments, and also the text between them, so that `//` in a string is not taken for a comment. No character
is examined twice, so matching takes linear time.
"""
_TEXT_OR_COMMA = re.compile(rf'((?>(?:[^",{{\[]++|{_STRING}|[{{\[,]\s*+,|[{{\[]|,(?!\s*+[}}\]]))+))|,')
"""Matches either text to keep (group 1), or a comma after the last item of an object or array. A comma that no item
precedes is kept, so that the parser rejects it.
"""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.ENODEV: "it is not a regular file",
}


def own_folder(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """Return the folder of the user's own settings, whether or not it exists; `None` without a home folder."""
    return _program_folder(environ, platform, "APPDATA", "XDG_CONFIG_HOME", ".config")


def state_folder(environ: Mapping[str, str]) -> str | None:
    """Return this program's private state folder, whether or not it exists; `None` without a home folder."""
    return _program_folder(environ, sys.platform, "LOCALAPPDATA", "XDG_STATE_HOME", os.path.join(".local", "state"))


def _program_folder(
    environ: Mapping[str, str], platform: str, windows_variable: str, variable: str, home_subfolder: str
) -> str | None:
    base = environ.get(windows_variable if platform == "win32" else variable, "")
    if platform != "win32" and not os.path.isabs(base):  # The XDG specification says to ignore relative paths.
        base = os.path.join(home_folder(environ), home_subfolder)
    return os.path.join(base, "coretools-mcp") if os.path.isabs(base) else None


def user_file(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """Return the user's own settings file, whether or not it exists; `None` without a home folder."""
    folder = own_folder(environ, platform)
    return os.path.join(folder, "settings.json") if folder is not None else None


def runtime_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the folders where a control socket may be, best first; not every client passes on `XDG_RUNTIME_DIR`."""
    if sys.platform == "win32":
        return []
    user = os.getuid()
    bases = [environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"]
    paths = [os.path.join(base, "coretools-mcp") for base in bases if os.path.isabs(base)]
    bases = [environ.get("TMPDIR", ""), "/tmp"]  # noqa: S108 - the subfolder must be private and belong to this user
    paths += [os.path.join(base, f"coretools-mcp-of-{user}") for base in bases if os.path.isabs(base)]
    # The last component is not resolved: a link that another user created there is not this server's folder.
    return list(dict.fromkeys(os.path.join(real_path(os.path.dirname(path)), os.path.basename(path)) for path in paths))


def home_folder(environ: Mapping[str, str]) -> str:
    """Return the user's home folder; some clients start servers without `HOME`."""
    return environ.get("HOME") or os.path.expanduser("~")


def real_path(path: str) -> str:
    """Resolve the links in a path. If one of them cannot be followed, only normalise the path."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError):  # before Python 3.13, recursion follows a chain of links
        return os.path.normpath(path)


def read_regular(path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read up to `max_bytes` + 1 bytes of a regular file. Never waits for a pipe.

    Raises:
        OSError: The file cannot be read; `ENODEV` if it is a pipe, a device or another file that may never end.
        ValueError: No file can have this path.
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
    """Read a settings file; `None` if it is optional and missing. A stream can be read only once."""
    try:
        if is_stream:
            with open(path, "rb") as stream:
                return stream.read(MAX_FILE_BYTES + 1)
        return read_regular(path)
    except (OSError, ValueError) as error:  # a NUL in the path raises `ValueError`
        if is_optional and isinstance(error, FileNotFoundError | NotADirectoryError):
            return None
        number = getattr(error, "errno", None) or 0
        reason = _REASONS.get(number, f"the system reports {errno.errorcode.get(number, 'an invalid path')}")
        raise SettingsError([f"{path}: this settings file cannot be read: {reason}."]) from None


def parse(
    content: bytes, source: str, diagnostics: Diagnostics | None = None, *, max_bytes: int = MAX_FILE_BYTES
) -> Tree:
    """Parse the content of a settings file into an object; a blank file is `{}`, and comments are allowed.

    If `diagnostics` is given, it receives a warning for each repeated key.
    """
    if len(content) > max_bytes:
        raise SettingsError([f"{source}: this file is too large for a settings file: more than {max_bytes} bytes."])
    try:
        text = content.decode().removeprefix("\ufeff")
        text = without_comments(text, source) if text.strip() else "{}"
        tree: Any = json.loads(text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
        if _SURROGATE.search(text):  # An escape may be half of a surrogate pair, which cannot be encoded.
            json.dumps(tree, ensure_ascii=False).encode()
        repeated_paths = list(_repeated_keys(tree, ()))
    except UnicodeDecodeError as error:
        problem = f"this file is not UTF-8 (byte {error.start}); save it as UTF-8."
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        problem = f"this file is not valid JSON at {place}: check for something missing or extra there."
    except UnicodeEncodeError:
        problem = "a \\u escape in this file is half of a surrogate pair."
    except ValueError:
        problem = "this file contains a number that JSON cannot express (NaN, or too large)."
    except RecursionError:
        problem = f"objects and arrays are nested more than {MAX_DEPTH} levels deep in this file."
    else:
        if isinstance(tree, dict):
            if diagnostics is not None:
                for path in repeated_paths:
                    diagnostics.warn(source, f"{dotted(path)} occurs more than once; the last one counts.")
            return cast("Tree", tree)
        problem = "settings must be one JSON object, in { }; this file contains something else."
    raise SettingsError([f"{source}: {problem}"])


def without_comments(text: str, source: str) -> str:
    """Blank out every comment, so that lines and columns stay the same; refuse a comment that is never closed."""

    def blank(match: re.Match[str]) -> str:
        token = match[0]
        if not token.startswith(("//", "/*")):
            return token
        if token.startswith("/*") and (len(token) < len("/**/") or not token.endswith("*/")):
            line = text.count("\n", 0, match.start()) + 1
            raise SettingsError([f"{source}: the comment that begins on line {line} is never closed with */."])
        return re.sub(r"[^\n]", " ", token)

    return _TEXT_OR_COMMENT.sub(blank, text)


def without_trailing_commas(text: str) -> str:
    """Blank out trailing commas in objects and arrays; other clients write them. `text` must not contain comments."""
    return _TEXT_OR_COMMA.sub(lambda match: match[1] or " ", text)


class _ObjectWithRepeatedKeys(dict[str, Any]):
    repeated_keys: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    result = _ObjectWithRepeatedKeys(values)
    result.repeated_keys = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return result


def _repeated_keys(node: Any, path: KeyPath) -> Iterator[KeyPath]:
    if len(path) >= MAX_DEPTH:
        raise RecursionError
    if isinstance(node, _ObjectWithRepeatedKeys):
        yield from ((*path, key) for key in node.repeated_keys)
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, dict):
        items = cast("dict[str, Any]", node).items()
    elif isinstance(node, list):
        items = enumerate(cast("list[Any]", node))
    for step, value in items:
        if isinstance(value, dict | list):
            yield from _repeated_keys(value, (*path, step))


def _finite(literal: str) -> float:
    """Parse a number with a fraction or an exponent; NaN and numbers beyond the range of floats are rejected."""
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(literal)
    return value


def parent_at(tree: Tree, path: KeyPath, *, create: bool = False) -> Tree | None:
    """Return the object with the last key of a path; `None` if there is none. `create` adds missing objects."""
    parent: Any = tree
    for step in path[:-1]:
        if create:
            cast("Tree", parent).setdefault(str(step), {})
        parent = cast("Tree", parent).get(str(step))
        if not isinstance(parent, dict):
            return None
    return cast("Tree", parent)


def value_at(tree: Tree, path: KeyPath) -> Any:
    """Return the value at a path; `None` if there is none."""
    parent = parent_at(tree, path)
    return parent.get(str(path[-1])) if parent is not None else None


def table_at(tree: Tree, key: str) -> Tree:
    """Return the object at `key`, such as `mcpServers`; if there is none, a new empty object outside the tree."""
    table = tree.get(key)
    return cast("Tree", table) if isinstance(table, dict) else {}


def set_default(tree: Tree, path: KeyPath, value: Any) -> None:
    """Set the value at a path that has none, creating missing objects; do nothing if another value is in the way."""
    parent = parent_at(tree, path, create=True)
    if parent is not None:
        parent.setdefault(str(path[-1]), value)


def pop_value(tree: Tree, path: KeyPath) -> Any:
    """Remove a key and the sections that its removal leaves empty. Returns the value; `None` if there was none."""
    parent = parent_at(tree, path)
    if parent is None or path[-1] not in parent:
        return None
    value = parent.pop(str(path[-1]))
    if not parent and len(path) > 1:
        pop_value(tree, path[:-1])
    return value


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path and the value of each leaf: anything except a non-empty object."""
    if isinstance(value, dict) and value:
        for key, item in cast("Tree", value).items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path, value


_type_adapter = cache(TypeAdapter[Any])


def read_stored(kind: type[T], content: bytes | str) -> T:
    """Parse the content of a file, row or line as a value of the type `kind`.

    Content of another form raises a `ValueError`, whose message quotes parts of the content, which may be secret.
    """
    return _type_adapter(kind).validate_json(content, strict=True)
