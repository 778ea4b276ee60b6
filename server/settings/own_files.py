"""Rewriting a file of our own settings folder: read, changed and written as a whole, with nobody in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.changing.writer import exclusive, replace_file
from tools.filesystem.descriptors import identity_of
from tools.filesystem.workspace import Workspace

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
"""Modes of the settings folder and of a file in it where they have to be made."""

TRIES = 20
"""How often a change is made anew because somebody else wrote in the same moment (ours)."""


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal) -> None:
    """Put what `change` makes of a file's content in its place. Blocking.

    Args:
        path: The file; it need not exist, and has no content then.
        change: From the present content to the new one; called again where somebody else was quicker.
        signal: Ends the wait for other writers.

    Raises:
        ToolError: It cannot be read or written.
        OSError: Its folder cannot be made.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, PRIVATE_FOLDER, exist_ok=True)
    workspace = Workspace([folder], ignore_case=False)
    location = workspace.at(path)
    for attempt in range(TRIES):
        try:
            with exclusive(location, signal):
                content, identity = b"", None
                if workspace.stat(location) is not None:
                    with workspace.open_file(location) as opened:
                        content, identity = opened.whole(signal), opened.identity
                changed = change(content)
                if changed == content:
                    return
                if identity is None:
                    _make_private(path)
                    identity = identity_of(os.stat(path))
                replace_file(workspace, location, changed, identity)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == TRIES - 1:
                raise


def _make_private(path: str) -> None:
    """An empty object in a file that nobody else may read; what replaces it keeps its mode."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
        try:
            os.write(descriptor, b"{}\n")
        finally:
            os.close(descriptor)
