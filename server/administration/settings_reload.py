"""Applies settings that change while the server runs. Some take effect at once, the others at the next start.

The files are polled once a second, which works on every file system and is cheap.
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

# The polling interval. A change takes effect once two checks in a row see the same state of the file, which
# gives an editor time to finish writing.
POLL_SECONDS = 1.0
# After this many checks, a change takes effect even if the file keeps changing; otherwise a constantly changing file
# could keep a rule from taking effect.
MAX_POLLS = 4
FileMark = tuple[int, int, int, int] | None  # identifies the state of a file; `None` if there is no file


async def new_settings(report: SettingsReport, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[SettingsReport]:
    """Yield the new settings after each change to a file that they come from. Invalid settings are only logged."""
    inputs = report.inputs
    if inputs is None:
        return
    stores = [path for path in (trust_file(inputs.environ), report.lock and report.lock.path) if path]

    def stat_files() -> dict[str, FileMark]:
        # A pipe, such as a shell's `<(...)`, is not watched, because it can be read only once.
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

    read_marks: dict[str, FileMark] = {}  # empty, so all files are read again: they may have changed since startup
    previous_marks: Mapping[str, FileMark] = {}
    polls: dict[str, int] = {}  # for each changed file, the number of checks that saw the change
    while True:
        await anyio.sleep(poll_seconds)
        try:
            marks = await THREADS.run(stat_files)
            polls = {path: polls.get(path, 0) + 1 for path, mark in marks.items() if read_marks.get(path, ()) != mark}
            stable = {path for path, mark in marks.items() if previous_marks.get(path, ()) == mark}
            due = {path for path, count in polls.items() if count >= MAX_POLLS or path in stable}
            previous_marks = marks
            if not due:
                continue
            # If the lock file was written, somebody may have approved tools, even if its content is the same.
            is_lock_rewritten = report.lock is not None and report.lock.path in due & read_marks.keys()
            read_marks |= {path: marks[path] for path in due}
            polls = {path: count for path, count in polls.items() if path not in due}
            new_report = await THREADS.run(partial(read_settings, inputs, report))
        except SettingsError as error:
            for problem in error.problems:
                logger.warning("the settings changed but are not valid, so the previous ones still apply: %s", problem)
            continue
        except Exception:
            logger.exception(
                "the settings changed but could not be read because of an internal error, so the previous ones still "
                "apply"
            )
            continue
        if new_report == report and not is_lock_rewritten:
            continue
        for warning in new_report.warnings:
            if warning not in report.warnings:
                logger.warning(warning)
        report = new_report
        yield report


# The sections in which changes take effect at once, except for `tools.builtIn`. In the other sections, only
# `shell.env`, `proxy.prefix`, `proxy.requirePins` and `web.search` do.
LIVE = frozenset({"mcp_servers", "mcp", "permissions", "tools"})


class WithdrawnAgent(Rule):
    """Refuses an agent that a workspace defines, because its definition has changed since startup."""

    __slots__ = ()

    def __str__(self) -> str:
        return "the workspace settings that define this agent have changed, or are no longer trusted"


@dataclass
class LiveSettings:
    """Applies changed settings. What users have allowed for a session stays allowed."""

    report: SettingsReport
    registry: ToolRegistry
    policy: PermissionPolicy
    pool: UpstreamPool
    on_change: Callable[[SettingsReport, SettingsReport], Awaitable[None]]
    """Called with the previous and the new settings."""

    def __post_init__(self) -> None:
        self._at_start = self.report
        self._disabled: frozenset[str] = frozenset()  # aliases of servers that a person has switched off
        self._tasks: TaskGroup | None = None

    def switch(self, alias: str, *, is_on: bool) -> None:
        """Switch a configured server off or on, until this server shuts down."""
        self._disabled = self._disabled - {alias} if is_on else self._disabled | {alias}
        if self._tasks is not None:
            self.pool.change(self._enabled_upstreams(self.report), self._tasks)

    @property
    def switched_off(self) -> list[str]:
        return [alias for alias in self.report.upstreams if alias in self._disabled]

    def _enabled_upstreams(self, report: SettingsReport) -> dict[str, UpstreamSettings]:
        return {alias: entry for alias, entry in report.upstreams.items() if alias not in self._disabled}

    async def follow(self, tasks: TaskGroup) -> None:
        """Apply every change to the settings files until cancelled. Errors are logged; later changes still apply."""
        self._tasks = tasks
        async for report in new_settings(self.report):
            try:
                await self.apply(report, tasks)
            except Exception:
                logger.exception("changed settings could not be applied completely because of an internal error")

    async def apply(self, report: SettingsReport, tasks: TaskGroup) -> None:
        previous = self.report
        logger.info("the settings have changed")
        self.policy.guarded = await THREADS.run(lambda: guarded_paths(report))
        rules = self.policy.rules
        if has_other_rules(previous.settings, report.settings):
            rules = permission_policy(report, self.registry).rules
        withdrawn = withdrawn_agents(self._at_start, report)
        deny = [rule for rule in rules.deny if not isinstance(rule, WithdrawnAgent)]
        tools = frozenset({DELEGATING})
        refusals = [
            WithdrawnAgent(f"Agent({name})", "agents", Verdict.DENY, DELEGATING, tools, AgentSpecifier(name.casefold()))
            for name in withdrawn
        ]
        # Assign all rules at once, so that each call is judged by the old rules or the new ones, never by a mixture.
        self.policy.rules = replace(rules, deny=(*refusals, *deny))
        if withdrawn:
            logger.warning("workspace agents that are now refused: %s", ", ".join(withdrawn))
        self.pool.left_out, self.pool.written = report.left_out, report.written
        self.pool.change(self._enabled_upstreams(report), tasks)
        await self.pool.use_lock(await THREADS.run(partial(read_lock, report.lock, report.command_options)))
        waiting = waiting_for_restart(previous.settings, report.settings)
        if waiting:
            logger.warning("changed settings that take effect at the next start: %s", ", ".join(waiting))
        await self.on_change(previous, report)
        self.report = report  # set last, so that after a failure the next change is compared with the old settings


def has_other_rules(previous: Settings, current: Settings) -> bool:
    """Return whether the rules may differ. If not, the current rules stay, including any saved in the meantime."""
    return (previous.permissions, previous.tools) != (current.permissions, current.tools)


def waiting_for_restart(previous: Settings, current: Settings) -> list[str]:
    shell = previous.shell.model_copy(update={"env": current.shell.env})
    # These have an effect on each upstream's entry, and entries change at once.
    proxy = {"prefix": current.proxy.prefix, "require_pins": current.proxy.require_pins}
    proxy = previous.proxy.model_copy(update=proxy)
    web = previous.web.model_copy(update={"search": current.web.search})
    previous = previous.model_copy(update={"shell": shell, "proxy": proxy, "web": web})
    waiting = [
        field.alias or name
        for name, field in type(current).model_fields.items()
        if name not in LIVE and getattr(previous, name) != getattr(current, name)
    ]
    return waiting if previous.tools.built_in == current.tools.built_in else [*waiting, "tools.builtIn"]


def withdrawn_agents(initial: SettingsReport, current: SettingsReport) -> list[str]:
    """Return the agents that workspace settings defined at startup but that are now missing or defined differently."""
    files = {file.path for file in initial.candidates if file.is_in_workspace}
    agents, initial_agents = current.settings.agents, initial.settings.agents
    workspace_paths = [setting.path for setting in initial.values if setting.source in files]
    agent_names = {str(path[1]) for path in workspace_paths if path[0] == "agents"}
    return [name for name, agent in initial_agents.items() if name in agent_names and agents.get(name) != agent]
