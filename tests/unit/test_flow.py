"""The flow of a call: its order, its refusals, and that nothing happens before consent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.people import Person, RuleStore
from tools.builtin.run_shell_command import ShellTool
from tools.call.base_tool import BaseTool, Behaviour, ClientState, ToolContext
from tools.call.consent import AuditEntry, GrantScope
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import (
    Answer,
    ApprovalConfirmation,
    ConfirmationDetails,
    ConsentChannel,
    Decision,
    EditConfirmation,
    InfoConfirmation,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.display import render_question
from tools.contract.permission_subjects import HostSubject, Subject, ToolKind
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType, ToolNotRegisteredError
from tools.contract.tool_results import FunctionCall, InlineDataPart, TextPart, ToolResult, package
from tools.permissions.permission_policy import PermissionPolicy, Rights
from tools.permissions.permission_rules import read_rules
from tools.permissions.verdict import Permission, Verdict

pytestmark = pytest.mark.anyio


class Recorder(BaseTool[Mapping[str, Any]]):
    """A tool that records which of its methods were called, in order."""

    name = "recorder"
    display_name = "Recorder"
    description = "Records."
    kind = ToolKind.EDIT
    behaviour = Behaviour(read_only=False, destructive=True)

    def __init__(self, *, asks: bool = True, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.seen: ToolContext | None = None
        self._asks = asks
        self._error = error

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "properties": {"bad": {"type": "boolean"}}}

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.steps.append("validate")
        if arguments.get("bad"):
            raise InvalidToolParamsError(self.name, "it is bad.")
        return arguments

    def get_description(self, params: Mapping[str, Any], context: ToolContext) -> str:
        return "Record something"

    async def should_confirm_execute(
        self, params: Mapping[str, Any], context: ToolContext
    ) -> ConfirmationDetails | None:
        self.steps.append("confirm")
        if not self._asks:
            return None
        return EditConfirmation(title="Record?", file_path="/f", file_diff="+x", added=1, removed=0, state="s")

    async def execute(self, params: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.steps.append("execute")
        self.seen = context
        if self._error is not None:
            raise self._error
        return ToolResult(llm_content=["a", TextPart("b"), InlineDataPart("image/png", b"x", "file:///x")])


YES = Answer(Decision.ONCE)


class FixedPolicy(PermissionPolicy):
    """A policy with the same verdict for every call."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self._verdict = verdict

    def judge_details(self, request: Any, details: Any) -> Permission:
        return Permission(self._verdict, "because the test says so")


async def call(
    tool: Recorder,
    context: ToolContext,
    person: Person,
    arguments: Mapping[str, Any] | None = None,
    policy: PermissionPolicy | None = None,
) -> ToolResult | Question:
    registry = ToolRegistry()
    registry.register_tool(tool)
    flow = ToolRunner(registry, policy or PermissionPolicy())
    return await flow.run(FunctionCall("recorder", arguments or {}), context, person)


@pytest.mark.requirement("flow.order")
async def test_a_call_is_validated_then_confirmed_then_executed(context: ToolContext) -> None:
    tool, person = Recorder(), Person(YES)
    result = await call(tool, context, person)
    assert isinstance(result, ToolResult)
    assert result.error is None
    assert tool.steps == ["validate", "confirm", "execute"]
    assert person.questions[0].description == "Record something"
    assert tool.seen is not None
    assert tool.seen.answer == YES
    assert tool.seen.confirmed == person.questions[0].details


@pytest.mark.requirement("protocol.wrong_types")
async def test_invalid_parameters_end_the_call_before_any_question(context: ToolContext) -> None:
    tool, person = Recorder(), Person(YES)
    result = await call(tool, context, person, {"bad": True})
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert tool.steps == ["validate"]
    assert not person.questions


@pytest.mark.requirement("flow.rules_of_now")
async def test_a_deny_rule_added_after_the_question_overrides_the_answer(context: ToolContext, tmp_path: Path) -> None:
    policy = PermissionPolicy()

    class RuleChangingPerson(Person):
        async def ask(self, question: Question) -> Any:
            policy.rules = read_rules({"permissions.deny": ["recorder"]}, policy.canonical, str(tmp_path))[0]
            return await super().ask(question)

    tool, person = Recorder(), RuleChangingPerson(YES)
    result = await call(tool, context, person, policy=policy)
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert "execute" not in tool.steps
    assert len(person.questions) == 1


