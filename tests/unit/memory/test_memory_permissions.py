"""Permissions of memories: when a mode or a rule about paths makes a save ask, and what an answer covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.people import Person
from tools.builtin.save_memory import MemoryTool
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Answer, ConsentChannel, Decision
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.memory.memory_files import MemoryFiles
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import Rules, parse_rule
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio


class Saver:
    """Saves facts through the whole call flow, under permission rules."""

    def __init__(self, folder: Path, rules: Mapping[Verdict, Sequence[str]] | None = None) -> None:
        parsed_rules = {
            verdict: tuple(parse_rule(text, verdict, "permissions", str, "/home/none") for text in texts)
            for verdict, texts in (rules or {}).items()
        }
        policy_rules = Rules(
            deny=parsed_rules.get(Verdict.DENY, ()),
            ask=parsed_rules.get(Verdict.ASK, ()),
            allow=parsed_rules.get(Verdict.ALLOW, ()),
        )
        registry = ToolRegistry()
        registry.register_tool(MemoryTool(MemoryFiles(global_folder=str(folder))))
        self.refusal = ""  # the message for the model if the last save failed
        self._flow = ToolRunner(registry, PermissionPolicy(policy_rules))

    async def save(self, context: ToolContext, person: Person, scope: str, fact: str = "Tabs.") -> bool:
        call = FunctionCall("save_memory", {"fact": fact, "scope": scope})
        outcome = await self._flow.run(call, context, person)
        assert isinstance(outcome, ToolResult)
        self.refusal = outcome.error.message if outcome.error is not None else ""
        return outcome.error is None


@pytest.mark.requirement("memory.global_asked")
@pytest.mark.parametrize(
    ("mode", "scope", "is_asked"),
    [
        (ApprovalMode.DEFAULT, "project", True),
        (ApprovalMode.DEFAULT, "global", True),
        (ApprovalMode.AUTO_EDIT, "project", False),
        (ApprovalMode.AUTO_EDIT, "global", True),
        (ApprovalMode.YOLO, "project", False),
        (ApprovalMode.YOLO, "global", False),
    ],
)
async def test_auto_edit_covers_the_memory_of_the_project_and_not_that_of_all_projects(
    mode: ApprovalMode, scope: str, is_asked: bool, tmp_path: Path, context: ToolContext
) -> None:
    context.client.approval_mode = mode
    person = Person(Answer(Decision.DENY))
    assert await Saver(tmp_path / "home").save(context, person, scope) is not is_asked
    assert bool(person.questions) is is_asked


@pytest.mark.requirement("memory.modes")
@pytest.mark.parametrize(
    ("rule", "scopes"),
    [
        ("Edit(AGENTS.md)", {"project", "global"}),
        ("Edit(/AGENTS.md)", {"project"}),
        ("Edit(/{home}/**)", {"global"}),
        ("save_memory(/AGENTS.md)", {"project"}),
        ("Write", {"project", "global"}),
        ("Edit(src/**)", set[str]()),
    ],
)
async def test_rules_about_edits_apply_to_memories(
    rule: str, scopes: set[str], tmp_path: Path, context: ToolContext
) -> None:
    context.client.approval_mode = ApprovalMode.YOLO
    saver = Saver(tmp_path / "home", {Verdict.DENY: [rule.format(home=tmp_path / "home")]})
    refused_scopes = {
        scope for scope in ("project", "global") if not await saver.save(context, Person(Answer(Decision.DENY)), scope)
    }
    assert refused_scopes == scopes


@pytest.mark.requirement("memory.global_asked")
async def test_always_covers_this_file_of_the_global_memory_and_the_folder_of_the_project(
    tmp_path: Path, root: Path, context: ToolContext
) -> None:
    saver, person = Saver(tmp_path / "home"), Person(Answer(Decision.ALWAYS))
    for scope, place in (("global", f"of {tmp_path / 'home' / 'AGENTS.md'}"), ("project", f"in {root}")):
        person.questions.clear()
        assert await saver.save(context, person, scope)
        assert await saver.save(context, person, scope, "Another.")
        (question,) = person.questions
        titles = {choice.decision: choice.title for choice in question.choices}
        assert titles[Decision.ALWAYS] == f"Always allow edits {place} in this session"


@pytest.mark.requirement("memory.global_asked")
@pytest.mark.parametrize(("scope", "suggested_mode"), [("project", "auto-edit"), ("global", "yolo")])
async def test_a_refusal_suggests_only_the_mode_that_would_allow_the_save(
    scope: str, suggested_mode: str, tmp_path: Path, context: ToolContext
) -> None:
    saver = Saver(tmp_path / "home")
    await saver.save(context, Person(Answer(Decision.DENY, channel=ConsentChannel.DECLINED)), scope)
    assert f"or by starting the server with --approval-mode {suggested_mode}" in saver.refusal
