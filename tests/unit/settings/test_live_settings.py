"""Changed settings in a running server: unchanged upstreams keep running, and rules change at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from server.administration.settings_reload import LiveSettings, waiting_for_restart
from server.requests.tool_services import permission_policy
from server.settings import SettingsReport, load_settings
from server.upstreams.catalog.blocked_tools import BlockedMCPTool
from server.upstreams.catalog.lock_file import Lock
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.connections.tool_owner import owner_of
from server.upstreams.session.list_reader import OfferedKind
from tests.harness import stdio_upstream
from tests.pools import ONE_CLIENT, refuse_calls
from tests.settings_cases import write
from tools.builtin.run_shell_command import ShellTool
from tools.call.tool_registry import ToolRegistry
from tools.contract.call_options import ApprovalMode
from tools.contract.permission_subjects import CommandSubject
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionRequest

pytestmark = pytest.mark.anyio


class RunningServer:
    """The parts of a server that follow its settings."""

    def __init__(self, file: Path, environ: dict[str, str], content: dict[str, Any]) -> None:
        self._file, self._environ = file, environ
        report = self.write_settings(content)
        self.registry = ToolRegistry()
        self.policy = permission_policy(report, self.registry)
        self.announced_lists: list[str] = []
        """The lists whose changes were announced to clients."""
        self.pool = UpstreamPool(
            report.upstreams, self.registry, 0, 48, refuse_calls, on_offer=self._record_announcement
        )
        self.changes: list[tuple[SettingsReport, SettingsReport]] = []
        self.live = LiveSettings(report, self.registry, self.policy, self.pool, self._record_change)

    def write_settings(self, content: dict[str, Any]) -> SettingsReport:
        return load_settings([write(self._file, content)], {}, self._environ)

    def _record_announcement(self, kind: OfferedKind, is_announced: bool) -> None:
        if is_announced:
            self.announced_lists.append(kind.field)

    async def _record_change(self, before: SettingsReport, after: SettingsReport) -> None:
        self.changes.append((before, after))

    async def upstream(self, alias: str) -> Upstream:
        upstream = owner_of(self.pool, f"{alias}__x")
        assert upstream is not None
        with anyio.fail_after(50):
            await upstream.known.wait()
        assert upstream.live_session is not None
        return upstream


@pytest.mark.requirement("settings.live.upstreams")
async def test_only_upstreams_whose_entry_changed_are_restarted_and_calls_of_others_continue(
    environ: dict[str, str], file: Path
) -> None:
    server = RunningServer(
        file,
        environ,
        {"mcpServers": {"same": stdio_upstream(), "changed": stdio_upstream(), "gone": stdio_upstream()}},
    )
    async with anyio.create_task_group() as tasks:
        server.pool.start(tasks, ONE_CLIENT)
        same_upstream, changed_upstream = await server.upstream("same"), await server.upstream("changed")
        await server.upstream("gone")
        steps: list[str] = []

        async def call() -> None:
            session = same_upstream.live_session
            assert session is not None
            with anyio.CancelScope() as scope:
                tasks_of_call.append(scope)
                await session.request("tools/call", {"name": "wait", "arguments": {}})
            steps.append("cancelled" if scope.cancelled_caught else "ended")

        tasks_of_call: list[anyio.CancelScope] = []
        tasks.start_soon(call)
        report = server.write_settings(
            {
                "mcpServers": {
                    "same": stdio_upstream(),
                    "changed": stdio_upstream(excludeTools=["fail"], env={"ANY": "1"}),
                    "fresh": stdio_upstream(),
                }
            }
        )
        await server.live.apply(report, tasks)
        assert [upstream.alias for upstream in server.pool.upstreams] == ["same", "changed", "fresh"]
        assert await server.upstream("same") is same_upstream
        assert await server.upstream("changed") is not changed_upstream
        await server.upstream("fresh")
        names = {tool.name for tool in server.registry.get_all_tools()}
        assert {"same__fail", "changed__echo", "fresh__echo"} <= names
        assert "changed__fail" not in names
        assert not any(name.startswith("gone__") for name in names)
        assert steps == []
        tasks_of_call[0].cancel()
        with anyio.fail_after(60):
            await server.registry.discover_all_tools()
        tasks.cancel_scope.cancel()
    assert len(server.changes) == 1


@pytest.mark.requirement("lock.live")
async def test_an_approval_no_longer_applies_once_the_lock_file_is_as_before(
    environ: dict[str, str], file: Path
) -> None:
    server = RunningServer(file, environ, {})
    await server.pool.use_lock(Lock("x", digest="approved here"))
    async with anyio.create_task_group() as tasks:
        await server.live.apply(server.live.report, tasks)
    assert server.pool.catalog.lock is None


@pytest.mark.requirement("lock.stops")
async def test_a_lock_file_applies_to_every_tool_even_if_the_call_that_wrote_it_is_cancelled(
    environ: dict[str, str], file: Path
) -> None:
    server = RunningServer(file, environ, {"mcpServers": {"up": stdio_upstream()}})
    tools: list[dict[str, Any]] = [{"name": f"t{number}"} for number in range(5_000)]
    (up,) = server.pool.upstreams
    up.offer.lists["tools"] = tools
    server.pool.catalog.set_listed("up", tools, refuse_calls(up))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await server.pool.use_lock(Lock("x"))
    assert server.pool.catalog.standings("up") == {"new": len(tools)}
    assert isinstance(server.registry.get_tool("up__t1"), BlockedMCPTool)


def is_read_only(tool: object) -> bool:
    """Return the read-only hint that clients get about a tool of an upstream."""
    assert isinstance(tool, DiscoveredMCPTool)
    return bool(tool.published()["annotations"]["readOnlyHint"])


@pytest.mark.requirement("settings.live.upstreams")
async def test_published_tools_of_an_upstream_change_without_a_new_connection(
    environ: dict[str, str], file: Path
) -> None:
    server = RunningServer(file, environ, {"mcpServers": {"up": stdio_upstream(), "other": stdio_upstream()}})
    async with anyio.create_task_group() as tasks:
        server.pool.start(tasks, ONE_CLIENT)
        up = await server.upstream("up")
        await server.upstream("other")
        session, scope, outcomes = up.live_session, anyio.CancelScope(), list[str]()
        assert session is not None
        server.announced_lists.clear()

        async def call() -> None:
            with scope:
                await session.request("tools/call", {"name": "wait", "arguments": {}})
            outcomes.append("cancelled" if scope.cancelled_caught else "ended")

        tasks.start_soon(call)
        entry = stdio_upstream(
            prefix="none",
            rename={"echo": "say"},
            excludeTools=["fail"],
            includeTools=["echo", "wait", "fail"],
            description="For tests.",
            timeout=1234,
            trust=True,
        )
        await server.live.apply(server.write_settings({"mcpServers": {"up": entry, "other": stdio_upstream()}}), tasks)
        names = {tool.name: tool for tool in server.registry.get_all_tools()}
        assert {"say", "wait", "other__echo"} <= names.keys()
        assert not {"fail", "steps", "up__echo"} & names.keys()
        assert is_read_only(names["say"])
        assert "tools" in server.announced_lists, "the change was not announced to clients"
        assert up.entry.timeout == 1234
        assert server.pool.by_alias.get("up") is up
        assert up.live_session is session
        assert outcomes == []

        await server.live.apply(server.write_settings({"mcpServers": {"up": stdio_upstream()}}), tasks)
        names = {tool.name: tool for tool in server.registry.get_all_tools()}
        assert {"up__echo", "up__fail", "up__steps"} <= names.keys()
        assert not is_read_only(names["up__echo"])
        assert up.live_session is session
        scope.cancel()
        with anyio.fail_after(60):
            while not outcomes:
                await anyio.lowlevel.checkpoint()
        assert outcomes == ["cancelled"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("settings.live.rules")
async def test_rules_change_at_once_and_grants_of_a_session_stay(
    environ: dict[str, str], file: Path, root: Path
) -> None:
    server = RunningServer(file, environ, {"permissions": {"allow": ["Bash(touch *)"]}})
    request = PermissionRequest(ShellTool().traits, ApprovalMode.DEFAULT, ["Bash(mkdir *)"], Workspace([str(root)]))

    def verdict(command: str) -> str:
        subject = CommandSubject(command, str(root))
        permission = server.policy.judge_subjects(request, [subject])
        return permission.verdict if permission is not None else "none"

    assert [verdict("touch a"), verdict("mkdir b"), verdict("rm c")] == ["allow", "allow", "ask"]
    async with anyio.create_task_group() as tasks:
        await server.live.apply(server.write_settings({"permissions": {"deny": ["Bash(rm *)"]}}), tasks)
    assert [verdict("touch a"), verdict("mkdir b"), verdict("rm c")] == ["ask", "allow", "deny"]


@pytest.mark.requirement("settings.live.rules")
async def test_a_rule_that_was_saved_meanwhile_stays_if_the_settings_have_the_same_rules(
    environ: dict[str, str], file: Path
) -> None:
    rules = {"permissions": {"allow": ["Bash(ls)"]}}
    server = RunningServer(file, environ, rules)
    server.policy.allow(["Bash(touch *)"], "permissions.allow")
    async with anyio.create_task_group() as tasks:
        await server.live.apply(server.write_settings({**rules, "http": {"port": 1}}), tasks)
    assert len(server.policy.rules.allow) == 2


@pytest.mark.requirement("settings.live.rules")
async def test_settings_that_wait_for_the_next_start_are_named(environ: dict[str, str], file: Path) -> None:
    server = RunningServer(file, environ, {})
    before = server.live.report.settings
    after = server.write_settings({"http": {"port": 1}, "media": "notice", "permissions": {"deny": ["Edit"]}}).settings
    assert waiting_for_restart(before, after) == ["media", "http"]
    assert waiting_for_restart(before, before) == []
