"""Settings that change while the server runs: what takes effect at once, and what waits for the next start.

Their files are looked at once a second: that works on every file system, and costs little.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import anyio
from anyio.abc import TaskGroup

from server.requests.tool_services import guarded_paths, permission_policy
from server.settings import Settings, UpstreamSettings
from server.settings.load import SettingsReport, read_settings
from server.settings.section_model import SettingsError
from server.settings.workspace_trust import trust_file
from server.upstreams.catalog.lock_file import read_lock
from server.upstreams.connections.pool import UpstreamPool
from tools.call.tool_registry import ToolRegistry
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import AgentSpecifier, Rule
from tools.permissions.tool_names import DELEGATING
from tools.permissions.verdict import Verdict

logger = logging.getLogger(__name__)


LOOK_SECONDS = 1.0
"""How often the files are looked at. A change counts once it has been there for a second look, so that an
editor has finished writing."""
MAX_LOOKS = 4
"""After so many looks a change counts although the file changes still: a file that never rests must not keep a
rule from counting."""
FileMark = tuple[int, int, int, int] | None  # what tells one state of a file from another; `None` where there is none


async def new_settings(report: SettingsReport, look_seconds: float = LOOK_SECONDS) -> AsyncGenerator[SettingsReport]:
    """The settings again after each change of a file that may give some. What cannot be used is logged."""
    inputs = report.inputs
    if inputs is None:
        return
    stores = [path for path in (trust_file(inputs.environ), report.lock and report.lock.path) if path]

    def look() -> dict[str, FileMark]:
        """How the files are now. What is behind a pipe, such as a shell's `<(...)`, was read once and is gone."""
        candidates = [file.path for file in report.candidates if file.path not in inputs.streams]
        marks: dict[str, FileMark] = {}
        for path in [inputs.links.get(path, path) for path in candidates] + stores:
            try:
                info = os.stat(path)
            except (OSError, ValueError):
                marks[path] = None
            else:
                marks[path] = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        return marks

    read: dict[str, FileMark] = {}  # nothing counts as read: a file may have changed between the start and now
    last: Mapping[str, FileMark] = {}
    looks: dict[str, int] = {}  # for each file that has changed since it was read, at how many looks it had
    while True:
        await anyio.sleep(look_seconds)
        try:
            now = await THREADS.run(look)
            looks = {path: looks.get(path, 0) + 1 for path, mark in now.items() if read.get(path, ()) != mark}
            due = {
                path
                for path, count in looks.items()
                if count >= MAX_LOOKS or (path in last and last[path] == now[path])
            }
            last = now
            if not due:
                continue
            # A yes of a person writes the lock file here; that it is as it was is news, too.
            is_locked_again = report.lock is not None and report.lock.path in due & read.keys()
            read |= {path: now[path] for path in due}
            looks = {path: count for path, count in looks.items() if path not in due}
            fresh = await THREADS.run(partial(read_settings, inputs, report))
        except SettingsError as error:
            for problem in error.problems:
                logger.warning("settings changed and cannot be used, so the last ones stay: %s", problem)
            continue
        except Exception:
            logger.exception("settings changed and cannot be read because of an internal error, so the last ones stay")
            continue
        if fresh == report and not is_locked_again:
            continue
        for warning in fresh.warnings:
            if warning not in report.warnings:
                logger.warning(warning)
        report = fresh
        yield report


LIVE = frozenset({"mcp_servers", "mcp", "permissions", "tools"})
"""The sections that take effect at once, but for `tools.builtIn`. So do `shell.env`, `proxy.prefix`, `web.search`."""


class WithdrawnAgent(Rule):
    """Refuses an agent of a workspace whose settings are no longer what they were at the start."""

    __slots__ = ()

    def __str__(self) -> str:
        return "the settings of a workspace that name this agent have changed, or are not trusted any more"


