"""Where memories are kept: in one Markdown file for the project, and one for the user's other projects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.files.workspace import Location, Workspace

SECTION = "Added Memories"  # the default heading for memories
# Existing headings that memories are added to (this server's, Qwen Code's, Gemini CLI's).
KNOWN_SECTIONS = (SECTION, "Qwen Added Memories", "Gemini Added Memories")
MEMORY_ENDING = ".md"  # no other file, such as settings, is read or written as a memory
MemoryScope = Literal["global", "project"]  # the scope of a memory, in the words of Qwen Code
SCOPES: tuple[MemoryScope, ...] = ("global", "project")  # in the order of listing


def is_memory_name(name: str) -> bool:
    """Whether a file of this name or path may contain memories."""
    return name.casefold().endswith(MEMORY_ENDING)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file for memories, whether or not it exists."""

    scope: MemoryScope
    workspace: Workspace  # opens it: the client's workspace, or one with only the folder of the global memory
    location: Location


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Decides which files contain memories."""

    file_name: str = "AGENTS.md"  # a Markdown file in the workspace folder and in that of the global memory
    global_folder: str | None = None  # `None` if unknown; it need not exist
    section: str = SECTION  # the section for memories, without `##`, in a file that has no known one
    project_file_name: str | None = None  # the name in the workspace folder, if it is different

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the section, the preferred one first."""
        return tuple(dict.fromkeys(f"## {section}" for section in (self.section, *KNOWN_SECTIONS)))

    def settled_scope(self, wanted: MemoryScope | None, workspace: Workspace) -> MemoryScope:
        """Return the scope to use.

        The default is the project, if there is a workspace folder. One project's fact in the memory of all projects
        would be misleading in the others. Qwen Code asks; Gemini CLI uses the global memory.
        """
        if wanted is not None:
            return wanted
        return "project" if workspace.roots else "global"

    def file(self, scope: MemoryScope, workspace: Workspace) -> MemoryFile:
        """Return the file of a scope. Blocking, because symlinks are resolved.

        Args:
            scope: The scope.
            workspace: The client's workspace; its rules apply in the global folder as well.

        Raises:
            ToolError: There is no workspace folder, or no folder for the global memory. Or the resolved file is outside
                its folder. Or it is not a Markdown file, which in the global memory applies to the resolved name.
        """
        owner = workspace if scope == "project" else self._global(workspace)
        name = self.project_file_name or self.file_name if scope == "project" else self.file_name
        try:
            location = owner.locate(os.path.join(owner.first_root, name))
        except PathNotInWorkspaceError:
            raise ToolError(
                ToolErrorType.PATH_NOT_IN_WORKSPACE,
                f"The {scope} memory '{name}' leads out of its folder, by a symlink or by its name, so it is neither "
                "read nor written. Ask the user to replace it with a file, or to set memory.fileName.",
            ) from None
        # The folder of the global memory also contains settings and keys, which a symlink must not present as memories.
        if not is_memory_name(name) or (scope == "global" and not is_memory_name(location.path)):
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The {scope} memory '{name}' is not a Markdown file ({MEMORY_ENDING}), so it is neither read nor "
                "written. Ask the user to set memory.fileName, or to replace the symlink with a file.",
            )
        return MemoryFile(scope, owner, location)

    def _global(self, workspace: Workspace) -> Workspace:
        from tools.files.workspace import Workspace  # noqa: PLC0415 - not needed at startup

        if self.global_folder is None:
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                "There is no global memory, because the home folder is unknown. Use the scope 'project'. The operator "
                "can set a folder with memory.globalFolder.",
            )
        # Agent-ignore files belong to projects; nobody expects one in a settings folder.
        return Workspace([self.global_folder], respect_agent_ignore=False, forbidden=workspace.forbidden)
