"""Rules and tools of other servers that are published under other names: what allows never means another tool."""

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


async def done(_tool: object, _arguments: object, _context: ToolContext) -> ToolResult:
    return ToolResult(llm_content="done")


def tool(own: str, exposed: str) -> DiscoveredMCPTool:
    return DiscoveredMCPTool("hub", exposed, {"name": own}, trusted=False, call=done)


def rules_of(registry: ToolRegistry, **lists: Sequence[str]) -> tuple[Rules, list[str]]:
    written = {key.replace("_", ".", 1): texts for key, texts in lists.items()}
    return read_rules(written, registry.canonical, "/home/me")


def flow_with(*tools: DiscoveredMCPTool, built_in: bool = False, **lists: Sequence[str]) -> ToolRunner:
    registry = ToolRegistry()
    for each in builtin_tools() if built_in else ():
        registry.register_tool(each)
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
@pytest.mark.parametrize("published", ELSEWHERE, ids=lambda each: each.name)
@pytest.mark.parametrize("rule", ["hub__search", "mcp__hub__search", "hub__*", "mcp__hub", "mcp_hub_search"])
async def test_rules_by_the_full_name_count_whatever_a_tool_is_published_as(
    context: ToolContext, published: DiscoveredMCPTool, rule: str
) -> None:
    for key, expected in (("allow", Verdict.ALLOW), ("deny", Verdict.DENY), ("ask", Verdict.ASK)):
        flow = flow_with(published, built_in=False, **{f"permissions_{key}": [rule]})
        assert await verdict(flow, context, published.name) is expected
        assert await verdict(flow, context, "hub__search") is expected


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("name", ["search", "Bash", "read_file", "git__push", "mcp__git__push", "find"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_name_without_a_prefix_is_refused_by_rules_and_never_allowed(
    context: ToolContext, name: str, *, own: bool
) -> None:
    published = tool(name if own else "x", name)
    rules = [name, name.replace("mcp__", ""), "Read", "*sea*", "Bash"]
    assert await verdict(flow_with(published, permissions_allow=rules), context, name) is Verdict.ASK
    assert await verdict(flow_with(published, permissions_deny=[name]), context, name) is Verdict.DENY


@pytest.mark.requirement("proxy.names.full")
async def test_a_new_name_behind_the_alias_can_be_allowed(context: ToolContext) -> None:
    for rule in ("hub__find", "mcp__hub__find"):
        flow = flow_with(tool("search", "hub__find"), permissions_allow=[rule])
        assert await verdict(flow, context, "hub__find") is Verdict.ALLOW


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("published", [*ELSEWHERE, tool("a b*", "a-b--g1234567")], ids=lambda each: each.name)
async def test_always_is_kept_for_the_tool_and_not_for_its_published_name(
    context: ToolContext, published: DiscoveredMCPTool
) -> None:
    flow = flow_with(published)
    person = Person(Answer(Decision.ALWAYS))
    for _ in range(2):
        result = await flow.run(FunctionCall(published.name, {}), context, person)
        assert isinstance(result, ToolResult)
        assert result.llm_content == "done"
    assert len(person.questions) == 1
    other = DiscoveredMCPTool("evil", published.name, {"name": "other"}, trusted=False, call=done)
    flow.registry.replace_source("hub", [other])
    await flow.run(FunctionCall(published.name, {}), context, person)
    assert len(person.questions) == 2


@pytest.mark.requirement("policy.include")
@pytest.mark.parametrize(
    ("include", "offered"),
    [
        (["read_file", "hub__search"], {"read_file", "search"}),
        (["ReadFileTool", "search"], {"read_file", "search"}),
        (["mcp__hub"], {"search"}),
        (["hub__*", "gl*"], {"search", "glob"}),
        (["Edit"], {"edit", "write_file", "notebook_edit", "save_memory", "undo_change"}),
        (["nothing"], set[str]()),
    ],
)
async def test_only_what_is_included_is_offered_wherever_it_comes_from(
    context: ToolContext, include: list[str], offered: set[str]
) -> None:
    flow = flow_with(tool("search", "search"), built_in=True, tools_include=include)
    tools = flow.registry.get_all_tools()
    assert {each.name for each in tools if flow.policy.why_not_offered(each.traits) is None} == offered
    if "search" not in offered:
        assert await verdict(flow, context, "search") is Verdict.DENY


@pytest.mark.requirement("policy.include")
def test_an_include_that_names_nothing_readable_includes_nothing() -> None:
    rules, warnings = rules_of(ToolRegistry(), tools_include=["a b", "Bash(git *)"])
    assert [rule.name for rule in rules.included or ()] == ["Bash"]
    assert len(warnings) == 2
    assert rules_of(ToolRegistry(), tools_include=["a b"])[0].included == ()
    assert rules_of(ToolRegistry())[0].included is None