@dataclass
class LiveSettings:
    """Makes changed settings count. What people granted for their session stays."""

    report: SettingsReport
    registry: ToolRegistry
    policy: PermissionPolicy
    pool: UpstreamPool
    on_change: Callable[[SettingsReport, SettingsReport], Awaitable[None]]  # is told about the last ones and of these

    def __post_init__(self) -> None:
        self._at_start = self.report
        self._unwanted: frozenset[str] = frozenset()  # aliases of servers that the person has switched off
        self._tasks: TaskGroup | None = None

    def switch(self, alias: str, *, is_on: bool) -> None:
        """Use a server of the settings or not, until this one ends or it is switched back."""
        self._unwanted = self._unwanted - {alias} if is_on else self._unwanted | {alias}
        if self._tasks is not None:
            self.pool.change(self._used(self.report), self._tasks)

    @property
    def switched_off(self) -> list[str]:
        """Aliases of the servers of the settings that the person does not want for now."""
        return [alias for alias in self.report.upstreams if alias in self._unwanted]

    def _used(self, report: SettingsReport) -> dict[str, UpstreamSettings]:
        return {alias: entry for alias, entry in report.upstreams.items() if alias not in self._unwanted}

    async def follow(self, tasks: TaskGroup) -> None:
        """Apply every change of the settings files, until cancelled. One that fails ends nothing else."""
        self._tasks = tasks
        async for report in new_settings(self.report):
            try:
                await self.apply(report, tasks)
            except Exception:
                logger.exception("changed settings could not be applied as a whole, because of an internal error")

    async def apply(self, report: SettingsReport, tasks: TaskGroup) -> None:
        before = self.report
        logger.info("the settings have changed")
        self.policy.guarded = await THREADS.run(lambda: guarded_paths(report))
        rules = self.policy.rules
        if has_other_rules(before.settings, report.settings):
            rules = permission_policy(report, self.registry).rules
        withdrawn = withdrawn_agents(self._at_start, report)
        deny: list[Rule] = [rule for rule in rules.deny if not isinstance(rule, WithdrawnAgent)]
        subjects = frozenset({DELEGATING})
        deny[:0] = [
            WithdrawnAgent(
                f"Agent({name})", "agents", Verdict.DENY, DELEGATING, subjects, AgentSpecifier(name.casefold())
            )
            for name in withdrawn
        ]
        # One assignment: a call is judged by the old rules or by the new ones, never by some of each.
        self.policy.rules = replace(rules, deny=tuple(deny))
        if withdrawn:
            logger.warning("agents that a workspace brought, and that are refused now: %s", ", ".join(withdrawn))
        self.pool.left_out, self.pool.written = report.left_out, report.written
        self.pool.change(self._used(report), tasks)
        await self.pool.use_lock(await THREADS.run(partial(read_lock, report.lock)))
        waiting = waiting_for_restart(before.settings, report.settings)
        if waiting:
            logger.warning("changed settings that count from the next start on: %s", ", ".join(waiting))
        await self.on_change(before, report)
        self.report = report  # what failed half-way is different still when the settings change next


def has_other_rules(before: Settings, now: Settings) -> bool:
    """Whether permission rules may differ. Where they do not, those that people saved meanwhile stay too."""
    return (before.permissions, before.tools) != (now.permissions, now.tools)


def waiting_for_restart(before: Settings, now: Settings) -> list[str]:
    shell = before.shell.model_copy(update={"env": now.shell.env})
    proxy = before.proxy.model_copy(update={"prefix": now.proxy.prefix})  # stands in each entry as well
    web = before.web.model_copy(update={"search": now.web.search})
    before = before.model_copy(update={"shell": shell, "proxy": proxy, "web": web})
    fields = type(now).model_fields
    waiting = [
        field.alias or name
        for name, field in fields.items()
        if name not in LIVE and getattr(before, name) != getattr(now, name)
    ]
    return waiting if before.tools.built_in == now.tools.built_in else [*waiting, "tools.builtIn"]


def withdrawn_agents(at_start: SettingsReport, now: SettingsReport) -> list[str]:
    """The agents that a running server has from a workspace, and that the settings of now do not give like that."""
    files = {file.path for file in at_start.candidates if file.is_in_workspace}
    agents, ours = now.settings.agents, at_start.settings.agents
    brought = [given.path for given in at_start.given if given.source in files]
    named = {str(path[1]) for path in brought if path[0] == "agents"}
    return [name for name, agent in ours.items() if name in named and agents.get(name) != agent]
