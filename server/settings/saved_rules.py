"""Where rules stand that a person saves: the user's own settings file, written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from server.settings.editing import with_added
from server.settings.errors import SettingsError
from server.settings.own_files import rewrite
from tools.contract.blocking import run_blocking
from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType

SECTION, KEY = "permissions", "allow"
"""Where saved rules stand in the file."""

_WHY: Mapping[ToolErrorType, str] = {
    ToolErrorType.PERMISSION_DENIED: "this server may not read or write it",
    ToolErrorType.NO_SPACE_LEFT: "the disk is full",
    ToolErrorType.FILE_CHANGED_SINCE_READ: "somebody else changed it in the same moment",
    ToolErrorType.TARGET_IS_DIRECTORY: "a folder stands in its place",
}
"""Why the file was not written, in words that name no path."""


class SavedRules:
    """Saves rules to the user's settings file.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    async def keep(self, rules: Sequence[str]) -> str:
        """Add rules that are not there yet to `permissions.allow`, whole or not at all.

        Returns:
            The key that they stand under.

        Raises:
            ToolError: The file cannot be read as settings, or cannot be written (`file_write_failure`).
        """
        signal = AbortSignal()
        await run_blocking(signal, lambda: self._add(rules, signal))
        return f"{SECTION}.{KEY}"

    def _add(self, rules: Sequence[str], signal: AbortSignal) -> None:
        try:
            rewrite(self._path, lambda content: with_added(content, SECTION, KEY, rules), signal)
        except SettingsError:
            raise _not_saved("it cannot be read as settings now") from None
        except ToolError as error:
            raise _not_saved(_WHY.get(error.code, "it could not be written")) from None
        except OSError:
            raise _not_saved("it could not be reached") from None


def _not_saved(why: str) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_WRITE_FAILURE,
        f"Nothing was saved in the user's settings file, because {why}. "
        f"Put that right, or add the rules to {SECTION}.{KEY} there by hand.",
    )
