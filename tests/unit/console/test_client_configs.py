"""The table of MCP clients: where each has its settings file on each system, and the entry for coretools-mcp in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from server.cli import CLIENTS as NAMES
from server.console import CommandFailure, UsageError
from server.console.install_commands import InstallOptions, entry_for, lasting_command, needed_variables
from server.console.known_clients import client_configs, read_document, read_servers
from server.settings import SettingsError
from server.settings.section_model import Diagnostics

CLIENTS = client_configs({"HOME": "/h"}, "linux")
KEY = "TAVILY_API_KEY"


@pytest.mark.requirement("install.table")
@pytest.mark.parametrize(
    ("client", "platform", "environ", "file"),
    [
        ("claude-desktop", "linux", {}, "/h/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", {}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/r"}, "/r/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", {}, "/h/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "c"}, "/h/.claude.json"),
        ("cursor", "darwin", {}, "/h/.cursor/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("vscode", "darwin", {}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", {"APPDATA": "/r"}, "/r/Code/User/mcp.json"),
        ("gemini", "linux", {}, "/h/.gemini/settings.json"),
        ("qwen", "linux", {}, "/h/.qwen/settings.json"),
        ("codex", "linux", {}, "/h/.codex/config.toml"),
        ("codex", "linux", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("zed", "linux", {}, "/h/.config/zed/settings.json"),
        ("zed", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
        ("zed", "darwin", {"XDG_CONFIG_HOME": "/x"}, "/h/.config/zed/settings.json"),
        ("zed", "win32", {"APPDATA": "/r"}, "/r/Zed/settings.json"),
        ("windsurf", "linux", {}, "/h/.codeium/windsurf/mcp_config.json"),
        ("opencode", "linux", {}, "/h/.config/opencode/opencode.json"),
        ("opencode", "darwin", {"XDG_CONFIG_HOME": "/x"}, "/x/opencode/opencode.json"),
        ("continue", "win32", {}, "/h/.continue/mcpServers/coretools-mcp.json"),
        ("continue", "linux", {"CONTINUE_GLOBAL_DIR": "/c"}, "/c/mcpServers/coretools-mcp.json"),
    ],
)
def test_each_client_has_its_file_where_its_program_looks(
    client: str, platform: str, environ: dict[str, str], file: str
) -> None:
    assert client_configs({"HOME": "/h", **environ}, platform)[client].files[0] == file


@pytest.mark.requirement("install.table")
def test_claude_desktop_on_windows_is_looked_for_in_its_package(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "APPDATA": str(tmp_path / "Roaming"), "LOCALAPPDATA": str(tmp_path / "Local")}

    def folder(package: str) -> Path:
        path = tmp_path / "Local/Packages" / package / "LocalCache/Roaming/Claude"
        path.mkdir(parents=True)
        return path

    def files() -> list[str]:
        return list(client_configs(environ, "win32")["claude-desktop"].files)

    assert files() == [str(tmp_path / "Roaming/Claude/claude_desktop_config.json")]
    first = folder("Claude_pzs8sxrjxfjjc") / "claude_desktop_config.json"
    assert files() == [str(first)]
    second = folder("Claude_other") / "claude_desktop_config.json"
    assert files() == [str(second), str(first)]
    first.write_text("{}")
    assert files() == [str(first)]
    assert client_configs(environ, "win32")["claude-desktop"].is_single


SHAPES: dict[str, dict[str, Any]] = {
    "claude-desktop": {"command": "/c", "args": ["--workspace", "/"]},
    "claude-code": {"type": "stdio", "command": "/c", "args": []},
    "cursor": {"command": "/c", "args": [], "env": {KEY: "${env:TAVILY_API_KEY}"}},
    "vscode": {"type": "stdio", "command": "/c", "args": []},
    "gemini": {"command": "/c", "args": [], "env": {KEY: "$TAVILY_API_KEY"}},
    "qwen": {"command": "/c", "args": []},
    "codex": {"command": "/c", "args": [], "env_vars": [KEY], "startup_timeout_sec": 30},
    "zed": {"source": "custom", "command": "/c", "args": ["--workspace", "/"]},
    "windsurf": {"command": "/c", "args": ["--workspace", "/"], "env": {KEY: "${env:TAVILY_API_KEY}"}},
    "opencode": {"type": "local", "command": ["/c"]},
    "continue": {"command": "/c", "args": []},
}


@pytest.mark.requirement("install.entry")
@pytest.mark.parametrize("key", CLIENTS)
def test_the_entry_has_the_clients_format_and_the_names_of_variables_but_no_values(key: str) -> None:
    client = CLIENTS[key]
    options = InstallOptions(key, workspaces=("/",) if client.folder == "none" else ())
    assert entry_for(client, options, ["/c"], [KEY]) == SHAPES[key]
    assert "trust" not in SHAPES[key]
    if client.folder == "none":
        with pytest.raises(UsageError, match=re.escape("--workspace DIR")):
            entry_for(client, InstallOptions(key), ["/c"], [])
    assert client.afterwards.endswith(".")
    assert re.fullmatch(client.names, "core")


@pytest.mark.requirement("install.entry")
def test_the_command_and_its_help_know_the_clients_of_the_table() -> None:
    assert NAMES.split(", ") == list(CLIENTS)


@pytest.mark.requirement("install.entry")
def test_the_entry_needs_the_variables_that_are_set_and_used_by_this_server_or_its_upstreams(tmp_path: Path) -> None:
    settings_file = tmp_path / ".config/coretools-mcp/settings.json"
    settings_file.parent.mkdir(parents=True)
    settings_file.write_text(
        '{"mcpServers": {"a": {"command": "x", "args": ["${A}$$B"], "inheritEnv": ["C"], "env": {"D": "$D"}}}}'
    )
    certificates = ["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"]
    environ = {"HOME": str(tmp_path), "PATH": "/", **dict.fromkeys("ABCDE", "1"), KEY: "k", "CORETOOLS_MCP_TOKEN": "t"}
    environ |= dict.fromkeys(certificates, "/c")
    imported_entries = {"b": {"command": "x", "headers": {"X": "${E:-none} ${F}"}}}
    assert needed_variables(environ, imported_entries) == [
        KEY,
        "CORETOOLS_MCP_TOKEN",
        *certificates,
        "A",
        "C",
        "D",
        "E",
    ]
    entry = entry_for(CLIENTS["gemini"], InstallOptions("gemini"), ["/c"], certificates)
    assert entry["env"] == {name: f"${name}" for name in certificates if name != "REQUESTS_CA_BUNDLE"}


@pytest.mark.requirement("install.entry")
@pytest.mark.parametrize("name", ["MY_CERT", "DB_PASSWD", "AWS_CREDS", "PRIVATE_HOST", "GH_TOKEN"])
def test_variables_whose_names_gemini_cli_drops_are_in_the_entry(name: str) -> None:
    assert entry_for(CLIENTS["gemini"], InstallOptions("gemini"), ["/c"], [name])["env"] == {name: f"${name}"}


@pytest.mark.requirement("install.command")
def test_the_command_is_the_link_that_survives_upgrades_or_else_the_script_of_the_environment(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    environ, prefix = {"HOME": str(home)}, home / "tools/coretools-mcp"
    interpreter = str(prefix / "bin/python")
    assert lasting_command(environ, str(prefix), interpreter)[:2] == [interpreter, "-P"]
    script = prefix / "bin/coretools-mcp"
    script.parent.mkdir(parents=True)
    script.write_text("")
    assert lasting_command(environ, str(prefix), interpreter) == [str(script)]
    link = home / ".local/bin/coretools-mcp"
    link.parent.mkdir(parents=True)
    link.write_text("another program")
    assert lasting_command(environ, str(prefix), interpreter) == [str(script)]
    link.unlink()
    link.symlink_to(script)
    assert lasting_command(environ, str(prefix), interpreter) == [str(link)]


@pytest.mark.requirement("install.command")
@pytest.mark.parametrize("prefix", [".cache/uv/archive-v0/x", ".local/share/pipx/.cache/x", "uv-cache/x", "uv/cache/x"])
def test_a_path_in_a_cache_is_never_written(tmp_path: Path, prefix: str) -> None:
    home = tmp_path.resolve()
    environ = {"HOME": str(home), "UV_CACHE_DIR": str(home / "uv-cache")}
    folder = home / prefix
    with pytest.raises(CommandFailure, match="uv tool install coretools-mcp"):
        lasting_command(environ, str(folder), str(folder / "bin/python"))
    uv = home / "uv-program"
    uv.write_text("")
    command = lasting_command({**environ, "UV": str(uv)}, str(folder), str(folder / "bin/python"))
    assert command == [str(uv), "tool", "run", "coretools-mcp"]


@pytest.mark.requirement("install.table")
@pytest.mark.parametrize(
    ("variable", "clients"),
    [
        ("PATH", set(CLIENTS)),
        (KEY, {"claude-code", "vscode", "qwen", "zed", "opencode"}),
        ("LANGUAGE", {"claude-code", "vscode", "qwen", "zed", "gemini", "opencode"}),
    ],
)
def test_each_client_decides_which_variables_reach_a_server(variable: str, clients: set[str]) -> None:
    assert {key for key, client in CLIENTS.items() if client.reaches_a_server(variable)} == clients


@pytest.mark.requirement("install.table")
@pytest.mark.parametrize(
    ("text", "readers"),
    [
        ('{"a": 1}', {"json", "comments", "jsonc"}),
        ('\ufeff{"a": "// b"}', {"json", "comments", "jsonc"}),
        ('{"a": 1 /* b */}', {"comments", "jsonc"}),
        ('{"a": 1,}', {"jsonc"}),
        ("a = 1", {"toml"}),
        (" ", {"json", "comments", "jsonc", "toml"}),
    ],
)
def test_a_file_is_read_as_strictly_as_its_client_reads_it(text: str, readers: set[str]) -> None:
    def is_read(dialect: Any) -> bool:
        try:
            read_document(text.encode(), "f", dialect)
        except SettingsError:
            return False
        return True

    assert {dialect for dialect in ("json", "comments", "jsonc", "toml") if is_read(dialect)} == readers


CODEX = """
[mcp_servers.local]
command = "npx"
args = ["$5"]
env_vars = ["TOKEN"]
startup_timeout_sec = 1.5
tool_timeout_sec = 60
enabled_tools = ["a"]
[mcp_servers.remote]
url = "https://example.org/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { A = "$b" }
env_http_headers = { C = "D" }
"""


@pytest.mark.requirement("cli.config.import")
def test_servers_of_codex_keep_their_times_their_variables_and_their_headers(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(CODEX)
    diagnostics = Diagnostics()
    servers = read_servers(str(file), CLIENTS["codex"], diagnostics)
    assert diagnostics.warnings == []
    assert servers["local"] == {
        "command": "npx",
        "args": ["$$5"],
        "inheritEnv": ["TOKEN"],
        "connectTimeout": 1500,
        "timeout": 60_000,
        "includeTools": ["a"],
    }
    headers = {"A": "$$b", "C": "${D}", "Authorization": "Bearer ${TOKEN}"}
    assert servers["remote"] == {"url": "https://example.org/mcp", "headers": headers}
    servers_without_client = read_servers(str(file), None, diagnostics)
    assert {**servers_without_client["local"], "args": ["$$5"]} == servers["local"]
    assert diagnostics.warnings == []


@pytest.mark.requirement("cli.config.import")
def test_servers_of_zed_and_windsurf_are_converted(tmp_path: Path) -> None:
    zed, windsurf = tmp_path / "settings.json", tmp_path / "mcp_config.json"
    zed.write_text('{"context_servers": {"a": {"source": "custom", "command": {"path": "x", "args": ["y"],},},}}')
    windsurf.write_text('{"mcpServers": {"a": {"serverUrl": "https://example.org/", "disabledTools": ["b"]}}}')
    assert read_servers(str(zed), CLIENTS["zed"], Diagnostics()) == {"a": {"command": "x", "args": ["y"]}}
    expected = {"a": {"url": "https://example.org/", "excludeTools": ["b"]}}
    assert read_servers(str(windsurf), CLIENTS["windsurf"], Diagnostics()) == expected


@pytest.mark.requirement("login.settings")
@pytest.mark.parametrize("client", ["claude-code", "qwen", "gemini"])
def test_the_known_login_settings_of_a_server_are_imported(client: str, tmp_path: Path) -> None:
    file, diagnostics = tmp_path / "settings.json", Diagnostics()
    known_keys = {"clientId": "app", "clientSecret": "${SECRET}", "callbackPort": 8123, "scopes": "read write"}
    login = known_keys | {"tokenUrl": "https://h/token", "authServerMetadataUrl": "https://h/.well-known"}
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "https://h/mcp", "oauth": login}}}))
    expected = {"url": "https://h/mcp", "oauth": known_keys | {"scopes": ["read", "write"]}}
    assert read_servers(str(file), CLIENTS[client], diagnostics) == {"a": expected}
    assert diagnostics.warnings == [
        f"{file}: a.oauth.{key} has no counterpart here and was ignored."
        for key in ("authServerMetadataUrl", "tokenUrl")
    ]


@pytest.mark.requirement("cli.config.import")
def test_a_file_without_servers_is_refused_with_the_keys_of_its_client(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    with pytest.raises(SettingsError, match="has no servers under context_servers"):
        read_servers(str(file), CLIENTS["zed"], Diagnostics())
    with pytest.raises(SettingsError, match="has no servers under mcpServers, servers, mcp_servers, context_servers"):
        read_servers(str(file), None, Diagnostics())


@pytest.mark.requirement("install.table")
def test_no_settings_file_of_a_client_is_below_the_working_folder() -> None:
    environ: dict[str, str] = dict.fromkeys(
        ("HOME", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "CODEX_HOME"), "relative"
    )
    for platform in ("linux", "darwin", "win32"):
        for client in client_configs(environ, platform).values():
            assert all(os.path.isabs(file) for file in client.files)
