"""A trusted workspace file that changes while a server runs: its restrictions stay in force."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.administration.settings_reload import LiveSettings, new_settings, waiting_for_restart, withdrawn_agents
from server.requests.tool_services import Commands, permission_policy
from server.settings import SettingsReport, load_settings
from server.settings.load import read_settings
from server.settings.workspace_trust import digest, trust_file, trust_folder
from tests.pools import quiet_pool
from tests.settings_cases import write
from tools.agent_programs import AgentCommand
from tools.builtin.task import TaskTool
from tools.call.tool_registry import ToolRegistry
from tools.contract.call_options import ApprovalMode
from tools.contract.permission_subjects import AgentSubject
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionRequest

OWN = ".coretools/settings.json"

CONTENT: dict[str, Any] = {
    "permissions": {"allow": ["Bash(make)"], "ask": ["Edit"], "deny": ["Read(s.txt)"]},
    "tools": {"exclude": ["glob"], "confirmationRequired": ["web_fetch"], "core": ["Read", "Edit"]},
    "mcp": {"excluded": ["x"], "allowed": ["y"]},
    "mcpServers": {"y": {"command": "y"}},
    "agents": {"helper": {"command": "helper"}},
    "shell": {"env": {"BASH_FUNC": "from the workspace"}},
}


class Project:
    """A workspace whose settings are trusted, and the settings of a server that was started in it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ, self.file = folder, environ, folder / OWN
        self.write(CONTENT)
        self.trust()
        self.report = load_settings([], {}, environ, folder=str(folder))
        assert self.report.settings.permissions.deny == ("Read(s.txt)",)

    @property
    def store(self) -> str:
        store = trust_file(self.environ)
        assert store is not None
        return store

    def write(self, content: Any) -> None:
        write(self.file, content)

    def trust(self) -> None:
        trust_folder(self.store, str(self.folder), {OWN: digest(self.file.read_bytes())})

    def read(self) -> SettingsReport:
        """Read the settings again, like a running server."""
        assert self.report.inputs is not None
        self.report = read_settings(self.report.inputs, self.report)
        return self.report


@pytest.fixture
def project(tmp_path: Path, environ: dict[str, str]) -> Project:
    return Project(tmp_path.resolve() / "project", environ)


def _add_a_blank(project: Project) -> None:
    project.file.write_text(project.file.read_text() + " ")


def _write_something_else(project: Project) -> None:
    project.write({"permissions": {"deny": [], "allow": ["Read"]}, "agents": {"evil": {"command": "evil"}}})


def _write_no_settings(project: Project) -> None:
    project.file.write_text("{")


def _take_trust_back(project: Project) -> None:
    trust_folder(project.store, str(project.folder), None)


def _remove(project: Project) -> None:
    project.file.unlink()


def _make_a_folder_of_it(project: Project) -> None:
    project.file.unlink()
    project.file.mkdir()


LOSSES = [
    _add_a_blank,
    _write_something_else,
    _write_no_settings,
    _take_trust_back,
    _remove,
    _make_a_folder_of_it,
]


@pytest.mark.requirement("settings.live.restrictions")
@pytest.mark.parametrize("lose", LOSSES, ids=[loss.__name__.strip("_") for loss in LOSSES])
def test_only_the_restrictions_of_a_file_stay_in_force_when_it_is_no_longer_trusted(
    project: Project, lose: Any
) -> None:
    lose(project)
    for _ in range(2):  # the restrictions stay even if the settings are read repeatedly
        report = project.read()
        settings = report.settings
        assert (settings.permissions.ask, settings.permissions.deny) == (("Edit",), ("Read(s.txt)",))
        assert (settings.tools.exclude, settings.tools.confirmation_required) == (("glob",), ("web_fetch",))
        assert settings.tools.core == ("Read", "Edit")
        assert (settings.mcp.allowed, settings.mcp.excluded) == (("y",), ("x",))
        assert settings.permissions.allow == ()
        assert dict(report.upstreams) == {}
        assert dict(settings.agents) == {}
        assert dict(settings.shell.env) == {}
        kept_warnings = [
            warning
            for warning in report.warnings
            if warning.startswith(f"{project.file}: the restrictions in the last trusted")
        ]
        assert len(kept_warnings) == 1
        assert "until this server uses the file again or restarts" in kept_warnings[0]


@pytest.mark.requirement("settings.live.restrictions")
def test_a_file_that_allows_no_server_still_allows_none_when_it_is_no_longer_trusted(project: Project) -> None:
    write(
        Path(project.environ["HOME"]) / ".config/coretools-mcp/settings.json", {"mcpServers": {"x": {"command": "x"}}}
    )
    project.write({"mcp": {"allowed": []}})
    project.trust()
    assert dict(project.read().upstreams) == {}
    _add_a_blank(project)
    for _ in range(2):
        report = project.read()
        assert (report.settings.mcp.allowed, dict(report.upstreams)) == ((), {})


@pytest.mark.requirement("settings.live.restrictions")
def test_a_file_that_is_trusted_again_takes_effect(project: Project) -> None:
    project.write({"permissions": {"deny": ["Edit"]}})
    assert project.read().settings.permissions.deny == ("Read(s.txt)",)
    project.trust()
    report = project.read()
    assert (report.settings.permissions.deny, report.settings.tools.core) == (("Edit",), ())
    assert report.warnings == ()
    _add_a_blank(project)
    assert project.read().settings.permissions.deny == ("Edit",)


