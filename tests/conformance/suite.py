"""Running the official conformance suite against a URL or a client, and reading what it found."""

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
"""The suite takes a few; what hangs in many scenarios is ended here."""

GOOD = frozenset({"SUCCESS", "INFO"})
"""The suite itself lets warnings and skipped checks pass; against the fixture there are none of either."""

RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The folder of one scenario's results."""

LOGIN_RESULT = re.compile(r"(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The same, of a client's scenario."""

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


def failures_of_extensions(url: str, wanted: Sequence[str], results: Path) -> dict[str, list[str]]:
    """Run the scenarios of extensions, which no revision requires; what it returns is as for `failures`.

    They are in the suite's set `pending`, which is run whole: its start costs more than the others in it.
    """
    return _failures(wanted, results, "--url", url, "--suite", "pending")


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
        env={**os.environ, "NODE_COMPILE_CACHE": str(CACHE / "compiled")},  # the suite is one large script
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
"""Which of the suite's sets holds the scenarios of logins of a revision; the extensions stand in none."""


REFUSED_LOGINS = frozenset({
    "iss-normalized", "iss-supported-missing", "iss-unexpected", "iss-wrong-issuer", "metadata-issuer-mismatch",
    "resource-mismatch", "scope-retry-limit",
})  # fmt: skip
"""Scenarios that a client passes by not logging in."""


def is_login_scenario(name: str) -> bool:
    """Whether a scenario is one of logins; of the extensions we have client credentials alone."""
    return name.startswith("auth/") and not name.startswith(("auth/enterprise-", "auth/dpop", "auth/wif-"))


def reasons_of_logins(command: Sequence[str], revision: str, results: Path) -> dict[str, list[str]]:
    """Run the scenarios of logins against a client, all at once in one process of the suite.

    Args:
        command: Starts the client, which notes in the folder that is its last argument but one where it has failed;
            the suite adds the address of its server.
        revision: Which scenarios, a key of `LOGIN_SUITES`.
        results: A folder for what the suite and the client write; made if it is missing.

    Returns:
        Every scenario that was run, with the reasons why it was not passed.
    """
    results.mkdir(exist_ok=True)
    done = _run(
        "client",
        *("--command", " ".join([*command, str(results)]), "--output-dir", str(results)),
        *("--suite", *LOGIN_SUITES[revision]),
    )
    found = {match["scenario"]: path for path in results.glob("auth/*") if (match := LOGIN_RESULT.fullmatch(path.name))}
    assert found, f"the suite ended with code {done.returncode} and without results:\n{done.stdout}"
    reasons = {name: _reasons(path) for name, path in found.items() if is_login_scenario(f"auth/{name}")}
    for name, told in reasons.items():
        has_failed = (results / name).exists()
        if has_failed != (name in REFUSED_LOGINS):
            told.append("the client has failed" if has_failed else "the client has logged in")
    return reasons


def _reasons(folder: Path) -> list[str]:
    checks: list[dict[str, Any]] = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
    if not checks:
        return ["nothing was checked"]
    return [
        f"{check['id']}: {check['status']}: {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in GOOD
    ]
