"""Where memories are kept: one Markdown file of the project, and one of the user for all projects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.files.workspace import Location, Workspace

SECTION = "Added Memories"  # the heading that memories stand below, unless the settings say another one
# Where a file has one of these headings (ours, Qwen Code's, Gemini CLI's), memories go on there.
KNOWN_SECTIONS = (SECTION, "Qwen Added Memories", "Gemini Added Memories")
MEMORY_ENDING = ".md"  # nothing else, such as settings, is read or written as a memory
MemoryScope = Literal["global", "project"]  # whom a memory is for, in the words of Qwen Code
SCOPES: tuple[MemoryScope, ...] = ("global", "project")  # all of them, in the order of listing


def is_memory_name(name: str) -> bool:
    """Whether a file of this name or path may hold memories."""
    return name.casefold().endswith(MEMORY_ENDING)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """One file of memories, whether or not it exists."""

    scope: MemoryScope
    workspace: Workspace  # what it is opened by: the client's, or one that holds the folder of the global memory alone
    location: Location


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Which files hold memories."""

    file_name: str = "AGENTS.md"  # a Markdown file, below the workspace folder and that of the global memory
    global_folder: str | None = None  # `None` where none is known; it need not exist
    section: str = SECTION  # of memories, without `##`, in a file that has none of the known ones
    project_file_name: str | None = None  # the name below the workspace folder, where it is another one

    @property
    def headings(self) -> tuple[str, ...]:
        """The lines that begin the section, the preferred one first."""
        return tuple(dict.fromkeys(f"## {section}" for section in (self.section, *KNOWN_SECTIONS)))

    def settled_scope(self, wanted: MemoryScope | None, workspace: Workspace) -> MemoryScope:
        """The scope that is meant.

        Without one it is the project, where there is a workspace folder: a fact of one project that lands in the
        memory of all of them misleads in every other one. Qwen Code asks, Gemini CLI takes the global memory.
        """
        if wanted is not None:
            return wanted
        return "project" if workspace.roots else "global"

    def file(self, scope: MemoryScope, workspace: Workspace) -> MemoryFile:
        """The file of a scope. Blocking: links are resolved.

        Args:
            scope: Whom it is for.
            workspace: The client's; what its rules hide is hidden in the global folder as well.

        Raises:
            ToolError: There is no workspace folder, or no folder for the global memory; or the file lies outside of
                it, links resolved; or it is no Markdown file, for the global memory links resolved.
        """
        owner = workspace if scope == "project" else self._global(workspace)
        name = self.project_file_name or self.file_name if scope == "project" else self.file_name
        try:
            location = owner.locate(os.path.join(owner.first_root, name))
        except PathNotInWorkspaceError:
            raise ToolError(
                ToolErrorType.PATH_NOT_IN_WORKSPACE,
                f"The {scope} memory '{name}' leads out of its folder, by a link or by its name, so it is neither read "
                "nor written. Ask the user to put a file in its place, or to set memory.fileName.",
            ) from None
        # In the folder of the global memory lie settings and keys, which a link there must not pass off as memories.
        if not is_memory_name(name) or (scope == "global" and not is_memory_name(location.path)):
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The {scope} memory '{name}' is no Markdown file ({MEMORY_ENDING}), so it is neither read nor "
                "written. Ask the user to set memory.fileName, or to put a file in the place of a link.",
            )
        return MemoryFile(scope, owner, location)

    def _global(self, workspace: Workspace) -> Workspace:
        from tools.files.workspace import Workspace  # noqa: PLC0415 - starting up does not need it

        if self.global_folder is None:
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                "There is no global memory: no home folder is known. Use the scope 'project'; the operator can name a "
                "folder with memory.globalFolder.",
            )
        # Agent-ignore files are a project's; in a folder of settings nobody expects one.
        return Workspace([self.global_folder], respect_agent_ignore=False, forbidden=workspace.forbidden)