@pytest.mark.requirement("settings.live.restrictions")
def test_a_new_start_does_not_know_the_earlier_trusted_settings(project: Project) -> None:
    _add_a_blank(project)
    report = load_settings([], {}, project.environ, folder=str(project.folder))
    assert report.settings.permissions.deny == ()


@pytest.mark.requirement("settings.live.restrictions")
def test_a_rule_removed_from_the_operators_own_file_no_longer_applies(environ: dict[str, str], file: Path) -> None:
    write(file, {"permissions": {"deny": ["Edit"]}})
    report = load_settings([str(file)], {}, environ)
    write(file, {})
    assert report.inputs is not None
    assert read_settings(report.inputs, report).settings.permissions.deny == ()


@pytest.mark.requirement("settings.live.restrictions")
def test_a_new_setting_of_the_operator_is_not_replaced_by_a_kept_restriction(project: Project) -> None:
    user_file = Path(project.environ["HOME"]) / ".config/coretools-mcp/settings.json"
    _add_a_blank(project)
    write(user_file, {"tools": {"core": ["Glob"]}})
    assert project.read().settings.tools.core == ("Glob",)


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.restrictions")
async def test_a_running_server_keeps_the_rules(project: Project) -> None:
    changes: AsyncGenerator[SettingsReport] = new_settings(project.report, 0.02)
    async with aclosing(changes):
        _add_a_blank(project)
        with anyio.fail_after(60):
            report = await anext(changes)
    assert report.settings.permissions.deny == ("Read(s.txt)",)
    assert dict(report.settings.agents) == {}


async def _live_settings(project: Project, registry: ToolRegistry) -> tuple[LiveSettings, Any]:
    policy = permission_policy(project.report, registry)

    async def ignore_change(before: SettingsReport, after: SettingsReport) -> None:
        del before, after

    return LiveSettings(project.report, registry, policy, quiet_pool({}, registry=registry), ignore_change), policy


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.agents")
async def test_an_agent_of_a_workspace_is_refused_while_its_settings_are_not_the_original_trusted_ones(
    project: Project, tmp_path: Path
) -> None:
    def no_runner() -> Any:
        raise AssertionError("nothing is run")

    tool = TaskTool([AgentCommand(name="helper", command="helper")], no_runner, {})
    registry = ToolRegistry()
    registry.register_tool(tool)
    live, policy = await _live_settings(project, registry)
    request = PermissionRequest(tool.traits, ApprovalMode.YOLO, ["Agent"], Workspace([str(tmp_path)]))

    def verdict(agent: str = "helper") -> tuple[str, str]:
        permission = policy.judge_subjects(request, [AgentSubject(agent)])
        return permission.verdict, permission.reason

    async def apply() -> None:
        async with anyio.create_task_group() as tasks:
            await live.apply(project.read(), tasks)

    assert verdict()[0] == "allow"
    _add_a_blank(project)
    await apply()
    assert verdict() == (
        "deny",
        "the workspace settings that define this agent have changed, or are no longer trusted",
    )
    assert verdict("another")[0] == "allow"
    _take_trust_back(project)
    await apply()
    assert verdict()[0] == "deny"
    assert sum(rule.source == "agents" for rule in policy.rules.deny) == 1
    project.write({**CONTENT, "agents": {"helper": {"command": "other"}}})
    project.trust()
    await apply()
    assert verdict()[0] == "deny"
    project.write(CONTENT)
    project.trust()
    await apply()
    assert verdict()[0] == "allow"


@pytest.mark.requirement("settings.live.agents")
def test_a_change_of_the_operators_agents_waits_for_the_next_start(environ: dict[str, str], file: Path) -> None:
    write(file, {"agents": {"helper": {"command": "a"}}})
    report = load_settings([str(file)], {}, environ)
    write(file, {})
    assert report.inputs is not None
    after = read_settings(report.inputs, report)
    assert withdrawn_agents(report, after) == []
    assert waiting_for_restart(report.settings, after.settings) == ["agents"]


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.agents")
async def test_variables_of_commands_follow_the_settings_and_those_of_an_untrusted_workspace_disappear(
    project: Project,
) -> None:
    commands = Commands(project.report)
    try:
        first_runner = commands.runner()
        assert first_runner.options.environment["BASH_FUNC"] == "from the workspace"
        before = project.report.settings
        _add_a_blank(project)
        after = project.read().settings
        commands.change(after)
        assert "BASH_FUNC" not in commands.runner().options.environment
        assert commands.runner().options.timeout_seconds == first_runner.options.timeout_seconds
        assert "shell" not in waiting_for_restart(before, after)
        second_runner = commands.runner()
        commands.change(after)
        assert commands.runner() is second_runner
    finally:
        await commands.aclose(())
    assert os.environ.get("BASH_FUNC") is None


@pytest.mark.requirement("settings.live.restrictions")
def test_restrictions_of_a_workspace_stay_if_the_settings_name_another_one(
    environ: dict[str, str], tmp_path: Path
) -> None:
    folder, user_file = tmp_path.resolve() / "project", tmp_path / "home/.config/coretools-mcp/settings.json"
    write(user_file, {"workspace": {"roots": [str(folder)]}})
    project = Project(folder, environ)
    write(user_file, {"workspace": {"roots": [str(tmp_path)]}})
    for _ in range(2):
        assert project.read().settings.permissions.deny == ("Read(s.txt)",)
        assert project.report.settings.permissions.allow == ()
        assert project.report.settings.mcp.allowed == ("y",)
    user_file.unlink()
    assert project.read().settings.permissions.deny == ("Read(s.txt)",)
