"""Names that custom tools cannot have, because rules about other tools would cover them."""

from __future__ import annotations

import json

import pytest

from tools.discovery.custom_tool_declarations import read_declarations


def published_names(*names: str, reserved_names: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Return the names under which tools with these declared names are published, and the warnings."""
    result = read_declarations(json.dumps([{"name": name} for name in names]).encode(), reserved_names)
    return list(result.tools), result.warnings


@pytest.mark.requirement("discovered.clash")
@pytest.mark.parametrize(
    "name", ["mcp__srv", "mcp__srv__tool", "mcp_srv_tool", "mcp_", "MCP__srv__tool", "Mcp_srv_tool"]
)
def test_a_name_that_rules_use_for_servers_is_left_out(name: str) -> None:
    names, warnings = published_names(name, "mcp-like", "plain")
    assert names == ["mcp-like", "plain"]
    assert len(warnings) == 1
    assert "does not begin with mcp_" in warnings[0]


@pytest.mark.requirement("discovered.clash")
@pytest.mark.parametrize(
    "name", ["Read", "READ", "read", "webfetch", "Web_Fetch", "shelltool", "SHELLTOOL", "run_Shell_Command"]
)
def test_a_name_that_differs_from_a_built_in_tools_name_only_in_case_is_left_out(name: str) -> None:
    reserved_names = frozenset({"Read", "WebFetch", "web_fetch", "ShellTool", "run_shell_command"})
    names, warnings = published_names(name, "readme", reserved_names=reserved_names)
    assert names == ["readme"]
    assert len(warnings) == 1
    assert f"'{name}'" in warnings[0]
    assert "built-in tools, rules or other coding agents use this name" in warnings[0]


@pytest.mark.requirement("discovered.clash")
@pytest.mark.parametrize("name", ["apply_patch", "KillBash", "killbash", "NotebookRead", "TodoRead", "local_shell"])
def test_a_name_that_other_agents_use_for_built_in_tools_is_left_out(name: str) -> None:
    names, warnings = published_names(name, "plain")
    assert names == ["plain"]
    assert "built-in tools, rules or other coding agents use this name" in warnings[0]


@pytest.mark.requirement("discovered.clash")
@pytest.mark.parametrize("name", ["github__push", "a___b", "x__"])
def test_a_name_like_that_of_an_upstream_tool_is_changed(name: str) -> None:
    names, warnings = published_names(name)
    assert len(names) == 1
    assert "__" not in names[0]
    assert names == published_names(name)[0]
    assert f"'{name}' is published as '{names[0]}'" in warnings[0]
