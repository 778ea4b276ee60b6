"""The errors of tool calls. Messages address the reader who has to act next.

A `ToolError` carries a stable code and a message for the model: what failed, with which value, why, and what to do.
Nothing else about an exception reaches a client. A shortage of resources (memory, threads, processes, descriptors) is
reported in the same way everywhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum

from tools.text.file_names import shown_path, shown_whole_path


class ToolErrorType(StrEnum):
    """Stable error codes. If Qwen Code or Gemini CLI has a code for an error, this server uses it."""

    INVALID_TOOL_PARAMS = "invalid_tool_params"
    TOOL_NOT_REGISTERED = "tool_not_registered"
    EXECUTION_FAILED = "execution_failed"
    EXECUTION_DENIED = "execution_denied"
    CANCELLED = "cancelled"
    TOO_MANY_CALLS = "too_many_calls"
    RESOURCES_EXHAUSTED = "resources_exhausted"
    FILE_NOT_FOUND = "file_not_found"
    FILE_WRITE_FAILURE = "file_write_failure"
    READ_CONTENT_FAILURE = "read_content_failure"
    ATTEMPT_TO_CREATE_EXISTING_FILE = "attempt_to_create_existing_file"
    FILE_TOO_LARGE = "file_too_large"
    FILE_CHANGED_SINCE_READ = "file_changed_since_read"
    PERMISSION_DENIED = "permission_denied"
    NO_SPACE_LEFT = "no_space_left"
    TARGET_IS_DIRECTORY = "target_is_directory"
    PATH_NOT_IN_WORKSPACE = "path_not_in_workspace"
    PATH_IGNORED = "path_ignored"
    NO_WORKSPACE = "no_workspace"
    SEARCH_PATH_NOT_FOUND = "search_path_not_found"
    SEARCH_PATH_NOT_A_DIRECTORY = "search_path_not_a_directory"
    EDIT_NO_OCCURRENCE_FOUND = "edit_no_occurrence_found"
    EDIT_EXPECTED_OCCURRENCE_MISMATCH = "edit_expected_occurrence_mismatch"
    EDIT_NO_CHANGE = "edit_no_change"
    NOTEBOOK_INVALID_JSON = "notebook_invalid_json"
    NOTEBOOK_CELL_NOT_FOUND = "notebook_cell_not_found"
    GLOB_EXECUTION_ERROR = "glob_execution_error"
    GREP_EXECUTION_ERROR = "grep_execution_error"
    LS_EXECUTION_ERROR = "ls_execution_error"
    PATH_IS_NOT_A_DIRECTORY = "path_is_not_a_directory"
    READ_MANY_FILES_SEARCH_ERROR = "read_many_files_search_error"
    SHELL_EXECUTE_ERROR = "shell_execute_error"
    SHELL_TIMED_OUT = "shell_timed_out"
    JOB_NOT_FOUND = "job_not_found"
    MCP_TOOL_ERROR = "mcp_tool_error"
    TOOL_NOT_CALLED = "tool_not_called"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    LSP_SERVER_FAILED = "lsp_server_failed"
    NO_LANGUAGE_SERVER = "no_language_server"
    STORE_UNAVAILABLE = "store_unavailable"
    WRONG_REPLICA = "wrong_replica"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    WEB_REFUSED = "web_refused"
    WEB_UNREACHABLE = "web_unreachable"
    WEB_FETCH_PROCESSING_ERROR = "web_fetch_processing_error"
    WEB_SEARCH_FAILED = "web_search_failed"
    NO_SEARCH_PROVIDER = "no_search_provider"
    DISCOVERED_TOOL_EXECUTION_ERROR = "discovered_tool_execution_error"


class ToolError(Exception):
    """A failure of one call, reported to the model. The module's header says what `message` contains."""

    def __init__(self, code: ToolErrorType, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class InvalidToolParamsError(ToolError):
    """The arguments do not fit the tool; nothing was done."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(
            ToolErrorType.INVALID_TOOL_PARAMS, f"Invalid parameters for {tool}; nothing was done: {reason}"
        )


HOW_TO_LIST = "List the tools to see their names."


class ToolNotRegisteredError(ToolError):
    """No tool has this name. `nearest` contains up to three registered names to try."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        hint = f" Did you mean {', '.join(nearest)}?" if nearest else f" {HOW_TO_LIST}"
        super().__init__(
            ToolErrorType.TOOL_NOT_REGISTERED,
            f"Tool '{name}' is not registered. Use an exact name from the list.{hint}",
        )
        self.nearest = nearest


class ExecutionDeniedError(ToolError):
    """A rule, a mode or a person refused; nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__(ToolErrorType.EXECUTION_DENIED, message)


class PathNotInWorkspaceError(ToolError):
    """The path is outside every workspace folder; with `by_link`, through a symlink. `detail` is an extra sentence."""

    def __init__(self, path: str, roots: tuple[str, ...], detail: str = "", *, by_link: bool = False) -> None:
        resolved = ", with symlinks resolved," if by_link else ""
        folders = "', '".join(map(shown_whole_path, roots[:5]))
        super().__init__(
            ToolErrorType.PATH_NOT_IN_WORKSPACE,
            f"Path '{shown_path(path)}'{resolved} is outside the workspace. {detail}{detail and ' '}Use a "
            f"path inside '{folders}'; the operator can add folders with --workspace.",
        )


_SCARCE = {
    errno.EAGAIN: "no more processes or threads can be started",
    errno.ENOMEM: "there is not enough memory",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
}

NOTHING_DONE = "Nothing was done."
UNKNOWN_EFFECT = "The call may have had an effect: check before you try again."


class ExhaustedError(ToolError):
    """A resource is short. `shortage` names it in a clause; `effect` says whether the call may have had an effect."""

    def __init__(self, shortage: str, effect: str = NOTHING_DONE) -> None:
        super().__init__(
            ToolErrorType.RESOURCES_EXHAUSTED,
            f"The server is short of resources: {shortage}. {effect} Make fewer calls at the same time, and try "
            "again a little later. If that fails, tell the user to check the server's limits (`ulimit -a`, and those "
            "of its container).",
        )
        self.why = shortage


def exhaustion_of(error: BaseException, effect: str = UNKNOWN_EFFECT) -> ExhaustedError | None:
    """Return the error for a shortage of memory, threads, processes or descriptors, or `None` for other exceptions."""
    if isinstance(error, ExhaustedError):
        return error
    if isinstance(error, MemoryError):
        return ExhaustedError(_SCARCE[errno.ENOMEM], effect)
    if isinstance(error, OSError) and error.errno in _SCARCE:
        return ExhaustedError(_SCARCE[error.errno], effect)
    # Python has no error class for threads and locks that the system cannot create.
    if isinstance(error, RuntimeError) and str(error).startswith(("can't start new thread", "can't allocate lock")):
        return ExhaustedError(_SCARCE[errno.EAGAIN], effect)
    # If there is too little memory to load an extension module, the error contains one of these texts of glibc.
    if isinstance(error, ImportError) and any(text in str(error) for text in ("failed to map", "cannot allocate")):
        return ExhaustedError(_SCARCE[errno.ENOMEM], effect)
    return None


@contextmanager
def suppress_unless_scarce() -> Generator[None]:
    """Suppress an `OSError` about a file. A shortage of memory or descriptors, which is about no file, is raised."""
    try:
        yield
    except OSError as error:
        if exhaustion_of(error) is not None:
            raise


def scarcity_in(output: str) -> OSError | None:
    """Detect a shortage of resources from the system's error messages in a failed program's output."""
    return next((OSError(number, "") for number in _SCARCE if os.strerror(number) in output), None)


def sandbox_unavailable(failure: str) -> ToolError:
    """Return the error for a call that requires a sandbox when no sandbox works."""
    return ToolError(
        ToolErrorType.SANDBOX_UNAVAILABLE,
        f"The command was not run: a sandbox is required here, but it cannot be used: {failure}. Nothing runs without "
        "a sandbox. The operator can repair it, or set shell.sandbox to 'auto' to allow commands without a sandbox. "
        "Until then, use the file tools, or ask the user to run the command.",
    )
