"""`--settings qwen|gemini`: the files of these CLIs, their order, their two formats, and which keys take effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.settings import SettingsError, load_settings
from server.settings.gemini_and_qwen_files import AGENT_CLIS, CliName
from tests.settings_cases import sources, write
from tests.unit.settings.agent_cli_files import FLAT, SECTIONS, each_cli, load_cli
from tools.contract.call_options import ApprovalMode


def user_path(tmp_path: Path, cli: CliName) -> Path:
    return tmp_path / "home" / AGENT_CLIS[cli].folder / "settings.json"


@pytest.mark.requirement("settings.agent-cli.shapes")
@each_cli
def test_the_flat_format_of_older_versions_keeps_its_meaning(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    report = load_cli(tmp_path / "home", cli, FLAT, {**machine, "MY_TAVILY_KEY": "tavily", "MODE": "fast"})
    settings = report.settings
    assert settings.tools.discovery_command == ("bin/get_tools", "--all", "with blanks")
    assert settings.tools.call_command == ("bin/call_tool",)
    assert settings.tools.core == ("ReadFileTool", "GlobTool", "ShellTool(ls)")
    assert settings.tools.allowed == ("run_shell_command(git status)",)
    assert settings.tools.exclude == ("run_shell_command(rm -rf)",)
    assert settings.memory.file_name == ("AGENTS.md",)
    assert settings.approval_mode is ApprovalMode.AUTO_EDIT
    assert not settings.workspace.respect_git_ignore
    assert settings.web.search.tavily.api_key == "tavily"
    assert {entry.alias: entry.left_out for entry in report.entries} == {
        "myPythonServer": None,
        "myNodeServer": "It is in mcp.excluded.",
        "mcp": "It is not in mcp.allowed.",
    }
    assert report.upstreams["myPythonServer"].include_tools == ("safe_tool", "file_reader")


@pytest.mark.requirement("settings.agent-cli.shapes")
@each_cli
def test_the_format_in_sections_means_the_same_as_in_the_cli(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    report = load_cli(tmp_path / "home", cli, SECTIONS, {**machine, "MY_TAVILY_KEY": "tavily", "TOKEN": "t"})
    settings = report.settings
    assert settings.approval_mode is ApprovalMode.PLAN
    assert settings.shell.silence_timeout == 30_000
    assert (settings.limits.read_chars, settings.limits.read_lines) == (16_000, 2_000)
    rules = settings.permissions
    assert (rules.allow, rules.ask, rules.deny) == (("Bash(git *)",), ("Edit",), ("Read(.env)",))
    assert settings.memory.file_name == ("CONTEXT.md", "QWEN.md")
    assert (settings.workspace.respect_git_ignore, settings.workspace.respect_agent_ignore) == (True, False)
    assert settings.web.search.default == "google"
    assert settings.web.search.configured == ("tavily", "google")
    assert report.upstreams["mcp"].command == "./start-server"
    assert report.upstreams["mcp"].args == ("--verbose",)
    assert report.upstreams["mainServer"].trust
    assert set(report.upstreams) == {"mcp", "mainServer"}


@pytest.mark.requirement("settings.agent-cli.served")
def test_keys_that_only_concern_the_other_cli_are_ignored_without_a_warning(
    machine: dict[str, str], tmp_path: Path
) -> None:
    report = load_cli(tmp_path / "home", "qwen", SECTIONS, {**machine, "MY_TAVILY_KEY": "tavily", "TOKEN": "t"})
    prefix = f"{user_path(tmp_path, 'qwen')}: webSearch.provider "
    assert [warning.removeprefix(prefix) for warning in report.warnings] == [
        '"dashscope" is not known and is ignored; the known ones are tavily, brave, google, searxng.'
    ]


@pytest.mark.requirement("settings.agent-cli.served")
@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"sandbox": "docker"}, "sandbox"),
        ({"tools": {"sandbox": True}}, "tools.sandbox"),
        ({"security": {"disableYoloMode": True}}, "security.disableYoloMode"),
        ({"hooks": {"BeforeTool": [{"command": "check"}]}}, "hooks"),
        ({"admin": {"mcp": {"enabled": False}}}, "admin"),
        ({"policyPaths": ["p.toml"]}, "policyPaths"),
    ],
    ids=["sandbox", "tools.sandbox", "yolo", "hooks", "admin", "policies"],
)
def test_a_restriction_that_has_no_counterpart_gets_a_warning(
    machine: dict[str, str], tmp_path: Path, content: dict[str, Any], key: str
) -> None:
    warnings = load_cli(tmp_path / "home", "gemini", content, machine).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{user_path(tmp_path, 'gemini')}: {key} is a restriction that has no effect here: ")


@pytest.mark.requirement("settings.merge")
@pytest.mark.parametrize(
    "content",
    [{"yolo": True}, {"approvalMode": "yolo"}, {"general": {"defaultApprovalMode": "yolo"}}],
    ids=json.dumps,
)
def test_yolo_in_another_clis_file_is_ignored_with_a_warning(
    machine: dict[str, str], tmp_path: Path, content: dict[str, Any]
) -> None:
    report = load_cli(tmp_path / "home", "gemini", content, machine)
    assert report.settings.approval_mode is ApprovalMode.DEFAULT
    assert len(report.warnings) == 1
    assert "yolo" in report.warnings[0]


@pytest.mark.requirement("settings.agent-cli.order")
def test_a_later_file_of_the_documented_order_wins(machine: dict[str, str], tmp_path: Path) -> None:
    def servers_with(name: str, count: int) -> dict[str, Any]:
        return {"mcpServers": {key: {"command": name} for key in "abcdef"[:count]}}

    defaults = write(tmp_path / "qwen/system-defaults.json", servers_with("defaults", 6))
    own_file = write(tmp_path / "home/.config/coretools-mcp/settings.json", servers_with("own", 5))
    user = write(user_path(tmp_path, "qwen"), servers_with("user", 4))
    overrides = write(tmp_path / "qwen/settings.json", servers_with("overrides", 3))
    config = write(tmp_path / "mcp.json", servers_with("config", 2))
    report = load_settings([config], {"mcpServers": {"a": {"command": "line"}}}, machine, cli="qwen")
    assert {alias: entry.command for alias, entry in sorted(report.upstreams.items())} == {
        "a": "line",
        "b": "config",
        "c": "overrides",
        "d": "user",
        "e": "own",
        "f": "defaults",
    }
    assert report.files == (defaults, own_file, user, overrides, config)
    assert report.user_file == own_file


@pytest.mark.requirement("settings.agent-cli.order")
def test_lists_of_rules_of_these_files_are_combined_and_none_removes_a_rule(
    machine: dict[str, str], tmp_path: Path
) -> None:
    own_file = write(tmp_path / "home/.config/coretools-mcp/settings.json", {"permissions": {"deny": ["A", "B"]}})
    user = write(user_path(tmp_path, "qwen"), {"permissions": {"deny": ["B", "C"]}})
    report = load_settings([], {}, machine, cli="qwen", folder="/")
    assert report.settings.permissions.deny == ("A", "B", "C")
    assert sources(report)["permissions.deny"] == f"{own_file} and {user}"


@pytest.mark.requirement("settings.agent-cli.files")
def test_without_the_option_these_files_have_no_effect(machine: dict[str, str], tmp_path: Path) -> None:
    write(user_path(tmp_path, "qwen"), "no settings at all")
    assert load_settings([], {}, machine).files == ()


@pytest.mark.requirement("settings.agent-cli.files")
def test_a_broken_file_of_the_other_cli_is_an_error_that_names_it(machine: dict[str, str], tmp_path: Path) -> None:
    write(user_path(tmp_path, "gemini"), "{")
    with pytest.raises(SettingsError, match="not valid JSON") as error_info:
        load_settings([], {}, machine, cli="gemini")
    assert str(error_info.value).startswith(str(user_path(tmp_path, "gemini")))


@pytest.mark.requirement("settings.agent-cli.files")
@pytest.mark.parametrize(
    ("cli", "platform", "expected"),
    [
        ("qwen", "linux", "/etc/qwen-code/settings.json"),
        ("gemini", "linux", "/etc/gemini-cli/settings.json"),
        ("qwen", "darwin", "/Library/Application Support/QwenCode/settings.json"),
        ("gemini", "darwin", "/Library/Application Support/GeminiCli/settings.json"),
    ],
)
def test_the_machine_wide_files_are_where_these_clis_look(cli: CliName, platform: str, expected: str) -> None:
    defaults, overrides = AGENT_CLIS[cli].system_files({}, platform)
    assert overrides == expected
    assert defaults == expected.replace("settings.json", "system-defaults.json")


@pytest.mark.requirement("settings.agent-cli.files")
def test_environment_variables_name_other_locations_as_for_these_clis(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/me",
        "QWEN_HOME": "/q",
        "GEMINI_CLI_HOME": "/g",
        "QWEN_CODE_SYSTEM_DEFAULTS_PATH": "/d.json",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": "/s.json",
    }
    assert AGENT_CLIS["qwen"].user_folder(environ) == "/q"
    assert AGENT_CLIS["gemini"].user_folder(environ) == "/g/.gemini"
    assert AGENT_CLIS["qwen"].system_files(environ, "linux") == ("/d.json", "/s.json")


@pytest.mark.requirement("settings.agent-cli.files")
@pytest.mark.parametrize(("cli", "title"), [("qwen", "Qwen"), ("gemini", "Gemini")])
def test_memories_are_kept_where_that_cli_keeps_them(
    machine: dict[str, str], tmp_path: Path, cli: CliName, title: str
) -> None:
    memory = load_cli(tmp_path / "home", cli, {}, machine).settings.memory
    assert memory.file_name == (f"{title.upper()}.md",)
    assert memory.global_folder == str(user_path(tmp_path, cli).parent)
    assert memory.section == f"{title} Added Memories"
