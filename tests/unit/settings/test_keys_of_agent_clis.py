"""Every key of Qwen Code and Gemini CLI that coretools-mcp reads, in each spelling, and the resulting setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from server.settings import Settings, load_settings
from server.settings.gemini_and_qwen_files import AGENT_CLIS, CliName
from server.settings.workspace_trust import digest, trust_file, trust_folder
from tests.settings_cases import load, write
from tests.unit.settings.agent_cli_files import CLIS, each_cli, load_cli
from tools.contract.call_options import ApprovalMode

Content = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Settings in one spelling, a function that looks up a setting, and its expected value."""

    content: Content
    value_of: Callable[[Settings], Any]
    expected: Any


def enabled_servers(settings: Settings) -> Any:
    return {name: (entry.command, entry.args) for name, entry in settings.mcp_servers.items() if entry.enabled}


def server_filters(settings: Settings) -> Any:
    return settings.mcp.allowed, settings.mcp.excluded


DISCOVERY = attrgetter("tools.discovery_command")
CALL = attrgetter("tools.call_command")
ONE: Content = {"mcpServers": {"a": {"command": "x"}}}

SHARED_KEYS: list[Case] = [
    Case({"tools": {"discoveryCommand": "x 'a b'"}}, DISCOVERY, ("x", "a b")),
    Case({"toolDiscoveryCommand": "x 'a b'"}, DISCOVERY, ("x", "a b")),
    Case({"tools": {"toolDiscoveryCommand": "x 'a b'"}}, DISCOVERY, ("x", "a b")),
    Case({"tools": {"callCommand": "x 'a b'"}}, CALL, ("x", "a b")),
    Case({"toolCallCommand": "x 'a b'"}, CALL, ("x", "a b")),
    Case({"tools": {"toolCallCommand": "x 'a b'"}}, CALL, ("x", "a b")),
    Case({"mcp": {"serverCommand": "x 'a b'"}}, enabled_servers, {"mcp": ("x", ("a b",))}),
    Case({"mcpServerCommand": "x 'a b'"}, enabled_servers, {"mcp": ("x", ("a b",))}),
    Case({"mcp": {"mcpServerCommand": "x 'a b'"}}, enabled_servers, {"mcp": ("x", ("a b",))}),
    Case({"mcpServerCommand": "$WORD ${WORD}"}, enabled_servers, {"mcp": ("value", ("value",))}),
    Case({"toolCallCommand": "$WORD/${WORD}"}, CALL, ("value/value",)),
    Case({"mcpServers": {"a": {"command": "x", "args": ["$WORD"]}}}, enabled_servers, {"a": ("x", ("value",))}),
    Case({**ONE, "mcp": {"allowed": ["a"]}}, server_filters, (("a",), ())),
    Case({**ONE, "allowMCPServers": ["a"]}, server_filters, (("a",), ())),
    Case({**ONE, "mcp": {"excluded": ["a"]}}, server_filters, (None, ("a",))),
    Case({**ONE, "excludeMCPServers": ["a"]}, server_filters, (None, ("a",))),
    Case({"tools": {"core": ["ShellTool(ls)"]}}, attrgetter("tools.core"), ("ShellTool(ls)",)),
    Case({"coreTools": ["ShellTool(ls)"]}, attrgetter("tools.core"), ("ShellTool(ls)",)),
    Case({"tools": {"exclude": ["glob"]}}, attrgetter("tools.exclude"), ("glob",)),
    Case({"excludeTools": ["glob"]}, attrgetter("tools.exclude"), ("glob",)),
    Case({"permissions": {"deny": ["Edit"]}}, attrgetter("permissions.deny"), ("Edit",)),
    Case({"tools": {"allowed": ["edit"]}}, attrgetter("tools.allowed"), ("edit",)),
    Case({"allowedTools": ["edit"]}, attrgetter("tools.allowed"), ("edit",)),
    Case({"permissions": {"allow": ["Edit"]}}, attrgetter("permissions.allow"), ("Edit",)),
    Case({"tools": {"confirmationRequired": ["edit"]}}, attrgetter("tools.confirmation_required"), ("edit",)),
    Case({"permissions": {"ask": ["Edit"]}}, attrgetter("permissions.ask"), ("Edit",)),
    Case({"tools": {"approvalMode": "plan"}}, attrgetter("approval_mode"), ApprovalMode.PLAN),
    Case({"tools": {"approvalMode": "auto-edit"}}, attrgetter("approval_mode"), ApprovalMode.AUTO_EDIT),
    Case(
        {"webSearch": {"provider": [{"type": "tavily", "apiKey": "$WORD"}], "default": "tavily"}},
        lambda settings: (settings.web.search.default, settings.web.search.tavily.api_key),
        ("tavily", "value"),
    ),
    Case({"tavilyApiKey": "${WORD}"}, attrgetter("web.search.tavily.api_key"), "value"),
    Case({"advanced": {"tavilyApiKey": "k"}}, attrgetter("web.search.tavily.api_key"), "k"),
    Case({"context": {"fileName": ["A.md", "B.md"]}}, attrgetter("memory.file_name"), ("A.md", "B.md")),
    Case({"context": {"fileName": "A.md"}}, attrgetter("memory.file_name"), ("A.md",)),
    Case({"contextFileName": "A.md"}, attrgetter("memory.file_name"), ("A.md",)),
]
"""Keys that mean the same in a file of either CLI and in a file of coretools-mcp."""

