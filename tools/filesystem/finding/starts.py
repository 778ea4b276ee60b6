"""Where a search begins: the folder that was named, or every root."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import DEFAULT_EXCLUDED_FOLDERS
from tools.filesystem.ignore_files import refuse_hidden
from tools.filesystem.workspace import Location, Workspace


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search begins.

    Args:
        location: A folder, or for a content search perhaps a file.
        is_file: Whether it is one.
    """

    location: Location
    is_file: bool = False


def search_starts(workspace: Workspace, path: str | None, *, agent: bool) -> list[Start]:
    """The folder that was named, or every root.

    Args:
        workspace: Whose roots count.
        path: As given in the call; `None` or blank for all roots.
        agent: Whether agent-ignore files apply.

    Raises:
        ToolError: `search_path_not_found`, `search_path_not_a_directory` (a device, pipe or socket), `path_ignored`,
            `path_not_in_workspace`, `no_workspace`.
    """
    if path is None or not path.strip():
        return [Start(root) for root in workspace.root_locations()]
    location = workspace.locate(path)
    info = workspace.stat(location)
    if info is None:
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_FOUND,
            f"'{location.shown}' does not exist, so nothing was searched. "
            "Use list_directory or glob to see what is there.",
        )
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{location.shown}' is neither a folder nor a regular file (a device, pipe or socket); "
            "it is never opened.",
        )
    if agent:
        refuse_hidden(workspace, location, "searched")
    return [Start(location, is_file=stat.S_ISREG(info.st_mode))]


def excluded_folders(
    starts: Sequence[Start], named: frozenset[str], folders: frozenset[str] | None = None
) -> frozenset[str]:
    """The folders left out by default, but those that the call names: in its pattern, or above where it starts."""
    above = {part for start in starts for part in start.location.relative.split("/")}
    return (DEFAULT_EXCLUDED_FOLDERS if folders is None else folders) - above - named


def names_below(workspace: Workspace, folder: Location, deadline: Deadline) -> Callable[[str], bool]:
    """What tells whether a relative path exists below a folder. A pattern may ask very often, each time through links.

    Args:
        workspace: Whose folder it is.
        folder: The folder.
        deadline: Once it is over, nothing is looked up any more; the function raises `cancelled`.
    """

    def exists(path: str) -> bool:
        return not deadline.check() and workspace.has(folder, path)

    return exists
