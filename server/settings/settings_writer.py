"""A settings file is replaced as a whole, and no other writer gets between; how rules are saved in the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from server.settings.document_edits import with_added
from server.settings.section import SettingsError
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import AbortSignal
from tools.contract.threads import run_blocking
from tools.files.change.writer import exclusive, replace_file
from tools.files.opener import identity_of
from tools.files.workspace import Workspace

_WHY_NOT_SAVED: Mapping[ToolErrorType, str] = {
    ToolErrorType.PERMISSION_DENIED: "this server may not read or write it",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full",
    ToolErrorType.FILE_CHANGED_SINCE_READ: "somebody else changed it in the same moment",
    ToolErrorType.TARGET_IS_DIRECTORY: "there is a folder in its place",
}
"""Why the file was not written, in words that name no path."""


class SavedRules:
    """Saves rules to the user's settings file, which need not exist."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def keep(self, rules: Sequence[str]) -> str:
        """Add what is missing in `permissions.allow`, and return that key; a `file_write_failure` where it fails."""
        key, signal = "permissions.allow", AbortSignal()

        def add() -> None:
            try:
                rewrite(self._path, lambda content: with_added(content, "permissions", "allow", rules), signal)
            except SettingsError:
                why = "it cannot be read as settings now"
            except ToolError as error:
                why = _WHY_NOT_SAVED.get(error.code, "it could not be written")
            except OSError:
                why = "it could not be reached"
            else:
                return
            said = f"Nothing was saved in the user's settings file, because {why}."
            remedy = f"Put that right, or add the rules to {key} there by hand."
            raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"{said} {remedy}")

        await run_blocking(signal, add)
        return key


PRIVATE_FOLDER = 0o700  # modes of the settings folder and of a file in it where they are made
PRIVATE_FILE = 0o600
TRIES = 20  # how often a change is retried because somebody else wrote in the same moment (ours)


def rewrite(path: str, change: Callable[[bytes], bytes], signal: AbortSignal) -> None:
    """Put what `change` makes of a file's content in its place; no file has no content. Blocking.

    It is called again where somebody else was quicker. What fails is a `ToolError` or an `OSError`.
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
                changed = change(content)
                if changed == content:
                    return
                replace_file(workspace, location, changed, identity, new_mode=PRIVATE_FILE)
                return
        except ToolError as error:
            if error.code is not ToolErrorType.FILE_CHANGED_SINCE_READ or attempt == TRIES - 1:
                raise