CLI_KEYS: list[Case] = [
    Case({"tools": {"approvalMode": "auto_edit"}}, attrgetter("approval_mode"), ApprovalMode.AUTO_EDIT),
    Case({"tools": {"approvalMode": "autoEdit"}}, attrgetter("approval_mode"), ApprovalMode.AUTO_EDIT),
    Case(
        {"general": {"defaultApprovalMode": "auto_edit"}},
        attrgetter("approval_mode"),
        ApprovalMode.AUTO_EDIT,
    ),
    Case({"tools": {"shell": {"inactivityTimeout": 1.5}}}, attrgetter("shell.silence_timeout"), 1_500),
    Case({"tools": {"truncateToolOutputThreshold": 9_000}}, attrgetter("limits.read_chars"), 9_000),
    Case({"tools": {"truncateToolOutputThreshold": -1}}, attrgetter("limits.read_chars"), 25_000),
    Case({"truncateToolOutputThreshold": 9_000}, attrgetter("limits.read_chars"), 9_000),
    Case({"tools": {"truncateToolOutputLines": 70}}, attrgetter("limits.read_lines"), 70),
    Case({"truncateToolOutputLines": 70}, attrgetter("limits.read_lines"), 70),
    Case(
        {"tools": {"shell": {"enableInteractiveShell": True, "pager": "cat", "showColor": True}}}, lambda _: True, True
    ),
]
"""Keys that only a file of these CLIs may have, with their units and words."""


def by_content(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[json.dumps(case.content)[:70] for case in cases])


@pytest.mark.requirement("settings.agent-cli.shapes")
@each_cli
@by_content([*SHARED_KEYS, *CLI_KEYS])
def test_a_key_in_a_file_of_either_cli_means_what_it_means_there(
    machine: dict[str, str], tmp_path: Path, cli: CliName, case: Case
) -> None:
    report = load_cli(tmp_path / "home", cli, case.content, machine)
    assert case.value_of(report.settings) == case.expected
    assert report.warnings == ()


@pytest.mark.requirement("settings.agent-cli.shapes")
@by_content(SHARED_KEYS)
def test_a_shared_key_in_an_own_file_means_the_same(machine: dict[str, str], file: Path, case: Case) -> None:
    report = load(file, case.content, machine)
    assert case.value_of(report.settings) == case.expected
    assert report.warnings == ()


