"""Entries that start or reach coretools-mcp itself: it must never become its own upstream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.settings import load_settings
from server.settings.upstream_entries import is_own, own_options
from tests.tables import each_of

OURS: list[tuple[str, list[str]]] = [
    ("coretools-mcp", []),
    ("/home/x/.local/bin/coretools-mcp", ["--workspace", "/x"]),
    ("C:\\Users\\x\\coretools-mcp.exe", []),
    ("C:\\Program Files\\core\\coretools-mcp.EXE", []),
    ("uvx", ["coretools-mcp"]),
    ("uvx", ["coretools-mcp@latest"]),
    ("/opt/uv/uvx", ["--python", "3.13", "--from", "coretools-mcp[full]==1.0", "coretools-mcp"]),
    ("uv", ["tool", "run", "coretools-mcp"]),
    ("uv", ["--directory", "/x", "run", "python", "-P", "coretools_mcp.py", "serve"]),
    ("uv", ["run", "--project", "/src", "coretools-mcp"]),
    ("pipx", ["run", "coretools-mcp"]),
    ("pipx", ["run", "--spec", "git+https://example.org/x", "coretools-mcp"]),
    ("python3.12", ["-m", "coretools_mcp"]),
    ("/v/bin/python", ["-P", "-W", "error", "/src/coretools_mcp.py", "serve"]),
    ("py", ["-3", "C:\\src\\coretools_mcp.py"]),
    ("/v/bin/python", ["/v/bin/coretools-mcp"]),
    ("bash", ["-c", "cd /x && exec coretools-mcp --config a.json"]),
    ("cmd", ["/c", "uvx", "coretools-mcp"]),
    ("env", ["A=1", "coretools-mcp"]),
    ("uvx coretools-mcp", []),
    ("timeout", ["60", "coretools-mcp"]),
    ("sudo", ["-u", "me", "/usr/bin/coretools-mcp"]),
    ("poetry", ["run", "coretools-mcp"]),
    ("mise", ["exec", "--", "coretools-mcp"]),
    ("nix", ["run", "github:x/y#coretools-mcp"]),
    ("docker", ["run", "-i", "coretools-mcp:latest"]),
    ("python3", ["-mcoretools_mcp"]),
    ("uvx", ["git+https://example.org/x/coretools-mcp"]),
    ("docker", ["run", "-i", "registry.example.org/x/coretools-mcp:1"]),
    ("bash", ["-c", "cd /x;'coretools-mcp' --config a.json"]),
    ("bash", ["-c", "coretools-mcp --name 'unclosed"]),
    ("bash", ["-c", "true;coretools-mcp"]),
    ("bash", ["-c", "(coretools-mcp)"]),
    ("bash", ["-c", "eval 'coretools-mcp serve'"]),
    ("bash", ["-c", "`which coretools-mcp`"]),
    ("env", ["-Scoretools-mcp serve"]),
    ("python3", ["-Pmcoretools_mcp"]),
    ("uvx", ["git+https://example.org/x/coretools-mcp.git@v1"]),
    ("bash", ["-c", "PYTHONPATH={folder}/coretools-mcp:/x python -m coretools_mcp"]),
    ("./coretools-mcp", []),
]
OTHERS: list[tuple[str, list[str]]] = [
    ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "{folder}/coretools-mcp"]),
    ("uv", ["run", "--project={folder}/coretools-mcp", "another"]),
    ("git", ["-C", "{folder}/coretools-mcp"]),
    ("bash", ["-c", "cd {folder}/coretools-mcp && exec another"]),
    ("npx", ["mcp-remote", "https://example.org/coretools-mcp"]),
    ("npx", ["a-database", "postgres://me@example.org/coretools-mcp"]),
    ("npx", ["a-forge", "--repo", "owner/coretools-mcp"]),
    ("npx", ["a-forge", "--repository=owner/coretools-mcp"]),
    ("npx", ["a-filesystem", "{folder}/my projects/coretools-mcp"]),
    ("npx", ["a-filesystem", "--root={folder}/my projects/coretools-mcp"]),
    ("npx", ["a-filesystem", "{folder}/link"]),
    ("npx", ["a-filesystem", "~/coretools-mcp"]),
    ("bash", ["-c", 'cd "$HOME/coretools-mcp" && exec another']),
    ("docker", ["run", "-v", "{folder}/coretools-mcp:/projects/coretools-mcp:ro", "another"]),
    ("docker", ["run", "--mount", "type=bind,src={folder}/coretools-mcp,dst=/projects/coretools-mcp", "another"]),
    ("/src/coretools-mcp/bin/another", []),
    ("coretools-mcp-extra", []),
    ("npx", ["~nobody\0/coretools-mcp-extra"]),
]


@pytest.mark.requirement("install.own")
@each_of(("command", "args"), OURS)
def test_a_command_that_starts_this_program_is_recognised_in_every_form(
    tmp_path: Path, command: str, args: list[str]
) -> None:
    (tmp_path / "coretools-mcp").mkdir(exist_ok=True)
    args = [arg.replace("{folder}", str(tmp_path)) for arg in args]
    assert is_own({"command": command, "args": args}, [])
    assert is_own({"command": {"path": command, "args": args}}, [])
    assert is_own({"command": [command, *args]}, [])


@pytest.mark.requirement("install.own")
@pytest.mark.parametrize("command", ["npx", ["npx"], {"path": "npx"}])
def test_this_servers_address_among_the_arguments_is_found_with_every_form_of_command(command: object) -> None:
    entry = {"command": command, "args": ["mcp-remote", "http://127.0.0.1:8808/mcp"]}
    assert is_own(entry, [8808])
    assert not is_own(entry, [8809])


@pytest.mark.requirement("install.own")
@pytest.mark.parametrize(("command", "args"), OTHERS)
def test_a_command_in_which_only_a_folder_or_an_address_has_the_name_of_this_program_is_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, args: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "coretools-mcp").mkdir()
    (tmp_path / "my projects/coretools-mcp").mkdir(parents=True)
    (tmp_path / "link").symlink_to("coretools-mcp")
    args = [arg.replace("{folder}", str(tmp_path)) for arg in args]
    assert not is_own({"command": command, "args": args}, [8808])


@pytest.mark.requirement("install.own")
def test_a_folder_with_the_name_of_this_program_does_not_hide_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coretools-mcp").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_own({"command": "coretools-mcp"}, [])
    assert is_own({"command": "uvx", "args": ["coretools-mcp"]}, [])


@pytest.mark.requirement("install.own")
@each_of(
    ("entry", "is_ours"),
    [
        ({"url": "http://127.0.0.1:8808/mcp"}, True),
        ({"httpUrl": "http://localhost:8808/mcp/"}, True),
        ({"serverUrl": "http://[::1]:8808/sse"}, True),
        ({"url": "http://127.0.0.1:9000/mcp"}, True),
        ({"command": "npx", "args": ["-y", "mcp-remote", "http://127.0.0.1:8808/mcp", "--allow-http"]}, True),
        ({"command": ["npx", "mcp-remote", "http://127.0.0.1:8808/mcp"]}, True),
        ({"command": {"path": "npx", "args": ["mcp-remote", "http://127.0.0.1:8808/mcp"]}}, True),
        ({"command": "npx", "args": ["-y", "mcp-remote@0.1", "https://example.org:8808/mcp"]}, False),
        ({"command": "npx", "args": ["-y", "supergateway", "--sse", "http://localhost:8808/sse"]}, True),
        ({"url": "http://127.1:8808/mcp"}, True),
        ({"url": "http://2130706433:8808/mcp"}, True),
        ({"url": "http://[::ffff:127.0.0.1]:8808/mcp"}, True),
        ({"url": "${BASE:-http://localhost:8808}/mcp"}, True),
        ({"url": "http://10.0.0.1:8808/mcp"}, False),
        ({"url": "http://127.0.0.1:8809/mcp"}, False),
        ({"url": "http://127.0.0.1:8808/other"}, False),
        ({"url": "https://example.org:8808/mcp"}, False),
        ({"url": "http://127.0.0.1:x/mcp"}, False),
        ({"command": 1, "args": {}}, False),
    ],
)
def test_an_entry_that_reaches_this_program_on_this_machine_is_recognised(entry: dict[str, Any], is_ours: bool) -> None:
    assert is_own(entry, [8808, 9000]) is is_ours


@pytest.mark.requirement("install.own")
def test_a_link_to_this_program_is_this_program(tmp_path: Path) -> None:
    (tmp_path / "coretools-mcp").write_text("")
    (tmp_path / "mine").symlink_to("coretools-mcp")
    assert is_own({"command": str(tmp_path / "mine"), "args": []}, [])
    assert is_own({"command": "env", "args": [str(tmp_path / "mine")]}, [])


@pytest.mark.requirement("install.own")
def test_this_programs_options_are_the_arguments_after_its_name() -> None:
    assert own_options("uvx", ["--from", "x", "coretools-mcp", "--config", "a"]) == ["--config", "a"]
    assert own_options("python", ["-m", "coretools_mcp", "serve"]) == ["serve"]
    assert own_options("coretools-mcp", ["--config", "a b.json"]) == ["--config", "a b.json"]
    options = own_options("sh", ["-c", "exec coretools-mcp --config 'a b.json'; true"])
    assert options is not None
    assert options[:2] == ["--config", "a b.json"]


@pytest.mark.requirement("upstreams.own")
@pytest.mark.parametrize(
    ("entry", "is_used"),
    [
        ({"command": "coretools-mcp", "args": ["--config", "{file}"]}, False),
        ({"command": "coretools-mcp", "args": ["serve", "--config={file}", "--workspace", "/"]}, False),
        ({"command": "uvx", "args": ["coretools-mcp", "--config", "settings.json"], "cwd": "{folder}"}, False),
        ({"command": "coretools-mcp", "args": ["--config", "{file}"], "env": {"HOME": "{folder}"}}, False),
        ({"command": "coretools-mcp"}, True),
        ({"command": "coretools-mcp", "args": ["--config", "other.json"]}, True),
        ({"command": "coretools-mcp", "args": ["--config", "{file}", "--settings", "qwen"]}, True),
        ({"command": "coretools-mcp", "args": ["--config", "{file}"], "env": {"HOME": "/elsewhere"}}, True),
        ({"url": "http://127.0.0.1:8808/mcp"}, True),
    ],
)
def test_an_entry_that_loads_the_same_settings_is_left_out_and_other_servers_of_this_program_stay(
    tmp_path: Path, entry: dict[str, Any], is_used: bool
) -> None:
    file = tmp_path / "settings.json"
    content = json.dumps({"mcpServers": {"me": entry}}).replace("{file}", str(file)).replace("{folder}", str(tmp_path))
    file.write_text(content)
    report = load_settings([str(file)], {}, {"HOME": str(tmp_path)}, folder=str(tmp_path))
    assert ("me" in report.upstreams) is is_used
    assert len(report.warnings) == (0 if is_used else 1)
    assert is_used or "mcpServers.me would start this server itself again" in report.warnings[0]


@pytest.mark.requirement("upstreams.own")
def test_the_users_own_settings_do_not_start_the_server_that_reads_them(tmp_path: Path) -> None:
    user_file = tmp_path / ".config/coretools-mcp/settings.json"
    user_file.parent.mkdir(parents=True)
    user_file.write_text(
        json.dumps({"mcpServers": {"core": {"command": "/x/bin/coretools-mcp", "args": ["--workspace", "/"]}}})
    )
    report = load_settings([], {}, {"HOME": str(tmp_path)}, folder=str(tmp_path))
    assert dict(report.upstreams) == {}
    assert len(report.warnings) == 1
