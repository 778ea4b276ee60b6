"""Replaces a user's whole file, such as the settings or the trust record; concurrent writes cannot mix."""

from __future__ import annotations

import os
from collections.abc import Callable

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import exclusive, replace_file
from tools.files.path_opener import identity_of
from tools.files.workspace import Workspace

PRIVATE_FOLDER = 0o700  # mode of a new folder
PRIVATE_FILE = 0o600  # mode of a new file
TRIES = 20  # the maximum number of attempts if another program keeps changing the file


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal | None = None) -> None:
    """Replace a file's content with the result of `change`; a link is kept, and its target is changed. Blocks.

    Args:
        path: The file. A missing file counts as empty, and is created readable only by its owner.
        change: Maps the old content to the new one. It is called again if another program has written in the meantime.
        signal: Aborts the wait for another writer in this process.

    Raises:
        ToolError: The file cannot be read or written, or other programs keep writing it (`file_changed_since_read`).
        OSError: The file's folder cannot be created.
    """
    path, signal = os.path.realpath(path), signal or AbortSignal()
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
                        content, identity = opened.whole(signal), identity_of(opened.info)
                if (after := change(content)) != content:
                    replace_file(workspace, location, after, identity, mode=PRIVATE_FILE)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == TRIES - 1:
                raise
