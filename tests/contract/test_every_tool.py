"""What every tool owes, whoever wrote it. The registry is the list, so a new tool is covered on arrival."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from server.exposure import tool_to_wire
from server.upstreams.discovered_mcp_tool import DiscoveredMCPTool
from tools.builtins import builtin_tools
from tools.contract.base import BaseTool
from tools.contract.context import AbortSignal, ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.result import ToolResult

pytestmark = pytest.mark.anyio

Tool = BaseTool[Any]


async def upstream_answer(_name: str, _arguments: Mapping[str, Any], _context: ToolContext) -> ToolResult:
    return ToolResult(verbatim={"content": []})


UPSTREAM_TOOL = DiscoveredMCPTool("up", "up__tool", {"name": "tool"}, trusted=False, call=upstream_answer)
TOOLS: list[Tool] = [*builtin_tools(), UPSTREAM_TOOL]
BUILTIN = builtin_tools()

SAMPLES: dict[str, dict[str, Any]] = {
    "list_directory": {"path": "."},
    "read_file": {"file_path": "a.txt"},
    "write_file": {"file_path": "new/b.txt", "content": "text\n"},
    "edit": {"file_path": "a.txt", "old_string": "one", "new_string": "two"},
    "glob": {"pattern": "**/*.txt"},
    "grep_search": {"pattern": "one"},
    "read_many_files": {"paths": ["*.txt"]},
    "up__tool": {"anything": [1, 2]},
}


def named(tools: list[Tool]) -> Any:
    return pytest.mark.parametrize("tool", tools, ids=[tool.name for tool in tools])


@pytest.fixture
def tree(root: Path) -> Path:
    (root / "a.txt").write_text("one\nthree\n")
    (root / "sub").mkdir()
    (root / "sub" / "c.txt").write_text("c\n")
    return root


def state_of(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.mark.requirement("contract.declared")
@named(TOOLS)
def test_a_tool_has_a_unique_name_a_title_a_description_and_a_valid_schema(tool: Tool) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tool.name)
    assert [other.name for other in TOOLS].count(tool.name) == 1
    assert tool.display_name
    assert tool.description
    Draft202012Validator.check_schema(dict(tool.parameter_schema))
    assert tool.parameter_schema["type"] == "object"
    wire = tool_to_wire(tool)
    assert wire["name"] == tool.name
    assert wire["annotations"]["readOnlyHint"] is tool.behaviour.read_only


@pytest.mark.requirement("contract.described")
@named(BUILTIN)
def test_every_published_parameter_is_described(tool: Tool) -> None:
    for name, schema in tool.parameter_schema["properties"].items():
        assert schema.get("description"), name


@pytest.mark.requirement("contract.validated")
@named(BUILTIN)
@pytest.mark.parametrize("value", [5, True, ["x"], {"a": 1}, None, "\0", ""], ids=repr)
def test_wrong_values_are_a_typed_error_and_never_a_crash(tool: Tool, value: Any) -> None:
    required = tool.parameter_schema.get("required", [])
    arguments = dict.fromkeys(required, value)
    if isinstance(value, str):
        # A text may be a valid value of a parameter; what counts is that nothing else than a typed error comes.
        with suppress(InvalidToolParamsError):
            tool.validate_tool_params(arguments)
        return
    if isinstance(value, list) and tool.name == "read_many_files":
        return
    with pytest.raises(InvalidToolParamsError):
        tool.validate_tool_params(arguments)


@pytest.mark.requirement("contract.validated")
@named(BUILTIN)
def test_missing_parameters_are_named(tool: Tool) -> None:
    with pytest.raises(InvalidToolParamsError) as caught:
        tool.validate_tool_params({})
    assert any(f"'{name}'" in caught.value.message for name in tool.parameter_schema["required"])


@pytest.mark.requirement("contract.description")
@named(TOOLS)
async def test_the_description_of_a_call_is_one_line_and_changes_nothing(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    before = state_of(tree)
    params = tool.validate_tool_params(SAMPLES[tool.name])
    description = tool.get_description(params, context)
    assert description
    assert "\n" not in description
    assert tool.get_description(params, context) == description
    assert state_of(tree) == before


@pytest.mark.requirement("contract.confirmation")
@named(TOOLS)
async def test_a_tool_asks_exactly_where_it_may_change_something_and_asking_changes_nothing(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    before = state_of(tree)
    params = tool.validate_tool_params(SAMPLES[tool.name])
    details = await tool.should_confirm_execute(params, context)
    assert (details is None) is tool.behaviour.read_only
    assert await tool.should_confirm_execute(params, context) == details
    assert state_of(tree) == before


@pytest.mark.requirement("contract.results")
@named(BUILTIN)
async def test_a_call_gives_content_for_the_model_and_its_annotations_hold(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    before = state_of(tree)
    params = tool.validate_tool_params(SAMPLES[tool.name])
    result = await tool.execute(params, context)
    assert result.error is None
    assert result.llm_content
    assert (state_of(tree) == before) is tool.behaviour.read_only
    if tool.behaviour.idempotent:
        after = state_of(tree)
        await tool.execute(params, replace(context))
        assert state_of(tree) == after


@pytest.mark.requirement("results.schema")
@named(BUILTIN)
async def test_structured_content_is_complete_where_a_schema_is_published_and_absent_elsewhere(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    assert (tool.output_schema is None) is (tool.name in {"read_file", "grep_search", "read_many_files"})
    result = await tool.execute(tool.validate_tool_params(SAMPLES[tool.name]), context)
    assert (result.structured is None) is (tool.output_schema is None)
    if tool.output_schema is not None:
        Draft202012Validator(dict(tool.output_schema)).validate(result.structured)  # pyright: ignore[reportUnknownMemberType]
        assert set(tool.output_schema["required"]) == set(tool.output_schema["properties"])


@pytest.mark.requirement("flow.abort")
@named(BUILTIN)
async def test_work_stops_at_the_abort_signal(tool: Tool, tree: Path, context: ToolContext) -> None:
    signal = AbortSignal()
    signal.abort()
    before = state_of(tree)
    with pytest.raises(ToolError) as caught:
        await tool.execute(tool.validate_tool_params(SAMPLES[tool.name]), replace(context, signal=signal))
    assert caught.value.code is ToolErrorType.CANCELLED
    assert state_of(tree) == before
