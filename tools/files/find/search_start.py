"""The starting points of a search."""

from __future__ import annotations

import stat

from tools.contract.limits import Deadline
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.near_names import NEAR_SECONDS, proposal
from tools.files.ignore_files import refuse_hidden
from tools.files.workspace import Location, Workspace


def search_starts(
    workspace: Workspace, path: str | None, deadline: Deadline, *, agent: bool
) -> tuple[list[Location], bool]:
    """Return where a search starts (the given folder or file, or every root), and whether it is a single file."""
    if path is None or not path.strip():
        return workspace.root_locations(), False
    location = workspace.locate(path, by_look=True)
    info = workspace.stat(location)
    if info is None:
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_FOUND,
            f"'{location.shown}' does not exist, so nothing was searched."
            + proposal(workspace, location, Deadline(deadline.signal, NEAR_SECONDS), folders=True),
        )
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{location.shown}' is a device, pipe or socket; these are never opened.",
        )
    if agent:
        refuse_hidden(workspace, location, "searched")
    return [location], stat.S_ISREG(info.st_mode)
