"""Settings files: where they are, and from bytes to one JSON object. What the keys mean is not known here."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from server.settings.errors import Findings, KeyPath, SettingsError, dotted

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
