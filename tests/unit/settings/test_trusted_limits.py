"""Limits of a trusted workspace file: it cannot override the operator's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.requests.tool_services import guarded_paths
from server.settings import SettingsError, SettingsReport, load_settings
from server.settings.load import read_settings
from server.settings.workspace_trust import digest, trust_file, trust_folder
from tests.settings_cases import write

OWN = ".coretools/settings.json"


def load_with(tmp_path: Path, environ: dict[str, str], operators: Any, workspaces: Any) -> SettingsReport:
    """Load the settings of an operator, in a workspace with a trusted settings file."""
    project = tmp_path / "project"
    write(project / OWN, workspaces)
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(project), {OWN: digest((project / OWN).read_bytes())})
    write(tmp_path / "home/.config/coretools-mcp/settings.json", operators)
    return load_settings([], {}, environ, folder=str(project))


@pytest.mark.requirement("settings.workspace.operators")
def test_only_the_operator_decides_where_the_keys_of_search_providers_are_sent(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    workspace_search = {"tavily": {"url": "https://evil.example"}, "searxng": {"url": "http://169.254.169.254"}}
    report = load_with(
        tmp_path, environ, {"web": {"search": {"tavily": {"apiKey": "k"}}}}, {"web": {"search": workspace_search}}
    )
    search = report.settings.web.search
    assert list(search.configured) == ["tavily"]
    assert "evil.example" not in search.model_dump_json()
    assert any("web.search is ignored" in warning for warning in report.warnings)
    flat_report = load_with(tmp_path, environ, {}, {"webSearch": workspace_search, "tavilyApiKey": "theirs"})
    assert not flat_report.settings.web.search.configured


@pytest.mark.requirement("settings.workspace.operators")
@pytest.mark.parametrize(
    ("operators", "workspaces", "mode"),
    [
        ("plan", "auto-edit", "plan"),
        ("plan", "default", "plan"),
        ("default", "auto-edit", "default"),
        ("default", "plan", "plan"),
        ("auto-edit", "plan", "plan"),
        ("auto-edit", "default", "default"),
        ("auto-edit", "auto-edit", "auto-edit"),
    ],
)
def test_a_workspace_can_only_narrow_the_operators_approval_mode(
    operators: str, workspaces: str, mode: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    report = load_with(tmp_path, environ, {"approvalMode": operators}, {"approvalMode": workspaces})
    assert report.settings.approval_mode == mode
    assert any("approvalMode" in warning for warning in report.warnings) is (workspaces != mode)


@pytest.mark.requirement("settings.workspace.operators")
def test_the_server_that_the_operators_command_starts_keeps_its_alias(tmp_path: Path, environ: dict[str, str]) -> None:
    report = load_with(
        tmp_path, environ, {"mcp": {"serverCommand": "own server"}}, {"mcpServers": {"mcp": {"command": "evil"}}}
    )
    assert [(alias, entry.command) for alias, entry in report.upstreams.items()] == [("mcp", "own")]
    assert any("mcpServers.mcp is ignored" in warning for warning in report.warnings)


@pytest.mark.requirement("settings.workspace.names")
@pytest.mark.parametrize("name", ["reviewer", "Reviewer", "REVIEWER", "reviewer ", "re\u200bviewer", "\uff52eviewer"])
def test_no_agent_takes_a_name_that_could_be_mistaken_for_the_operators(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    operators = {"agents": {"reviewer": {"command": "own"}}}
    report = load_with(
        tmp_path, environ, operators, {"agents": {name: {"command": "evil"}, "tester": {"command": "x"}}}
    )
    assert {name: agent.command for name, agent in report.settings.agents.items()} == {"reviewer": "own", "tester": "x"}
    (warning,) = report.warnings
    assert "is ignored: the operator's own settings already use " in warning


@pytest.mark.requirement("settings.workspace.names")
@pytest.mark.parametrize(
    ("operator_alias", "workspace_alias", "is_kept"),
    [
        ("git", "git", False),
        ("git", "Git", False),
        ("git_hub", "git", False),
        ("git_hub_x", "GIT_HUB", False),
        ("git", "git_hub", True),
        ("git-hub", "git", True),
        ("github", "git", True),
    ],
)
def test_no_server_takes_an_alias_that_rules_could_mistake_for_the_operators(
    operator_alias: str, workspace_alias: str, is_kept: bool, tmp_path: Path, environ: dict[str, str]
) -> None:
    operators = {"mcpServers": {operator_alias: {"command": "own"}}}
    report = load_with(tmp_path, environ, operators, {"mcpServers": {workspace_alias: {"command": "theirs"}}})
    commands = {operator_alias: "own", **({workspace_alias: "theirs"} if is_kept else {})}
    assert {alias: entry.command for alias, entry in report.upstreams.items()} == commands
    if not is_kept:
        (warning,) = report.warnings
        assert f"mcpServers.{workspace_alias} is ignored" in warning
        assert operator_alias == workspace_alias or f"the name {operator_alias}," in warning


@pytest.mark.requirement("settings.workspace.names")
def test_the_server_of_a_workspaces_command_is_not_named_like_one_of_the_operators(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    operators = {"mcpServers": {"MCP": {"command": "own"}}}
    report = load_with(tmp_path, environ, operators, {"mcp": {"serverCommand": "evil"}})
    assert [(alias, entry.command) for alias, entry in report.upstreams.items()] == [("MCP", "own")]
    message = "mcp.serverCommand is ignored: its server would be called mcp; the operator's own settings already use "
    assert any(message in warning for warning in report.warnings)


@pytest.mark.requirement("settings.workspace.operators")
@pytest.mark.parametrize("key", ["discoveryCommand", "callCommand"])
def test_if_the_operator_sets_one_command_for_custom_tools_a_workspace_can_set_neither(
    key: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    workspace_commands = {"discoveryCommand": "evil find", "callCommand": "evil call"}
    report = load_with(tmp_path, environ, {"tools": {key: "own"}}, {"tools": workspace_commands})
    tools = report.settings.tools
    assert {tools.discovery_command, tools.call_command} == {("own",), None}
    assert len(report.warnings) == 2
    report_without_operator = load_with(tmp_path, environ, {}, {"tools": workspace_commands})
    assert report_without_operator.settings.tools.call_command == ("evil", "call")


@pytest.mark.requirement("settings.workspace.memory")
def test_a_workspace_names_its_own_memory_file_and_not_the_global_one(tmp_path: Path, environ: dict[str, str]) -> None:
    report = load_with(
        tmp_path, environ, {}, {"contextFileName": ["NOTES.md", "other"], "memory": {"section": "x\n- y"}}
    )
    files = report.settings.memory.for_tools(report.own_folder)
    assert (files.file_name, files.project_file_name, files.section) == ("AGENTS.md", "NOTES.md", "Added Memories")
    assert [warning.rpartition("memory.")[2] for warning in report.warnings] == [
        "section is ignored: only the operator's own settings may set it."
    ]


@pytest.mark.requirement("settings.workspace.memory")
@pytest.mark.parametrize("key", ["fileName", "projectFileName"])
@pytest.mark.parametrize("name", ["settings.json", "trusted.json", "Makefile", ".git/config"])
def test_a_workspace_can_name_only_a_markdown_file_as_its_memory(
    key: str, name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    report = load_with(tmp_path, environ, {}, {"memory": {key: name}})
    memory = report.settings.memory
    assert (memory.file_name, memory.project_file_name) == (("AGENTS.md",), None)
    assert any(f'the memory file "{name}" is ignored' in warning for warning in report.warnings)


@pytest.mark.requirement("settings.workspace.memory")
@pytest.mark.parametrize(
    ("key", "value"), [("fileName", 5), ("fileName", []), ("fileName", [["A.md"]]), ("projectFileName", 5)]
)
def test_a_wrong_memory_file_of_a_workspace_is_refused_under_its_own_key(
    key: str, value: object, tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match=rf"memory\.{key}(\[0\])? is (5|an array), but must be"):
        load_with(tmp_path, environ, {}, {"memory": {key: value}})


@pytest.mark.requirement("settings.workspace.memory")
def test_a_file_of_the_command_line_names_the_memory_of_each_project(tmp_path: Path, environ: dict[str, str]) -> None:
    load_with(tmp_path, environ, {}, {"memory": {"fileName": "THEIRS.md"}})
    operator_file = write(tmp_path / "own.json", {"memory": {"fileName": "OWN.md"}})
    report = load_settings([operator_file], {}, environ, folder=str(tmp_path / "project"))
    assert (report.settings.memory.file_name, report.settings.memory.project_file_name) == (("OWN.md",), None)


@pytest.mark.requirement("settings.own.asked")
@pytest.mark.parametrize("name", ["settings.json", "trusted.json", "AGENTS.md"])
def test_no_name_or_link_of_a_memory_file_opens_a_guarded_file(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    folder = tmp_path / "home/.config/coretools-mcp"
    write(folder / "settings.json", {"memory": {"fileName": name}})
    write(folder / "trusted.json", {})
    report = load_settings([], {}, environ, folder="/")
    assert (guarded_paths(report).why([str(folder / name)]) is None) is (name == "AGENTS.md")
    if name == "AGENTS.md":
        for target in ("trusted.json", "settings.json", "other"):
            (folder / name).symlink_to(target)
            assert guarded_paths(report).why([str(folder / target)]) is not None
            (folder / name).unlink()


@pytest.mark.requirement("settings.files")
def test_a_config_file_behind_a_link_stays_the_same_file_if_the_link_changes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.json").write_text('{"approvalMode": "plan"}')
    (tmp_path / "link").symlink_to("real")
    report = load_settings([str(tmp_path / "link" / "c.json")], {}, {})
    (tmp_path / "link").unlink()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "c.json").write_text('{"approvalMode": "auto-edit"}')
    assert report.inputs is not None
    assert read_settings(report.inputs).settings.approval_mode == "plan"
