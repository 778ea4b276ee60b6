"""Saves the rules for calls that a person allows permanently, in the user's own settings file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from server.settings.document_editor import with_added
from server.settings.file_rewriting import rewrite
from server.settings.section_model import SettingsError
from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import run_blocking

_WHY_NOT_SAVED: Mapping[ToolErrorType, str] = {
    ToolErrorType.PERMISSION_DENIED: "this server may not read or write it",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full",
    ToolErrorType.FILE_CHANGED_SINCE_READ: "another program changed it at the same moment",
    ToolErrorType.TARGET_IS_DIRECTORY: "a folder has its name",
}
"""Why the settings file was not written. The texts contain no path."""


class SavedRules:
    """Saves rules to the user's settings file, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def save(self, rules: Sequence[str]) -> str:
        """Add the missing rules to `permissions.allow`, and return that key.

        Raises:
            ToolError: `file_write_failure`, with the reason but no path; nothing was saved.
        """
        key, signal = "permissions.allow", AbortSignal()

        def add() -> None:
            try:
                rewrite(self._path, lambda content: with_added(content, "permissions", "allow", rules), signal)
            except SettingsError:
                why = "its content is not valid"
            except ToolError as error:
                why = _WHY_NOT_SAVED.get(error.code, "it could not be written")
            except OSError:
                why = "it could not be reached"
            else:
                return
            said = f"Nothing was saved in the user's settings file: {why}."
            remedy = f"Fix this problem, or add the rules to {key} there by hand."
            raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"{said} {remedy}")

        await run_blocking(signal, add)
        return key
