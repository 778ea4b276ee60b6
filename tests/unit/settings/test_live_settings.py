"""Changed settings in a running server: upstreams that did not change go on, rules change at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from server.administration.live_settings import LiveSettings, waiting_for_restart
from server.requests.tool_services import permission_policy
from server.settings import SettingsReport, load_settings
from server.upstreams.catalog.lock_file import Lock
from server.upstreams.catalog.upstream_tool import BlockedMCPTool, DiscoveredMCPTool
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.connections.tool_owner import owner_of
from server.upstreams.session.list_reader import OfferedKind
from tests.harness import stdio_upstream
from tests.pools import ONE_CLIENT, refuse_calls
from tests.settings_cases import write
from tools.builtin.run_shell_command import ShellTool
from tools.call.tool_registry import ToolRegistry
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import CommandSubject
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionRequest

pytestmark = pytest.mark.anyio


class Running:
    """What changes with the settings, wired by hand."""

    def __init__(self, file: Path, environ: dict[str, str], content: dict[str, Any]) -> None:
        self._file, self._environ = file, environ
        report = self.written(content)
        self.registry = ToolRegistry()
        self.policy = permission_policy(report, self.registry)
        self.said: list[str] = []
        """The lists of which clients hear that they have changed."""
        self.pool = UpstreamPool(report.upstreams, self.registry, 0, 48, refuse_calls, on_offer=self._offered)
        self.changes: list[tuple[SettingsReport, SettingsReport]] = []
        self.live = LiveSettings(report, self.registry, self.policy, self.pool, self._told)

    def written(self, content: dict[str, Any]) -> SettingsReport:
        return load_settings([write(self._file, content)], {}, self._environ)

    def _offered(self, kind: OfferedKind, is_said: bool) -> None:
        if is_said:
            self.said.append(kind.field)

    async def _told(self, before: SettingsReport, now: SettingsReport) -> None:
        self.changes.append((before, now))

    async def upstream(self, alias: str) -> Upstream:
        found = owner_of(self.pool, f"{alias}__x")
        assert found is not None
        with anyio.fail_after(50):
            await found.known.wait()
        assert found.live_session is not None
        return found


@pytest.mark.requirement("settings.live.upstreams")
async def test_only_upstreams_whose_entry_changed_are_restarted_and_calls_of_others_go_on(
    environ: dict[str, str], file: Path
) -> None:
    running = Running(
        file,
        environ,
        {"mcpServers": {"same": stdio_upstream(), "changed": stdio_upstream(), "gone": stdio_upstream()}},
    )
    async with anyio.create_task_group() as tasks:
        running.pool.start(tasks, ONE_CLIENT)
        same, changed = await running.upstream("same"), await running.upstream("changed")
        await running.upstream("gone")
        steps: list[str] = []

        async def call() -> None:
            session = same.live_session
            assert session is not None
            with anyio.CancelScope() as scope:
                tasks_of_call.append(scope)
                await session.request("tools/call", {"name": "wait", "arguments": {}})
            steps.append("ended by us" if scope.cancelled_caught else "ended")

        tasks_of_call: list[anyio.CancelScope] = []
        tasks.start_soon(call)
        report = running.written(
            {
                "mcpServers": {
                    "same": stdio_upstream(),
                    "changed": stdio_upstream(excludeTools=["fail"], env={"ANY": "1"}),
                    "fresh": stdio_upstream(),
                }
            }
        )
        await running.live.apply(report, tasks)
        assert [upstream.alias for upstream in running.pool.upstreams] == ["same", "changed", "fresh"]
        assert await running.upstream("same") is same
        assert await running.upstream("changed") is not changed
        await running.upstream("fresh")
        names = {tool.name for tool in running.registry.get_all_tools()}
        assert {"same__fail", "changed__echo", "fresh__echo"} <= names
        assert "changed__fail" not in names
        assert not any(name.startswith("gone__") for name in names)
        assert steps == []
        tasks_of_call[0].cancel()
        with anyio.fail_after(60):
            await running.registry.discover_all_tools()
        tasks.cancel_scope.cancel()
    assert len(running.changes) == 1


@pytest.mark.requirement("lock.live")
async def test_what_was_approved_here_counts_no_more_once_the_file_is_as_before(
    environ: dict[str, str], file: Path
) -> None:
    running = Running(file, environ, {})
    await running.pool.use_lock(Lock("x", digest="approved here"))
    async with anyio.create_task_group() as tasks:
        await running.live.apply(running.live.report, tasks)
    assert running.pool.catalog.lock is None


@pytest.mark.requirement("lock.stops")
async def test_a_lock_file_counts_for_every_tool_where_the_call_that_wrote_it_is_cancelled(
    environ: dict[str, str], file: Path
) -> None:
    running = Running(file, environ, {"mcpServers": {"up": stdio_upstream()}})
    many: list[dict[str, Any]] = [{"name": f"t{number}"} for number in range(5_000)]
    (up,) = running.pool.upstreams
    up.offer.lists["tools"] = many
    running.pool.catalog.set_listed("up", many, refuse_calls(up))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await running.pool.use_lock(Lock("x"))
    assert running.pool.catalog.standings("up") == {"new": len(many)}
    assert isinstance(running.registry.get_tool("up__t1"), BlockedMCPTool)


def is_read_only(tool: object) -> bool:
    """What clients are told about a tool of an upstream."""
    assert isinstance(tool, DiscoveredMCPTool)
    return bool(tool.published()["annotations"]["readOnlyHint"])


@pytest.mark.requirement("settings.live.upstreams")
async def test_what_is_published_of_an_upstream_changes_without_another_connection(
    environ: dict[str, str], file: Path
) -> None:
    running = Running(file, environ, {"mcpServers": {"up": stdio_upstream(), "other": stdio_upstream()}})
    async with anyio.create_task_group() as tasks:
        running.pool.start(tasks, ONE_CLIENT)
        up = await running.upstream("up")
        await running.upstream("other")
        session, scope, told = up.live_session, anyio.CancelScope(), list[str]()
        assert session is not None
        running.said.clear()

        async def call() -> None:
            with scope:
                await session.request("tools/call", {"name": "wait", "arguments": {}})
            told.append("ended by us" if scope.cancelled_caught else "ended")

        tasks.start_soon(call)
        edited = stdio_upstream(
            prefix="none",
            rename={"echo": "say"},
            excludeTools=["fail"],
            includeTools=["echo", "wait", "fail"],
            description="For tests.",
            timeout=1234,
            trust=True,
        )
        await running.live.apply(running.written({"mcpServers": {"up": edited, "other": stdio_upstream()}}), tasks)
        names = {tool.name: tool for tool in running.registry.get_all_tools()}
        assert {"say", "wait", "other__echo"} <= names.keys()
        assert not {"fail", "steps", "up__echo"} & names.keys()
        assert is_read_only(names["say"])
        assert "tools" in running.said, "clients hear of it"
        assert up.entry.timeout == 1234
        assert running.pool.by_alias.get("up") is up
        assert up.live_session is session
        assert told == []

        await running.live.apply(running.written({"mcpServers": {"up": stdio_upstream()}}), tasks)
        names = {tool.name: tool for tool in running.registry.get_all_tools()}
        assert {"up__echo", "up__fail", "up__steps"} <= names.keys()
        assert not is_read_only(names["up__echo"])
        assert up.live_session is session
        scope.cancel()
        with anyio.fail_after(60):
            while not told:
                await anyio.lowlevel.checkpoint()
        assert told == ["ended by us"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("settings.live.rules")
async def test_rules_change_at_once_and_what_a_session_was_granted_stays(
    environ: dict[str, str], file: Path, root: Path
) -> None:
    running = Running(file, environ, {"permissions": {"allow": ["Bash(touch *)"]}})
    request = PermissionRequest(ShellTool().traits, ApprovalMode.DEFAULT, ["Bash(mkdir *)"], Workspace([str(root)]))

    def verdict(command: str) -> str:
        subject = CommandSubject(command, str(root))
        permission = running.policy.judge_subjects(request, [subject])
        return permission.verdict if permission is not None else "none"

    assert [verdict("touch a"), verdict("mkdir b"), verdict("rm c")] == ["allow", "allow", "ask"]
    async with anyio.create_task_group() as tasks:
        await running.live.apply(running.written({"permissions": {"deny": ["Bash(rm *)"]}}), tasks)
    assert [verdict("touch a"), verdict("mkdir b"), verdict("rm c")] == ["ask", "allow", "deny"]


@pytest.mark.requirement("settings.live.rules")
async def test_a_rule_that_was_saved_meanwhile_stays_where_the_settings_give_the_same_rules(
    environ: dict[str, str], file: Path
) -> None:
    rules = {"permissions": {"allow": ["Bash(ls)"]}}
    running = Running(file, environ, rules)
    running.policy.allow(["Bash(touch *)"], "permissions.allow")
    async with anyio.create_task_group() as tasks:
        await running.live.apply(running.written({**rules, "http": {"port": 1}}), tasks)
    assert len(running.policy.rules.allow) == 2


@pytest.mark.requirement("settings.live.rules")
async def test_what_waits_for_the_next_start_is_told(environ: dict[str, str], file: Path) -> None:
    running = Running(file, environ, {})
    before = running.live.report.settings
    now = running.written({"http": {"port": 1}, "media": "notice", "permissions": {"deny": ["Edit"]}}).settings
    assert waiting_for_restart(before, now) == ["media", "http"]
    assert waiting_for_restart(before, before) == []
