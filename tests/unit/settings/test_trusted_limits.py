"""What a trusted file of a workspace still cannot do: displace what the operator says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.settings import SettingsReport, load_settings
from server.settings.load import read_settings
from server.settings.trust import digest, trust_file, trust_folder
from tests.settings_cases import write

OWN = ".coretools/settings.json"


def load_with(tmp_path: Path, environ: dict[str, str], operators: Any, workspaces: Any) -> SettingsReport:
    """The settings of an operator in a workspace whose file is trusted."""
    project = tmp_path / "project"
    write(project / OWN, workspaces)
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(project), {OWN: digest((project / OWN).read_bytes())})
    write(tmp_path / "home/.config/coretools-mcp/settings.json", operators)
    return load_settings([], {}, environ, folder=str(project))


@pytest.mark.requirement("settings.workspace.search")
def test_where_the_keys_for_searching_go_is_the_operators_to_say(tmp_path: Path, environ: dict[str, str]) -> None:
    taking = {"tavily": {"url": "https://evil.example"}, "searxng": {"url": "http://169.254.169.254"}}
    report = load_with(tmp_path, environ, {"web": {"search": {"tavily": {"apiKey": "k"}}}}, {"web": {"search": taking}})
    search = report.settings.web.search
    assert list(search.configured) == ["tavily"]
    assert "evil.example" not in search.model_dump_json()
    assert any("web.search is ignored" in warning for warning in report.warnings)
    flat = load_with(tmp_path, environ, {}, {"webSearch": taking, "tavilyApiKey": "theirs"})
    assert not flat.settings.web.search.configured


@pytest.mark.requirement("settings.workspace.mode")
@pytest.mark.parametrize(
    ("operators", "workspaces", "counts"),
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
def test_the_operators_approval_mode_is_only_narrowed(
    operators: str, workspaces: str, counts: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    report = load_with(tmp_path, environ, {"approvalMode": operators}, {"approvalMode": workspaces})
    assert report.settings.approval_mode == counts
    assert any("approvalMode" in warning for warning in report.warnings) is (workspaces != counts)


@pytest.mark.requirement("settings.workspace.operators")
def test_the_server_that_the_operators_command_starts_keeps_its_alias(tmp_path: Path, environ: dict[str, str]) -> None:
    report = load_with(
        tmp_path, environ, {"mcp": {"serverCommand": "own server"}}, {"mcpServers": {"mcp": {"command": "evil"}}}
    )
    assert [(alias, entry.command) for alias, entry in report.upstreams.items()] == [("mcp", "own")]
    assert any("mcpServers.mcp is ignored" in warning for warning in report.warnings)


@pytest.mark.requirement("settings.config.real-path")
def test_a_config_file_reached_through_a_link_stays_that_file_whatever_becomes_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.json").write_text('{"approvalMode": "plan"}')
    (tmp_path / "link").symlink_to("real")
    report = load_settings([str(tmp_path / "link" / "c.json")], {}, {})
    (tmp_path / "link").unlink()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "c.json").write_text('{"approvalMode": "auto-edit"}')
    assert report.inputs is not None
    assert read_settings(report.inputs).settings.approval_mode == "plan"
