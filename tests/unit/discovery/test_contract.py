"""A custom tool follows the contract of all tools: it is declared, validated, described, asked about and executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from server.requests.wire_results import tool_to_wire
from tests.people import Person
from tests.unit.discovery.custom_tools import CustomTools, text_of
from tools.builtin.discovered_tools import DiscoveredTool
from tools.call.base_tool import BaseTool
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import AbortSignal
from tools.contract.confirmation import Answer, Decision
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.permissions.permission_policy import PermissionPolicy

pytestmark = pytest.mark.anyio

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What to echo."}, "times": {"type": "integer"}},
    "required": ["text"],
}


async def echo(tools: CustomTools) -> BaseTool[Any]:
    return await tools.tool("echo", **SCHEMA)


@pytest.mark.requirement("discovered.consent")
async def test_a_custom_tool_is_declared_like_any_other(tools: CustomTools) -> None:
    tool = await echo(tools)
    assert isinstance(tool, DiscoveredTool)
    assert (tool.name, tool.display_name) == ("echo", "echo")
    assert tool.description.startswith("A tool.")
    Draft202012Validator.check_schema(dict(tool.parameter_schema))
    assert tool.parameter_schema["properties"] == SCHEMA["properties"]
    assert tools.registry.get_tool("echo") is tool
    assert tools.registry.get_all_tools() == [tool]
    wire = tool_to_wire(tool)
    assert (wire["name"], wire["inputSchema"]) == ("echo", dict(tool.parameter_schema))


@pytest.mark.requirement("discovered.consent")
async def test_validating_describing_and_asking_run_nothing(tools: CustomTools) -> None:
    tool = await echo(tools)
    process_count = len(tools.starter.processes)
    with pytest.raises(InvalidToolParamsError, match="text"):
        tool.validate_tool_params({})
    params = tool.validate_tool_params({"text": "hello\nthere"})
    assert params == {"text": "hello\nthere"}
    description = tool.get_description(params, tools.context)
    assert "echo" in description
    assert "\n" not in description
    assert tool.get_description(params, tools.context) == description
    details = await tool.should_confirm_execute(params, tools.context)
    assert details is not None
    assert await tool.should_confirm_execute(params, tools.context) == details
    assert len(tools.starter.processes) == process_count


@pytest.mark.requirement("discovered.consent")
@pytest.mark.parametrize("decision", [Decision.ONCE, Decision.DENY])
async def test_a_call_of_a_custom_tool_is_handled_like_any_other_call(tools: CustomTools, decision: Decision) -> None:
    await echo(tools)
    process_count = len(tools.starter.processes)
    person = Person(Answer(decision))
    flow = ToolRunner(tools.registry, PermissionPolicy())
    result = await flow.run(FunctionCall("echo", {"text": "hi"}), tools.context, person)
    assert isinstance(result, ToolResult)
    assert len(person.questions) == 1
    is_allowed = decision is Decision.ONCE
    assert len(tools.starter.processes) - process_count == int(is_allowed)
    assert (result.error is None) is is_allowed
    if is_allowed:
        assert json.loads(text_of(result)) == {"text": "hi"}


@pytest.mark.requirement("discovered.consent")
async def test_a_call_that_was_cancelled_runs_nothing(tools: CustomTools) -> None:
    tool = await echo(tools)
    process_count = len(tools.starter.processes)
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        await tool.execute({"text": "hi"}, replace(tools.context, signal=signal))
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert len(tools.starter.processes) == process_count
