"""The message for a model whose call was refused: the reason, and only advice that would really help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.people import Person
from tests.unit.permissions.commands import judge
from tests.unit.permissions.test_policy import flow_with, in_mode, judge_call
from tools.call.base_tool import ToolContext
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Answer, ConsentChannel, Decision, Unavailable
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

DECLINED = Answer(Decision.DENY, ConsentChannel.DECLINED)
PERMISSIONS = " to permissions.allow"


async def refusal_message(
    flow: ToolRunner, context: ToolContext, answer: Answer | Unavailable, tool: str, **arguments: str
) -> str:
    outcome = await flow.run(FunctionCall(tool, arguments), context, Person(answer))
    assert isinstance(outcome, ToolResult)
    assert outcome.error is not None
    return outcome.error.message


@pytest.mark.requirement("policy.clients_dialog")
@pytest.mark.parametrize("client_decides", [True, False])
async def test_the_clients_dialog_decides_on_an_auto_run_file(
    root: Path, context: ToolContext, client_decides: bool
) -> None:
    arguments = {"file_path": ".vscode/tasks.json", "content": "{}"}
    person = Person(Unavailable(client_decides, "Set whenUnavailable."))
    outcome = await flow_with().run(FunctionCall("write_file", arguments), context, person)
    assert isinstance(outcome, ToolResult)
    assert (root / ".vscode" / "tasks.json").exists() is client_decides
    if not client_decides:
        assert outcome.error is not None
        assert (
            "Set whenUnavailable. This question is asked in every mode, and no rule can allow the call."
            in outcome.error.message
        )


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize("answer", [DECLINED, Unavailable(client_decides=False, way_out="Nobody.")])
async def test_the_refusal_of_an_edit_names_the_rule_and_the_mode_that_would_allow_it(
    root: Path, context: ToolContext, answer: Answer | Unavailable
) -> None:
    message = await refusal_message(flow_with(), context, answer, "write_file", file_path="a", content="x")
    assert f'adding "Edit(/{root})"{PERMISSIONS}, or by starting the server with --approval-mode auto-edit' in message
    allowing = flow_with(permissions_allow=[f"Edit(/{root})"])
    assert (
        await judge_call(allowing, context, "write_file", {"file_path": "a", "content": "x"})
    ).verdict is Verdict.ALLOW


@pytest.mark.requirement("consent.refusal")
async def test_where_nobody_can_be_asked_the_model_learns_how_to_go_on_and_which_tokens_rules_would_help(
    context: ToolContext,
) -> None:
    nobody = Unavailable(client_decides=False, way_out="Nobody.")
    for source, place in (
        ("http.tokens.laptop", "http.tokens.laptop.rules.allow (for this"),
        ("", "permissions.allow"),
    ):
        own_context = replace(context, rights=replace(context.rights, source=source))
        message = await refusal_message(flow_with(), own_context, nobody, "write_file", file_path="a", content="x")
        assert "Go on without this call, and tell the user what is needed." in message
        assert f" to {place}" in message


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize("channel", [ConsentChannel.DECLINED, ConsentChannel.FORM])
async def test_a_declined_plan_leaves_plan_mode_on_and_the_model_is_told_to_ask_what_to_change(
    context: ToolContext, channel: ConsentChannel
) -> None:
    planning = in_mode(context, ApprovalMode.PLAN)
    message = await refusal_message(flow_with(), planning, Answer(Decision.DENY, channel), "exit_plan_mode", plan="1.")
    assert "Plan mode stays on. Show the user the plan in your reply, and ask what to change." in message
    assert "No mode" not in message
    assert planning.client.approval_mode is ApprovalMode.PLAN


@pytest.mark.requirement("consent.refusal")
async def test_the_refusal_after_a_question_that_a_rule_demands_names_the_setting_and_no_mode(
    context: ToolContext,
) -> None:
    flow = flow_with(permissions_ask=["Edit"])
    for answer in (DECLINED, Unavailable(client_decides=True, way_out="Nobody.")):
        message = await refusal_message(flow, context, answer, "write_file", file_path="a", content="x")
        assert "No mode and no allow rule can turn this question off: permissions.ask demands it." in message
        assert "approvalMode" not in message
        assert PERMISSIONS not in message


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("touch a", '"Bash(touch *)"'),
        ("git push; npm run x", '"Bash(git push *)", "Bash(npm run x *)"'),
        ("cp a .mcp.json", None),
    ],
)
async def test_the_refusal_of_a_command_names_rules_only_where_they_would_help(
    context: ToolContext, command: str, rules: str | None
) -> None:
    message = await refusal_message(flow_with(), context, DECLINED, "run_shell_command", command=command)
    assert (
        (f"adding {rules}{PERMISSIONS}, or by starting the server with --approval-mode yolo" in message)
        if rules
        else (PERMISSIONS not in message)
    )
    assert ("--approval-mode" in message) is (rules is not None)
    yolo = in_mode(context, ApprovalMode.YOLO)
    is_allowed = (
        await judge_call(flow_with(), yolo, "run_shell_command", {"command": command})
    ).verdict is Verdict.ALLOW
    assert is_allowed or rules is None


@pytest.mark.requirement("policy.offered")
@pytest.mark.parametrize(
    ("lists", "mode", "command", "way_out"),
    [
        ({"permissions_deny": ["Bash(rm)"]}, ApprovalMode.YOLO, "rm x", "can change permissions.deny"),
        ({"tools_exclude": ["Bash"]}, ApprovalMode.DEFAULT, "ls", "can change tools.exclude"),
        ({"tools_core": ["read_file"]}, ApprovalMode.DEFAULT, "ls", "can change tools.core"),
        ({"tools_core": ["Bash(ls)"]}, ApprovalMode.DEFAULT, "pwd", "can change tools.core"),
        ({}, ApprovalMode.PLAN, "touch x", "exit_plan_mode"),
    ],
)
async def test_a_refusal_says_why_nothing_was_done_and_what_helps(
    context: ToolContext, lists: dict[str, list[str]], mode: ApprovalMode, command: str, way_out: str
) -> None:
    flow, context = flow_with(**lists), in_mode(context, mode)
    permission = await judge_call(flow, context, "run_shell_command", {"command": command})
    assert permission.verdict is Verdict.DENY
    message = await refusal_message(flow, context, DECLINED, "run_shell_command", command=command)
    assert message.startswith(f"The call is refused: {permission.reason}. Nothing was done. ")
    assert way_out in message


@pytest.mark.requirement("choices.scope")
async def test_a_lasting_answer_names_a_whole_folder_or_a_single_file(root: Path, context: ToolContext) -> None:
    person = Person(Answer(Decision.DENY))
    await flow_with().run(FunctionCall("write_file", {"file_path": "a", "content": "x"}), context, person)
    choice = person.questions[0].choice(Decision.ALWAYS)
    assert choice is not None
    assert choice.title == f"Always allow edits in {root} in this session"
    permission = judge(root, "ls > out")
    assert [grant.title for grant in permission.grants] == [f"edits of {root}/out"]
    assert judge(root, "ls > out", allow=[grant.rule for grant in permission.grants]).verdict is Verdict.ALLOW
