"""The flow: the one place where a call runs.

    1 receive the call                    2 find the tool
    3 validate the parameters             4 judge it by the tool, by the rules and by what it touches
    5 judge it by what the tool asks      6 confirm it with a person
    7 execute it                          8 package the result for the model
    9 display it for a person

Until a question is answered nothing has a side effect, so a call that has to pause for an answer simply runs again
from the top with the answer in hand. What an answer allows beyond the call is kept in step 6. Steps 8 and 9 are the
caller's: `package` gives it the content for the model, and `ToolResult.return_display` is what a person sees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import anyio

from tools.call.audit_entries import Audit, AuditEntry
from tools.call.base_tool import BaseTool
from tools.call.consent import (
    GrantStore,
    Judgement,
    LastingAnswer,
    RuleKeeper,
    choices_for,
    grants_for,
    keep_rules,
    question_of,
    refuse,
    require_consent,
)
from tools.call.tool_context import ToolContext
from tools.call.tool_registry import ToolRegistry
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
from tools.contract.limits import Progress, no_progress
from tools.contract.permission_subjects import Access, PathSubject, Subject
from tools.contract.tool_errors import UNKNOWN_EFFECT, ToolError, ToolErrorType, exhaustion_of
from tools.contract.tool_results import FunctionCall, FunctionResponse, Part, TextPart, ToolResult
from tools.machine.threads import run_blocking
from tools.permissions.client_rights import ALL_RIGHTS
from tools.permissions.permission_policy import PermissionPolicy, PermissionRequest
from tools.permissions.verdict import Permission, Verdict

logger = logging.getLogger(__name__)

PROGRESS_AFTER_SECONDS = 0.2  # a call that takes no longer is not worth telling of
APART_SECONDS = 0.03  # between what is told last and the answer: in one piece of input they pass each other


_FOR_EVERYBODY = Permission(
    Verdict.DENY,
    "the tool has changed, and an approval counts for everybody, so it is not for a client with rights of its own",
    way_out="Tell the user that the operator has to look at the tool.",
)


@dataclass(slots=True)
class ToolRunner:
    """What every call goes through."""

    registry: ToolRegistry  # where tools are found
    policy: PermissionPolicy  # decides whether a call may run, has to be asked about, or is refused
    keeper: RuleKeeper | None = None  # saves rules for good, where there is a place for them
    audit: Audit | None = None  # is told about every decision; there may be one later
    shared_grants: GrantStore | None = None  # knows what was allowed in other processes, where there are such

    async def run(
        self, call: FunctionCall, context: ToolContext, confirmer: Confirmer, *, has_answer: bool = False
    ) -> ToolResult | Question:
        """Run one call.

        Args:
            call: The tool's name and the arguments as they came.
            context: Whose call it is and where it may act.
            confirmer: Asks the person behind this client.
            has_answer: Whether this is the round of a call that brings the answer. Before the question it was looked
                up whether the person has allowed it in another process, so it is not looked up once more.

        Returns:
            The result, failed or not; or a question that must travel to the client, after which the same call
            is run again with the answer.

        Raises:
            ToolNotRegisteredError: Nobody has this name; a protocol matter, all other failures are results.
        """
        tool, arguments, notes = self.registry.find(call.name), call.arguments, ""
        if tool is None:
            raise self.registry.not_registered(call.name)
        try:
            judged = await self.judge(tool, arguments, context)
            if (
                self.shared_grants is not None
                and not has_answer
                and any(choice.decision in ALWAYS_IN_SESSION and choice.rules for choice in judged.choices)
                and await self.shared_grants.take_up(context.client)
            ):
                judged = await self.judge(tool, arguments, context)
            permission = judged.permission
            description = tool.get_description(judged.params, context)
            entry: AuditEntry | None = None
            if self.audit is not None:
                entry = AuditEntry(tool.name, arguments, description, context.client.key, permission, context.clock())
                self.audit.note(entry)
            if permission.verdict is Verdict.DENY:
                refuse(permission)
            lasting, view = None, permission.view
            if permission.verdict is Verdict.ASK:
                question = question_of(judged, arguments, description)
                rules, mode = self.policy.rules, context.client.approval_mode
                answer = await confirmer.ask(question)
                if isinstance(answer, Pending):
                    return question
                is_same = self.policy.rules is rules and context.client.approval_mode is mode
                lasting = await self._consent(answer, question, judged, arguments, context, entry, is_same=is_same)
                given = answer if isinstance(answer, Answer) else None
                context = replace(context, answer=given, confirmed=judged.details)
                if isinstance(answer, Unavailable):
                    view = permission.dialog_view
            if view is not None or judged.is_granted:
                context = replace(context, view=view, is_granted=judged.is_granted)
            notes = "\n".join(filter(None, (tool.about_ignored(arguments), lasting.note if lasting else "")))
            result = await _execute(judged, context, description)
        except ToolError as error:
            logger.info("%s failed: %s", tool.name, error.code)
            result = ToolResult.failed(error)
        except Exception as error:
            # The boundary where a bug becomes a sentence: the log has the traceback, the client has none of it.
            logger.exception("%s raised %s", tool.name, type(error).__name__)
            sentence = f"{tool.name} failed because of an internal error; its log has the details. {UNKNOWN_EFFECT}"
            result = ToolResult.failed(exhaustion_of(error) or ToolError(ToolErrorType.EXECUTION_FAILED, sentence))
        return replace(result, note=notes) if notes else result

    async def _consent(
        self,
        answer: Answer | Unavailable,
        question: Question,
        judged: Judgement,
        arguments: Mapping[str, Any],
        context: ToolContext,
        entry: AuditEntry | None,
        *,
        is_same: bool,
    ) -> LastingAnswer | None:
        """Step 6: go on only with consent; what it allows beyond the call. What is denied since is not done."""
        lasting: LastingAnswer | None = None
        try:
            if not is_same:
                now = (await self.judge(judged.tool, arguments, context)).permission
                if now.verdict is Verdict.DENY:
                    refuse(now)
            await require_consent(answer, judged, context, self.policy)
            choice = question.choice(answer.decision) if isinstance(answer, Answer) else None
            lasting = await keep_rules(choice, context.client, self.policy, self.keeper, self.shared_grants)
        finally:
            # Whatever it is, it is recorded, and before the action.
            if self.audit is not None and entry is not None:
                self.audit.note(replace(entry, answer=answer, lasting=lasting))
        return lasting

    async def judge(self, tool: BaseTool[Any], arguments: Mapping[str, Any], context: ToolContext) -> Judgement:
        """Steps 3 to 5: what would happen to a call, and why. Changes nothing.

        Raises:
            ToolError: The call cannot succeed.
        """
        params = tool.validate_tool_params(arguments)
        client, workspace = context.client, context.workspace
        request = PermissionRequest(
            tool.traits,
            client.approval_mode,
            client.grants or (),
            workspace,
            tool.why_asked_again(client.key),
            context.rights,
        )
        subjects: Sequence[Subject] = ()
        permission, is_settled = self.policy.judge_alone(request)
        if not is_settled:
            await tool.make_ready(context)

            def look() -> tuple[Permission | None, Sequence[Subject]]:
                found = tool.subjects(params, context)
                return self.policy.judge_subjects(request, found), found

            permission, subjects = await run_blocking(context.signal, look)
        if permission is not None and permission.verdict is not Verdict.ASK:
            return Judgement(tool, params, permission, is_granted=permission.verdict is Verdict.ALLOW)
        details = await tool.should_confirm_execute(params, context)
        permission = permission or self.policy.judge_details(request, details)
        if isinstance(details, ApprovalConfirmation) and context.rights != ALL_RIGHTS:
            permission = _FOR_EVERYBODY
        if permission.verdict is not Verdict.ASK:
            return Judgement(tool, params, permission)
        grants = grants_for(tool, details, permission, subjects, workspace)
        # Saved rules count for everybody, which is not for a client to say for which something is set apart.
        saves = self.keeper is not None and context.rights == ALL_RIGHTS
        choices = choices_for(details, grants, client, saves=saves, offers_sandboxed=permission.offers_sandboxed)
        state = details.state if details is not None else ""
        if isinstance(details, ExecConfirmation) and permission.view is not None:
            view = permission.view
            details = replace(details, view=view, roots=workspace.roots, state=f"{state} {view.digest}")
        written = tuple(
            subject.path for subject in subjects if isinstance(subject, PathSubject) and subject.access is Access.WRITE
        )
        return Judgement(tool, params, replace(permission, grants=grants), details, choices, written, state)


async def _execute(judged: Judgement, context: ToolContext, description: str) -> ToolResult:
    if context.progress is no_progress:
        result = await judged.tool.execute(judged.params, context)
    else:
        progress = LateProgress(context.progress, description)
        try:
            result = await judged.tool.execute(judged.params, replace(context, progress=progress.tell))
        finally:
            progress.timer.cancel()
            if progress.telling is not None:  # most calls have told nothing
                await progress.end()
    digest = result.structured.get("sha256") if result.structured is not None else None
    if judged.permission.verdict is Verdict.ASK and digest is not None:
        # Consent is for what was written, not for what somebody else puts in its place.
        context.services.consented.update(dict.fromkeys(judged.written, str(digest)))
    return result


class LateProgress:
    """Progress of one call, which begins with what the call does; none for a call that ends at once.

    Clients on the TypeScript SDK take a notification that comes right before its answer for one of an unknown call,
    and Qwen Code shows the server as disconnected then.
    """

    def __init__(self, progress: Progress, description: str) -> None:
        self._progress = progress
        self._waiting: list[tuple[float, float | None, str]] = [(0, None, description)]
        self.telling: asyncio.Task[None] | None = None
        self._told = 0.0  # when something was told last
        self.timer = asyncio.get_running_loop().call_later(PROGRESS_AFTER_SECONDS, self._begin)

    async def tell(self, done: float, total: float | None, message: str) -> None:
        """Tell it, or in its time: the latest counts."""
        if self.telling is not None and self.telling.done():
            await self._tell(done, total, message)
        else:
            self._waiting[1:] = [(done, total, message)]

    async def end(self) -> None:
        """Tell nothing more, and let the answer come a little after what was told last."""
        if self.telling is not None:
            await asyncio.wait([self.telling], timeout=APART_SECONDS)
            self.telling.cancel()
        rest = self._told + APART_SECONDS - monotonic()
        if rest > 0:
            await anyio.sleep(rest)

    def _begin(self) -> None:
        self.telling = asyncio.create_task(self._tell_waiting())

    async def _tell_waiting(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.pop(0))

    async def _tell(self, done: float, total: float | None, message: str) -> None:
        self._told = monotonic()
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client is gone
            await self._progress(done, total, message)


def package(name: str, result: ToolResult) -> FunctionResponse:
    """Step 8: the content for the model, never empty. A failed call shows its error, and no content."""
    note = (TextPart(result.note),) if result.note else ()
    if result.error is not None:
        failure = TextPart(f"{result.error.message} [{result.error.code}]")
        return FunctionResponse(name, (failure, *note), result.error)
    content = result.llm_content
    items = [content] if isinstance(content, str | Part) else content
    parts = [TextPart(item) if isinstance(item, str) else item for item in items]
    return FunctionResponse(name, (*parts, *note) or (TextPart(""),))
