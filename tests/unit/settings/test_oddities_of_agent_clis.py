"""Files of Qwen Code and Gemini CLI that hold what only they know: one odd thing never takes the rest with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.settings.agent_cli import CliName
from tests.settings_cases import load, refusal
from tests.unit.settings.agent_cli_files import each_cli, load_cli
from tools.contract.limits import ApprovalMode

Content = dict[str, Any]

ODD_SERVERS: list[tuple[Any, str]] = [
    ({"type": "sdk", "name": "a"}, "cannot read its type"),
    ({"type": "websocket", "url": "ws://localhost"}, "cannot read its type"),
    ({"tcp": "localhost:1"}, "it has no command, and no address under a key that coretools-mcp knows"),
    ({"type": "http"}, "it has no command, and no address under a key that coretools-mcp knows"),
    ({"type": "stdio"}, "it has no command"),
    ({"command": " "}, "it has no command"),
    ({"command": "a", "timeout": 30.5}, "cannot read its timeout"),
    ({"command": "a", "env": {"A": 1}}, "cannot read its env.A"),
    ({}, "it has no command, and no address"),
    ("a", "it is not an object"),
]


@each_cli
@pytest.mark.parametrize(("entry", "why"), ODD_SERVERS, ids=[str(entry) for entry, _ in ODD_SERVERS])
@pytest.mark.requirement("settings.agent-cli.served")
def test_a_server_of_which_nothing_can_be_made_is_left_out_and_the_others_stay(
    machine: dict[str, str], tmp_path: Path, cli: CliName, entry: Any, why: str
) -> None:
    content = {"mcpServers": {"odd": entry, "good": {"command": "x"}}, "permissions": {"deny": ["Edit"]}}
    report = load_cli(tmp_path / "home", cli, content, machine)
    assert set(report.upstreams) == {"good"}
    assert report.settings.permissions.deny == ("Edit",)
    assert len(report.warnings) == 1
    assert "mcpServers.odd is not used: " in report.warnings[0]
    assert why in report.warnings[0]


@pytest.mark.requirement("settings.agent-cli.served")
def test_such_a_server_in_a_file_of_ours_is_an_error(environ: dict[str, str], file: Path) -> None:
    assert "mcpServers.odd.type" in refusal(file, {"mcpServers": {"odd": {"type": "sdk"}}}, environ)


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
@pytest.mark.parametrize("written", ["streamable-http", "streamableHttp", "streamable_http"])
@pytest.mark.requirement("settings.key-aliases")
def test_every_spelling_of_streamable_http_is_read_in_every_file(
    machine: dict[str, str], tmp_path: Path, file: Path, cli: CliName, written: str
) -> None:
    content = {"mcpServers": {"a": {"type": written, "url": "https://example.org/mcp"}}}
    for report in (load_cli(tmp_path / "home", cli, content, machine), load(file, content, machine)):
        assert report.upstreams["a"].transport == "http"
        assert report.warnings == ()


MODE_KEYS = [("general", "defaultApprovalMode"), ("tools", "approvalMode"), ("approvalMode",)]


def nested(path: tuple[str, ...], value: Any) -> Content:
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
    report = load_cli(tmp_path / "home", cli, nested(path, mode), machine)
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
def test_of_two_translated_keys_that_differ_the_one_in_a_section_counts_with_a_warning(
    machine: dict[str, str], tmp_path: Path, cli: CliName, content: Content, pair: str
) -> None:
    report = load_cli(tmp_path / "home", cli, content, machine)
    found = report.settings
    assert (found.approval_mode, found.limits.read_lines, found.workspace.respect_git_ignore) in [
        (ApprovalMode.PLAN, 2_000, True),
        (ApprovalMode.DEFAULT, 7, True),
        (ApprovalMode.DEFAULT, 2_000, False),
    ]
    counting = pair.partition(" and ")[2]
    assert [warning.partition(": ")[2] for warning in report.warnings] == [
        f"{pair} mean the same thing but have different values; {counting} is used."
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


THEIRS: list[tuple[Content, Any]] = [
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


@pytest.mark.parametrize(("content", "expected"), THEIRS, ids=[str(content) for content, _ in THEIRS])
@pytest.mark.requirement("settings.agent-cli.shapes")
def test_a_file_of_theirs_that_is_named_on_the_command_line_is_read_like_theirs(
    environ: dict[str, str], file: Path, content: Content, expected: Any
) -> None:
    report = load(file, content, environ)
    found = report.settings
    values = (found.approval_mode, found.shell.silence_timeout, found.limits.read_chars, found.limits.read_lines)
    defaults = (ApprovalMode.DEFAULT, 0, 25_000, 2_000)
    different = [value for value, default in zip(values, defaults, strict=True) if value != default]
    assert different == ([] if expected is None else [expected])
    assert report.warnings == ()


@pytest.mark.parametrize("key", ["truncateToolOutputLines", "truncateToolOutputThreshold"])
@pytest.mark.requirement("settings.agent-cli.served")
def test_a_limit_of_theirs_that_is_no_number_is_ignored_with_a_warning(
    environ: dict[str, str], file: Path, key: str
) -> None:
    report = load(file, {"tools": {key: "many"}}, environ)
    assert [warning.partition(": ")[2] for warning in report.warnings] == [
        f"tools.{key} is ignored: it is not a number."
    ]


@each_cli
@pytest.mark.requirement("settings.agent-cli.variables")
def test_variables_are_expanded_in_every_text_of_their_files_and_what_they_hold_is_not_expanded_again(
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
    found = load_cli(tmp_path / "home", cli, content, environ).settings
    assert found.memory.file_name == ("value.md",)
    assert found.mcp.excluded == ("value", "$X")
    server = found.mcp_servers["a"]
    assert (server.command, server.description, server.include_tools) == ("$X", "value server", ("value",))
    assert dict(server.env) == {"B": "$X"}
    assert found.tools.discovery_command == ("$X",)
    assert found.web.search.tavily.api_key == "$X"


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
def test_a_rule_that_allows_means_what_it_says_and_one_that_asks_or_refuses_counts_in_both_readings(
    machine: dict[str, str], tmp_path: Path, cli: CliName
) -> None:
    content: Content = {
        "permissions": {"allow": ["Bash($X)"], "ask": ["Read($X)"], "deny": ["Bash(rm $X)", "Edit"]},
        "tools": {"allowed": ["$X"], "exclude": ["$X"], "core": ["$X"]},
    }
    found = load_cli(tmp_path / "home", cli, content, {**machine, "X": ""}).settings
    assert found.permissions.allow == ("Bash($X)",)
    assert found.permissions.ask == ("Read()", "Read($X)")
    assert found.permissions.deny == ("Bash(rm )", "Edit", "Bash(rm $X)")
    assert (found.tools.allowed, found.tools.core) == (("$X",), ("$X",))
    assert found.tools.exclude == ("$X",)


@pytest.mark.requirement("settings.agent-cli.variables")
def test_a_text_of_ours_that_is_not_expanded_stays_as_it_is(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"memory": {"fileName": "$X.md"}}, {**environ, "X": "value"})
    assert report.settings.memory.file_name == ("$X.md",)
    assert report.warnings == ()
