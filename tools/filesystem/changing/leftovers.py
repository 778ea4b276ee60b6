"""What killed writers left in a folder is removed by the next one there.

Whoever writes holds a lock on its temporary file. A lock ends with its process, so a temporary file that can be locked
is a leftover.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import suppress

from tools.filesystem.changing.folder_lock import FolderId, folder_id, try_lock
from tools.filesystem.descriptors import Folder
from tools.filesystem.temporary_names import is_temporary

LARGE_FOLDER = 1_000
"""Names in a folder that is not looked through at each write. A smaller one takes less than a millisecond."""

REST_SECONDS = 10.0
"""How long a large folder is not looked through again; one of 150,000 files takes a tenth of a second."""

MAX_RESTING = 1_000
"""Large folders remembered; those that nobody wrote in for longest are forgotten first."""

_LOOK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_looked: dict[FolderId, float] = {}
"""When this process last began to look through a folder that is large, or is being looked through."""

_looked_guard = threading.Lock()


def temporary_names_in(folder: Folder) -> list[str]:
    """What may be left in a folder, to be held against its locks by `remove_leftovers`.

    It takes no lock, since to list a folder may take long. While another thread looks, or shortly after a look at a
    large folder, nothing is found.
    """
    if folder.descriptor is None:
        return []  # where folders have no descriptors, files have no locks that would tell
    which = folder_id(folder.descriptor)
    if not _is_due(which):
        return []
    names: list[str] = []
    try:
        names = folder.names()
    except OSError:
        pass  # a folder to put things into, not to look at
    finally:
        if len(names) < LARGE_FOLDER:
            with _looked_guard:
                _looked.pop(which, None)
    return [name for name in names if is_temporary(name)]


def _is_due(which: FolderId) -> bool:
    """Whether it is time to look through a folder; if so, no other thread does."""
    now = time.monotonic()
    with _looked_guard:
        last = _looked.pop(which, None)
        if last is not None and now - last < REST_SECONDS:
            _looked[which] = last
            return False
        _looked[which] = now
        if len(_looked) > MAX_RESTING:
            del _looked[next(iter(_looked))]
    return True


def remove_leftovers(folder: Folder, names: list[str]) -> None:
    """Remove those of some temporary files that no living writer holds.

    Args:
        folder: Where they are. The caller is alone in it, so that none of them is just being made and not locked yet.
        names: The files.
    """
    for name in names:
        with suppress(OSError):
            descriptor = os.open(folder.named(name), _LOOK, dir_fd=folder.descriptor)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode) and try_lock(descriptor):
                    os.unlink(folder.named(name), dir_fd=folder.descriptor)
            finally:
                os.close(descriptor)
