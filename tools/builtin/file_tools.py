"""What the file tools share: path arguments, ignore options, and base classes for tools that read or change one file.

A path is converted to the subject that permission rules check, and to a short form for display. A tool that changes a
file locates it, plans the change, asks for consent, and writes the file.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

from pydantic import Field

from tools.call.base_tool import READS, BuiltinParamsT, BuiltinTool, ToolContext
from tools.contract.permission_subjects import Access, PathSubject, Subject, ToolKind
from tools.contract.tool_errors import ToolError
from tools.contract.tool_parameters import MAX_UNKNOWN, ForeignParameter, ToolParams, coerce, foreign
from tools.contract.tool_results import ToolResult
from tools.files.workspace import MAX_PATH_CHARS, Location, Workspace, contains
from tools.machine.threads import run_blocking
from tools.text.file_names import MAX_BRIEF_CHARS, one_line, shown_path

if TYPE_CHECKING:
    from tools.contract.confirmation import ConfirmationDetails, EditConfirmation
    from tools.files.change.file_change import Author, FileChange, TargetFile

logger = logging.getLogger(__name__)

FOLDER_ALIASES = {"dir_path": "path", "absolute_path": "path"}  # other names for the parameter that names a folder
FILE_ALIASES = {"absolute_path": "file_path", "path": "file_path"}  # other names for the parameter that names a file


def file_path_problems(path: str, parameter: str) -> Iterator[str]:
    """Yield why a path is invalid: it is blank, looks like a folder, or is relative but given as `absolute_path`."""
    stripped = path.strip()
    if not stripped:
        yield f"'{parameter}' is empty; give the path of a file."
    if stripped.endswith(("/", os.sep)):
        yield f"'{parameter}' must name a file, got the folder '{shown_path(path)}'."
    if parameter == "absolute_path" and not os.path.isabs(stripped):
        problem = f"'absolute_path' must be absolute, got '{shown_path(path)}'."
        yield f"{problem} Give the full path; 'file_path' accepts a path relative to the workspace."


def path_subject(workspace: Workspace, path: str) -> PathSubject:
    """Return the permission subject for reading a path. Raises a `ToolError` if it is outside the workspace."""
    return located_subject(workspace.locate(path, by_look=True), Access.READ)


def located_subject(location: Location, access: Access) -> PathSubject:
    """Return a resolved path as a subject of permission rules."""
    return PathSubject(access, location.name, location.unresolved_path, location.in_scratch)


class PathReader(BuiltinTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """Base class of tools that read one path."""

    behaviour = READS
    path_parameter = "path"

    def subjects(self, params: BuiltinParamsT, context: ToolContext) -> Sequence[Subject]:
        return (path_subject(context.workspace, getattr(params, self.path_parameter)),)


def path_subjects(workspace: Workspace, entries: Iterable[str]) -> list[PathSubject]:
    """Return subjects for the paths and globs inside the workspace. Rules are applied later to the files found.

    A relative path has a subject in the first root, and in each other root in which it exists.
    """
    subjects: dict[PathSubject, None] = {}
    for entry in entries:
        for root in workspace.roots[:1] if os.path.isabs(entry) else workspace.roots:
            with suppress(ToolError):
                location = workspace.locate(entry, within=root, by_look=True)
                if root == workspace.first_root or workspace.kind_of(location) is not None:
                    subjects[located_subject(location, Access.READ)] = None
    return list(subjects)


def display_path(path: str, workspace: Workspace) -> str:
    """Shorten a path for display: one line, relative to its workspace folder, and without its middle if it is long."""
    if len(path) > MAX_PATH_CHARS:
        # No real path is this long, but an argument may be megabytes long, so only its ends are examined.
        return _middle_cut(one_line(path[:MAX_BRIEF_CHARS]), one_line(path[-MAX_BRIEF_CHARS:]))
    short = path.strip()
    normal = os.path.normpath(short)
    for root in workspace.roots:
        if normal != root and contains(root, normal):
            short = normal[len(root) :].lstrip(os.sep)
            break
    short = one_line(short)
    return short if len(short) <= MAX_BRIEF_CHARS else _middle_cut(short, short)


def _middle_cut(start: str, end: str) -> str:
    half = (MAX_BRIEF_CHARS - 3) // 2
    return f"{start[:half]}...{end[-half:]}"


def start_subjects(workspace: Workspace, path: str | None) -> Sequence[PathSubject]:
    """Return subjects for where a search starts: `path` or all roots. Rules are applied later to the files found."""
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
    """Which ignore files apply. Defaults come from the server's settings (normally true)."""

    respect_git_ignore: bool | None = None
    respect_agent_ignore: bool | None = None


