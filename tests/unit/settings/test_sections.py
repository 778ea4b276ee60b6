"""The sections about web search, memory, agents and custom tools: spellings, formats, variables and missing values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.settings import load_settings
from tests.settings_cases import load, refusal, write

SPELLINGS = {
    "discovery_command": [
        {"tools": {"discoveryCommand": "x --y 'a b'"}},
        {"toolDiscoveryCommand": "x --y 'a b'"},
        {"tools": {"toolDiscoveryCommand": "x --y 'a b'"}},
        {"tools": {"discoveryCommand": ["x", "--y", "a b"]}},
    ],
    "call_command": [
        {"tools": {"callCommand": "x --y 'a b'"}},
        {"toolCallCommand": "x --y 'a b'"},
        {"tools": {"toolCallCommand": "x --y 'a b'"}},
        {"toolCallCommand": ["x", "--y", "a b"]},
    ],
}

SERVER_COMMANDS = [
    {"mcp": {"serverCommand": "x --y 'a b'"}},
    {"mcpServerCommand": "x --y 'a b'"},
    {"mcp": {"mcpServerCommand": "x --y 'a b'"}},
    {"mcp": {"serverCommand": ["x", "--y", "a b"]}},
]


@pytest.mark.requirement("settings.commands")
@pytest.mark.parametrize(
    ("attribute", "content"),
    [(attribute, content) for attribute, contents in SPELLINGS.items() for content in contents],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
)
def test_every_spelling_of_a_command_is_split_without_a_shell(
    environ: dict[str, str], file: Path, attribute: str, content: dict[str, Any]
) -> None:
    report = load(file, content, environ)
    assert getattr(report.settings.tools, attribute) == ("x", "--y", "a b")
    assert report.warnings == ()


@pytest.mark.requirement("settings.commands")
@pytest.mark.parametrize("content", SERVER_COMMANDS, ids=json.dumps)
def test_every_spelling_of_the_server_command_defines_the_server_mcp(
    environ: dict[str, str], file: Path, content: dict[str, Any]
) -> None:
    report = load(file, content, environ)
    entry = report.upstreams["mcp"]
    assert (entry.command, entry.args, report.entries[0].source) == ("x", ("--y", "a b"), str(file))
    assert report.warnings == ()


@pytest.mark.requirement("settings.commands")
def test_a_configured_server_called_mcp_wins_over_the_server_command_with_a_warning(
    environ: dict[str, str], file: Path
) -> None:
    report = load(file, {"mcpServerCommand": "x", "mcpServers": {"mcp": {"command": "own"}}}, environ)
    assert report.upstreams["mcp"].command == "own"
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith(f"{file}: mcp.serverCommand is not used")


@pytest.mark.requirement("settings.commands")
@pytest.mark.parametrize("value", ["", "  ", [], None])
def test_an_empty_command_means_no_command(environ: dict[str, str], file: Path, value: Any) -> None:
    content = {"tools": {"discoveryCommand": value}, "mcp": {"serverCommand": value}}
    report = load(file, content, environ)
    assert (report.settings.tools.discovery_command, dict(report.upstreams), report.warnings) == (None, {}, ())


@pytest.mark.requirement("settings.commands")
def test_a_command_with_an_open_quote_is_an_error_that_does_not_show_it(environ: dict[str, str], file: Path) -> None:
    message = refusal(file, {"tools": {"callCommand": "x 'hunter2"}}, environ)
    assert message == f"{file}: tools.callCommand has an unclosed quote, or a backslash at its end."


@pytest.mark.requirement("settings.commands")
def test_variables_in_commands_are_expanded_and_one_that_is_not_set_leaves_the_command_out(
    environ: dict[str, str], file: Path
) -> None:
    content = {"tools": {"discoveryCommand": "$HOME/find", "callCommand": "${NOT_SET}/call"}}
    report = load(file, content, environ)
    assert report.settings.tools.discovery_command == (f"{environ['HOME']}/find",)
    assert report.settings.tools.call_command is None
    assert len(report.warnings) == 1
    assert "the environment variable NOT_SET, which is not set; the command is not used" in report.warnings[0]


# --- Web search --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.search")
def test_keys_of_search_providers_come_from_the_settings_or_else_from_the_environment(
    environ: dict[str, str], file: Path
) -> None:
    variables = {
        "TAVILY_API_KEY": "unused",
        "BRAVE_API_KEY": "from the environment",
        "GOOGLE_API_KEY": "g",
        "GOOGLE_SEARCH_ENGINE_ID": "id",
        "MINE": "mine",
    }
    content = {"web": {"search": {"tavily": {"apiKey": "${MINE}"}, "searxng": {"url": "http://127.0.0.1:1"}}}}
    search = load(file, content, {**environ, **variables}).settings.web.search
    assert search.tavily.api_key == "mine"
    assert search.brave.api_key == "from the environment"
    assert (search.google.api_key, search.google.search_engine_id) == ("g", "id")
    assert search.configured == ("tavily", "brave", "google", "searxng")


@pytest.mark.requirement("settings.search")
def test_a_provider_without_everything_that_it_needs_is_not_configured(environ: dict[str, str], file: Path) -> None:
    content = {"web": {"search": {"google": {"apiKey": "k"}, "brave": {"apiKey": "$NOT_SET"}, "default": "brave"}}}
    report = load(file, content, environ)
    assert report.settings.web.search.configured == ()
    assert [warning.partition(": ")[2][:60] for warning in report.warnings] == [
        "web.search.brave.apiKey refers to the environment variable N",
        "web.search.default is brave, which cannot be used: a key or ",
    ]


@pytest.mark.requirement("settings.search")
def test_a_provider_whose_address_is_in_an_unset_variable_is_not_asked_at_its_usual_address(
    environ: dict[str, str], file: Path
) -> None:
    report = load(file, {"web": {"search": {"tavily": {"apiKey": "k", "url": "$NOT_SET"}}}}, environ)
    assert report.settings.web.search.for_tools().providers == ()
    (warning,) = report.warnings
    assert "the environment variable NOT_SET, which is not set; tavily is not used." in warning


@pytest.mark.requirement("settings.search")
def test_qwen_codes_list_of_providers_is_read(environ: dict[str, str], file: Path) -> None:
    content = {
        "webSearch": {
            "provider": [{"type": "google", "apiKey": "a", "searchEngineId": "b"}, {"type": "tavily", "apiKey": "c"}],
            "default": "google",
        }
    }
    search = load(file, content, environ).settings.web.search
    assert (search.default, search.google.search_engine_id, search.tavily.api_key) == ("google", "b", "c")


# --- Memory ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.memory")
@pytest.mark.parametrize(
    "content",
    [{"memory": {"fileName": "X.md"}}, {"contextFileName": ["X.md"]}, {"context": {"fileName": "X.md"}}],
    ids=json.dumps,
)
def test_the_name_of_the_memory_file_may_be_one_name_or_several(
    environ: dict[str, str], file: Path, content: dict[str, Any]
) -> None:
    assert load(file, content, environ).settings.memory.file_name == ("X.md",)


@pytest.mark.requirement("settings.memory")
def test_the_global_memory_folder_is_relative_to_the_file_or_the_home(environ: dict[str, str], file: Path) -> None:
    relative_report = load(file, {"memory": {"globalFolder": "notes"}}, environ)
    assert relative_report.settings.memory.global_folder == str(file.parent / "notes")
    home_report = load(file, {"memory": {"globalFolder": "~/notes"}}, environ)
    assert home_report.settings.memory.global_folder == f"{environ['HOME']}/notes"


@pytest.mark.requirement("settings.memory")
def test_no_name_at_all_for_the_memory_file_is_an_error(environ: dict[str, str], file: Path) -> None:
    message = refusal(file, {"memory": {"fileName": []}}, environ)
    assert message == f"{file}: memory.fileName is an array, but must be a file name, or an array of them."


# --- Agents ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.variables")
def test_agents_have_their_variables_expanded(environ: dict[str, str], file: Path) -> None:
    content = {
        "agents": {
            "reviewer": {
                "command": "claude",
                "args": ["-p", "--dir=$HOME"],
                "env": {"KEY": "${SECRET}"},
                "output": "json",
                "description": "reviews",
            }
        }
    }
    agent = load(file, content, {**environ, "SECRET": "s"}).settings.agents["reviewer"]
    assert (agent.command, agent.args, agent.env) == ("claude", ("-p", f"--dir={environ['HOME']}"), {"KEY": "s"})
    assert (agent.prompt, agent.output, agent.timeout) == ("stdin", "json", 600_000)


@pytest.mark.requirement("settings.variables")
def test_an_agent_whose_variable_is_not_set_is_left_out_with_a_warning(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"agents": {"a": {"command": "$NOT_SET"}, "b": {"command": "b"}}}, environ)
    assert set(report.settings.agents) == {"b"}
    assert len(report.warnings) == 1
    assert "the agent a is not used" in report.warnings[0]


@pytest.mark.requirement("settings.variables")
@pytest.mark.parametrize("command", [{}, {"command": ""}, {"command": None}], ids=json.dumps)
def test_an_agent_without_a_program_is_an_error(environ: dict[str, str], file: Path, command: dict[str, Any]) -> None:
    message = refusal(file, {"agents": {"a": command}}, environ)
    assert message == f"{file}: agents.a.command is missing or empty; name the program that runs the tasks."


@pytest.mark.requirement("lsp.settings")
def test_a_language_server_without_a_command_or_file_extensions_gets_a_warning(
    environ: dict[str, str], file: Path
) -> None:
    ruby = {".rb": "ruby"}
    servers = {
        "a": {"extensionToLanguage": ruby},
        "b": {"command": "b"},
        "c": {"command": "c"} | {"extensionToLanguage": ruby},
    }
    assert load(file, {"lsp": {"servers": servers}}, environ).warnings == (
        f"{file}: lsp.servers.a has no command; add one.",
        f"{file}: lsp.servers.b has no extensionToLanguage; add one.",
    )


# --- Reading a pipe ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.live.streams")
def test_a_config_file_behind_a_pipe_is_read_once_and_kept(environ: dict[str, str], tmp_path: Path) -> None:
    import os

    from server.settings.load import read_settings

    reading, writing = os.pipe()
    os.write(writing, b'{"media": "notice"}')
    os.close(writing)
    try:
        report = load_settings([f"/dev/fd/{reading}"], {}, environ)
        assert report.inputs is not None
        write(tmp_path / "home/.config/coretools-mcp/settings.json", {"http": {"port": 1}})
        second_report = read_settings(report.inputs)
    finally:
        os.close(reading)
    assert report.settings.media == second_report.settings.media == "notice"
    assert second_report.settings.http.port == 1


# --- Settings for tools -------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.memory")
def test_the_sections_are_converted_for_the_tools(environ: dict[str, str], file: Path) -> None:
    content = {
        "web": {
            "allowPrivateHosts": ["wiki.local"],
            "allowedPorts": [8080],
            "search": {
                "default": "google",
                "google": {"apiKey": "k", "searchEngineId": "e", "url": "http://127.0.0.1:1/"},
                "tavily": {"apiKey": "t"},
                "brave": {"url": "http://no.key/"},
                "searxng": {"url": "http://127.0.0.1:2/"},
            },
        },
        "memory": {"fileName": ["ONE.md", "TWO.md"], "section": "Notes"},
        "tools": {"discoveryCommand": "find it", "callCommand": "call", "discoveryTimeout": 1500, "strict": True},
        "agents": {"a": {"command": "run", "args": ["-p"], "prompt": "argument", "timeout": 5, "inheritEnv": ["K"]}},
    }
    report = load(file, content, environ)
    rules = report.settings.web.for_tools()
    assert (rules.allow_private_hosts, rules.allowed_ports) == (("wiki.local",), (8080,))
    search = report.settings.web.search.for_tools()
    assert search.names == ("tavily", "google", "searxng")
    provider = search.provider(None)
    assert provider is not None
    assert (provider.name, provider.url, provider.api_key, provider.search_engine_id) == (
        "google",
        "http://127.0.0.1:1/",
        "k",
        "e",
    )
    memory = report.settings.memory.for_tools(report.own_folder)
    assert (memory.file_name, memory.section) == ("ONE.md", "Notes")
    assert memory.global_folder == f"{environ['HOME']}/.config/coretools-mcp"
    agent = report.settings.agents["a"].for_tools("a")
    assert (agent.name, agent.command, agent.args, agent.prompt) == ("a", "run", ("-p",), "argument")
    assert (agent.timeout, agent.inherit_env, agent.output) == (5, ("K",), "text")
    discovery = report.settings.tools.for_tools()
    assert (discovery.discovery_command, discovery.call_command) == (("find", "it"), ("call",))
    assert (discovery.discovery_seconds, discovery.call_seconds, discovery.strict) == (1.5, 600.0, True)
