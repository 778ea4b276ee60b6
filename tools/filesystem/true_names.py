"""The names that files really have, on file systems where other spellings lead to them too.

There `.ENV` opens `.env`. Rules about names, and what is remembered by path, must not depend on the spelling.
"""

from __future__ import annotations

import os
import sys
import unicodedata

from tools.filesystem.descriptors import open_folder

_USUALLY_IGNORED = sys.platform in ("win32", "darwin")


def ignores_case(folder: str) -> bool:
    """Whether a folder is found by its name in the other case as well."""
    above, name = os.path.split(folder)
    while name and name.swapcase() == name:
        above, name = os.path.split(above)
    if not name:
        return _USUALLY_IGNORED
    try:
        return os.path.samestat(os.stat(os.path.join(above, name)), os.stat(os.path.join(above, name.swapcase())))
    except OSError:
        return False


def truly_named(path: str, root: str) -> str:
    """A real path with each name below the root as it is written in its folder; what does not exist stays as it is.

    Args:
        path: The root or below it.
        root: A real path.
    """
    real = root
    waiting = os.path.relpath(path, root).split(os.sep)[::-1] if path != root else []
    while waiting:
        name = waiting.pop()
        written = _written(real, name)
        if written is None:
            return os.path.join(real, name, *waiting[::-1])
        real = os.path.join(real, written)
    return real


def _written(folder: str, name: str) -> str | None:
    try:
        with open_folder(folder) as opened:
            names = opened.names()
    except OSError:
        return None
    if name in names:
        return name
    return next((other for other in names if _folded(other) == _folded(name)), None)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
