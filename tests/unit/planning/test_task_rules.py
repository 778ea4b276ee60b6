"""Permission rules about single agents, from the settings and from answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.agent_programs import AgentCommand
from tools.builtin.task import TaskTool
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.confirmation import Decision
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import read_rules
from tools.permissions.verdict import Verdict
from tools.shell.command_runner import ProgramRunner

pytestmark = pytest.mark.anyio


def no_runner() -> ProgramRunner:
    raise AssertionError("no program should run")


TOOL = TaskTool([AgentCommand(name=name, command="x") for name in ("Reviewer", "tester", "od*d")], no_runner, {})


async def verdict(name: str, context: ToolContext, **rules: list[str]) -> Verdict:
    registry = ToolRegistry()
    registry.register_tool(TOOL)
    texts_by_setting = {f"permissions.{key}": texts for key, texts in rules.items()}
    parsed_rules, warnings = read_rules(texts_by_setting, registry.canonical, "/home/u")
    assert warnings == []
    runner = ToolRunner(registry, PermissionPolicy(parsed_rules, registry.canonical))
    return (await runner.judge(TOOL, {"prompt": "x", "subagent_type": name}, context)).permission.verdict


@pytest.mark.requirement("task.agents")
@pytest.mark.parametrize("rule", ["Task(Reviewer)", "Agent(reviewer)", "task(REV*)", "TaskTool(Reviewer)"])
async def test_a_rule_can_be_about_one_agent(rule: str, context: ToolContext) -> None:
    assert await verdict("Reviewer", context, allow=[rule]) is Verdict.ALLOW
    assert await verdict("tester", context, allow=[rule]) is Verdict.ASK
    assert await verdict("Reviewer", context, allow=["Task"], deny=[rule]) is Verdict.DENY
    assert await verdict("tester", context, allow=["Task"], deny=[rule]) is Verdict.ALLOW
    assert await verdict("Reviewer", context, allow=["*"], ask=[rule]) is Verdict.ASK


@pytest.mark.requirement("task.agents")
async def test_always_covers_the_agent_that_was_asked_about(context: ToolContext) -> None:
    runner = ToolRunner(ToolRegistry(), PermissionPolicy())
    judgement = await runner.judge(TOOL, {"prompt": "x", "subagent_type": "tester"}, context)
    (always_choice,) = [choice for choice in judgement.choices if choice.decision is Decision.ALWAYS]
    assert always_choice.rules == ("Task(tester)",)
    context = replace(context, client=replace(context.client, grants=list(always_choice.rules)))
    assert (
        await runner.judge(TOOL, {"prompt": "y", "subagent_type": "tester"}, context)
    ).permission.verdict is Verdict.ALLOW
    assert (
        await runner.judge(TOOL, {"prompt": "y", "subagent_type": "Reviewer"}, context)
    ).permission.verdict is Verdict.ASK


@pytest.mark.requirement("task.agents")
async def test_an_agent_whose_name_would_be_a_pattern_cannot_always_be_allowed(context: ToolContext) -> None:
    judgement = await ToolRunner(ToolRegistry(), PermissionPolicy()).judge(
        TOOL, {"prompt": "x", "subagent_type": "od*d"}, context
    )
    assert [choice.decision for choice in judgement.choices] == [Decision.ONCE, Decision.DENY]
