"""Running the official conformance suite against a URL or a client, and reading what it found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.conformance.fetch import SUITE_PACKAGE

SUITE_SECONDS = 200.0
"""The suite takes a few; what hangs in many scenarios is ended here."""

GOOD = frozenset({"SUCCESS", "INFO"})
"""The suite itself lets warnings and skipped checks pass; against the fixture there are none of either."""

RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The folder of one scenario's results."""

ALSO_PASSED = {
    "2025-11-25": ("json-schema-2020-12", "server-session-lifecycle"),
    "2026-07-28": ("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
}
"""Scenarios beyond the scored ones that concern a proxy, and that the fixture passes."""


def scored_scenarios(revision: str) -> list[str]:
    """The scenarios that a server has to pass to conform to a revision, as the suite lists them."""
    text = (SUITE_PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    listed = re.search(r"^server:\n((?:  - \S+\n)+)", text, re.MULTILINE)
    assert listed is not None, "the suite's requirements have another form than they had"
    return re.findall(r"- (\S+)", listed[1])


def failures(url: str, revision: str, results: Path) -> dict[str, list[str]]:
    """Run a revision's requirements against a server.

    Args:
        url: The server's endpoint.
        revision: Which set of requirements; it fixes the scenarios and the protocol they are run in.
        results: A folder for what the suite writes; made if it is missing.

    Returns:
        The scenarios that were not passed, with the reasons of each.
    """
    wanted = [*scored_scenarios(revision), *ALSO_PASSED[revision]]
    return _failures(wanted, results, "--url", url, "--requirements", revision)


def failures_of_scenario(url: str, scenario: str, results: Path, *options: str) -> dict[str, list[str]]:
    """Run one scenario that is in no set of requirements; what it returns is as for `failures`."""
    return _failures([scenario], results, "--url", url, "--scenario", scenario, *options)


def _failures(wanted: Sequence[str], results: Path, *options: str) -> dict[str, list[str]]:
    done = _run("server", *options, "--output-dir", str(results))
    found = {match["scenario"]: path for path in results.glob("*") if (match := RESULT.fullmatch(path.name))}
    assert found, f"the suite ended with code {done.returncode} and without results:\n{done.stdout}"
    reasons = {name: _reasons(found[name]) if name in found else ["it was not run"] for name in wanted}
    return {name: told for name, told in reasons.items() if told}


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
    )


TASKS = (
    "lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers",
    "dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition",
)  # fmt: skip
"""The scenarios of the tasks extension, which no revision requires."""


def failures_of_tasks(url: str, results: Path) -> dict[str, list[str]]:
    """Run the scenarios of the tasks extension against a server, two at a time: they mostly wait.

    Returns:
        The scenarios that were not passed, with the reasons of each.
    """

    def run(name: str) -> dict[str, list[str]]:
        return failures_of_scenario(url, f"tasks-{name}", results / name)

    with ThreadPoolExecutor(2) as threads:
        found = threads.map(run, TASKS)
        return {name: reasons for each in found for name, reasons in each.items()}


def login_scenarios(revision: str) -> list[str]:
    """The scenarios of logins of a revision, as the suite lists them; `extension` has those of client credentials.

    Others are of extensions that we do not have.
    """
    listed = re.findall(r"- auth/(\S+) \[(\S+)\]", _run("list").stdout)
    ours = [name for name, where in listed if revision in where.split(",")]
    return [name for name in ours if revision != "extension" or name.startswith("client-credentials-")]


def failures_of_logins(command: Sequence[str], revision: str, results: Path) -> dict[str, list[str]]:
    """Run the scenarios of logins against a client, two at a time: programs that start and wait for each other.

    Args:
        command: Starts the client; the suite adds the address of its server.
        revision: Which scenarios, as for `login_scenarios`.
        results: A folder for what the suite writes; made if it is missing.

    Returns:
        The scenarios that were not passed, with the reasons of each.
    """
    options = () if revision == "extension" else ("--spec-version", revision)

    def run(name: str) -> tuple[str, list[str]]:
        place = results / name
        client = ("client", "--command", " ".join(command), "--scenario", f"auth/{name}")
        done = _run(*client, *options, "--output-dir", str(place))
        checks = list(place.rglob("checks.json"))
        reasons = _reasons(checks[0].parent) if checks else ["it was not run"]
        if done.returncode and not reasons:
            reasons = ["the client has failed"]
        return name, [*reasons, done.stdout] if reasons else []

    with ThreadPoolExecutor(2) as threads:
        return {name: reasons for name, reasons in threads.map(run, login_scenarios(revision)) if reasons}


def _reasons(folder: Path) -> list[str]:
    checks: list[dict[str, Any]] = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
    if not checks:
        return ["nothing was checked"]
    return [
        f"{check['id']}: {check['status']}: {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in GOOD
    ]
