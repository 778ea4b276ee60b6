"""What the answer "always" covers for an upstream tool: this tool or this server, whatever their names are."""

from __future__ import annotations

import pytest

from tools.call.base_tool import ClientState
from tools.call.consent import choices_for
from tools.contract.confirmation import Decision, McpConfirmation
from tools.permissions.permission_rules import SESSION, parse_rule
from tools.permissions.tool_names import names_of_server, names_of_upstream_tool, rule_for
from tools.permissions.verdict import Grant, Permission, Verdict


def tools_covered_by(rule: str) -> set[tuple[str, str]]:
    """Return the servers and tools that an allow rule covers."""
    parsed_rule = parse_rule(rule, Verdict.ALLOW, SESSION, str, "/home/none")
    tools = [(server, tool) for server in ("git", "mcp", "mcp_git") for tool in ("git", "t", "git__t")]
    return {
        (server, tool)
        for server, tool in tools
        if parsed_rule.names((f"{server}__{tool}", *names_of_upstream_tool(server, tool), *names_of_server(server)))
    }


@pytest.mark.requirement("rules.one-server")
@pytest.mark.parametrize("server", ["git", "mcp", "mcp_git"])
def test_always_covers_the_tool_or_the_server_that_was_asked_about(server: str) -> None:
    assert tools_covered_by(rule_for(f"{server}__t")) == {(server, "t")}
    permission = Permission(Verdict.ASK, "", (Grant(rule_for(f"{server}__t"), ""),))
    details = McpConfirmation(title="", server_name=server, tool_name="t", arguments={})
    choices = choices_for(details, permission, ClientState("a", grants=[]), saves=True)
    rules = {choice.decision: choice.rules for choice in choices}
    assert tools_covered_by(rules[Decision.ALWAYS_SERVER][0]) == {(server, tool) for tool in ("git", "t", "git__t")}
