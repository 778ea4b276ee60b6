"""The permission policy for whole calls: which rule or mode takes precedence, and what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.people import Person, RuleStore
from tests.tables import all_cases
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Answer, ConsentChannel, Decision, Unavailable
from tools.contract.tool_errors import ToolErrorType
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.files.ignore_files import AGENT_IGNORE_FILES
from tools.permissions.permission_policy import ALL_RIGHTS, PermissionPolicy, PermissionRequest
from tools.permissions.permission_rules import read_rules
from tools.permissions.verdict import Permission, Verdict

pytestmark = pytest.mark.anyio

WRITE = {"file_path": "src/a.txt", "content": "new\n"}


NOBODY = Person(Unavailable(client_decides=True, way_out=""))


def flow_with(**lists: Sequence[str]) -> ToolRunner:
    registry = ToolRegistry()
    for tool in builtin_tools():
        registry.register_tool(tool)
    keys = {key.replace("_", ".", 1): texts for key, texts in lists.items()}
    rules, warnings = read_rules(keys, registry.canonical, "/home/me")
    assert not warnings
    return ToolRunner(registry, PermissionPolicy(rules, registry.canonical, "/home/me"))


async def judge_call(flow: ToolRunner, context: ToolContext, tool: str, arguments: Mapping[str, Any]) -> Permission:
    return (await flow.judge(flow.registry.get_tool(tool), arguments, context)).permission


def in_mode(context: ToolContext, mode: ApprovalMode) -> ToolContext:
    return replace(context, client=ClientState("test", mode))


@pytest.mark.requirement("policy.order")
@pytest.mark.parametrize(
    ("lists", "mode", "verdict"),
    [
        ({}, ApprovalMode.DEFAULT, Verdict.ASK),
        ({}, ApprovalMode.AUTO_EDIT, Verdict.ALLOW),
        ({}, ApprovalMode.YOLO, Verdict.ALLOW),
        ({}, ApprovalMode.PLAN, Verdict.DENY),
        ({"permissions_allow": ["Edit(src/**)"]}, ApprovalMode.DEFAULT, Verdict.ALLOW),
        ({"permissions_allow": ["Edit(lib/**)"]}, ApprovalMode.DEFAULT, Verdict.ASK),
        ({"permissions_allow": ["Edit"]}, ApprovalMode.PLAN, Verdict.DENY),
        ({"permissions_ask": ["Edit(src/**)"], "permissions_allow": ["Edit"]}, ApprovalMode.YOLO, Verdict.ASK),
        ({"tools_confirmationRequired": ["write_file"]}, ApprovalMode.AUTO_EDIT, Verdict.ASK),
        ({"permissions_deny": ["Edit(src/**)"], "permissions_ask": ["Edit"]}, ApprovalMode.YOLO, Verdict.DENY),
        ({"permissions_deny": ["Read(src/**)"]}, ApprovalMode.YOLO, Verdict.ALLOW),
        ({"tools_exclude": ["WriteFileTool"]}, ApprovalMode.YOLO, Verdict.DENY),
        ({"tools_core": ["read_file"]}, ApprovalMode.YOLO, Verdict.DENY),
        ({"tools_allowed": ["WriteFile"]}, ApprovalMode.DEFAULT, Verdict.ALLOW),
    ],
)
async def test_deny_takes_precedence_over_ask_and_ask_over_allow_and_allow_over_the_mode(
    root: Path, context: ToolContext, lists: dict[str, list[str]], mode: ApprovalMode, verdict: Verdict
) -> None:
    (root / "src").mkdir()
    permission = await judge_call(flow_with(**lists), in_mode(context, mode), "write_file", WRITE)
    assert permission.verdict is verdict
    assert permission.reason


@pytest.mark.requirement("policy.order")
def test_a_reason_to_ask_again_applies_only_to_that_call(context: ToolContext) -> None:
    tool, policy = flow_with().registry.get_tool("list_directory"), PermissionPolicy()
    request = PermissionRequest(tool.traits, ApprovalMode.DEFAULT, (), context.workspace)
    permissions = [policy.judge_alone(replace(request, asked_again=reason))[0] for reason in ("", "it has changed", "")]
    assert [permission and permission.verdict for permission in permissions] == [None, Verdict.ASK, None]


@pytest.mark.requirement("policy.links")
async def test_a_rule_about_a_path_holds_for_every_name_of_the_file(root: Path, context: ToolContext) -> None:
    (root / "secrets").mkdir()
    (root / "secrets" / "key").write_text("x")
    (root / "link").symlink_to(root / "secrets")
    for rule in ("Read(secrets/**)", "Read(link/**)"):
        flow = flow_with(permissions_deny=[rule])
        permission = await judge_call(flow, context, "read_file", {"file_path": "link/key"})
        assert permission.verdict is Verdict.DENY


@pytest.mark.requirement("policy.links")
@pytest.mark.parametrize("rule", ["Read(secrets/**)", "Read(/{root}/secrets/**)", "Read(key)"])
async def test_a_rule_about_a_path_holds_for_paths_that_begin_with_two_slashes(
    root: Path, context: ToolContext, rule: str
) -> None:
    (root / "secrets").mkdir()
    (root / "secrets" / "key").write_text("x")
    flow = flow_with(permissions_deny=[rule.format(root=root)])
    yolo = in_mode(context, ApprovalMode.YOLO)
    for path in (f"/{root}/secrets/key", f"//{root}/secrets/key", f"/{root}/./secrets//key"):
        assert (await judge_call(flow, yolo, "read_file", {"file_path": path})).verdict is Verdict.DENY
        assert (await judge_command(flow, yolo, f"cat {path}")).verdict is Verdict.DENY


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize("mode", [ApprovalMode.DEFAULT, ApprovalMode.AUTO_EDIT, ApprovalMode.YOLO])
@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "vendor/x/.git/config",
        "vendor/HEAD",
        ".vscode/tasks.json",
        ".mcp.json",
        "mcp.lock.json",
        ".git",
        ".GIT/hooks/x",
        ".qwenignore",
        ".geminiignore",
        ".coretoolsignore",
    ],
)
async def test_auto_run_files_are_never_written_without_a_question(
    context: ToolContext, mode: ApprovalMode, path: str
) -> None:
    flow = flow_with(permissions_allow=["Edit"])
    arguments = {"file_path": path, "content": "x"}
    person = Person(Answer(Decision.DENY))
    outcome = await flow.run(FunctionCall("write_file", arguments), in_mode(context, mode), person)
    assert isinstance(outcome, ToolResult)
    assert outcome.error is not None
    assert [choice.decision for choice in person.questions[0].choices] == [Decision.ONCE, Decision.DENY]
    assert not (Path(context.workspace.first_root) / path).exists()


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize("mode", [ApprovalMode.AUTO_EDIT, ApprovalMode.YOLO])
@pytest.mark.parametrize("folder", ["sub", "sub/deep/er", ".hidden"])
@pytest.mark.parametrize("name", AGENT_IGNORE_FILES)
async def test_an_agent_ignore_file_in_a_folder_is_never_written_without_a_question(
    context: ToolContext, mode: ApprovalMode, folder: str, name: str
) -> None:
    path = f"{folder}/{name}"
    flow = flow_with(permissions_allow=["Edit", "Bash(tee *)"])
    for tool, arguments in (
        ("write_file", {"file_path": path, "content": "!x"}),
        ("edit", {"file_path": path, "old_string": "", "new_string": "!x"}),
        ("run_shell_command", {"command": f"echo x > {path}"}),
        ("run_shell_command", {"command": f"echo x | tee {path}"}),
    ):
        assert (await judge_call(flow, in_mode(context, mode), tool, arguments)).verdict is Verdict.ASK


@pytest.mark.requirement("policy.order")
async def test_a_question_that_a_rule_demands_is_not_left_to_the_clients_dialog(
    root: Path, context: ToolContext
) -> None:
    flow = flow_with(permissions_ask=["Edit"])
    outcome = await flow.run(FunctionCall("write_file", {"file_path": "a", "content": "x"}), context, NOBODY)
    assert isinstance(outcome, ToolResult)
    assert outcome.error is not None
    assert outcome.error.code is ToolErrorType.EXECUTION_DENIED
    assert "The question was needed because" in outcome.error.message
    assert "permissions.ask" in outcome.error.message
    assert not (root / "a").exists()


@pytest.mark.requirement("consent.always")
async def test_always_covers_edits_in_the_same_workspace_folder_for_this_client_only(
    root: Path, context: ToolContext
) -> None:
    flow, person = flow_with(), Person(Answer(Decision.ALWAYS))
    for name in ("a", "b"):
        outcome = await flow.run(FunctionCall("write_file", {"file_path": name, "content": "x"}), context, person)
        assert isinstance(outcome, ToolResult)
        assert outcome.error is None
    assert len(person.questions) == 1
    other_client = replace(context, client=ClientState("other"))
    assert (
        await judge_call(flow, other_client, "write_file", {"file_path": "c", "content": "x"})
    ).verdict is Verdict.ASK
    auto_run_edit = {"file_path": ".git/hooks/x", "content": "x"}
    assert (await judge_call(flow, context, "write_file", auto_run_edit)).verdict is Verdict.ASK


@pytest.mark.requirement("policy.offered")
def test_a_tool_is_not_offered_while_it_is_switched_off_or_outside_of_a_profile() -> None:
    flow = flow_with(permissions_deny=["Glob"])
    policy, traits = flow.policy, {tool.name: tool.traits for tool in flow.registry.get_all_tools()}

    def reason(tool: str, profile: str = "") -> str:
        obstacle = policy.why_not_offered(traits[tool], replace(ALL_RIGHTS, profile=profile) if profile else ALL_RIGHTS)
        return obstacle.reason if obstacle is not None else ""

    policy.switch("edit", is_on=False)
    assert (reason("edit"), reason("read_file")) == ("edit is switched off on the dashboard", "")
    policy.switch("write_file", is_on=False)
    policy.switch("edit", is_on=True)
    assert (reason("edit"), reason("write_file")) == ("", "write_file is switched off on the dashboard")
    policy.switch("glob", is_on=True)
    assert (reason("edit"), reason("glob")) == ("", "glob is turned off by the permissions.deny rule Glob")
    assert "not in the profile core" in reason("todo_write", "core")
    assert (reason("todo_write"), reason("edit", "core")) == ("", "")


@pytest.mark.requirement("hidden.held")
def test_a_program_that_only_reads_sees_nothing_that_is_hidden_from_agents_or_asked_about(
    root: Path, context: ToolContext
) -> None:
    for name in ("a.log", "b.txt", "c.txt"):
        (root / name).touch()
    (root / ".qwenignore").write_text("*.log\n")
    flow = flow_with(permissions_deny=["Read(b.txt)"], permissions_ask=["Read(c.txt)", "Edit"])
    limits, problem = flow.policy.kept_from_readers(context.workspace, ALL_RIGHTS)
    assert (sorted(limits.masked), problem) == ([str(root / name) for name in ("a.log", "b.txt", "c.txt")], "")
    assert limits.read_only == (str(root),), "this program cannot ask anybody about edits"


@pytest.mark.requirement("consent.always")
async def test_a_client_that_cannot_be_told_from_others_is_offered_no_lasting_answer(context: ToolContext) -> None:
    nameless = replace(context, client=ClientState(""))
    person = Person(Answer(Decision.DENY, ConsentChannel.FORM))
    await flow_with().run(FunctionCall("write_file", {"file_path": "a", "content": "x"}), nameless, person)
    assert [choice.decision for choice in person.questions[0].choices] == [Decision.ONCE, Decision.DENY]


@pytest.mark.requirement("consent.save")
async def test_a_saved_rule_applies_at_once_to_every_client(root: Path, context: ToolContext) -> None:
    keeper = RuleStore()
    flow = replace(flow_with(), save_rules=keeper.save)
    person = Person(Answer(Decision.SAVE))
    await flow.run(FunctionCall("write_file", {"file_path": "a", "content": "x"}), context, person)
    assert keeper.kept == [f"Edit(/{root})"]
    other_client = replace(context, client=ClientState("other"))
    permission = await judge_call(flow, other_client, "write_file", {"file_path": "b", "content": "x"})
    assert (permission.verdict, permission.reason) == (Verdict.ALLOW, f"permissions.allow rule Edit(/{root})")


@pytest.mark.requirement("modes")
@pytest.mark.parametrize(
    ("decision", "mode"),
    [
        (Decision.ONCE, ApprovalMode.DEFAULT),
        (Decision.ALWAYS, ApprovalMode.AUTO_EDIT),
        (Decision.DENY, ApprovalMode.PLAN),
    ],
)
async def test_a_plan_is_asked_about_and_the_answer_decides_the_mode(
    context: ToolContext, decision: Decision, mode: ApprovalMode
) -> None:
    context = in_mode(context, ApprovalMode.PLAN)
    person = Person(Answer(decision))
    await flow_with().run(FunctionCall("exit_plan_mode", {"plan": "1. Do it."}), context, person)
    assert context.client.approval_mode is mode
    assert [choice.decision for choice in person.questions[0].choices] == [
        Decision.ONCE,
        Decision.ALWAYS,
        Decision.DENY,
    ]


@pytest.mark.requirement("plan.approved")
async def test_no_rule_approves_a_plan_in_place_of_a_person(context: ToolContext) -> None:
    with all_cases() as case:
        for rule in ("*", "exit_plan_mode", "ExitPlanMode", "ExitPlanModeTool"):
            with case(rule):
                planning, person = in_mode(context, ApprovalMode.PLAN), Person(Answer(Decision.DENY))
                grantee = replace(planning, client=ClientState("test", ApprovalMode.PLAN, grants=[rule]))
                for client_context, flow in ((planning, flow_with(permissions_allow=[rule])), (grantee, flow_with())):
                    await flow.run(FunctionCall("exit_plan_mode", {"plan": "1. Do it."}), client_context, person)
                    assert client_context.client.approval_mode is ApprovalMode.PLAN
                assert len(person.questions) == 2


@pytest.mark.requirement("modes")
async def test_where_nobody_can_be_asked_plan_mode_stays(context: ToolContext) -> None:
    context = in_mode(context, ApprovalMode.PLAN)
    outcome = await flow_with().run(FunctionCall("exit_plan_mode", {"plan": "1. Do it."}), context, NOBODY)
    assert isinstance(outcome, ToolResult)
    assert outcome.error is not None
    assert context.client.approval_mode is ApprovalMode.PLAN


@pytest.mark.requirement("modes")
async def test_outside_of_plan_mode_there_is_nothing_to_leave(context: ToolContext) -> None:
    person = Person(Answer(Decision.ONCE))
    outcome = await flow_with().run(FunctionCall("exit_plan_mode", {"plan": "1. Do it."}), context, person)
    assert isinstance(outcome, ToolResult)
    assert outcome.error is not None
    assert not person.questions


async def judge_command(flow: ToolRunner, context: ToolContext, command: str) -> Permission:
    return await judge_call(flow, context, "run_shell_command", {"command": command})


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.parametrize("mode", [ApprovalMode.DEFAULT, ApprovalMode.AUTO_EDIT, ApprovalMode.YOLO])
@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".mcp.json", ".qwenignore"])
async def test_no_rule_lets_a_redirection_write_what_a_file_tool_asks_about(
    root: Path, context: ToolContext, mode: ApprovalMode, path: str
) -> None:
    (root / ".git" / "hooks").mkdir(parents=True)
    flow = flow_with(permissions_allow=["Edit", "Bash(echo *)", "Bash(cp *)"])
    for command in (f"echo x > {path}", f"cp a {path}"):
        assert (await judge_command(flow, in_mode(context, mode), command)).verdict is Verdict.ASK


@pytest.mark.requirement("commands.without_sandbox")
async def test_no_rule_lets_a_command_read_what_is_hidden_from_agents(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").write_text(".env\n")
    (root / ".env").write_text("secret")
    flow = flow_with(permissions_allow=["Read", "Bash(cat *)"])
    assert (await judge_command(flow, context, "cat .env")).verdict is Verdict.ASK
    assert (await judge_command(flow, context, "cat other")).verdict is Verdict.ALLOW


@pytest.mark.requirement("rules.names")
async def test_a_name_with_stars_stands_for_tools_in_commands_too(context: ToolContext) -> None:
    flow = flow_with(permissions_ask=["run_shell*"], permissions_deny=["rea*(secret)"])
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert (await judge_command(flow, yolo, "rm -rf x")).is_explicit
    assert (await judge_command(flow, yolo, "cat secret")).verdict is Verdict.DENY


@pytest.mark.requirement("commands.rules")
@pytest.mark.parametrize("command", ["/bin//rm x", "/usr/bin/../bin/rm x", "/opt/x/rm x"])
async def test_a_forbidden_program_is_forbidden_by_any_path(context: ToolContext, command: str) -> None:
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert (await judge_command(flow_with(permissions_deny=["Bash(rm)"]), yolo, command)).verdict is Verdict.DENY
