"""A file of the user, such as settings or what is trusted, replaced as a whole; no other writer gets between."""

from __future__ import annotations

import os
from collections.abc import Callable

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.writer import exclusive, replace_file
from tools.files.path_opener import identity_of
from tools.files.workspace import Workspace

PRIVATE_FOLDER = 0o700  # modes of a folder and of a file that have to be made
PRIVATE_FILE = 0o600
TRIES = 20  # how often a change is retried because somebody else wrote in the same moment


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal) -> None:
    """Put what `change` makes of a file's content in its place, whole; a link stays one. Blocking.

    Args:
        path: The file; where there is none, its content is empty, and it is made so that nobody else may read it.
        change: The new content from the one that is there; called again where somebody else wrote in between.
        signal: Ends the wait for another writer of this process.

    Raises:
        ToolError: It cannot be read or written, or others write it all the time (`file_changed_since_read`).
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
                        content, identity = opened.whole(signal), identity_of(opened.info)
                after = change(content)
                if after == content:
                    return
                replace_file(workspace, location, after, identity, mode=PRIVATE_FILE)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == TRIES - 1:
                raise
