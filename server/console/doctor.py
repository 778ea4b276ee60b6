"""`doctor`: what works here, all of it looked at side by side, and what to do about the rest."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from importlib import metadata

import anyio

from server.console.findings import Check, Finding, Health
from server.console.machine_checks import (
    check_extras,
    check_git,
    check_python,
    check_ripgrep,
    check_sandbox,
    check_shell,
)
from server.console.settings_checks import (
    check_discovery,
    check_files,
    check_programs,
    check_search,
    check_upstreams,
)
from server.exit_codes import EXIT_FAILED
from server.serving import until_signal
from server.settings import SettingsReport
from tools.display import visible_line

CHECK_SECONDS = 40.0
"""How long one check may take (ours); those that take long have a limit of their own below it."""

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

COLUMNS = 80
"""Columns of the output (ours)."""


def examine(report: SettingsReport, problems: Sequence[str], *, as_json: bool) -> int:
    """Print what works. Exit code 1 if something does not that was configured.

    Args:
        report: The settings; the defaults where those that are given cannot be used.
        problems: Why they cannot be used.
        as_json: Whether as JSON.
    """
    return anyio.run(until_signal, partial(_examine, report, problems, as_json))


async def _examine(report: SettingsReport, problems: Sequence[str], as_json: bool) -> int:
    remedy = "mend it; the server does not start before, and all else here is looked at with the defaults"
    findings = [Finding("settings", Health.BROKEN, problem, remedy) for problem in problems]
    findings += await findings_of(report, [check for check in ALL_CHECKS if not problems or check is not check_files])
    is_usable = not any(finding.health is Health.BROKEN for finding in findings)
    sys.stdout.write(_as_json(findings, is_usable) if as_json else _as_text(findings, is_usable))
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


def _as_json(findings: Sequence[Finding], is_usable: bool) -> str:
    listed = [
        {"subject": found.subject, "health": found.health.value, "text": found.text, "remedy": found.remedy}
        for found in findings
    ]
    whole = {"version": metadata.version("coretools-mcp"), "usable": is_usable, "findings": listed}
    return json.dumps(whole, indent=2) + "\n"


def _as_text(findings: Sequence[Finding], is_usable: bool) -> str:
    lines = [f"coretools-mcp {metadata.version('coretools-mcp')}", ""]
    for found in findings:
        first = f"{found.health:<7} {visible_line(found.subject)}: "
        lines += _wrapped(first + visible_line(found.text))
        if found.remedy:
            lines += _wrapped(f"{'':<7} -> {visible_line(found.remedy)}")
    lines += ["", "All that is configured works." if is_usable else "What is marked broken was configured."]
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False)
