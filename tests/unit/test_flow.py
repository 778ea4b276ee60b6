"""The flow: its order, its refusals, and that nothing happens before consent."""

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
from tools.contract.limits import ApprovalMode
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

    def __init__(self, *, asks: bool = True, fails: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.seen: ToolContext | None = None
        self._asks = asks
        self._fails = fails

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
        if self._fails is not None:
            raise self._fails
        return ToolResult(llm_content=["a", TextPart("b"), InlineDataPart("image/png", b"x", "file:///x")])


YES = Answer(Decision.ONCE)


class Fixed(PermissionPolicy):
    """Gives every call the same verdict."""

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
async def test_a_rule_that_denies_since_the_question_was_asked_refuses_whatever_the_answer_is(
    context: ToolContext, tmp_path: Path
) -> None:
    policy = PermissionPolicy()

    class Slow(Person):
        async def ask(self, question: Question) -> Any:
            policy.rules = read_rules({"permissions.deny": ["recorder"]}, policy.canonical, str(tmp_path))[0]
            return await super().ask(question)

    tool, person = Recorder(), Slow(YES)
    result = await call(tool, context, person, policy=policy)
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert "execute" not in tool.steps
    assert len(person.questions) == 1


class Late(Person):
    """Says yes after something has happened."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__(YES)
        self._happens = happens

    async def ask(self, question: Question) -> Any:
        self._happens()
        return await super().ask(question)


class Shifting(Recorder):
    """Asks about something that changes by itself."""

    state = "one"

    async def should_confirm_execute(
        self, params: Mapping[str, Any], context: ToolContext
    ) -> ConfirmationDetails | None:
        return InfoConfirmation(title="Start?", prompt="it", state=self.state) if self.state else None


@pytest.mark.requirement("flow.state_of_now")
@pytest.mark.parametrize(("later", "executes"), [("one", True), ("two", False), ("", True)])
async def test_a_yes_to_what_is_something_else_by_then_does_nothing(
    later: str, executes: bool, context: ToolContext
) -> None:
    tool = Shifting()
    result = await call(tool, context, Late(lambda: setattr(tool, "state", later)))
    assert isinstance(result, ToolResult)
    assert ("execute" in tool.steps) is executes
    assert executes or (result.error is not None and result.error.code is ToolErrorType.EXECUTION_DENIED)


@pytest.mark.requirement("flow.state_of_now")
async def test_a_yes_to_a_command_does_not_count_in_the_folder_that_a_link_leads_to_since(
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
    person, command = Late(turn), {"command": "make x", "directory": "link"}
    result = await ToolRunner(registry, PermissionPolicy()).run(
        FunctionCall("run_shell_command", command), context, person
    )
    assert len(person.questions) == 1
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED


@pytest.mark.requirement("flow.order")
@pytest.mark.parametrize("channel", [channel for channel in ConsentChannel if channel is not ConsentChannel.EARLIER])
async def test_a_refusal_executes_nothing_and_tells_how_it_came_about(
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
async def test_the_fingerprint_binds_tool_arguments_and_state(context: ToolContext) -> None:
    person = Person(YES)
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 2})
    first, same, other = (question.fingerprint for question in person.questions)
    assert first == same != other


@pytest.mark.requirement("flow.order")
@pytest.mark.parametrize(
    ("client_decides", "read_only", "executes"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_where_nobody_can_be_asked_the_clients_dialog_vouches_only_for_what_it_would_ask(
    client_decides: bool, read_only: bool, executes: bool, context: ToolContext
) -> None:
    tool = Recorder()
    tool.behaviour = Behaviour(read_only=read_only)
    await call(tool, context, Person(Unavailable(client_decides, "Set this.")))
    assert ("execute" in tool.steps) is executes


@pytest.mark.requirement("modes")
@pytest.mark.parametrize(
    ("mode", "asked", "executes"),
    [
        (ApprovalMode.PLAN, False, False),
        (ApprovalMode.DEFAULT, True, True),
        (ApprovalMode.AUTO_EDIT, False, True),
        (ApprovalMode.YOLO, False, True),
    ],
)
async def test_the_approval_mode_decides_before_anybody_is_asked(
    mode: ApprovalMode, asked: bool, executes: bool, context: ToolContext
) -> None:
    context = replace(context, client=replace(context.client, approval_mode=mode))
    tool, person = Recorder(), Person(YES)
    await call(tool, context, person)
    assert bool(person.questions) is asked
    assert ("execute" in tool.steps) is executes


@pytest.mark.requirement("errors.no_leak")
async def test_an_unexpected_exception_tells_the_model_nothing_of_itself(context: ToolContext) -> None:
    result = await call(Recorder(asks=False, fails=ValueError("/secret/path")), context, Person(YES))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_FAILED
    assert "/secret/path" not in result.error.message


@pytest.mark.requirement("results.rich")
async def test_content_for_the_model_keeps_its_order_and_its_kinds(context: ToolContext) -> None:
    result = await call(Recorder(asks=False), context, Person(YES))
    assert isinstance(result, ToolResult)
    response = package("recorder", result)
    assert [type(part) for part in response.parts] == [TextPart, TextPart, InlineDataPart]


@pytest.mark.requirement("results.rich")
async def test_a_failed_call_shows_the_model_its_error_with_the_code(context: ToolContext) -> None:
    error = ToolError(ToolErrorType.FILE_NOT_FOUND, "It is not there.")
    result = await call(Recorder(asks=False, fails=error), context, Person(YES))
    assert isinstance(result, ToolResult)
    assert package("recorder", result).parts == (TextPart("It is not there. [file_not_found]"),)


@pytest.mark.requirement("protocol.unknown_tool")
async def test_an_unknown_name_proposes_the_nearest(context: ToolContext) -> None:
    with pytest.raises(ToolNotRegisteredError) as caught:
        await ToolRunner(ToolRegistry(), PermissionPolicy()).run(FunctionCall("nothing", {}), context, Person(YES))
    assert caught.value.code is ToolErrorType.TOOL_NOT_REGISTERED


@pytest.mark.requirement("modes")
@pytest.mark.parametrize("asks", [True, False], ids=["tool asks", "tool does not ask"])
@pytest.mark.parametrize(
    ("verdict", "asked", "executes"),
    [(Verdict.ALLOW, False, True), (Verdict.ASK, True, True), (Verdict.DENY, False, False)],
)
async def test_every_verdict_is_followed_whether_or_not_the_tool_would_ask(
    verdict: Verdict, asked: bool, executes: bool, asks: bool, context: ToolContext
) -> None:
    tool, person = Recorder(asks=asks), Person(YES)
    result = await call(tool, context, person, {"a": 1}, Fixed(verdict))
    assert bool(person.questions) is asked
    assert ("execute" in tool.steps) is executes
    assert isinstance(result, ToolResult)
    if verdict is Verdict.DENY:
        assert result.error is not None
        assert "because the test says so" in result.error.message
    if asked and not asks:
        assert '"a": 1' in render_question(person.questions[0])


class Other(Recorder):
    """A recorder that an answer of always covers by its name."""

    kind = ToolKind.OTHER


class Fetcher(Recorder):
    """A recorder that reaches two hosts."""

    kind = ToolKind.FETCH

    def subjects(self, params: Mapping[str, Any], context: ToolContext) -> Sequence[Subject]:
        return HostSubject("example.org"), HostSubject("docs.example.net")


class Record:
    """Takes down each decision, and what the tool had done by then."""

    def __init__(self, tool: Recorder) -> None:
        self.entries: list[tuple[AuditEntry, bool]] = []
        self._tool = tool

    def note(self, entry: AuditEntry) -> None:
        self.entries.append((entry, "execute" in self._tool.steps))


FULL = ToolError(ToolErrorType.FILE_WRITE_FAILURE, "Nothing was saved, because the disk is full. Make room.")


async def answered(
    tool: Recorder, context: ToolContext, decision: Decision, keeper: RuleStore
) -> tuple[ToolResult, Record]:
    registry, record = ToolRegistry(), Record(tool)
    registry.register_tool(tool)
    flow = ToolRunner(registry, PermissionPolicy(), keeper.save, record.note)
    result = await flow.run(FunctionCall("recorder", {}), context, Person(Answer(decision)))
    assert isinstance(result, ToolResult)
    return result, record


@pytest.mark.requirement("consent.save")
@pytest.mark.parametrize(
    ("fails", "first"),
    [(None, ["a", "b"]), (ToolError(ToolErrorType.FILE_NOT_FOUND, "Gone."), ["Gone. [file_not_found]"])],
    ids=["done", "failed"],
)
async def test_what_could_not_be_saved_is_told_after_the_content_of_a_failed_call_too(
    fails: ToolError | None, first: list[str], context: ToolContext
) -> None:
    result, _ = await answered(Other(fails=fails), context, Decision.SAVE, RuleStore(FULL))
    texts = [part.text for part in package("recorder", result).parts if isinstance(part, TextPart)]
    assert texts == [*first, f"Allowed for this session only: recorder. {FULL.message}"]
    assert context.client.grants == ["recorder"]


@pytest.mark.requirement("audit.records")
@pytest.mark.parametrize(
    ("decision", "problem", "knows_client", "remembered"),
    [
        (Decision.ONCE, None, True, None),
        (Decision.ALWAYS, None, True, (("recorder",), GrantScope.SESSION)),
        (Decision.SAVE, None, True, (("recorder",), GrantScope.SAVED)),
        (Decision.SAVE, FULL, True, (("recorder",), GrantScope.SESSION)),
        (Decision.SAVE, None, False, (("recorder",), GrantScope.SAVED)),
        (Decision.SAVE, FULL, False, (("recorder",), GrantScope.CALL)),
        (Decision.DENY, None, True, None),
    ],
)
async def test_the_record_of_an_answer_holds_the_rules_that_it_allows_and_comes_before_the_action(
    decision: Decision,
    problem: ToolError | None,
    knows_client: bool,
    remembered: tuple[tuple[str, ...], GrantScope] | None,
    context: ToolContext,
) -> None:
    if not knows_client:
        context = replace(context, client=ClientState(""))
    tool, keeper = Other(), RuleStore(problem)
    _, record = await answered(tool, context, decision, keeper)
    (asked, _), (given, is_done) = record.entries
    assert asked.answer is None
    assert given.answer == Answer(decision)
    assert not is_done
    found = given.lasting
    assert (None if found is None else (found.rules, found.scope)) == remembered
    assert keeper.kept == (["recorder"] if remembered is not None and remembered[1] is GrantScope.SAVED else [])
    in_session = remembered is not None and remembered[1] is GrantScope.SESSION
    assert context.client.grants == (None if not knows_client else ["recorder"] if in_session else [])


@pytest.mark.requirement("choices.scope")
async def test_always_covers_the_hosts_that_a_call_reaches(context: ToolContext) -> None:
    person, registry = Person(Answer(Decision.DENY)), ToolRegistry()
    registry.register_tool(Fetcher())
    await ToolRunner(registry, PermissionPolicy()).run(FunctionCall("recorder", {}), context, person)
    always = person.questions[0].choice(Decision.ALWAYS)
    assert always is not None
    assert always.rules == ("WebFetch(domain:example.org)", "WebFetch(domain:docs.example.net)")


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize(
    ("channel", "way_out"),
    [(ConsentChannel.TIMED_OUT, "confirmation.timeout"), (ConsentChannel.MALFORMED, "confirmation.style")],
)
async def test_a_missing_answer_tells_what_to_do_and_the_setting_that_helps(
    channel: ConsentChannel, way_out: str, context: ToolContext
) -> None:
    result = await call(Recorder(), context, Person(Answer(Decision.DENY, channel)))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert "repeat the call" in result.error.message.lower()
    assert way_out in result.error.message


class Plain(Recorder):
    """A tool whose calls a rule can allow."""

    kind = ToolKind.OTHER


class Changed(Recorder):
    """A tool that is not what it was."""

    async def should_confirm_execute(
        self, params: Mapping[str, Any], context: ToolContext
    ) -> ConfirmationDetails | None:
        return ApprovalConfirmation(title="Approve?", prompt="what it is now", way_out="Run lock.")


@pytest.mark.requirement("oauth.principals")
async def test_a_client_with_rights_of_its_own_decides_nothing_for_everybody(context: ToolContext) -> None:
    limited = replace(context, rights=Rights("http.oauth", scopes=frozenset({"write", "run"})))
    for tool, decisions in (
        (Plain(), {Decision.ONCE, Decision.ALWAYS, Decision.DENY}),
        (Changed(), set[Decision]()),
    ):
        registry = ToolRegistry()
        registry.register_tool(tool)
        flow = ToolRunner(registry, PermissionPolicy(), RuleStore().save)
        judged = await flow.judge(tool, {}, limited)
        assert {choice.decision for choice in judged.choices} == decisions
        open_to_all = await flow.judge(tool, {}, context)
        assert len(open_to_all.choices) > len(judged.choices)
        assert open_to_all.permission.verdict is Verdict.ASK
        assert judged.permission.verdict is (Verdict.ASK if decisions else Verdict.DENY)
