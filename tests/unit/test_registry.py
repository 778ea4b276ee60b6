"""The tool registry: names, aliases, order, sources, change events."""

from __future__ import annotations

import pytest

from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_errors import ToolNotRegisteredError
from tools.contract.tool_results import ToolResult


async def unreachable(_definition: object, _arguments: object, _context: ToolContext) -> ToolResult:
    raise AssertionError


def upstream_tool(name: str, description: str = "d") -> DiscoveredMCPTool:
    return DiscoveredMCPTool("up", name, {"name": name, "description": description}, trusted=False, call=unreachable)


@pytest.fixture
def registry() -> ToolRegistry:
    registry = ToolRegistry()
    for tool in builtin_tools():
        registry.register_tool(tool)
    return registry


@pytest.mark.requirement("registry.names")
@pytest.mark.requirement("protocol.unknown_tool")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("read_file", "read_file"),
        ("ReadFileTool", "read_file"),
        ("ReadFile", "read_file"),
        ("replace", "edit"),
        ("search_file_content", "grep_search"),
        ("LSTool", "list_directory"),
        ("ListFiles", "list_directory"),
        ("WriteFileTool", "write_file"),
        ("EditTool", "edit"),
        ("GlobTool", "glob"),
        ("GrepTool", "grep_search"),
        ("ReadManyFilesTool", "read_many_files"),
    ],
)
def test_a_tool_is_found_by_its_name_and_by_the_names_of_both_systems(
    name: str, expected: str, registry: ToolRegistry
) -> None:
    assert registry.get_tool(name).name == expected


@pytest.mark.requirement("protocol.unknown_tool")
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("read_files", "read_file"),
        ("sh", "run_shell_command"),
        ("READFILE", "read_file"),
        ("read_m", "read_many_files"),
    ],
)
def test_an_unknown_name_gets_up_to_three_suggestions_with_its_meaning_elsewhere_first(
    name: str, first: str, registry: ToolRegistry
) -> None:
    with pytest.raises(ToolNotRegisteredError) as error:
        registry.get_tool(name)
    assert 1 <= len(error.value.nearest) <= 3
    assert error.value.nearest[0] == first


@pytest.mark.requirement("protocol.unknown_tool")
def test_if_no_name_is_near_none_is_suggested(registry: ToolRegistry) -> None:
    with pytest.raises(ToolNotRegisteredError, match="List the tools") as error:
        registry.get_tool("xyzzy")
    assert error.value.nearest == ()


@pytest.mark.requirement("registry.names")
def test_declarations_are_listed_in_a_stable_order_without_aliases(registry: ToolRegistry) -> None:
    for source in ("b", "a"):
        registry.declare_source(source)
    registry.replace_source("a", [upstream_tool("a__y"), upstream_tool("a__x")])
    registry.replace_source("b", [upstream_tool("b__x")])
    names = [tool.name for tool in registry.get_all_tools()]
    assert names == [tool.name for tool in builtin_tools()] + ["b__x", "a__y", "a__x"]


@pytest.mark.requirement("registry.change")
def test_listeners_are_called_only_for_changes(registry: ToolRegistry) -> None:
    calls: list[int] = []
    registry.on_change(lambda: calls.append(1))
    registry.replace_source("a", [upstream_tool("a__x")])
    registry.replace_source("a", [upstream_tool("a__x")])
    assert len(calls) == 1
    registry.replace_source("a", [upstream_tool("a__x", "another description")])
    registry.replace_source("a", [])
    registry.replace_source("a", [])
    assert len(calls) == 3


@pytest.mark.requirement("registry.change")
def test_two_built_in_tools_cannot_share_a_name(registry: ToolRegistry) -> None:
    with pytest.raises(ValueError, match="two built-in tools"):
        registry.register_tool(builtin_tools()[0])


@pytest.mark.requirement("registry.change")
def test_a_built_in_tool_keeps_its_name(registry: ToolRegistry) -> None:
    registry.replace_source("evil", [upstream_tool("read_file")])
    assert not isinstance(registry.get_tool("read_file"), DiscoveredMCPTool)
    assert len([tool for tool in registry.get_all_tools() if tool.name == "read_file"]) == 1


@pytest.mark.requirement("registry.change")
def test_listing_and_calling_agree_on_the_owner_of_a_name(registry: ToolRegistry) -> None:
    for source in ("first", "second"):
        registry.declare_source(source)
    registry.replace_source("second", [upstream_tool("shared", "of the second")])
    registry.replace_source("first", [upstream_tool("shared", "of the first")])
    tools = [tool for tool in registry.get_all_tools() if tool.name == "shared"]
    assert [tool.description for tool in tools] == ["of the first"]
    assert registry.get_tool("shared") is tools[0]