class DelayedPerson(Person):
    """Says yes after it has performed an action."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(YES)
        self._action = action

    async def ask(self, question: Question) -> Any:
        self._action()
        return await super().ask(question)


class ShiftingRecorder(Recorder):
    """A tool whose question is about a state that can change."""

    state = "one"

    async def should_confirm_execute(
        self, params: Mapping[str, Any], context: ToolContext
    ) -> ConfirmationDetails | None:
        return InfoConfirmation(title="Start?", prompt="it", state=self.state) if self.state else None


@pytest.mark.requirement("flow.state_of_now")
@pytest.mark.parametrize(("later", "executes"), [("one", True), ("two", False), ("", True)])
async def test_a_yes_has_no_effect_if_the_state_has_changed_since_the_question(
    later: str, executes: bool, context: ToolContext
) -> None:
    tool = ShiftingRecorder()
    result = await call(tool, context, DelayedPerson(lambda: setattr(tool, "state", later)))
    assert isinstance(result, ToolResult)
    assert ("execute" in tool.steps) is executes
    assert executes or (result.error is not None and result.error.code is ToolErrorType.EXECUTION_DENIED)


@pytest.mark.requirement("flow.state_of_now")
async def test_a_yes_to_a_command_does_not_count_if_the_folders_link_has_been_redirected(
    context: ToolContext, root: Path
) -> None:
    for name in ("shown", "other"):
        (root / name).mkdir()
    link = root / "link"
    link.symlink_to("shown")

    def turn() -> None:
        link.unlink()
        link.symlink_to("other")

    registry = ToolRegistry()
    registry.register_tool(ShellTool())
    person, command = DelayedPerson(turn), {"command": "make x", "directory": "link"}
    result = await ToolRunner(registry, PermissionPolicy()).run(
        FunctionCall("run_shell_command", command), context, person
    )
    assert len(person.questions) == 1
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED


@pytest.mark.requirement("flow.order")
@pytest.mark.parametrize("channel", [channel for channel in ConsentChannel if channel is not ConsentChannel.EARLIER])
async def test_a_refusal_executes_nothing_and_says_how_it_came_about(
    channel: ConsentChannel, context: ToolContext
) -> None:
    tool = Recorder()
    result = await call(tool, context, Person(Answer(Decision.DENY, channel, reason="not now")))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert "execute" not in tool.steps
    assert ("not now" in result.error.message) is (channel in (ConsentChannel.FORM, ConsentChannel.FAILED))


@pytest.mark.requirement("flow.order")
async def test_a_pending_question_returns_the_question_and_executes_nothing(context: ToolContext) -> None:
    tool = Recorder()
    outcome = await call(tool, context, Person(Pending()))
    assert isinstance(outcome, Question)
    assert "execute" not in tool.steps


@pytest.mark.requirement("flow.order")
async def test_the_fingerprint_depends_on_the_arguments(context: ToolContext) -> None:
    person = Person(YES)
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 2})
    first, same, different = (question.fingerprint for question in person.questions)
    assert first == same != different


@pytest.mark.requirement("flow.order")
@pytest.mark.parametrize(
    ("client_decides", "read_only", "executes"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_without_a_form_the_clients_dialog_counts_only_for_tools_that_it_asks_about(
    client_decides: bool, read_only: bool, executes: bool, context: ToolContext
) -> None:
    tool = Recorder()
    tool.behaviour = Behaviour(read_only=read_only)
    await call(tool, context, Person(Unavailable(client_decides, "Set this.")))
    assert ("execute" in tool.steps) is executes


@pytest.mark.requirement("modes")
@pytest.mark.parametrize(
    ("mode", "is_asked", "executes"),
    [
        (ApprovalMode.PLAN, False, False),
        (ApprovalMode.DEFAULT, True, True),
        (ApprovalMode.AUTO_EDIT, False, True),
        (ApprovalMode.YOLO, False, True),
    ],
)
async def test_the_approval_mode_decides_before_anybody_is_asked(
    mode: ApprovalMode, is_asked: bool, executes: bool, context: ToolContext
) -> None:
    context = replace(context, client=replace(context.client, approval_mode=mode))
    tool, person = Recorder(), Person(YES)
    await call(tool, context, person)
    assert bool(person.questions) is is_asked
    assert ("execute" in tool.steps) is executes


@pytest.mark.requirement("errors.no_leak")
async def test_the_text_of_an_unexpected_exception_does_not_reach_the_model(context: ToolContext) -> None:
    result = await call(Recorder(asks=False, error=ValueError("/secret/path")), context, Person(YES))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_FAILED
    assert "/secret/path" not in result.error.message


@pytest.mark.requirement("results.rich")
async def test_content_for_the_model_keeps_its_order_and_its_types(context: ToolContext) -> None:
    result = await call(Recorder(asks=False), context, Person(YES))
    assert isinstance(result, ToolResult)
    response = package("recorder", result)
    assert [type(part) for part in response.parts] == [TextPart, TextPart, InlineDataPart]


@pytest.mark.requirement("results.rich")
async def test_a_failed_call_shows_the_model_its_error_with_the_code(context: ToolContext) -> None:
    error = ToolError(ToolErrorType.FILE_NOT_FOUND, "It is not there.")
    result = await call(Recorder(asks=False, error=error), context, Person(YES))
    assert isinstance(result, ToolResult)
    assert package("recorder", result).parts == (TextPart("It is not there. [file_not_found]"),)


@pytest.mark.requirement("protocol.unknown_tool")
async def test_a_call_of_an_unknown_tool_raises_an_error_with_its_code(context: ToolContext) -> None:
    with pytest.raises(ToolNotRegisteredError) as error_info:
        await ToolRunner(ToolRegistry(), PermissionPolicy()).run(FunctionCall("nothing", {}), context, Person(YES))
    assert error_info.value.code is ToolErrorType.TOOL_NOT_REGISTERED


@pytest.mark.requirement("modes")
@pytest.mark.parametrize("asks", [True, False], ids=["tool asks", "tool does not ask"])
@pytest.mark.parametrize(
    ("verdict", "is_asked", "executes"),
    [(Verdict.ALLOW, False, True), (Verdict.ASK, True, True), (Verdict.DENY, False, False)],
)
async def test_every_verdict_is_followed_whether_or_not_the_tool_would_ask(
    verdict: Verdict, is_asked: bool, executes: bool, asks: bool, context: ToolContext
) -> None:
    tool, person = Recorder(asks=asks), Person(YES)
    result = await call(tool, context, person, {"a": 1}, FixedPolicy(verdict))
    assert bool(person.questions) is is_asked
    assert ("execute" in tool.steps) is executes
    assert isinstance(result, ToolResult)
    if verdict is Verdict.DENY:
        assert result.error is not None
        assert "because the test says so" in result.error.message
    if is_asked and not asks:
        assert '"a": 1' in render_question(person.questions[0])


class CoveredRecorder(Recorder):
    """A recorder that the answer "always" allows by its name."""

    kind = ToolKind.OTHER


class FetchingRecorder(Recorder):
    """A recorder that reaches two hosts."""

    kind = ToolKind.FETCH

    def subjects(self, params: Mapping[str, Any], context: ToolContext) -> Sequence[Subject]:
        return HostSubject("example.org"), HostSubject("docs.example.net")


class DecisionLog:
    """Records each decision, and whether the tool had been executed by then."""

    def __init__(self, tool: Recorder) -> None:
        self.entries: list[tuple[AuditEntry, bool]] = []
        self._tool = tool

    def note(self, entry: AuditEntry) -> None:
        self.entries.append((entry, "execute" in self._tool.steps))


DISK_FULL = ToolError(ToolErrorType.FILE_WRITE_FAILURE, "Nothing was saved, because the disk is full. Make room.")


async def answer_call(
    tool: Recorder, context: ToolContext, decision: Decision, store: RuleStore
) -> tuple[ToolResult, DecisionLog]:
    registry, record = ToolRegistry(), DecisionLog(tool)
    registry.register_tool(tool)
    flow = ToolRunner(registry, PermissionPolicy(), store.save, record.note)
    result = await flow.run(FunctionCall("recorder", {}), context, Person(Answer(decision)))
    assert isinstance(result, ToolResult)
    return result, record


@pytest.mark.requirement("consent.save")
@pytest.mark.parametrize(
    ("error", "first"),
    [(None, ["a", "b"]), (ToolError(ToolErrorType.FILE_NOT_FOUND, "Gone."), ["Gone. [file_not_found]"])],
    ids=["done", "failed"],
)
async def test_a_rule_that_could_not_be_saved_is_mentioned_after_the_content_even_if_the_call_fails(
    error: ToolError | None, first: list[str], context: ToolContext
) -> None:
    result, _ = await answer_call(CoveredRecorder(error=error), context, Decision.SAVE, RuleStore(DISK_FULL))
    texts = [part.text for part in package("recorder", result).parts if isinstance(part, TextPart)]
    assert texts == [*first, f"Allowed for this session only: recorder. {DISK_FULL.message}"]
    assert context.client.grants == ["recorder"]


@pytest.mark.requirement("audit.records")
@pytest.mark.parametrize(
    ("decision", "problem", "knows_client", "expected"),
    [
        (Decision.ONCE, None, True, None),
        (Decision.ALWAYS, None, True, (("recorder",), GrantScope.SESSION)),
        (Decision.SAVE, None, True, (("recorder",), GrantScope.SAVED)),
        (Decision.SAVE, DISK_FULL, True, (("recorder",), GrantScope.SESSION)),
        (Decision.SAVE, None, False, (("recorder",), GrantScope.SAVED)),
        (Decision.SAVE, DISK_FULL, False, (("recorder",), GrantScope.CALL)),
        (Decision.DENY, None, True, None),
    ],
)
async def test_the_record_of_an_answer_contains_its_rules_and_precedes_the_action(
    decision: Decision,
    problem: ToolError | None,
    knows_client: bool,
    expected: tuple[tuple[str, ...], GrantScope] | None,
    context: ToolContext,
) -> None:
    if not knows_client:
        context = replace(context, client=ClientState(""))
    tool, store = CoveredRecorder(), RuleStore(problem)
    _, record = await answer_call(tool, context, decision, store)
    (question_entry, _), (answer_entry, is_done) = record.entries
    assert question_entry.answer is None
    assert answer_entry.answer == Answer(decision)
    assert not is_done
    lasting = answer_entry.lasting
    assert (None if lasting is None else (lasting.rules, lasting.scope)) == expected
    assert store.kept == (["recorder"] if expected is not None and expected[1] is GrantScope.SAVED else [])
    in_session = expected is not None and expected[1] is GrantScope.SESSION
    assert context.client.grants == (None if not knows_client else ["recorder"] if in_session else [])


@pytest.mark.requirement("choices.scope")
async def test_always_covers_the_hosts_that_a_call_reaches(context: ToolContext) -> None:
    person, registry = Person(Answer(Decision.DENY)), ToolRegistry()
    registry.register_tool(FetchingRecorder())
    await ToolRunner(registry, PermissionPolicy()).run(FunctionCall("recorder", {}), context, person)
    always = person.questions[0].choice(Decision.ALWAYS)
    assert always is not None
    assert always.rules == ("WebFetch(domain:example.org)", "WebFetch(domain:docs.example.net)")


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize(
    ("channel", "way_out"),
    [(ConsentChannel.TIMED_OUT, "confirmation.timeout"), (ConsentChannel.MALFORMED, "confirmation.style")],
)
async def test_a_missing_answer_says_what_to_do_and_names_the_setting_that_helps(
    channel: ConsentChannel, way_out: str, context: ToolContext
) -> None:
    result = await call(Recorder(), context, Person(Answer(Decision.DENY, channel)))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert "repeat the call" in result.error.message.lower()
    assert way_out in result.error.message


class AllowableRecorder(Recorder):
    """A tool whose calls can be allowed by a rule."""

    kind = ToolKind.OTHER


class ChangedRecorder(Recorder):
    """A tool whose definition has changed since it was approved."""

    async def should_confirm_execute(
        self, params: Mapping[str, Any], context: ToolContext
    ) -> ConfirmationDetails | None:
        return ApprovalConfirmation(title="Approve?", prompt="what it is now", way_out="Run lock.")


@pytest.mark.requirement("oauth.principals")
async def test_a_client_with_limited_rights_decides_nothing_for_other_clients(context: ToolContext) -> None:
    limited_context = replace(context, rights=Rights("http.oauth", scopes=frozenset({"write", "run"})))
    for tool, decisions in (
        (AllowableRecorder(), {Decision.ONCE, Decision.ALWAYS, Decision.DENY}),
        (ChangedRecorder(), set[Decision]()),
    ):
        registry = ToolRegistry()
        registry.register_tool(tool)
        flow = ToolRunner(registry, PermissionPolicy(), RuleStore().save)
        limited_judgement = await flow.judge(tool, {}, limited_context)
        assert {choice.decision for choice in limited_judgement.choices} == decisions
        judgement = await flow.judge(tool, {}, context)
        assert len(judgement.choices) > len(limited_judgement.choices)
        assert judgement.permission.verdict is Verdict.ASK
        assert limited_judgement.permission.verdict is (Verdict.ASK if decisions else Verdict.DENY)
