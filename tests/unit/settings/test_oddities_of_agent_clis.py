"""Unusual values in files of Qwen Code and Gemini CLI: one of them never makes the rest of the file unusable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.settings.gemini_and_qwen_files import CliName
from tests.settings_cases import load, write
from tests.unit.settings.agent_cli_files import each_cli, load_cli
from tools.contract.call_options import ApprovalMode

Content = dict[str, Any]

ODD_SERVERS: list[tuple[Any, str]] = [
    ({"type": "sdk", "name": "a"}, "type is"),
    ({"type": "websocket", "url": "ws://localhost"}, "type is"),
    ({"tcp": "localhost:1"}, "has no command, no url and no httpUrl"),
    ({"type": "http"}, 'has the type "http" but no url'),
    ({"type": "stdio"}, "command is missing or empty"),
    ({"command": " "}, "command is missing or empty"),
    ({"command": "a", "timeout": 30.5}, "timeout is 30.5"),
    ({"command": "a", "env": {"A": 1}}, "env.A is a number"),
    ({}, "has no command, no url and no httpUrl"),
    ("a", "is a string, but must be an object"),
]


@each_cli
@pytest.mark.parametrize(("entry", "reason"), ODD_SERVERS, ids=[str(entry) for entry, _ in ODD_SERVERS])
@pytest.mark.requirement("settings.agent-cli.served")
def test_an_unusable_server_is_left_out_and_the_others_stay(
    machine: dict[str, str], tmp_path: Path, cli: CliName, entry: Any, reason: str
) -> None:
    content = {"mcpServers": {"odd": entry, "good": {"command": "x"}}, "permissions": {"deny": ["Edit"]}}
    report = load_cli(tmp_path / "home", cli, content, machine)
    assert set(report.upstreams) == {"good"}
    assert report.settings.permissions.deny == ("Edit",)
    assert reason in report.warnings[-1]
    assert report.warnings[-1].endswith("The server odd is not used.")


@each_cli
@pytest.mark.requirement("settings.transport")
def test_an_unusable_server_does_not_uncover_one_of_the_same_name_in_an_earlier_file(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    home = tmp_path / "home"
    write(home / ".config/coretools-mcp/settings.json", {"mcpServers": {"a": {"command": "x"}}})
    report = load_cli(home, cli, {"mcpServers": {"a": {"type": "sdk", "excludeTools": ["b"]}}}, machine)
    assert report.upstreams == {}


@each_cli
@pytest.mark.requirement("login.settings")
def test_the_login_of_a_server_is_read_in_every_file(
    machine: dict[str, str], tmp_path: Path, file: Path, cli: CliName
) -> None:
    login = {"enabled": True, "clientId": "$WORD", "clientSecret": "$${WORD}", "scopes": "read write"}
    content = {"mcpServers": {"a": {"httpUrl": "https://example.org/mcp", "oauth": login}}}
    environ = {**machine, "WORD": "app"}
    for report in (load_cli(tmp_path / "home", cli, content, environ), load(file, content, environ)):
        oauth = report.upstreams["a"].oauth
        assert oauth is not None
        assert (oauth.client_id, oauth.client_secret, oauth.scopes) == ("app", "${WORD}", ("read", "write"))
        assert report.warnings == ()


@each_cli
@pytest.mark.parametrize("transport", ["streamable-http", "streamableHttp", "streamable_http"])
@pytest.mark.requirement("settings.key-aliases")
def test_every_spelling_of_streamable_http_is_read_in_every_file(
    machine: dict[str, str], tmp_path: Path, file: Path, cli: CliName, transport: str
) -> None:
    content = {"mcpServers": {"a": {"type": transport, "url": "https://example.org/mcp"}}}
    for report in (load_cli(tmp_path / "home", cli, content, machine), load(file, content, machine)):
        assert report.upstreams["a"].transport == "http"
        assert report.warnings == ()


MODE_KEYS = [("general", "defaultApprovalMode"), ("tools", "approvalMode"), ("approvalMode",)]


def nested_content(path: tuple[str, ...], value: Any) -> Content:
    for name in reversed(path):
        value = {name: value}
    return value


@each_cli
@pytest.mark.parametrize("path", MODE_KEYS, ids=".".join)
@pytest.mark.parametrize("mode", ["smart", 1, ["plan"], {}], ids=str)
@pytest.mark.requirement("settings.agent-cli.served")
def test_a_mode_that_is_not_known_is_ignored_with_a_warning(
    machine: dict[str, str], tmp_path: Path, cli: CliName, path: tuple[str, ...], mode: Any
) -> None:
    report = load_cli(tmp_path / "home", cli, nested_content(path, mode), machine)
    assert report.settings.approval_mode is ApprovalMode.DEFAULT
    assert [warning.partition(": ")[2] for warning in report.warnings] == [
        f"{'.'.join(path)} is ignored: coretools-mcp has no such mode."
    ]


DIFFERING: list[tuple[Content, str]] = [
    ({"tools": {"approvalMode": "plan"}, "approvalMode": "auto_edit"}, "approvalMode and tools.approvalMode"),
    (
        {"tools": {"truncateToolOutputLines": 7}, "truncateToolOutputLines": 8},
        "truncateToolOutputLines and tools.truncateToolOutputLines",
    ),
    (
        {
            "context": {"fileFiltering": {"respectGitIgnore": False}},
            "fileFiltering": {"respectGitIgnore": True},
        },
        "fileFiltering.respectGitIgnore and context.fileFiltering.respectGitIgnore",
    ),
]


@each_cli
@pytest.mark.parametrize(("content", "pair"), DIFFERING, ids=[pair for _, pair in DIFFERING])
@pytest.mark.requirement("settings.agent-cli.shapes")
def test_the_translated_key_in_a_section_wins_over_a_different_flat_one_with_a_warning(
    machine: dict[str, str], tmp_path: Path, cli: CliName, content: Content, pair: str
) -> None:
    report = load_cli(tmp_path / "home", cli, content, machine)
    settings = report.settings
    assert (settings.approval_mode, settings.limits.read_lines, settings.workspace.respect_git_ignore) in [
        (ApprovalMode.PLAN, 2_000, True),
        (ApprovalMode.DEFAULT, 7, True),
        (ApprovalMode.DEFAULT, 2_000, False),
    ]
    winner = pair.partition(" and ")[2]
    assert [warning.partition(": ")[2] for warning in report.warnings] == [
        f"{pair} mean the same thing but have different values; {winner} is used."
    ]


@each_cli
@pytest.mark.requirement("settings.agent-cli.shapes")
def test_translated_keys_that_agree_need_no_warning(machine: dict[str, str], tmp_path: Path, cli: CliName) -> None:
    content: Content = {
        "tools": {"approvalMode": "auto_edit", "truncateToolOutputLines": 7},
        "approvalMode": "autoEdit",
        "truncateToolOutputLines": 7,
    }
    assert load_cli(tmp_path / "home", cli, content, machine).warnings == ()


CLI_CONTENTS: list[tuple[Content, Any]] = [
    ({"approvalMode": "auto_edit"}, ApprovalMode.AUTO_EDIT),
    ({"tools": {"approvalMode": "autoEdit"}}, ApprovalMode.AUTO_EDIT),
    ({"$version": 2, "$schema": "https://example.org/schema.json"}, None),
    ({"tools": {"shell": {"enableInteractiveShell": True, "pager": "cat", "showColor": True}}}, None),
    ({"tools": {"shell": {"inactivityTimeout": 1.5, "pager": "cat"}}}, 1_500),
    ({"tools": {"truncateToolOutputThreshold": 9_000}}, 9_000),
    ({"truncateToolOutputThreshold": 9_000}, 9_000),
    ({"tools": {"truncateToolOutputLines": 70}}, 70),
    ({"truncateToolOutputLines": -1}, None),
]


@pytest.mark.parametrize(("content", "expected"), CLI_CONTENTS, ids=[str(content) for content, _ in CLI_CONTENTS])
@pytest.mark.requirement("settings.agent-cli.shapes")
def test_a_cli_file_that_is_named_on_the_command_line_is_read_like_a_cli_file(
    environ: dict[str, str], file: Path, content: Content, expected: Any
) -> None:
    report = load(file, content, environ)
    settings = report.settings
    values = (
        settings.approval_mode,
        settings.shell.silence_timeout,
        settings.limits.read_chars,
        settings.limits.read_lines,
    )
    defaults = (ApprovalMode.DEFAULT, 0, 25_000, 2_000)
    changed_values = [value for value, default in zip(values, defaults, strict=True) if value != default]
    assert changed_values == ([] if expected is None else [expected])
    assert report.warnings == ()


@pytest.mark.parametrize("key", ["truncateToolOutputLines", "truncateToolOutputThreshold"])
@pytest.mark.requirement("settings.agent-cli.served")
def test_a_cli_limit_that_is_not_a_number_is_ignored_with_a_warning(
    environ: dict[str, str], file: Path, key: str
) -> None:
    report = load(file, {"tools": {key: "many"}}, environ)
    assert [warning.partition(": ")[2] for warning in report.warnings] == [
        f"tools.{key} is ignored: it is not a number."
    ]


@each_cli
@pytest.mark.requirement("settings.agent-cli.variables")
def test_variables_are_expanded_once_in_every_text_of_a_cli_file(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    content: Content = {
        "contextFileName": "$X.md",
        "general": {"defaultApprovalMode": "plan"},
        "mcp": {"excluded": ["$X"]},
        "mcpServers": {
            "a": {"command": "$TWICE", "description": "${X} server", "includeTools": ["$X"], "env": {"B": "$TWICE"}},
        },
        "tools": {"discoveryCommand": "$TWICE"},
        "webSearch": {"provider": [{"type": "tavily", "apiKey": "$TWICE"}]},
    }
    environ = {**machine, "X": "value", "TWICE": "$X"}
    settings = load_cli(tmp_path / "home", cli, content, environ).settings
    assert settings.memory.file_name == ("value.md",)
    assert settings.mcp.excluded == ("value", "$X")
    server = settings.mcp_servers["a"]
    assert (server.command, server.description, server.include_tools) == ("$X", "value server", ("value",))
    assert dict(server.env) == {"B": "$X"}
    assert settings.tools.discovery_command == ("$X",)
    assert settings.web.search.tavily.api_key == "$X"


@each_cli
@pytest.mark.requirement("settings.agent-cli.variables")
def test_a_variable_that_is_not_set_stays_as_it_is_written_with_a_warning(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    report = load_cli(tmp_path / "home", cli, {"context": {"fileName": ["${NO}.md"]}}, machine)
    assert report.settings.memory.file_name == ("${NO}.md",)
    assert len(report.warnings) == 1
    assert "memory.fileName[0] refers to the environment variable NO, which is not set" in report.warnings[0]


@each_cli
@pytest.mark.requirement("settings.agent-cli.variables")
def test_variables_are_not_expanded_in_allow_rules_and_ask_and_deny_rules_apply_in_both_forms(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    content: Content = {
        "permissions": {"allow": ["Bash($X)"], "ask": ["Read($X)"], "deny": ["Bash(rm $X)", "Edit"]},
        "tools": {"allowed": ["$X"], "exclude": ["$X"], "core": ["$X"]},
    }
    settings = load_cli(tmp_path / "home", cli, content, {**machine, "X": ""}).settings
    assert settings.permissions.allow == ("Bash($X)",)
    assert settings.permissions.ask == ("Read()", "Read($X)")
    assert settings.permissions.deny == ("Bash(rm )", "Edit", "Bash(rm $X)")
    assert (settings.tools.allowed, settings.tools.core) == (("$X",), ("$X",))
    assert settings.tools.exclude == ("$X",)


@pytest.mark.requirement("settings.agent-cli.variables")
def test_a_text_of_an_own_file_that_is_not_expanded_stays_as_it_is(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"memory": {"fileName": "$X.md"}}, {**environ, "X": "value"})
    assert report.settings.memory.file_name == ("$X.md",)
    assert report.warnings == ()
