"""The single place where calls run.

    1 receive the call                    2 find the tool
    3 validate the parameters             4 decide from the tool, the rules and what the call touches
    5 decide from the tool's question     6 ask a person for consent
    7 execute the call                    8 package the result for the model
    9 display the result to a person

Nothing has a side effect until the question is answered. Once there is an answer, the call can therefore run again
from the beginning, with the answer. Step 6 also applies what the answer allows beyond this call. Steps 8 and 9
belong to the caller: `package` (`tools.contract.tool_results`) returns the content for the model, and
`ToolResult.return_display` is what a person sees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import anyio

from tools.call.base_tool import BaseTool, ToolContext
from tools.call.consent import (
    AuditEntry,
    GrantStore,
    Judgement,
    LastingAnswer,
    SaveRules,
    choices_for,
    grants_for,
    keep_rules,
    question_of,
    refuse,
    require_consent,
)
from tools.call.tool_registry import ToolRegistry
from tools.contract.call_options import Progress, no_progress
from tools.contract.confirmation import (
    ALWAYS_IN_SESSION,
    Answer,
    ApprovalConfirmation,
    Confirmer,
    ExecConfirmation,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.permission_subjects import Access, CommandSubject, PathSubject, Subject
from tools.contract.tool_errors import UNKNOWN_EFFECT, ToolError, ToolErrorType, exhaustion_of
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.machine.threads import run_blocking
from tools.permissions.permission_policy import ALL_RIGHTS, PermissionPolicy, PermissionRequest
from tools.permissions.verdict import Permission, Verdict
from tools.text.file_names import shown_path

logger = logging.getLogger(__name__)

PROGRESS_AFTER_SECONDS = 0.2  # calls that finish sooner report no progress
REPORT_GAP_SECONDS = 0.03  # pause between the last report and the result, which some clients would otherwise reorder
# Codes of errors that a call may have because a workspace folder no longer exists
_MISSING_FOLDER_CODES = {
    ToolErrorType.FILE_NOT_FOUND,
    ToolErrorType.SEARCH_PATH_NOT_FOUND,
    ToolErrorType.GREP_EXECUTION_ERROR,
}
_SHARED_APPROVAL = Permission(
    Verdict.DENY,
    "the tool has changed, and a client with restricted rights cannot approve it for everybody",
    way_out="Tell the user that the operator has to review the tool.",
)


@dataclass(slots=True)
class ToolRunner:
    registry: ToolRegistry  # finds the tool of a call
    policy: PermissionPolicy  # decides whether a call may run, needs a question, or is denied
    save_rules: SaveRules | None = None  # saves permanent rules, if they can be saved
    audit: Callable[[AuditEntry], None] | None = None  # records every decision: `AuditLog.note`; never raises or blocks
    shared_grants: GrantStore | None = None  # grants from other processes, if there are any

    async def run(
        self,
        call: FunctionCall,
        context: ToolContext,
        confirmer: Confirmer,
        *,
        has_answer: bool = False,
        tool: BaseTool[Any] | None = None,
    ) -> ToolResult | Question:
        """Return the result of one call, even of a failed one, or a question for the client.

        Once the question is answered, run the same call again with the answer and with `has_answer`. Grants from other
        processes are then not looked up again. `tool` is used instead of the registered tool. Raises a
        `ToolNotRegisteredError`, which is a protocol error, if no tool has the name; all other failures are results.
        """
        tool = tool or self.registry.get_tool(call.name)
        arguments, notes = call.arguments, ""
        try:
            judgement = await self.judge(tool, arguments, context)
            if self.shared_grants is not None and not has_answer:
                is_offered = any(choice.decision in ALWAYS_IN_SESSION and choice.rules for choice in judgement.choices)
                if is_offered and await self.shared_grants.take_up(context.client):
                    judgement = await self.judge(tool, arguments, context)
            permission, description = judgement.permission, tool.get_description(judgement.params, context)
            entry = AuditEntry(tool.name, arguments, description, context.client.key, permission, context.clock())
            if self.audit is not None:
                self.audit(entry)
            if permission.verdict is Verdict.DENY:
                refuse(permission)
            lasting: LastingAnswer | None = None
            if permission.verdict is Verdict.ASK:
                tool.check_before_question(judgement.params)
                outcome = await self._ask(judgement, entry, context, confirmer)
                if isinstance(outcome, Question):
                    return outcome
                context, lasting = outcome
            elif permission.view is not None or judgement.is_granted:
                context = replace(context, view=permission.view, is_granted=judgement.is_granted)
            notes = "\n".join(filter(None, (tool.about_ignored(arguments), lasting.note if lasting else "")))
            if context.progress is no_progress:
                result = await tool.execute(judgement.params, context)
            else:
                progress = LateProgress(context.progress, description)
                try:
                    result = await tool.execute(judgement.params, replace(context, progress=progress.report))
                finally:
                    await progress.end()
            digest = result.structured.get("sha256") if result.structured is not None else None
            if permission.verdict is Verdict.ASK and digest is not None:
                # Consent covers the text that was written, not what another program may put in its place later.
                context.services.consented.update(dict.fromkeys(judgement.written_paths, str(digest)))
        except ToolError as error:
            logger.info("%s failed: %s", tool.name, error.code)
            result = ToolResult.failed(await _cause_of(error, context))
        except Exception as error:
            # A bug becomes an error message. The traceback goes only to the log, never to the client.
            logger.exception("%s raised %s", tool.name, type(error).__name__)
            message = f"{tool.name} failed because of an internal error. The server log has details. {UNKNOWN_EFFECT}"
            result = ToolResult.failed(exhaustion_of(error) or ToolError(ToolErrorType.EXECUTION_FAILED, message))
        return replace(result, note=notes) if notes else result

    async def _ask(
        self, judgement: Judgement, entry: AuditEntry, context: ToolContext, confirmer: Confirmer
    ) -> Question | tuple[ToolContext, LastingAnswer | None]:
        """Step 6: ask a person and require consent.

        Returns:
            The question, if the client has to answer it first. Otherwise the context for the execution, and what the
            answer allows beyond this call.

        Raises:
            ToolError: There is no consent, or a rule or mode now denies the call.
        """
        question = question_of(judgement, entry.arguments, entry.description)
        rules, mode = self.policy.rules, context.client.approval_mode
        answer = await confirmer.ask(question)
        if isinstance(answer, Pending):
            return question
        lasting: LastingAnswer | None = None
        try:
            if self.policy.rules is not rules or context.client.approval_mode is not mode:
                permission = (await self.judge(judgement.tool, entry.arguments, context)).permission
                if permission.verdict is Verdict.DENY:
                    refuse(permission)
            await require_consent(answer, judgement, context, self.policy)
            choice = question.choice(answer.decision) if isinstance(answer, Answer) else None
            lasting = await keep_rules(choice, context.client, self.policy, self.save_rules, self.shared_grants)
        finally:
            # Record every decision before the action is carried out.
            if self.audit is not None:
                self.audit(replace(entry, answer=answer, lasting=lasting))
        if isinstance(answer, Unavailable):
            return replace(context, confirmed=judgement.details, view=judgement.permission.dialog_view), lasting
        return replace(context, answer=answer, confirmed=judgement.details, view=judgement.permission.view), lasting

    async def judge(self, tool: BaseTool[Any], arguments: Mapping[str, Any], context: ToolContext) -> Judgement:
        """Steps 3 to 5: decide if a call may run, and why. Changes nothing.

        Raises a `ToolError` if the call cannot succeed.
        """
        params = tool.validate_tool_params(arguments)
        client, workspace = context.client, context.workspace
        # The user may have to be asked again only about tools of upstreams, which can change.
        mode, grants, asked_again = client.approval_mode, client.grants or (), tool.why_asked_again(client.key)
        request = PermissionRequest(tool.traits, mode, grants, workspace, asked_again, context.rights)
        subjects: Sequence[Subject] = ()
        # Finding out what the call touches may need disk reads, so it is done only if the tool alone does not decide.
        permission, is_settled = self.policy.judge_alone(request)
        if not is_settled:
            await tool.make_ready(context)  # only `run_shell_command` has anything to prepare

            def judge_subjects() -> tuple[Permission | None, Sequence[Subject]]:
                call_subjects = tool.subjects(params, context)
                for subject in call_subjects:
                    if isinstance(subject, PathSubject | CommandSubject):
                        workspace.require_root(subject.path if isinstance(subject, PathSubject) else subject.directory)
                return self.policy.judge_subjects(request, call_subjects), call_subjects

            permission, subjects = await run_blocking(context.signal, judge_subjects)
        if permission is not None and permission.verdict is not Verdict.ASK:
            return Judgement(tool, params, permission, is_granted=permission.verdict is Verdict.ALLOW)
        details = await tool.should_confirm_execute(params, context)
        # If no rule or mode decides, a call without a question (`read_file` has none) may run; others need consent.
        permission = permission or self.policy.judge_details(request, details)
        if isinstance(details, ApprovalConfirmation) and context.rights != ALL_RIGHTS:
            permission = _SHARED_APPROVAL
        if permission.verdict is not Verdict.ASK:
            return Judgement(tool, params, permission)
        permission = replace(permission, grants=grants_for(tool, details, permission, subjects, workspace))
        # Saved rules apply to all clients, so a client with restricted rights may not save any.
        saves = self.save_rules is not None and context.rights == ALL_RIGHTS
        choices = choices_for(details, permission, client, saves=saves)
        state = details.state if details is not None else ""
        if isinstance(details, ExecConfirmation) and permission.view is not None:
            view = permission.view
            details = replace(details, view=view, roots=workspace.roots, state=f"{state} {view.digest}")
        written_paths = tuple(
            subject.path for subject in subjects if isinstance(subject, PathSubject) and subject.access is Access.WRITE
        )
        return Judgement(tool, params, permission, details, choices, written_paths, state)


async def _cause_of(error: ToolError, context: ToolContext) -> ToolError:
    """Return the error to report: if a workspace folder that the error is about is gone, the error that says so."""
    roots = context.workspace.roots
    for root in roots if error.code in _MISSING_FOLDER_CODES else ():
        if len(roots) == 1 or any(f"'{shown_path(root)}{end}" in error.message for end in "'/"):
            try:
                await run_blocking(context.signal, partial(context.workspace.require_root, root))
            except ToolError as cause:
                return cause
    return error


class LateProgress:
    """Reports the progress of one call, unless the call finishes quickly.

    Clients built on the TypeScript SDK reject a progress notification that arrives right before the result of its call,
    because they handle the result first and then no longer know the call's progress token. Qwen Code then shows the
    server as disconnected.
    """

    def __init__(self, progress: Progress, description: str) -> None:
        self._progress = progress
        self._waiting: list[tuple[float, float | None, str]] = [(0, None, description)]
        self._report_task: asyncio.Task[None] | None = None
        self._last_report = 0.0  # when progress was last reported
        self._timer = asyncio.get_running_loop().call_later(PROGRESS_AFTER_SECONDS, self._start)

    async def report(self, progress: float, total: float | None, message: str) -> None:
        """Send a report at once. Until the description has been sent, keep only the latest report."""
        if self._report_task is not None and self._report_task.done():
            await self._send(progress, total, message)
        else:
            self._waiting[1:] = [(progress, total, message)]

    async def end(self) -> None:
        """Stop reporting and wait until enough time has passed since the last report."""
        self._timer.cancel()
        if self._report_task is None:  # most calls end before their first report
            return
        await asyncio.wait([self._report_task], timeout=REPORT_GAP_SECONDS)
        self._report_task.cancel()
        delay = self._last_report + REPORT_GAP_SECONDS - monotonic()
        if delay > 0:
            await anyio.sleep(delay)

    def _start(self) -> None:
        self._report_task = asyncio.create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        while self._waiting:
            await self._send(*self._waiting.pop(0))

    async def _send(self, progress: float, total: float | None, message: str) -> None:
        self._last_report = monotonic()
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client is gone
            await self._progress(progress, total, message)
