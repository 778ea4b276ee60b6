"""The flow: its order, its refusals, and that nothing happens before consent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tools.contract.base import BaseTool, Behaviour, Kind
from tools.contract.confirmation import (
    Answer,
    Channel,
    ConfirmationDetails,
    Decision,
    EditConfirmation,
    Pending,
    Question,
    Unavailable,
)
from tools.contract.context import ApprovalMode, ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType, ToolNotRegisteredError
from tools.contract.result import FunctionCall, InlineDataPart, TextPart, ToolResult
from tools.display import render_question
from tools.flow import Flow, package
from tools.permissions.policy import Permission, PermissionPolicy, Verdict
from tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio


class Recorder(BaseTool[Mapping[str, Any]]):
    """A tool that records which of its methods were called, in order."""

    name = "recorder"
    display_name = "Recorder"
    description = "Records."
    kind = Kind.EDIT
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


class Person:
    """Gives one outcome to every question."""

    def __init__(self, outcome: Answer | Pending | Unavailable) -> None:
        self.outcome = outcome
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        self.questions.append(question)
        return self.outcome


YES = Answer(Decision.ONCE)


class Fixed(PermissionPolicy):
    """Gives every call the same verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self._verdict = verdict

    def decide(self, tool: Any, details: Any, mode: Any) -> Permission:
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
    flow = Flow(registry, policy or PermissionPolicy())
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


@pytest.mark.requirement("flow.validation")
async def test_invalid_parameters_end_the_call_before_any_question(context: ToolContext) -> None:
    tool, person = Recorder(), Person(YES)
    result = await call(tool, context, person, {"bad": True})
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert tool.steps == ["validate"]
    assert not person.questions


@pytest.mark.requirement("flow.confirmation")
@pytest.mark.parametrize("channel", list(Channel))
async def test_a_refusal_executes_nothing_and_tells_how_it_came_about(channel: Channel, context: ToolContext) -> None:
    tool = Recorder()
    result = await call(tool, context, Person(Answer(Decision.DENY, channel, reason="not now")))
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert "execute" not in tool.steps
    assert ("not now" in result.error.message) is (channel is Channel.FORM)


@pytest.mark.requirement("flow.confirmation")
async def test_a_pending_question_returns_the_question_and_executes_nothing(context: ToolContext) -> None:
    tool = Recorder()
    outcome = await call(tool, context, Person(Pending()))
    assert isinstance(outcome, Question)
    assert "execute" not in tool.steps


@pytest.mark.requirement("flow.confirmation")
async def test_the_fingerprint_binds_tool_arguments_and_state(context: ToolContext) -> None:
    person = Person(YES)
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 1})
    await call(Recorder(), context, person, {"a": 2})
    first, same, other = (question.fingerprint for question in person.questions)
    assert first == same != other


@pytest.mark.requirement("flow.confirmation")
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


@pytest.mark.requirement("flow.package")
async def test_content_for_the_model_keeps_its_order_and_its_kinds(context: ToolContext) -> None:
    result = await call(Recorder(asks=False), context, Person(YES))
    assert isinstance(result, ToolResult)
    response = package("recorder", result)
    assert [type(part) for part in response.parts] == [TextPart, TextPart, InlineDataPart]


@pytest.mark.requirement("flow.package")
async def test_a_failed_call_shows_the_model_its_error_with_the_code(context: ToolContext) -> None:
    error = ToolError(ToolErrorType.FILE_NOT_FOUND, "It is not there.")
    result = await call(Recorder(asks=False, fails=error), context, Person(YES))
    assert isinstance(result, ToolResult)
    assert package("recorder", result).parts == (TextPart("It is not there. [file_not_found]"),)


@pytest.mark.requirement("flow.unknown")
async def test_an_unknown_name_proposes_the_nearest(context: ToolContext) -> None:
    with pytest.raises(ToolNotRegisteredError) as caught:
        await Flow(ToolRegistry(), PermissionPolicy()).run(FunctionCall("nothing", {}), context, Person(YES))
    assert caught.value.code is ToolErrorType.TOOL_NOT_REGISTERED


@pytest.mark.requirement("flow.verdicts")
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
