"""The services that tools need, built from the settings: policy, page fetcher, commands, programs, custom tools."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from server.requests.call_contexts import SESSION_KEYS
from server.settings import Settings, SettingsReport
from server.settings.layers import FileState
from server.settings.load import COMMAND_LINE, working_folder
from server.settings.rule_names import rule_lists, rules_of_principals, unknown_names
from server.settings.section_model import dotted
from server.settings.settings_files import home_folder, real_path, runtime_folders
from server.settings.tool_models import WebSettings
from server.settings.workspace_trust import trust_file, trusted_files
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_errors import ExhaustedError
from tools.files.workspace import SCRATCH_NAME, Scratch
from tools.machine.unlocked_cached_property import cached_property
from tools.memory.memory_files import is_memory_name
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import read_rules
from tools.permissions.protected_files import GuardedPaths
from tools.permissions.tool_names import GROUPS
from tools.shell.job_table import JobTable
from tools.shell.private_folders import WORK, PrivateFolders
from tools.skill_folders import SkillFolders

if TYPE_CHECKING:
    from tools.builtin.discovered_tools import Discovery
    from tools.files.change.journal import Journal
    from tools.lsp.code_intelligence import CodeIntelligence
    from tools.lsp.language_servers import ServerPrograms
    from tools.shell.brokered_starter import BrokeredStarter
    from tools.shell.command_runner import CommandRunner, ProgramRunner, StartQueue
    from tools.shell.loopback import SessionLoopbacks
    from tools.shell.sandbox.bubblewrap import BubblewrapConfinement
    from tools.web.page_fetcher import PageFetcher

logger = logging.getLogger(__name__)

# Settings with tool rules, and the command-line options for them
FLAGS = {"tools.include": "--include-tools", "tools.exclude": "--exclude-tools"}
_NO_SESSION = "This client has no session, so each of its commands has its own /tmp, and file tools have none."
_ONE_CALL = "This server ends with the call, and each of its commands has its own /tmp, so file tools have none."
CLOSE_SECONDS = 5.0  # limit at shutdown for stopping commands (the broker kills the rest) and for removing folders


def page_fetcher(settings: WebSettings) -> Callable[[], PageFetcher]:
    """Return a function that creates a page fetcher on its first call, and later returns the same one."""

    @cache
    def fetcher() -> PageFetcher:
        from tools.web.page_fetcher import PageFetcher  # noqa: PLC0415
        from tools.web.url_opener import UrlOpener  # noqa: PLC0415 - loaded with the first page

        return PageFetcher(UrlOpener(settings.for_tools()))

    return fetcher


class LazyJournal:
    """The journal of changes, opened when it is first needed.

    The attribute `open` is a function that returns the journal, or `None` if the journal is off or has no folder.
    """

    def __init__(self, report: SettingsReport) -> None:
        self._undo, self._folder = report.settings.undo, report.state_folder
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self.open = self._open if self._undo.enabled and self._folder is not None else None

    def _open(self) -> Journal:
        from tools.files.change.journal import Journal  # noqa: PLC0415 - loaded on first use

        with self._lock:
            if self._journal is None:
                undo = self._undo
                self._journal = Journal(self._folder or "", undo.max_bytes, undo.max_days, undo.max_file_bytes)
            return self._journal

    def close(self) -> None:
        """Close the journal's file. This call blocks."""
        if self._journal is not None:
            self._journal.close()


def audit_file(report: SettingsReport) -> str | None:
    audit = report.settings.log.audit
    return os.path.abspath(os.path.expanduser(audit)) if audit is not None else None


def skill_folders(report: SettingsReport) -> SkillFolders:
    """Return the skill folders in the user's home folder and in the trusted parts of workspaces."""
    if report.inputs is None:
        return SkillFolders()
    environ = report.inputs.environ
    return SkillFolders(home_folder(environ), partial(trusted_files, environ))


