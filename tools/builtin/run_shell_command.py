"""`run_shell_command`: runs one command line, in the foreground or in the background."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tools.builtin.background_jobs import jobs_of
from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.call_options import MAX_COMMAND_TIMEOUT
from tools.contract.command_views import UNCONFINED, UNSANDBOXED_SITE, ViewKind
from tools.contract.confirmation import ConfirmationDetails, ExecConfirmation
from tools.contract.permission_subjects import CommandSubject, Needs, Subject, ToolKind
from tools.contract.tool_errors import ExhaustedError, ToolError, ToolErrorType
from tools.contract.tool_parameters import ForeignParameter, ToolParams, folded, foreign
from tools.contract.tool_results import TextPart, ToolResult
from tools.files.path_opener import PathKind
from tools.files.workspace import Location
from tools.machine.threads import run_blocking
from tools.text.file_names import shortened_line, shown_whole_path

if TYPE_CHECKING:
    from tools.shell.changed_files import WorkspaceState

MAX_COMMAND_CHARS = 100_000  # Linux accepts 128 KiB in one argument; a longer command line must be a mistake
DESCRIBED_CHARS = 200  # characters of the command, and of its folder, in the one-line description of a call
_ALIASES = {
    **dict.fromkeys(("dir_path", "cwd", "workdir", "working_directory"), "directory"),
    "timeout_ms": "timeout",
    **dict.fromkeys(("background", "run_in_background"), "is_background"),
}
# Names that other programs use for a timeout in seconds
_IN_SECONDS = ("timeoutseconds", "timeoutsecs", "timeoutsec", "timeouts")
_NEEDS = foreign("false", way="Set 'needs' to 'write' or 'network' to ask the user for more rights.")
# The `&` at the end of a background command. It is removed, because otherwise the job would be only the shell, which
# exits at once.
_TO_BACKGROUND = re.compile(r"(?<![&\\|<>;])&\s*\Z")


class ShellParams(ToolParams):
    command: str = Field(max_length=MAX_COMMAND_CHARS, description="Run by bash -c.")
    description: str | None = Field(default=None, description="Its purpose, for the user.")
    directory: str | None = Field(default=None, description="Default: the first workspace folder.")
    timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_COMMAND_TIMEOUT,
        description=f"Milliseconds, at most {MAX_COMMAND_TIMEOUT}, in the foreground.",
    )
    needs: Literal["write", "network"] | None = Field(default=None, description="Ask the user for more rights.")
    is_background: bool = Field(
        default=False, description="Continue after this call: for servers, or over 10 minutes. Do not add '&'."
    )

    @property
    def script(self) -> str:
        return _TO_BACKGROUND.sub("", self.command) if self.is_background else self.command


class ShellTool(BuiltinTool[ShellParams]):
    name = "run_shell_command"
    title = "Run command"
    display_name = "Shell"
    aliases = ("ShellTool", "Shell", "Bash")
    description = (
        "Run a shell command (bash, terminal): build, test, git, scripts, package managers. Returns interleaved output "
        "and errors, plus a non-zero exit code. No input: use non-interactive options (-y, --no-pager). Anything left "
        "running (&) becomes a background job. For files prefer read_file, edit, glob and grep_search."
    )
    kind = ToolKind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False, open_world=True)
    params_model = ShellParams
    parameter_aliases = _ALIASES
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        "dry_run": foreign("false", way="Use an option of the command itself, such as --dry-run, if it has one."),
        **dict.fromkeys(
            ("blocking", "wait"), foreign("true", way="Set is_background to let the command continue after this call.")
        ),
        "shell": foreign("bash", "/bin/bash", "sh", "/bin/sh", way="Call another shell in the command, as in zsh -c."),
        "delay_ms": ForeignParameter(),  # Gemini CLI: how long to wait before a background call returns
        **dict.fromkeys(
            ("additional_permissions", "dangerously_disable_sandbox", "with_escalated_permissions"), _NEEDS
        ),
        **dict.fromkeys(("env", "environment"), foreign(way="Set variables in front of the command: NAME=value.")),
        **dict.fromkeys(("stdin", "input"), foreign(way="Give input in the command, as a here-document or a pipe.")),
    }

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        for name in [name for name in arguments if folded(name) in _IN_SECONDS]:
            with suppress(TypeError, ValueError, OverflowError):
                seconds = float(arguments[name])
                if "timeout" not in arguments:
                    arguments["timeout"] = math.ceil(seconds * 1000)
                    del arguments[name]
        return arguments

    def problems(self, params: ShellParams, original_names: Mapping[str, str]) -> Iterator[str]:
        if not params.script.strip():
            yield "'command' is empty; give a command line such as 'git status'."
        if "\0" in params.command:
            problem = "'command' contains a NUL character, which a command line cannot contain."
            yield f"{problem} Use an escape, as in printf '\\x00'."
        if params.directory is not None and not params.directory.strip():
            yield f"'{original_names['directory']}' is empty; omit it to run in the first workspace folder."

    def get_description(self, params: ShellParams, context: ToolContext) -> str:
        parts = [shortened_line(params.script, DESCRIBED_CHARS)]
        if params.directory is not None:
            parts.append(f"[in {shown_whole_path(params.directory[:DESCRIBED_CHARS])}]")
        if params.is_background:
            parts.append("[background]")
        elif params.timeout is not None:
            parts.append(f"[timeout: {params.timeout}ms]")
        return " ".join(parts)

    async def make_ready(self, context: ToolContext) -> None:
        if (commands := context.services.commands) is not None:
            await commands().make_ready(context.workspace)

    def subjects(self, params: ShellParams, context: ToolContext) -> Sequence[Subject]:
        commands, key = context.services.commands, context.client.key
        site = commands().site(context.workspace, key) if commands is not None else UNSANDBOXED_SITE
        folder = _folder(params, context).name
        needs = Needs(params.needs) if params.needs is not None else None
        return (CommandSubject(params.script, folder, site, needs, params.is_background),)

    async def should_confirm_execute(self, params: ShellParams, context: ToolContext) -> ConfirmationDetails | None:
        directory = (await _real_folder(params, context)).name
        return ExecConfirmation(
            title="Run a shell command in the background" if params.is_background else "Run a shell command",
            command=params.script,
            directory=directory,
            state=directory,
            description=params.description or "",
            is_background=params.is_background,
        )

    async def execute(self, params: ShellParams, context: ToolContext) -> ToolResult:
        from tools.shell import result_text  # noqa: PLC0415 - loaded on first use
        from tools.shell.changed_files import changes_since, state_of, why_unknown  # noqa: PLC0415
        from tools.shell.running_program import CommandRequest, Ending  # noqa: PLC0415

        context.signal.raise_if_aborted()
        folder = await _real_folder(params, context)
        if context.services.commands is None:
            raise ToolError(
                ToolErrorType.SHELL_EXECUTE_ERROR,
                "Commands cannot run here. Use the file tools, or ask the user to run the command.",
            )
        runner = context.services.commands()
        view = context.view or UNCONFINED  # the permission check sets a view for every call
        request = CommandRequest(
            command=params.script,
            folder=folder.path,
            folder_name=folder.name,
            roots=context.workspace.roots,
            client_key=context.client.key,
            timeout_seconds=params.timeout / 1000 if params.timeout is not None else runner.options.timeout_seconds,
            description=params.description or "",
            view=view,
        )
        if params.is_background:
            job = await runner.start_job(request, jobs_of(context))
            content = result_text.job_content(job, await job.running.output.shown())
            return ToolResult(content, f"Background job {job.id}: {job.status}", facts=result_text.job_facts(job))
        state_before: WorkspaceState | None = None
        lists_changes = context.services.journal is not None and (view.kind is not ViewKind.READING or view.writable)
        if lists_changes:
            state_before = await run_blocking(context.signal, partial(state_of, context.workspace, context.signal))
        outcome = await runner.run(request, context.client.jobs, context.progress)
        changes = ""
        if state_before is not None:
            with suppress(ExhaustedError):  # the command's output is returned in any case
                compare = partial(changes_since, state_before, context.workspace, context.signal)
                changes = await run_blocking(context.signal, compare)
        changes = changes or (why_unknown(context.workspace, context.client.key) if lists_changes else "")
        if outcome.ending is not Ending.EXITED:
            message = result_text.timed_out_message(outcome, runner.options.silence_seconds)
            raise ToolError(ToolErrorType.SHELL_TIMED_OUT, f"{message.rstrip()}\n{changes}" if changes else message)
        content = result_text.run_content(outcome, params.directory)
        # The changes are a content block of their own, because the command's output could contain the same words.
        content = [*content, TextPart(changes)] if changes else content
        return ToolResult(content, result_text.run_display(outcome), facts=result_text.run_facts(outcome))


async def _real_folder(params: ShellParams, context: ToolContext) -> Location:
    """Return the folder to run in. A folder named by the call is checked in a thread."""
    find = partial(_folder, params, context)
    return find() if params.directory is None else await run_blocking(context.signal, find)


def _folder(params: ShellParams, context: ToolContext) -> Location:
    """Return the folder to run in. Raises a `ToolError` if it does not exist or is outside the workspace."""
    workspace = context.workspace
    if params.directory is None:
        return workspace.at(workspace.first_root)
    location = workspace.locate(params.directory, by_look=True)
    kind = workspace.kind_of(location)
    if kind is None:
        from tools.files.find.path_suggestions import missing_path_error  # noqa: PLC0415 - rarely needed

        raise missing_path_error(workspace, location, context.signal, folders=True)
    if kind is not PathKind.FOLDER:
        raise ToolError(
            ToolErrorType.PATH_IS_NOT_A_DIRECTORY,
            f"'{location.shown}' is not a folder, so no command can run in it. Give the folder that contains it.",
        )
    return location