def gather_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Collect the filter options under `file_filtering_options`. Those at the top level take precedence."""
    raw_options = coerce(arguments.get(OPTIONS), {"type": "object"})
    if raw_options is not None and not isinstance(raw_options, dict):
        return arguments
    nested_options = cast("dict[str, Any]", raw_options or {})
    if len(nested_options) > MAX_UNKNOWN:
        # The general argument check will reject this many options.
        return arguments
    top_level_options = {name: arguments[name] for name in _OPTION_ALIASES if arguments.get(name) is not None}
    options = {
        _OPTION_ALIASES.get(name, name): value for name, value in (*nested_options.items(), *top_level_options.items())
    }
    rest = {name: value for name, value in arguments.items() if name not in _OPTION_ALIASES and name != OPTIONS}
    return rest | ({OPTIONS: options} if options else {})


def ignore_flags(workspace: Workspace, options: FileFilteringOptions | None) -> tuple[bool, bool]:
    """Return whether git's ignore rules and agent-ignore files apply to a call."""
    git, agent = (options.respect_git_ignore, options.respect_agent_ignore) if options else (None, None)
    return (
        workspace.respect_git_ignore if git is None else git,
        workspace.respect_agent_ignore if agent is None else agent,
    )


SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"
# Maximum size, in bytes, of the old and new content kept in memory while the user decides. A larger change is planned
# again once the user has answered.
MAX_PLAN_BYTES = 4_000_000
# Keys in a call's memo: the file's location, the planned change, and the state in which the call changes nothing
_LOCATION, _PLAN, _UNCHANGED = "location", "plan", "unchanged"

_APPEND = "To append, use edit with the last line as old_string, and that line plus the new text as new_string."
CREATE_ONLY = "To create a file but never replace one, use edit with an empty old_string."
FOREIGN_PARAMETERS: Mapping[str, ForeignParameter] = {
    "append": foreign("false", way=_APPEND),
    **dict.fromkeys(("mode", "flag", "flags"), foreign(way=f"{_APPEND} {CREATE_ONLY}")),
    **dict.fromkeys(
        ("create_only", "exclusive", "fail_if_exists", "if_not_exists", "no_clobber", "no_overwrite"),
        foreign("false", way=CREATE_ONLY),
    ),
    **dict.fromkeys(
        ("create_dirs", "create_directories", "create_parents", "create_if_missing", "mkdir", "parents"),
        foreign("true", way="Missing folders are created. Check with list_directory whether one exists."),
    ),
    **dict.fromkeys(
        ("insert_line", "insert_at", "line", "line_number", "start_line", "end_line", "position", "view_range"),
        foreign(
            way="edit finds text, not line numbers: give the lines at that place as old_string (read_file shows them), "
            "and the replacement as new_string."
        ),
    ),
}


class ChangeParams(ToolParams):
    file_path: str = Field(description="Absolute, or relative to the workspace.")


ChangeParamsT = TypeVar("ChangeParamsT", bound=ToolParams)


def author_of(tool: str, context: ToolContext) -> Author | None:
    """Return the author to record in the journal, or `None` if changes are not recorded."""
    from tools.files.change.file_change import Author  # noqa: PLC0415 - loaded on first use
    from tools.files.change.journal import client_name  # noqa: PLC0415 - loaded on first use

    if context.services.journal is None or context.client.is_anonymous:
        return None
    return Author(context.services.journal(), client_name(context.client.key), tool)