def guarded_paths(report: SettingsReport) -> GuardedPaths:
    """Return the files that are written only with a person's consent. This blocks, because links are resolved.

    These are the files that configure the server or will configure it once they exist; the trust record; the lock file;
    the audit log; and everything in this program's settings and state folders, except for the memory that tools write
    there.
    """
    # Workspace files have no effect until a person trusts them.
    files = [file.path for file in report.candidates if not file.is_in_workspace or file.state is FileState.READ]
    other_files = [audit_file(report)]
    if report.inputs is not None:
        other_files += [trust_file(report.inputs.environ), report.lock.path if report.lock is not None else None]
        files += [*report.inputs.config_files, *report.inputs.links.values()]
    files += filter(None, other_files)
    exempt_files: list[str] = []
    memory, own = report.settings.memory, report.own_folder
    folder = memory.global_folder or own
    if folder is not None:
        path = os.path.join(folder, memory.file_name[0])
        # An unresolvable link does not lead to a memory file.
        with suppress(OSError, ValueError):
            # The path and its real path must both name a memory file, so that a link makes no other file writable.
            if is_memory_name(path) and is_memory_name(os.path.realpath(path)):
                exempt_files.append(path)
    return GuardedPaths(files, [path for path in (own, report.state_folder) if path is not None], exempt_files)


def permission_policy(report: SettingsReport, registry: ToolRegistry) -> PermissionPolicy:
    """Return the permission policy that the settings define. Invalid rules are logged."""
    on_command_line = {dotted(setting.path) for setting in report.values if setting.source == COMMAND_LINE}
    flags = {key: flag for key, flag in FLAGS.items() if key in on_command_line}
    rules, warnings = read_rules(rule_lists(report.settings), registry.canonical, report.home, flags)
    rules = replace(rules, profile=report.settings.tools.profile)
    is_sandboxed = report.settings.permissions.sandboxed_commands == "allow"
    policy = PermissionPolicy(rules, registry.canonical, report.home, guarded_paths(report), is_sandboxed)
    for rights in rules_of_principals(report.settings):
        warnings += policy.read_rules_of(rights)[1]
    warnings += unknown_names(report)
    for warning in warnings:
        logger.warning(warning)
    return policy


