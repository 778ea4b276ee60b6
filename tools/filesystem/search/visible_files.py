"""Which of the files that ripgrep finds may be shown.

ripgrep reads `.gitignore` in its own way and knows neither agent-ignore files nor permission rules. So each file that
it finds is judged by the rules that every other tool goes by; what they hide is dropped before anything is counted.
"""

from __future__ import annotations

import os
from collections.abc import Container

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding.walk import Filters, Selection
from tools.filesystem.ignore_files import GIT_FOLDER, PresentNames, Scope, scope_of
from tools.filesystem.temporary_names import is_temporary
from tools.filesystem.workspace import Location, Workspace

MAX_FOLDERS = 10_000
"""Folders whose rules are held at once."""


class VisibleFiles:
    """The files below one folder that may be shown.

    Args:
        workspace: Its permission rules count in any case.
        folder: The folder. It may be hidden itself, since somebody named it.
        filters: Which ignore files count, and which folders are left out by their name.
        wanted: The file filter of the call.
        others: Real paths of folders that are searched by themselves, and not as a part of this one.

    Raises:
        ToolError: `path_ignored`: it is not known what an agent-ignore file hides in the folder.
    """

    def __init__(
        self, workspace: Workspace, folder: Location, filters: Filters, wanted: Selection, others: Container[str]
    ) -> None:
        self._workspace = workspace
        self._path = os.path.join(folder.path, "")
        self._filters = filters
        self._others = others
        self._top = (scope_of(workspace, folder, git=filters.git, agent=filters.agent), wanted)
        self._folders: dict[str, tuple[Scope, Selection] | None] = {"": self._top}
        """The rules in each folder and what is wanted there, `None` where it is hidden or nothing is wanted."""

    @property
    def options(self) -> list[str]:
        """What of this ripgrep can leave out by itself, so that it has less to search."""
        folders = [f"--glob=!{name}/" for name in sorted(self._filters.folders)]
        return [*folders, f"--glob=!{GIT_FOLDER}" if self._filters.git else "--no-ignore"]

    def holds(self, path: str) -> bool:
        """Whether a file may be shown.

        Args:
            path: Below the folder, with forward slashes.
        """
        prefix, _, name = path.rpartition("/")
        entered = self._folders[prefix] if prefix in self._folders else self._entered(prefix)
        if entered is None or is_temporary(name):
            return False
        scope, wanted = entered
        return bool(wanted.chosen([name])) and scope.hides(name, is_folder=False) is None

    def _entered(self, path: str) -> tuple[Scope, Selection] | None:
        """What counts in a folder below: all above it are gone through, since what is in a hidden one is hidden."""
        entered: tuple[Scope, Selection] | None = self._top
        folder = ""
        for name in path.split("/"):
            above, folder = entered, f"{folder}/{name}" if folder else name
            if folder in self._folders:
                entered = self._folders[folder]
            else:
                if len(self._folders) >= MAX_FOLDERS:
                    self._folders = {"": self._top}
                entered = self._folders[folder] = above and self._below(*above, name, self._path + folder)
        return entered

    def _below(self, scope: Scope, wanted: Selection, name: str, folder: str) -> tuple[Scope, Selection] | None:
        folder = folder.replace("/", os.sep)
        inside = wanted.enter(name)
        if inside is None or folder in self._others or name in self._filters.folders:
            return None
        if scope.hides(name, is_folder=True) is not None:
            return None
        try:
            if folder in self._workspace.roots:
                # A root below a root has agent-ignore files of its own, as it has for a read.
                location = self._workspace.locate(folder)
                return scope_of(self._workspace, location, git=self._filters.git, agent=self._filters.agent), inside
            return scope.enter(folder, PresentNames(folder)), inside
        except ToolError as error:
            if error.code is not ToolErrorType.PATH_IGNORED:
                raise
            return None  # it is not known what of it is hidden; whoever names it is told why
