"""Paths and patterns in arguments: permission subjects, short forms for people, and ignore options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Generic, cast

from pydantic import Field

from tools.call.base_tool import READS, BuiltinParamsT, BuiltinTool, ToolContext
from tools.contract.permission_subjects import Access, PathSubject, Subject
from tools.contract.tool_errors import InvalidToolParamsError, ToolError
from tools.contract.tool_parameters import MAX_UNKNOWN, ToolParams, coerce
from tools.files.workspace import MAX_PATH_CHARS, Location, Workspace, contains
from tools.text.file_names import MAX_BRIEF_CHARS, one_line, shown_path

FOLDER_ALIASES = {"dir_path": "path", "absolute_path": "path"}  # other names for the parameter that names a folder
FILE_ALIASES = {"absolute_path": "file_path", "path": "file_path"}  # other names for the parameter that names a file


def check_file_path(tool: str, path: str, parameter: str) -> None:
    """Refuse a path that is blank or looks like a folder, and a relative path given as `absolute_path`."""
    stripped = path.strip()
    if not stripped:
        raise InvalidToolParamsError(tool, f"'{parameter}' is empty; give the path of a file.")
    if stripped.endswith(("/", os.sep)):
        raise InvalidToolParamsError(tool, f"'{parameter}' must name a file, got the folder '{shown_path(path)}'.")
    if parameter == "absolute_path" and not os.path.isabs(stripped):
        raise InvalidToolParamsError(
            tool,
            f"'absolute_path' must be absolute, got '{shown_path(path)}'. Give the full path; 'file_path' accepts a "
            "path relative to the workspace.",
        )


def path_subject(workspace: Workspace, spelled: str) -> PathSubject:
    """Return the permission subject for reading a path. Raises a `ToolError` if it is outside the workspace."""
    return located_subject(workspace, workspace.locate(spelled, by_look=True), Access.READ)


def located_subject(workspace: Workspace, location: Location, access: Access) -> PathSubject:
    """Return a resolved path as a subject of permission rules."""
    named = os.path.normpath(os.path.join(workspace.first_root, location.spelled))
    return PathSubject(access, location.name, named, location.in_scratch)


class PathReader(BuiltinTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """Base class of tools that read one path."""

    behaviour = READS
    path_parameter = "path"

    def subjects(self, params: BuiltinParamsT, context: ToolContext) -> Sequence[Subject]:
        return (path_subject(context.workspace, getattr(params, self.path_parameter)),)


def path_subjects(workspace: Workspace, entries: Iterable[str]) -> list[PathSubject]:
    """Return subjects for the paths and globs inside the workspace. Rules are applied later to what a glob finds."""
    found: list[PathSubject] = []
    for entry in entries:
        with suppress(ToolError):
            found.append(path_subject(workspace, entry))
    return found


def shown(path: str, workspace: Workspace) -> str:
    """Shorten a path for people: one line, relative to its workspace folder, and cut in the middle if long."""
    if len(path) > MAX_PATH_CHARS:
        # No real path is this long, but an argument may be megabytes long, so only its ends are examined.
        return _shortened(one_line(path[:MAX_BRIEF_CHARS]), one_line(path[-MAX_BRIEF_CHARS:]))
    short = path.strip()
    normal = os.path.normpath(short)
    for root in workspace.roots:
        if normal != root and contains(root, normal):
            short = normal[len(root) :].lstrip(os.sep)
            break
    short = one_line(short)
    return short if len(short) <= MAX_BRIEF_CHARS else _shortened(short, short)


def _shortened(start: str, end: str) -> str:
    half = (MAX_BRIEF_CHARS - 3) // 2
    return f"{start[:half]}...{end[-half:]}"


def start_subjects(workspace: Workspace, path: str | None) -> Sequence[PathSubject]:
    """Return the folders where a search starts, by default all workspace folders.

    Rules are applied later to the files that the search finds.
    """
    if path is None or not path.strip():
        return path_subjects(workspace, workspace.roots)
    return (path_subject(workspace, path),)


OPTIONS = "file_filtering_options"
_OPTION_ALIASES = {
    "respect_git_ignore": "respect_git_ignore",
    "respect_agent_ignore": "respect_agent_ignore",
    "respect_gemini_ignore": "respect_agent_ignore",
    "respect_qwen_ignore": "respect_agent_ignore",
}
MAX_PATTERNS = 200  # maximum number of patterns per call, because each pattern is tried on every file
ShortPattern = Annotated[str, Field(min_length=1, max_length=1_000)]


class FileFilteringOptions(ToolParams):
    """Which ignore files apply. The defaults come from the server's settings, where they are usually true."""

    respect_git_ignore: bool | None = None
    respect_agent_ignore: bool | None = None


def gather_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Collect the filter options, in any spelling, under `file_filtering_options`.

    An option at the top level takes precedence over the same option inside the object.
    """
    given = coerce(arguments.get(OPTIONS), {"type": "object"})
    if given is not None and not isinstance(given, dict):
        return arguments
    inside = cast("dict[str, Any]", given or {})
    if len(inside) > MAX_UNKNOWN:
        # The general argument check will reject this many options.
        return arguments
    beside = {name: arguments[name] for name in _OPTION_ALIASES if arguments.get(name) is not None}
    gathered = {_OPTION_ALIASES.get(name, name): value for name, value in (*inside.items(), *beside.items())}
    rest = {name: value for name, value in arguments.items() if name not in _OPTION_ALIASES and name != OPTIONS}
    return rest | ({OPTIONS: gathered} if gathered else {})


def respects(workspace: Workspace, options: FileFilteringOptions | None) -> tuple[bool, bool]:
    """Return whether git ignore files and agent-ignore files apply to a call."""
    git, agent = (options.respect_git_ignore, options.respect_agent_ignore) if options else (None, None)
    return (
        workspace.respect_git_ignore if git is None else git,
        workspace.respect_agent_ignore if agent is None else agent,
    )