class Commands:
    """Runs commands and programs, with everything that they need. Each process is started only when it is needed."""

    def __init__(self, report: SettingsReport, *, keeps_tmp: bool = True) -> None:
        self._report = report
        self._keeps_tmp = keeps_tmp
        self._shell = report.settings.shell
        caches = os.path.join(report.state_folder, "caches") if report.state_folder is not None else None
        # A folder is created only when it is needed.
        self.folders = PrivateFolders(
            caches=caches, comes_back=lambda key: bool(key) and not key.startswith(SESSION_KEYS)
        )
        self._runner: CommandRunner | None = None
        self._programs: ProgramRunner | None = None
        self.code_intelligence: CodeIntelligence | None = None
        self.consented: dict[str, str] = {}
        """Real paths of files that tools wrote with consent, with the SHA-256 of the content."""

    def change(self, settings: Settings) -> None:
        """Use the changed `shell.env` from the next command on. Running commands are not affected."""
        if settings.shell.env != self._shell.env:
            self._shell = self._shell.model_copy(update={"env": settings.shell.env})
            self._runner = None  # the next command creates it again

    @cached_property
    def _starter(self) -> BrokeredStarter:
        from tools.shell.brokered_starter import BrokeredStarter  # noqa: PLC0415 - loaded with the first process

        return BrokeredStarter()

    @cached_property
    def _loopbacks(self) -> SessionLoopbacks:
        from tools.shell.loopback import SessionLoopbacks  # noqa: PLC0415 - loaded with the first command

        return SessionLoopbacks(self._starter)

    @cached_property
    def _queue(self) -> StartQueue:
        from tools.shell.command_runner import StartQueue  # noqa: PLC0415 - loaded with the first program

        return StartQueue()

    @cached_property
    def confinement(self) -> BubblewrapConfinement:
        """The sandbox for commands, as configured at startup."""
        from tools.shell.sandbox.bubblewrap import BubblewrapConfinement, SandboxMode  # noqa: PLC0415 - loaded on first use
        from tools.shell.sandbox.landlock_and_seccomp import LandlockConfinement  # noqa: PLC0415
        from tools.shell.sandbox.visible_file_system import Site  # noqa: PLC0415

        report, shell = self._report, self._report.settings.shell
        if report.state_folder is not None:
            with suppress(OSError):  # the sandbox can hide only folders that exist
                os.makedirs(report.state_folder, 0o700, exist_ok=True)
        own_files = (*report.files, *([report.lock.path] if report.lock else ()))
        own_files += tuple(report.inputs.links.values()) if report.inputs is not None else ()
        site = Site(
            report.home,
            hidden=(
                *filter(None, (report.own_folder, report.state_folder)),
                *runtime_folders(os.environ),
                self.folders.path,
            ),
            read_only=tuple(map(os.path.abspath, own_files)),
            readable=shell.readable,
            writable=shell.writable,
            keeps_tmp=self._keeps_tmp,
        )
        return BubblewrapConfinement(
            SandboxMode(shell.sandbox),
            site,
            self._starter,
            self.folders,
            os.environ.get("PATH", os.defpath),
            consented_digests=self.consented,
            loopbacks=self._loopbacks,
            landlock=LandlockConfinement(self._starter, self.folders),
        )

    async def are_confined(self, roots: Sequence[str]) -> bool:
        """Return whether commands are certain to run in the sandbox."""
        return self._shell.sandbox != "off" and (await self.confinement.status(roots)).failure is None

    async def why_no_scratch(self, roots: Sequence[str]) -> str:
        """Return why commands have no `/tmp` of their own, as a sentence; empty if they have one, or if unknown."""
        with suppress(ExhaustedError):
            if failure := (await self.confinement.status(roots)).failure:
                return f"There is no private /tmp, because commands do not run in bubblewrap: {failure}."
        return ""

    def runner(self) -> CommandRunner:
        """Return the command runner, created at first use, because many servers never run commands."""
        if self._runner is not None:
            return self._runner
        from tools.shell.command_environment import command_environment  # noqa: PLC0415 - loaded with the first command
        from tools.shell.command_runner import CommandRunner, ShellOptions  # noqa: PLC0415

        shell = self._shell
        options = ShellOptions(
            environment=command_environment(shell.env, os.environ),
            timeout_seconds=shell.timeout / 1000,
            silence_seconds=shell.silence_timeout / 1000,
            max_concurrent=shell.max_concurrent,
            has_network=shell.network == "host",
        )
        self._runner = CommandRunner(self._starter, self.confinement, options, self.folders, self._queue)
        return self._runner

    def programs(self) -> ProgramRunner:
        from tools.shell.command_runner import ProgramRunner  # noqa: PLC0415 - loaded with the first program

        self._programs = self._programs or ProgramRunner(self._starter, self.folders, queue=self._queue)
        return self._programs

    def language_servers(self) -> ServerPrograms:
        """Return where to find language servers: in the settings, in `PATH`, and in trusted parts of workspaces."""
        from tools.lsp.language_servers import ServerPrograms  # noqa: PLC0415 - loaded with the first tool list

        configured = self._report.settings.lsp.for_tools()
        return ServerPrograms(os.environ.get("PATH", os.defpath), configured, partial(trusted_files, os.environ))

    @cached_property
    def has_language_servers(self) -> bool:
        """Whether there is any language server; checked once."""
        roots = self._report.settings.workspace.roots or (working_folder() or os.sep,)
        return sys.platform != "win32" and self.language_servers().are_any([*map(real_path, roots)])

    def code(self, policy: PermissionPolicy) -> CodeIntelligence:
        """Return the client for language servers, created at first use."""
        if self.code_intelligence is None:
            from tools.lsp.code_intelligence import CodeIntelligence  # noqa: PLC0415 - loaded on first use
            from tools.shell.command_environment import command_environment  # noqa: PLC0415

            self.code_intelligence = CodeIntelligence(
                self.language_servers(),
                self._starter,
                self.confinement,
                self.folders,
                lambda: command_environment(self._shell.env, os.environ),
                self._report.home,
                policy.kept_from_readers,
                after_edit=self._report.settings.lsp.after_edit,
            )
        return self.code_intelligence

    def output_folder(self, client_key: str) -> tuple[str, ...]:
        folder = self.folders.path_of(client_key)
        return (folder,) if folder is not None else ()

    def scratch(self, client_key: str) -> tuple[Scratch | str, Scratch | str]:
        """Return the scratch folders of a client, as `Client.scratch` describes."""

        def scratch(path: str | None) -> Scratch | str:
            if path is None:
                return _NO_SESSION
            if not self._keeps_tmp:
                return _ONE_CALL
            work = os.path.join(os.path.dirname(path), WORK)
            return Scratch(path, partial(self.folders.make_scratch, path), work)

        if sys.platform != "linux" or self._shell.sandbox == "off" or os.path.realpath(SCRATCH_NAME) != SCRATCH_NAME:
            return "", ""  # commands see the machine's /tmp
        own, plans = (self.folders.scratch_of(client_key, is_plan=is_plan) for is_plan in (False, True))
        return scratch(own), scratch(plans)

    async def forget(self, client_key: str, jobs: JobTable | None) -> None:
        if jobs is not None:
            await jobs.aclose()
        if "_loopbacks" in self.__dict__:
            self._loopbacks.forget(client_key)
        self.folders.forget(client_key)

    async def aclose(self, tables: Iterable[JobTable]) -> None:
        """Stop jobs and language servers, then the process that starts programs, and remove the private folders."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for jobs in tables:
                        group.start_soon(jobs.aclose)
                    if self.code_intelligence is not None:
                        group.start_soon(self.code_intelligence.aclose)
            if "_loopbacks" in self.__dict__:
                self._loopbacks.close()
            if "_starter" in self.__dict__:
                await self._starter.aclose()
            with anyio.move_on_after(CLOSE_SECONDS):
                await self.folders.aclose()
            if "confinement" in self.__dict__:
                self.confinement.close()


class CustomTools:
    """Keeps the discovery command's tools in the registry. Without such a command, nothing is imported."""

    def __init__(
        self, settings: Settings, commands: Commands, registry: ToolRegistry, reserved_names: Iterable[str] = ()
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._registry = registry
        self._reserved = frozenset((*registry.names(), *reserved_names, *GROUPS))
        self._folder = working_folder() or os.sep
        self._environment: dict[str, str] = {}
        self.discovery = self._create_discovery(settings) if settings.tools.discovery_command is not None else None

    def start(self, tasks: TaskGroup) -> None:
        """Start the first discovery, if there is a discovery command. Later calls do nothing."""
        if self.discovery is not None:
            self.discovery.start(tasks)

    def change(self, settings: Settings, tasks: TaskGroup) -> None:
        if self.discovery is not None:
            self._set_environment(settings.shell.env)
            self.discovery.change(settings.tools.for_tools(), tasks)
        elif settings.tools.discovery_command is not None:
            self.discovery = self._create_discovery(settings)
            self.discovery.start(tasks)

    def _set_environment(self, variables: Mapping[str, str]) -> None:
        """Update the environment of custom tools' programs, so that those started from now on get these variables."""
        from tools.shell.command_environment import command_environment  # noqa: PLC0415 - loaded only with a discovery command

        environment = command_environment(variables, os.environ)
        for name in self._environment.keys() - environment.keys():
            del self._environment[name]
        self._environment.update(environment)

    def _create_discovery(self, settings: Settings) -> Discovery:
        from tools.builtin.discovered_tools import GROUP, Discovery  # noqa: PLC0415 - loaded only with a discovery command
        from tools.builtin.task import TaskTool  # noqa: PLC0415 - loaded only with a discovery command
        from tools.discovery.discovery_commands import ProgramSite  # noqa: PLC0415 - loaded on first use

        roots = tuple(real_path(root) for root in self._settings.workspace.roots)
        self._set_environment(settings.shell.env)
        site = ProgramSite(self._commands.programs, self._environment, roots[0] if roots else self._folder, roots)
        wait_seconds = self._settings.proxy.first_list_wait / 1000
        # Even without agents, a rule about `task` must not apply to another tool.
        reserved_names = self._reserved | {GROUP, TaskTool.name, *TaskTool.aliases}
        return Discovery(settings.tools.for_tools(), self._registry, site, reserved_names, wait_seconds)
