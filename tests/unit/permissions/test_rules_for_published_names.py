"""Rules about upstream tools that are published under other names: an allow rule never covers another tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tests.people import Person
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.confirmation import Answer, Decision
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import Rules, read_rules
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio


async def succeed(_tool: object, _arguments: object, _context: ToolContext) -> ToolResult:
    return ToolResult(llm_content="done")


def tool(own_name: str, published_name: str) -> DiscoveredMCPTool:
    return DiscoveredMCPTool("hub", published_name, {"name": own_name}, trusted=False, call=succeed)


def rules_of(registry: ToolRegistry, **lists: Sequence[str]) -> tuple[Rules, list[str]]:
    settings = {key.replace("_", ".", 1): texts for key, texts in lists.items()}
    return read_rules(settings, registry.canonical, "/home/me")


def flow_with(*tools: DiscoveredMCPTool, built_in: bool = False, **lists: Sequence[str]) -> ToolRunner:
    registry = ToolRegistry()
    for built_in_tool in builtin_tools() if built_in else ():
        registry.register_tool(built_in_tool)
    registry.replace_source("hub", tools)
    return ToolRunner(registry, PermissionPolicy(rules_of(registry, **lists)[0], registry.canonical, "/home/me"))


async def verdict(
    flow: ToolRunner, context: ToolContext, name: str, arguments: Mapping[str, str] | None = None
) -> Verdict:
    return (await flow.judge(flow.registry.get_tool(name), arguments or {}, context)).permission.verdict


ELSEWHERE = [
    tool("search", "search"),
    tool("search", "hub__find"),
    tool("search", "hub__sea-g1234567"),
    tool("search", "find"),
]


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("tool", ELSEWHERE, ids=lambda tool: tool.name)
@pytest.mark.parametrize("rule", ["hub__search", "mcp__hub__search", "hub__*", "mcp__hub", "mcp_hub_search"])
async def test_rules_with_the_full_name_apply_whatever_name_a_tool_is_published_under(
    context: ToolContext, tool: DiscoveredMCPTool, rule: str
) -> None:
    for key, expected in (("allow", Verdict.ALLOW), ("deny", Verdict.DENY), ("ask", Verdict.ASK)):
        flow = flow_with(tool, built_in=False, **{f"permissions_{key}": [rule]})
        assert await verdict(flow, context, tool.name) is expected
        assert await verdict(flow, context, "hub__search") is expected


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("name", ["search", "Bash", "read_file", "git__push", "mcp__git__push", "find"])
@pytest.mark.parametrize("has_own_name", [True, False])
async def test_a_name_without_a_prefix_is_refused_by_rules_and_never_allowed(
    context: ToolContext, name: str, *, has_own_name: bool
) -> None:
    upstream_tool = tool(name if has_own_name else "x", name)
    rules = [name, name.replace("mcp__", ""), "Read", "*sea*", "Bash"]
    assert await verdict(flow_with(upstream_tool, permissions_allow=rules), context, name) is Verdict.ASK
    assert await verdict(flow_with(upstream_tool, permissions_deny=[name]), context, name) is Verdict.DENY


@pytest.mark.requirement("proxy.names.full")
async def test_a_new_name_with_the_alias_as_its_prefix_can_be_allowed(context: ToolContext) -> None:
    for rule in ("hub__find", "mcp__hub__find"):
        flow = flow_with(tool("search", "hub__find"), permissions_allow=[rule])
        assert await verdict(flow, context, "hub__find") is Verdict.ALLOW


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("upstream_tool", [*ELSEWHERE, tool("a b*", "a-b--g1234567")], ids=lambda tool: tool.name)
async def test_always_is_kept_for_the_tool_and_not_for_its_published_name(
    context: ToolContext, upstream_tool: DiscoveredMCPTool
) -> None:
    flow = flow_with(upstream_tool)
    person = Person(Answer(Decision.ALWAYS))
    for _ in range(2):
        result = await flow.run(FunctionCall(upstream_tool.name, {}), context, person)
        assert isinstance(result, ToolResult)
        assert result.llm_content == "done"
    assert len(person.questions) == 1
    other_tool = DiscoveredMCPTool("evil", upstream_tool.name, {"name": "other"}, trusted=False, call=succeed)
    flow.registry.replace_source("hub", [other_tool])
    await flow.run(FunctionCall(upstream_tool.name, {}), context, person)
    assert len(person.questions) == 2


@pytest.mark.requirement("policy.include")
@pytest.mark.parametrize(
    ("include", "tool_names"),
    [
        (["read_file", "hub__search"], {"read_file", "search"}),
        (["ReadFileTool", "search"], {"read_file", "search"}),
        (["mcp__hub"], {"search"}),
        (["hub__*", "gl*"], {"search", "glob"}),
        (["Edit"], {"edit", "write_file", "notebook_edit", "save_memory", "undo_change"}),
        (["nothing"], set[str]()),
    ],
)
async def test_only_included_tools_are_offered_whatever_their_source(
    context: ToolContext, include: list[str], tool_names: set[str]
) -> None:
    flow = flow_with(tool("search", "search"), built_in=True, tools_include=include)
    tools = flow.registry.get_all_tools()
    assert {tool.name for tool in tools if flow.policy.why_not_offered(tool.traits) is None} == tool_names
    if "search" not in tool_names:
        assert await verdict(flow, context, "search") is Verdict.DENY


@pytest.mark.requirement("policy.include")
def test_an_include_list_of_malformed_rules_includes_nothing() -> None:
    rules, warnings = rules_of(ToolRegistry(), tools_include=["a b", "Bash(git *)"])
    assert [rule.name for rule in rules.included or ()] == ["Bash"]
    assert len(warnings) == 2
    assert rules_of(ToolRegistry(), tools_include=["a b"])[0].included == ()
    assert rules_of(ToolRegistry())[0].included is None
