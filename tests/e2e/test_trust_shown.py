"""`trust` shows all settings of a workspace, hides nothing, and makes the programs that would run easy to see."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import command_line
from tools.skill_folders import PLACES


def trust_output(folder: Path, settings: dict[str, Any]) -> str:
    """Trust a workspace with these settings, and return what the command prints."""
    home, project = folder / "home", folder / "project"
    home.mkdir(exist_ok=True)
    (project / ".coretools").mkdir(parents=True)
    (project / ".coretools" / "settings.json").write_text(json.dumps(settings))
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    command = command_line("trust", "--yes")
    result = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=60, check=True)
    return result.stdout


@pytest.mark.requirement("cli.trust")
def test_trust_shows_values_that_look_like_secrets_because_they_could_be_programs(tmp_path: Path) -> None:
    code = """$(TOKEN="$(touch P5)")"""
    environment = {"BASH_ENV": code, "GIT_CONFIG_KEY_0": "core.fsmonitor"}
    url = "https://me:hunter2@example.org/mcp?token=hunter3"
    settings: dict[str, Any] = {
        "mcpServers": {
            "near": {"command": "bash", "env": environment, "description": "Read\n\u202ethis first", "timeout": 7},
            "far": {"url": url, "headers": {"X-Run": code}},
        },
        "agents": {"helper": {"command": "bash", "env": environment, "description": "Best", "prompt": "argument"}},
        "shell": {"env": environment},
    }
    output = trust_output(tmp_path, settings)
    assert output.count(json.dumps(code)) == 4
    assert output.count("core.fsmonitor") == 3
    assert f"would connect to the server far: {url}; with" in output
    assert 'described to models as "Read\\n<U+202E>this first"; also {"timeout": 7}\n' in output
    assert 'described to models as "Best"; also {"prompt": "argument"}\n' in output
    assert "hidden" not in output


@pytest.mark.requirement("cli.trust")
def test_a_broken_file_of_another_cli_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    for folder in ("project/.qwen", "home/.gemini"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "settings.json").write_text("{broken")
    output = trust_output(tmp_path, {"approvalMode": "auto-edit"})
    assert "not trusted, and not read until it is fixed: " in output
    assert output.endswith("is trusted, with its settings, skills and programs as they are now.\n")
    records = json.loads((tmp_path / "home/.config/coretools-mcp/trusted.json").read_text())
    assert list(records["folders"][str(tmp_path / "project")]) == [".coretools/settings.json"]


@pytest.mark.requirement("cli.trust")
def test_what_runs_is_the_last_thing_that_trust_shows_of_a_long_file(tmp_path: Path) -> None:
    settings: dict[str, Any] = {f"unknown{number}": 1 for number in range(500)}
    settings |= {"agents": {"helper": {"command": "bash"}}, "permissions": {"allow": ["Bash"], "deny": ["Edit"]}}
    lines = trust_output(tmp_path, settings).splitlines()
    assert sum("is not a known key" in line for line in lines) == 20
    assert lines[-5:-1] == [
        "  note: 480 more not shown.",
        "In summary, what runs and what is allowed:",
        "  would start the agent helper: bash",
        "  would allow without a question: Bash",
    ]


@pytest.mark.requirement("cli.trust")
def test_of_many_notes_about_skills_the_last_ones_are_counted(tmp_path: Path) -> None:
    for number in range(23):
        folder = tmp_path / "project" / PLACES[0] / f"skill-{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("This file has no front matter.\n")
    lines = trust_output(tmp_path, {"approvalMode": "auto-edit"}).splitlines()
    assert sum(line.startswith("  note: ") and "is not used" in line for line in lines) == 20
    assert "  note: 3 more not shown." in lines


@pytest.mark.requirement("cli.trust")
def test_programs_are_shown_in_full_once_and_shortened_and_counted_in_the_summary(tmp_path: Path) -> None:
    args = [40 * " " + 500 * "x"]
    lines = trust_output(
        tmp_path, {"agents": {f"a{n}": {"command": "bash", "args": args} for n in range(30)}}
    ).splitlines()
    assert sum(line.endswith(f" <40 spaces> {500 * 'x'}'") for line in lines) == 30
    assert sum(line.endswith("x [...]") for line in lines) == 20
    assert lines[-2] == "  and 10 more, shown above"


@pytest.mark.requirement("lsp.consent")
def test_a_folder_without_settings_can_be_trusted_for_its_language_servers(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".venv" / "bin").mkdir(parents=True)
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}

    def trust(*options: str) -> subprocess.CompletedProcess[str]:
        command = command_line("trust", *options)
        return subprocess.run(
            command, cwd=project, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    assert "there is nothing to trust" in trust("--yes").stderr
    program = project / ".venv" / "bin" / "pyright-langserver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert "would start the language server .venv/bin/pyright-langserver" in trust("--yes").stdout
    assert trust("--list").stdout == f"{project}: .venv/bin/pyright-langserver\n"
