"""Plan mode as a client sees it: which tools are there, what is refused, and how a plan ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, MODERN, connected, write_config

pytestmark = pytest.mark.anyio

PLAN = {"plan": "1. Write a.txt."}


@pytest.mark.requirement("plan.listed")
@pytest.mark.parametrize(("transport", "mode"), [("stdio", HANDSHAKE), ("stdio", MODERN), ("http", HANDSHAKE)])
async def test_a_plan_ends_plan_mode_for_this_client(transport: str, mode: str, root: Path, tmp_path: Path) -> None:
    questions: list[str] = []
    list_change = anyio.Event()

    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        questions.append(params.message)
        decision = "always" if "1. Write a.txt." in params.message else "deny"
        return types.ElicitResult(action="accept", content={"decision": decision})

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            list_change.set()

    config = write_config(tmp_path, {"approvalMode": "plan"})
    callbacks: dict[str, Any] = {"elicitation_callback": person, "message_handler": on_message}
    async with connected(transport, mode, root, config, **callbacks) as client:
        assert "exit_plan_mode" in [tool.name for tool in (await client.list_tools()).tools]
        refusal = await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})
        assert refusal.is_error
        assert "exit_plan_mode" in str(refusal.content)
        assert not questions
        approval = await client.call_tool("exit_plan_mode", PLAN)
        assert approval.structured_content == {"approved": True, "approval_mode": "auto-edit"}
        if mode == HANDSHAKE and transport == "stdio":
            with anyio.fail_after(60):
                await list_change.wait()
        assert "exit_plan_mode" not in [tool.name for tool in (await client.list_tools()).tools]
        write_result = await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})
        assert not write_result.is_error
    assert len(questions) == 1
    assert (root / "a.txt").read_text() == "x"


@pytest.mark.requirement("plan.listed")
async def test_a_client_that_cannot_be_told_from_others_stays_in_plan_mode(root: Path, tmp_path: Path) -> None:
    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once"})

    config = write_config(tmp_path, {"approvalMode": "plan"})
    async with connected("http", MODERN, root, config, elicitation_callback=person) as client:
        assert "exit_plan_mode" not in [tool.name for tool in (await client.list_tools()).tools]
        assert (await client.call_tool("exit_plan_mode", PLAN)).is_error
        assert (await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})).is_error
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("policy.offered")
async def test_tools_that_are_switched_off_are_not_listed_and_say_why(root: Path, tmp_path: Path) -> None:
    config = write_config(
        tmp_path, {"tools": {"exclude": ["WriteFileTool"]}, "permissions": {"deny": ["glob", "Read(secret)"]}}
    )
    (root / "secret").write_text("x")
    async with connected("stdio", MODERN, root, config) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "read_file" in names
        assert not {"write_file", "glob"} & set(names)
        result = await client.call_tool("write_file", {"file_path": "a", "content": "x"})
        assert result.is_error
        assert "tools.exclude" in str(result.content)
        refusal = await client.call_tool("read_file", {"file_path": "secret"})
        assert refusal.is_error
        assert "permissions.deny rule Read(secret)" in str(refusal.content)


@pytest.mark.requirement("plan.entered")
@pytest.mark.parametrize(("transport", "mode"), [("stdio", HANDSHAKE), ("stdio", MODERN), ("http", HANDSHAKE)])
async def test_a_client_enters_plan_mode_and_a_person_ends_it(
    transport: str, mode: str, root: Path, tmp_path: Path
) -> None:
    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once"})

    config = write_config(tmp_path, {"approvalMode": "yolo"})
    async with connected(transport, mode, root, config, elicitation_callback=person) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "enter_plan_mode" in names
        assert "exit_plan_mode" not in names
        entry = await client.call_tool("enter_plan_mode", {"userRequested": True, "reason": "It is large."})
        assert entry.structured_content == {"approval_mode": "plan"}
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "enter_plan_mode" not in names
        assert "exit_plan_mode" in names
        assert (await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})).is_error
        assert not (await client.call_tool("enter_plan_mode", {})).is_error
        approval = await client.call_tool("exit_plan_mode", PLAN)
        assert approval.structured_content == {"approved": True, "approval_mode": "default"}
        assert "enter_plan_mode" in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.requirement("plan.entered")
@pytest.mark.parametrize(("transport", "mode", "has_forms"), [("http", MODERN, True), ("stdio", HANDSHAKE, False)])
async def test_plan_mode_is_not_entered_where_it_could_not_be_left(
    transport: str, mode: str, has_forms: bool, root: Path, tmp_path: Path
) -> None:
    async def person(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once"})

    callbacks: dict[str, Any] = {"elicitation_callback": person} if has_forms else {}
    config = write_config(tmp_path, {"approvalMode": "yolo"})
    async with connected(transport, mode, root, config, **callbacks) as client:
        assert "enter_plan_mode" not in [tool.name for tool in (await client.list_tools()).tools]
        refusal = await client.call_tool("EnterPlanMode", {})
        assert refusal.is_error
        assert (refusal.meta or {})["coretools-mcp/error"]["type"] == "execution_denied"
        assert not (await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})).is_error


@pytest.mark.requirement("plan.entered")
async def test_a_plan_approved_with_asking_as_usual_keeps_earlier_answers_and_says_so(
    root: Path, tmp_path: Path
) -> None:
    questions: list[types.ElicitRequestFormParams] = []

    async def person(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        questions.append(params)
        decision = "once" if PLAN["plan"] in params.message else "always"
        return types.ElicitResult(action="accept", content={"decision": decision})

    config = write_config(tmp_path, {})
    async with connected("stdio", HANDSHAKE, root, config, elicitation_callback=person) as client:
        await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})
        await client.call_tool("enter_plan_mode", {})
        approval = await client.call_tool("exit_plan_mode", PLAN)
        assert "asked before each change that no rule or earlier answer allows" in str(approval.content)
        assert not (await client.call_tool("write_file", {"file_path": "b.txt", "content": "x"})).is_error
    assert len(questions) == 2
    assert "asking as usual" in str(questions[1].requested_schema)
