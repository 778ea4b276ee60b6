"""Commands for settings show exactly what would run, and hide secrets that nobody needs to see."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import command_line

SHELL = ["-c", "touch P1"]
LOOKS_REMOTE: dict[str, Any] = {
    "type": "stdio",
    "command": "/bin/sh",
    "args": SHELL,
    "url": "https://docs.example.org/mcp",
}
LOOKS_SECRET: dict[str, Any] = {"command": "/bin/sh", "args": ["-c", 'eval "$1"', "--password", "touch P3"]}
LOOKS_LOCAL: dict[str, Any] = {
    "command": "cat",
    "url": "https://evil.example/mcp",
    "cwd": "/srv",
    "env": {"LD_PRELOAD": "x.so"},
}


def run(home: Path, *arguments: str, cwd: Path | None = None) -> str:
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    command = command_line(*arguments)
    result = subprocess.run(
        command, cwd=cwd or home, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.mark.requirement("cli.shown.what-runs")
def test_trust_shows_the_very_command_that_starts_and_all_that_has_a_say_in_it(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".coretools").mkdir(parents=True)
    servers = {"nice": LOOKS_REMOTE, "hid": LOOKS_SECRET, "far": LOOKS_LOCAL}
    settings = {"mcpServers": servers, "tools": {"discoveryCommand": ["sh", "--token", "touch P4"]}}
    (project / ".coretools" / "settings.json").write_text(json.dumps(settings))
    output = run(home, "trust", "--yes", cwd=project)
    assert "would start the server nice: /bin/sh -c 'touch P1'\n" in output
    assert "docs.example.org" not in output
    assert """would start the server hid: /bin/sh -c 'eval "$1"' --password 'touch P3'\n""" in output
    assert 'would connect to the server far: https://evil.example/mcp; with {"env": {"LD_PRELOAD": "x.so"}}; ' in output
    assert "in the folder /srv" in output
    assert "would run to discover tools: sh --token 'touch P4'" in output


ADDRESSES = [
    "https://mcp.example.org/mcp?token=hunter2&mode=fast",
    "https://mcp.example.org/mcp?mode=fast&sig=hunter2",
    "https://hunter2@mcp.example.org/mcp?mode=fast",
    "https://mcp.example.org/s/hunter2hunter2hunter2/mcp?mode=fast",
    "https://mcp.example.org/mcp?mode=fast#access_token=hunter2",
]


@pytest.mark.requirement("cli.config.show")
@pytest.mark.parametrize("address", ADDRESSES)
def test_show_hides_the_secrets_in_addresses_and_leaves_the_rest(home: Path, tmp_path: Path, address: str) -> None:
    config = tmp_path / "mcp.json"
    remote = {"url": address}
    local = {"command": "x", "args": [f"--endpoint={address}", "--pass=hunter2", "-pwd-secret=hunter2", "--mode=slow"]}
    config.write_text(json.dumps({"mcpServers": {"remote": remote, "local": local}}))
    output = run(home, "config", "show", "--config", str(config))
    assert "hunter2" not in output
    assert output.count("mcp.example.org/") == 2
    assert output.count("mode=fast") == 2
    assert "--pass=[hidden]" in output
    assert "--mode=slow" in output


@pytest.mark.requirement("cli.config.show")
def test_show_leaves_addresses_without_secrets_as_they_are(home: Path, tmp_path: Path) -> None:
    address = (
        "https://my-documentation-server-v2.example.org:8443/api/v2/mcp-documentation-server?key=${MY_KEY}&page=12"
    )
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"remote": {"url": address, "enabled": False}}}))
    assert address in run(home, "config", "show", "--config", str(config))