async def change_and_report_errors(
    context: ToolContext, location: Location | None, make: Callable[[], ToolResult]
) -> ToolResult:
    """Change a file in a thread. If a language server is running for the file, add new errors to the result."""
    code, error_report, new_errors = context.services.code(), None, ""
    if code is not None and location is not None and not location.in_scratch:
        try:
            error_report = await code.before_change(context.workspace, context.rights, location)
        except Exception:  # a language server's failure must not prevent the change
            logger.exception("a language server could not check a file before a change")
    result = await run_blocking(context.signal, make)
    if error_report is not None:
        try:
            new_errors = await error_report.describe_new_errors()
        except Exception:
            logger.exception("a language server could not report the errors after a change")
    if not new_errors:
        return result
    structured_content = dict(result.structured or {})
    structured_content["notes"] = [*structured_content.get("notes", ()), new_errors]
    return replace(result, llm_content=f"{result.llm_content}\n{new_errors}", structured=structured_content)


class ChangingTool(BuiltinTool[ChangeParamsT], Generic[ChangeParamsT]):
    """Base class of tools that write one file. The path is resolved once, and exactly the change shown is made."""

    kind = ToolKind.EDIT

    path_parameter = "file_path"
    text_parameter: str  # the parameter whose text a person may replace when asked for consent

    @abstractmethod
    def plan(self, params: ChangeParamsT, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        """Plan the change to the file's current content, using `text` as the value of the text parameter.

        This blocks the thread and writes nothing. `is_users` is true if a person wrote the text. Raises a `ToolError`
        if the change is impossible.
        """

    def problems(self, params: ChangeParamsT, original_names: Mapping[str, str]) -> Iterable[str]:
        name = self.path_parameter
        return file_path_problems(getattr(params, name), original_names.get(name, name))

    def subjects(self, params: ChangeParamsT, context: ToolContext) -> Sequence[Subject]:
        location = context.workspace.locate(getattr(params, self.path_parameter))
        context.workspace.refuse_to_write(location)
        context.memo[_LOCATION] = (params, location)
        return (located_subject(location, Access.WRITE),)

    async def should_confirm_execute(self, params: ChangeParamsT, context: ToolContext) -> ConfirmationDetails | None:
        """Show the change as a diff against the current content. An impossible change raises an error instead.

        A call that changes nothing needs no question.
        """
        proposed_text: str = getattr(params, self.text_parameter)

        def preview() -> EditConfirmation | None:
            change = self.plan(params, self._target(params, context), proposed_text, is_users=False)
            if len(change.data) + len(change.snapshot.data or b"") <= MAX_PLAN_BYTES:
                context.memo[_PLAN] = (params, change)
            if not change.changes_file:
                context.memo[_UNCHANGED] = (params, change.state)
                return None
            return change.confirmation(proposed_text)

        return await run_blocking(context.signal, preview)

    async def execute(self, params: ChangeParamsT, context: ToolContext) -> ToolResult:
        """Change the file while other writers are locked out."""
        from tools.files.change.file_change import make_change  # noqa: PLC0415 - loaded on first use

        planned_change: FileChange | None = context.kept(_PLAN, params)
        unchanged_state: str | None = context.kept(_UNCHANGED, params)

        def make() -> ToolResult:
            target = self._target(params, context)
            return make_change(
                target,
                lambda text, is_users: self.plan(params, target, text, is_users=is_users),
                getattr(params, self.text_parameter),
                planned=planned_change,
                answer=context.answer,
                confirmed_state=context.confirmed.state if context.confirmed is not None else unchanged_state,
            )

        location: Location | None = context.memo.get(_LOCATION, (None, None))[1]
        return await change_and_report_errors(context, location, make)

    def _target(self, params: ChangeParamsT, context: ToolContext) -> TargetFile:
        """Return the file located for the permission check. A symlink that has appeared since then is not followed."""
        from tools.files.change.file_change import TargetFile  # noqa: PLC0415 - loaded on first use

        location: Location | None = context.kept(_LOCATION, params)
        location = location or context.workspace.locate(getattr(params, self.path_parameter))
        return TargetFile(
            context.workspace,
            location,
            context.reads,
            context.signal,
            None if location.in_scratch else author_of(self.name, context),
            [job.id for job in context.client.jobs.running()] if context.client.jobs is not None else (),
        )
