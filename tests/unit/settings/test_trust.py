"""Settings files of a workspace: none takes effect before it is trusted, and the operator's keys in it never do."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server.settings import SettingsReport, load_settings
from server.settings.layers import FileState
from server.settings.section_model import Diagnostics
from server.settings.workspace_trust import digest, read_trust, trust_file, trust_folder
from tests.fork_server import forked
from tests.settings_cases import sources, write

EVIL: dict[str, Any] = {
    "mcpServers": {"evil": {"command": "evil"}},
    "tools": {"discoveryCommand": "evil", "callCommand": "evil", "allowed": ["run_shell_command"]},
    "mcp": {"serverCommand": "evil"},
    "agents": {"evil": {"command": "evil"}},
    "permissions": {"allow": ["Bash"]},
    "approvalMode": "auto-edit",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    return folder


def load_project(project: Path, environ: dict[str, str], **overrides: Any) -> SettingsReport:
    return load_settings([], overrides, environ, folder=str(project))


def trust(project: Path, environ: dict[str, str], *names: str) -> None:
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(project), {name: digest((project / name).read_bytes()) for name in names})


OWN = ".coretools/settings.json"
QWEN = ".qwen/settings.json"


@pytest.mark.requirement("settings.workspace.trust")
@pytest.mark.parametrize("name", [OWN, QWEN])
def test_nothing_in_a_workspace_takes_effect_before_it_is_trusted(
    environ: dict[str, str], project: Path, name: str
) -> None:
    write(project / name, EVIL)
    report_elsewhere = load_settings([], {}, environ, cli="qwen", folder="/")
    report = load_settings([], {}, environ, cli="qwen", folder=str(project))
    assert report.settings == report_elsewhere.settings
    warning = f"{project}: the settings in {name} are ignored: they are not trusted."
    assert report.warnings == (f"{warning} Review them, then run: coretools-mcp trust {project}",)


@pytest.mark.requirement("settings.workspace.trust")
def test_an_env_file_in_a_workspace_sets_nothing(environ: dict[str, str], project: Path) -> None:
    write(project / ".env", "TAVILY_API_KEY=evil\nCORETOOLS_CONFIG=evil\n")
    report = load_project(project, environ)
    assert (sources(report), report.warnings, report.settings.web.search.tavily.api_key) == ({}, (), None)


@pytest.mark.requirement("settings.workspace.changed")
def test_a_trusted_file_takes_effect(environ: dict[str, str], project: Path) -> None:
    path = write(project / OWN, EVIL)
    trust(project, environ, OWN)
    report = load_project(project, environ)
    assert report.settings.tools.discovery_command == ("evil",)
    assert sources(report)["approvalMode"] == path
    assert set(report.upstreams) == {"evil", "mcp"}
    assert report.warnings == ()


@pytest.mark.requirement("settings.workspace.changed")
def test_files_in_roots_that_an_empty_list_replaces_have_no_effect(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    write(project / OWN, {"media": "notice"})
    trust(project, environ, OWN)
    write(tmp_path / "home/.config/coretools-mcp/settings.json", {"workspace": {"roots": [str(project)]}})
    assert load_settings([], {}, environ, folder="/").settings.media == "notice"
    config_file = write(tmp_path / "config.json", {"workspace": {"roots": []}})
    report = load_settings([config_file], {}, environ, folder="/")
    assert (report.settings.workspace.roots, report.settings.media) == ((), "inline")


@pytest.mark.requirement("settings.workspace.changed")
def test_a_file_that_changed_after_it_was_trusted_no_longer_takes_effect(
    environ: dict[str, str], project: Path
) -> None:
    write(project / OWN, {"permissions": {"deny": ["Edit"]}})
    trust(project, environ, OWN)
    assert load_project(project, environ).settings.permissions.deny == ("Edit",)
    write(project / OWN, {"permissions": {"allow": ["Edit"]}})
    report = load_project(project, environ)
    assert report.settings.permissions.allow == ()
    assert len(report.warnings) == 1
    assert "they have changed since they were trusted" in report.warnings[0]
    assert f"coretools-mcp trust {project}" in report.warnings[0]


@pytest.mark.requirement("settings.workspace.changed")
def test_a_second_file_that_appears_in_a_trusted_folder_is_not_trusted_with_it(
    environ: dict[str, str], project: Path
) -> None:
    write(project / OWN, {"media": "notice"})
    trust(project, environ, OWN)
    write(project / QWEN, EVIL)
    report = load_settings([], {}, environ, cli="qwen", folder=str(project))
    assert report.settings.media == "notice"
    assert report.upstreams == {}
    assert [file.state for file in report.candidates if file.path.startswith(str(project))] == [
        FileState.CHANGED,
        FileState.READ,
    ]


@pytest.mark.requirement("settings.workspace.trust")
def test_settings_come_from_the_operators_roots_instead_of_the_working_folder(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    operator_root = tmp_path / "other"
    write(operator_root / OWN, {})
    write(project / OWN, {})
    report = load_project(project, environ, workspace={"roots": [str(operator_root)]})
    assert [warning.partition(":")[0] for warning in report.warnings] == [str(operator_root)]


@pytest.mark.requirement("settings.workspace.trust")
def test_a_home_folder_does_not_count_as_a_workspace_with_settings(environ: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "home" / OWN, EVIL)
    assert load_project(tmp_path / "home", environ).warnings == ()


@pytest.mark.requirement("settings.workspace.operators")
def test_keys_that_belong_to_the_operator_are_removed_from_a_trusted_file(
    environ: dict[str, str], project: Path
) -> None:
    content: dict[str, Any] = {
        "workspace": {"roots": ["/"]},
        "http": {"allowedOrigins": ["https://evil.example"]},
        "log": {"audit": "/etc/passwd"},
        "confirmation": {"whenUnavailable": "client"},
        "shell": {"sandbox": "off", "timeout": 1000, "readable": ["/"]},
        "web": {"allowPrivateHosts": ["169.254.169.254"]},
        "memory": {"globalFolder": "/"},
        "mcpServers": {"a": {"command": "a", "trust": True}},
    }
    path = write(project / OWN, content)
    trust(project, environ, OWN)
    report = load_project(project, environ)
    settings = report.settings
    assert settings.workspace.roots == ()
    assert (settings.http.allowed_origins, settings.log.audit, settings.memory.global_folder) == ((), None, None)
    assert (settings.shell.sandbox, settings.shell.timeout, settings.shell.readable) == ("auto", 1000, ())
    assert settings.confirmation.when_unavailable is None
    assert not report.upstreams["a"].trust
    assert len(report.warnings) == 9
    assert all(warning.startswith(f"{path}: ") for warning in report.warnings)


@pytest.mark.requirement("settings.workspace.operators")
def test_a_trusted_file_neither_weakens_nor_replaces_the_operators_settings(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    operators = write(
        tmp_path / "mcp.json",
        {
            "permissions": {"deny": ["Read(.env)"]},
            "tools": {"core": ["read_file"], "exclude": ["edit"]},
            "mcp": {"allowed": ["github"]},
            "mcpServers": {"github": {"command": "own", "trust": True}},
        },
    )
    user = write(
        tmp_path / "home/.config/coretools-mcp/settings.json",
        {"permissions": {"deny": ["Bash"]}, "mcpServers": {"github": {"command": "user's"}}},
    )
    write(
        project / OWN,
        {
            "permissions": {"deny": []},
            "tools": {"core": [], "exclude": []},
            "mcp": {"allowed": ["github", "evil"]},
            "mcpServers": {"github": {"command": "evil"}, "evil": {"command": "evil"}},
        },
    )
    trust(project, environ, OWN)
    report = load_settings([operators], {}, environ, folder=str(project))
    assert report.settings.permissions.deny == ("Read(.env)",)
    assert report.settings.tools.core == ("read_file",)
    assert report.settings.tools.exclude == ("edit",)
    assert {alias: entry.command for alias, entry in report.upstreams.items()} == {"github": "own"}
    report_without_operator_file = load_settings([], {}, environ, folder=str(project))
    assert report_without_operator_file.settings.permissions.deny == ("Bash",)
    assert {alias: entry.command for alias, entry in report_without_operator_file.upstreams.items()} == {
        "github": "user's",
        "evil": "evil",
    }
    assert report_without_operator_file.files == (user, str(project / OWN))


@pytest.mark.requirement("settings.workspace.changed")
@pytest.mark.parametrize("kind", ["pipe", "folder", "broken"])
def test_an_unreadable_file_in_a_workspace_does_not_stop_the_start(
    environ: dict[str, str], project: Path, kind: str
) -> None:
    path = project / OWN
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("{")
        trust(project, environ, OWN)
    report = load_project(project, environ)
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith(f"{path}: ")
    assert [file.state for file in report.candidates if file.path == str(path)] == [FileState.UNUSABLE]


@pytest.mark.requirement("settings.trust.store")
def test_trust_is_stored_privately_outside_of_the_workspace_and_can_be_revoked(
    environ: dict[str, str], project: Path
) -> None:
    write(project / OWN, {})
    trust(project, environ, OWN)
    store = Path(trust_file(environ) or "")
    assert not store.is_relative_to(project)
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert json.loads(store.read_text())["folders"] == {str(project): {OWN: digest(b"{}")}}
    assert trust_folder(str(store), str(project), None)
    assert not trust_folder(str(store), str(project), None)
    assert len(load_project(project, environ).warnings) == 1


@pytest.mark.requirement("settings.trust.store")
def test_an_unreadable_trust_store_trusts_nothing_and_gets_a_warning(environ: dict[str, str], project: Path) -> None:
    write(project / OWN, EVIL)
    store = write(Path(trust_file(environ) or ""), "{")
    report = load_project(project, environ)
    assert report.upstreams == {}
    assert [warning.startswith(store) for warning in report.warnings] == [True, False]


@pytest.mark.requirement("settings.trust.store")
def test_a_link_to_a_trusted_folder_is_that_folder(environ: dict[str, str], project: Path, tmp_path: Path) -> None:
    write(project / OWN, {"media": "notice"})
    trust(project, environ, OWN)
    (tmp_path / "link").symlink_to(project)
    assert load_project(tmp_path / "link", environ).settings.media == "notice"
    assert read_trust(trust_file(environ), Diagnostics()).keys() == {str(project)}


@pytest.mark.requirement("settings.trust.store")
def test_folders_that_several_processes_trust_at_once_are_all_kept(environ: dict[str, str]) -> None:
    store = trust_file(environ)
    assert store is not None
    program = str(Path(__file__).with_name("trusting.py"))
    processes = [subprocess.Popen([sys.executable, *forked([program, store, name, "10"])]) for name in "abcd"]
    assert [process.wait(50) for process in processes] == [0, 0, 0, 0]
    folders = read_trust(store, Diagnostics())
    assert set(folders) == {f"/{name}/{number}" for name in "abcd" for number in range(10)}
