"""Runs the official conformance suite against a URL or a client, and reads its results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.fetch import CACHE, SUITE_PACKAGE

SUITE_SECONDS = 200.0
"""Time limit for the suite. It usually takes a few seconds, but a server that hangs delays every scenario."""

PASSING_STATUSES = frozenset({"SUCCESS", "INFO"})
"""Statuses that count as passed. The suite also accepts warnings and skipped checks, but the fixture causes none."""

RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The name of the folder with one scenario's results."""

LOGIN_RESULT = re.compile(r"(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The same for the scenarios of clients."""

UNSCORED_SCENARIOS = {
    "2025-11-25": ("json-schema-2020-12", "server-session-lifecycle"),
    "2026-07-28": ("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
}
"""Further scenarios that concern a proxy. They are not scored, but the fixture passes them."""


def scored_scenarios(revision: str) -> list[str]:
    """Return the scenarios that a server must pass to conform to a revision, as the suite lists them."""
    text = (SUITE_PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    section = re.search(r"^server:\n((?:  - \S+\n)+)", text, re.MULTILINE)
    assert section is not None, "the suite's requirements have an unknown format"
    return re.findall(r"- (\S+)", section[1])


def failures(url: str, revision: str, results: Path) -> dict[str, list[str]]:
    """Run a revision's requirements against a server.

    Args:
        url: The server's endpoint.
        revision: The set of requirements, which determines the scenarios and the protocol revision.
        results: A folder for the suite's output; it is created if it is missing.

    Returns:
        The scenarios that were not passed, with the reasons for each.
    """
    scenarios = [*scored_scenarios(revision), *UNSCORED_SCENARIOS[revision]]
    return _failures(scenarios, results, "--url", url, "--requirements", revision)


def extension_failures(url: str, scenarios: Sequence[str], results: Path) -> dict[str, list[str]]:
    """Run scenarios of extensions, which no revision requires, and return the same as `failures`.

    They are in the suite's set `pending`. The whole set is run once, because starting the suite for each scenario would
    take longer.
    """
    return _failures(scenarios, results, "--url", url, "--suite", "pending")


def _failures(scenarios: Sequence[str], results: Path, *options: str) -> dict[str, list[str]]:
    process = _run("server", *options, "--output-dir", str(results))
    result_folders = {match["scenario"]: path for path in results.glob("*") if (match := RESULT.fullmatch(path.name))}
    assert result_folders, f"the suite ended with code {process.returncode} and without results:\n{process.stdout}"
    reasons = {
        name: _reasons(result_folders[name]) if name in result_folders else ["the scenario was not run"]
        for name in scenarios
    }
    return {name: scenario_reasons for name, scenario_reasons in reasons.items() if scenario_reasons}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    node = Path(sys.executable).with_name("node")
    return subprocess.run(
        [node, SUITE_PACKAGE / "dist" / "index.js", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SUITE_SECONDS,
        check=False,
        env={
            **os.environ,
            "NODE_COMPILE_CACHE": str(CACHE / "compiled"),
        },  # caches the compiled suite, which is one large script
    )


TASKS = tuple(f"tasks-{name}" for name in (
    "lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers",
    "dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition",
))  # fmt: skip
"""The scenarios of the tasks extension."""


LOGIN_SUITES = {
    "2025-03-26": ("backcompat",),
    "2025-11-25": ("all", "--spec-version", "2025-11-25"),
    "2026-07-28": ("all", "--spec-version", "2026-07-28"),
    "extension": ("extensions",),
}
"""The suite's options for the login scenarios of each revision. Extensions belong to no revision."""


REFUSED_LOGINS = frozenset({
    "iss-normalized", "iss-supported-missing", "iss-unexpected", "iss-wrong-issuer", "metadata-issuer-mismatch",
    "resource-mismatch", "scope-retry-limit",
})  # fmt: skip
"""Scenarios that a client passes only if it does not log in."""


def is_login_scenario(name: str) -> bool:
    """Whether a scenario is about logins. Of the extensions, only client credentials are included."""
    return name.startswith("auth/") and not name.startswith(("auth/enterprise-", "auth/dpop", "auth/wif-"))


def login_failures(command: Sequence[str], revision: str, results: Path) -> dict[str, list[str]]:
    """Run the login scenarios against a client, all in one process of the suite.

    Args:
        command: The command that starts the client. Its last two arguments are `results` and the URL that the suite
            appends. The client creates a file in `results` for each scenario in which it fails.
        revision: A key of `LOGIN_SUITES`.
        results: A folder for the output of the suite and the client; it is created if it is missing.

    Returns:
        Every scenario that was run, with the reasons why it was not passed; a scenario that passed has none.
    """
    results.mkdir(exist_ok=True)
    process = _run(
        "client",
        *("--command", " ".join([*command, str(results)]), "--output-dir", str(results)),
        *("--suite", *LOGIN_SUITES[revision]),
    )
    result_folders = {
        match["scenario"]: path for path in results.glob("auth/*") if (match := LOGIN_RESULT.fullmatch(path.name))
    }
    assert result_folders, f"the suite ended with code {process.returncode} and without results:\n{process.stdout}"
    reasons = {name: _reasons(path) for name, path in result_folders.items() if is_login_scenario(f"auth/{name}")}
    for name, scenario_reasons in reasons.items():
        has_failed = (results / name).exists()
        if has_failed != (name in REFUSED_LOGINS):
            scenario_reasons.append("the client has failed" if has_failed else "the client has logged in")
    return reasons


def _reasons(folder: Path) -> list[str]:
    checks: list[dict[str, Any]] = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
    if not checks:
        return ["nothing was checked"]
    return [
        f"{check['id']}: {check['status']}: {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in PASSING_STATUSES
    ]
