"""Locates the memory files: a Markdown file for the project, and one for all projects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.files.workspace import Location, Workspace

SECTION = "Added Memories"  # the default title of the section for memories
# Titles of sections to which memories are added if the file already has one (this server's, Qwen Code's, Gemini CLI's)
KNOWN_SECTIONS = (SECTION, "Qwen Added Memories", "Gemini Added Memories")
MEMORY_ENDING = ".md"  # no other kind of file, such as a settings file, is used as a memory
MemoryScope = Literal["global", "project"]  # named as in Qwen Code
SCOPES: tuple[MemoryScope, ...] = ("global", "project")  # in the order of the MCP resources


def is_memory_name(name: str) -> bool:
    """Return True if a file with this name or path may contain memories."""
    return name.casefold().endswith(MEMORY_ENDING)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A memory file, which need not exist."""

    scope: MemoryScope
    workspace: Workspace  # opens the file: the client's workspace, or one for the folder of the global memory
    location: Location


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    file_name: str = "AGENTS.md"  # the name of the Markdown file, in the workspace folder and in the global folder
    global_folder: str | None = None  # the folder of the global memory, which need not exist; `None` if unknown
    section: str = SECTION  # title, without `##`, of the section to create if a file has no known section
    project_file_name: str | None = None  # the name in the workspace folder, if different from `file_name`

    @property
    def headings(self) -> tuple[str, ...]:
        """The possible headings of the section for memories, the preferred one first."""
        return tuple(dict.fromkeys(f"## {section}" for section in (self.section, *KNOWN_SECTIONS)))

    def file(self, scope: MemoryScope, workspace: Workspace) -> MemoryFile:
        """Return the file of a scope. Blocking, because symlinks are resolved.

        The rules of the client's workspace also apply in the global folder. Raises a `ToolError` if there is no folder,
        if the resolved file is outside it, or if the configured name (for the global memory, also the name of the
        resolved file) is not that of a Markdown file.
        """
        from tools.files.workspace import Workspace  # noqa: PLC0415 - not needed at startup

        if scope == "project":
            owner, name = workspace, self.project_file_name or self.file_name
        elif self.global_folder is None:
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                "There is no global memory, because the home folder is unknown. Use the 'project' scope. The operator "
                "can set a folder with memory.globalFolder.",
            )
        else:
            # Agent-ignore files belong in projects; nobody expects one in a settings folder.
            owner = Workspace(
                [self.global_folder],
                respect_agent_ignore=False,
                forbidden=workspace.forbidden,
                rule_of_all_reading=workspace.rule_of_all_reading,
            )
            name = self.file_name
        try:
            location = owner.locate(os.path.join(owner.first_root, name))
        except PathNotInWorkspaceError:
            raise ToolError(
                ToolErrorType.PATH_NOT_IN_WORKSPACE,
                f"The {scope} memory '{name}' is outside its folder, because of a symlink or because of its name, so "
                "it is neither read nor written. Ask the user to replace it with a file, or to set memory.fileName.",
            ) from None
        # The global folder also contains settings and keys, which a symlink must not make accessible as memories.
        if not is_memory_name(name) or (scope == "global" and not is_memory_name(location.path)):
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The {scope} memory '{name}' is not a Markdown file ({MEMORY_ENDING}), so it is neither read nor "
                "written. Ask the user to set memory.fileName, or to replace the symlink with a file.",
            )
        return MemoryFile(scope, owner, location)