DIFFERING = [
    Case({"tools": {"discoveryCommand": "nested"}, "toolDiscoveryCommand": "flat"}, DISCOVERY, ("nested",)),
    Case({"tools": {"callCommand": "nested", "toolCallCommand": "said"}}, CALL, ("nested",)),
    Case({"mcp": {"serverCommand": "nested"}, "mcpServerCommand": "flat"}, enabled_servers, {"mcp": ("nested", ())}),
    Case({"tools": {"core": ["nested"]}, "coreTools": ["flat"]}, attrgetter("tools.core"), ("nested",)),
]


@pytest.mark.requirement("settings.agent-cli.shapes")
@pytest.mark.parametrize("cli", [*CLIS, None])
@by_content(DIFFERING)
def test_the_spelling_in_a_section_wins_over_a_different_flat_one_with_a_warning(
    machine: dict[str, str], tmp_path: Path, cli: CliName | None, case: Case
) -> None:
    if cli is None:
        report = load(tmp_path / "mcp.json", case.content, machine)
    else:
        report = load_cli(tmp_path / "home", cli, case.content, machine)
    assert case.value_of(report.settings) == case.expected
    assert len(report.warnings) == 1
    assert "mean the same thing but have different values" in report.warnings[0]


@pytest.mark.requirement("settings.agent-cli.shapes")
@each_cli
@pytest.mark.parametrize("key", [("mcp", "allowed"), ("allowMCPServers",)], ids=".".join)
def test_an_empty_list_of_allowed_servers_allows_all_in_a_file_of_a_cli_and_none_in_an_own_file(
    machine: dict[str, str], tmp_path: Path, file: Path, cli: CliName, key: tuple[str, ...]
) -> None:
    content_without_servers: Any = []
    for name in reversed(key):
        content_without_servers = {name: content_without_servers}
    content = {**content_without_servers, "mcpServers": {"a": {"command": "x"}}}
    assert set(load_cli(tmp_path / "home", cli, content, machine).upstreams) == {"a"}
    assert set(load(file, content, machine).upstreams) == set()


@pytest.mark.requirement("settings.workspace.trust")
@each_cli
@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_folder_trust_settings_of_the_other_cli_do_not_make_a_workspace_trusted(
    machine: dict[str, str], tmp_path: Path, cli: CliName, is_on: bool
) -> None:
    content: Content = {"security": {"folderTrust": {"enabled": is_on}}, "folderTrust": is_on}
    folder = AGENT_CLIS[cli].folder
    write(tmp_path / "home" / folder / "settings.json", content)
    write(tmp_path / "home" / folder / "trustedFolders.json", {str(tmp_path / "project"): "TRUST_FOLDER"})
    write(tmp_path / "project" / folder / "settings.json", {**content, "mcpServers": {"evil": {"command": "evil"}}})
    report = load_settings([], {}, machine, cli=cli, folder=str(tmp_path / "project"))
    assert dict(report.upstreams) == {}
    assert len(report.warnings) == 1
    assert "coretools-mcp trust" in report.warnings[0]


@pytest.mark.requirement("settings.agent-cli.order")
@each_cli
def test_the_file_of_a_trusted_project_overrides_the_users_file_but_not_the_machines(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    project, name = tmp_path.resolve() / "project", f"{AGENT_CLIS[cli].folder}/settings.json"
    defaults, overrides = AGENT_CLIS[cli].system_files(machine)

    def memory_file_name() -> str:
        memory = load_settings([], {}, machine, cli=cli, folder=str(project)).settings.memory
        return memory.project_file_name or memory.file_name[0]

    write(Path(defaults), {"contextFileName": "DEFAULTS.md"})
    assert memory_file_name() == "DEFAULTS.md"
    write(tmp_path / "home" / name, {"context": {"fileName": "USER.md"}})
    assert memory_file_name() == "USER.md"
    write(project / name, {"contextFileName": "PROJECT.md"})
    assert memory_file_name() == "USER.md"
    store = trust_file(machine)
    assert store is not None
    trust_folder(store, str(project), {name: digest((project / name).read_bytes())})
    assert memory_file_name() == "PROJECT.md"
    write(Path(overrides), {"contextFileName": "OVERRIDES.md"})
    assert memory_file_name() == "OVERRIDES.md"
